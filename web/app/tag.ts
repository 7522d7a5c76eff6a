// What a tag is, by the rule of the server: see feed/tag/tag.go, and the cases beside it that both are tested with.

const letters = /[\p{L}\p{Nd}\p{Nl}_]/u.source
const within = /[\p{L}\p{Nd}\p{Nl}_\p{M}]/u.source
const betweens = /[\u00AD\u200C\u200D\u2060\u05F3\u05F4\u0F0B\u0F0C\u00B7\u30A0\u30FB\uFF65]/u.source
const word = `${letters}(?:${betweens}*${within})*`

/** A sign that is not within a word or an address, and what may be a tag behind it; for the flag u. */
export const tagged =
  /(?<![\p{L}\p{N}_]|(?![\uFE0E\uFE0F\u20E3])\p{M}|[\p{L}\p{N}][.:][\p{L}\p{N}]\S{0,255}\/)/u.source + `(?!(?<=&)[#＃]${word};)[#＃]${word}`

/** A text in the form in which tags are compared: text.Fold of the server, for the characters that tags have. */
function fold(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replace(/[\p{DI}\uFFF9-\uFFFB]/gu, '')
    .normalize('NFKC')
}

/** Whether what was found is a tag: a letter may be others in the form in which tags are compared. */
export function isTag(found: string): boolean {
  const form = fold(found.slice(1))
  return new RegExp(`^${word}$`, 'u').test(form) && /\p{L}/u.test(form) && [...form].length <= 64
}
