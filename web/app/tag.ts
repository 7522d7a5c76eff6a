// What a tag is, by the rule of the server: see feed/tag/tag.go, and the cases beside it that both are tested with.

/** A sign, and what may be a tag behind it; for the flag u. */
export const tagged = /(?<![\p{L}\p{N}_&/]|(?![\uFE0E\uFE0F\u20E3])\p{M})[#＃][\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_]*/u.source

/** Whether what was found is a tag: a letter may be others in the form in which tags are compared. */
export function isTag(found: string): boolean {
  const form = found.slice(1).normalize('NFKC')
  return /^[\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_]*$/u.test(form) && /\p{L}/u.test(form) && [...form.toLowerCase().toUpperCase().normalize('NFKC')].length <= 64
}
