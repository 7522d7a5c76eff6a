// Finds tags by the rule of the server, which feed/tag/tag.go describes. Both are tested with feed/tag/testdata/cases.json.

const letters = /[\p{L}\p{Nd}\p{Nl}_]/u.source
const within = /[\p{L}\p{Nd}\p{Nl}_\p{M}]/u.source
const betweens = /[\u00AD\u200C\u200D\u2060\u05F3\u05F4\u0F0B\u0F0C\u00B7\u30A0\u30FB\uFF65]/u.source
const word = `${letters}(?:${betweens}*${within})*`

/** The source of a pattern, for the flag u: a # outside words and addresses, and the possible tag after it. */
export const tagged =
  /(?<![\p{L}\p{N}_]|(?![\uFE0E\uFE0F\u20E3])\p{M}|[\p{L}\p{N}][.:][\p{L}\p{N}]\S{0,255}\/)/u.source + `(?!(?<=&)[#＃]${word};)[#＃]${word}`

/** The form in which tags are compared. Does the same as text.Fold of the server, for the characters of tags. */
function fold(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replace(/[\p{DI}\uFFF9-\uFFFB]/gu, '')
    .normalize('NFKC')
}

/** The tag for which somebody searches, without its sign, which they may leave out; '' if the text is no tag. */
export function tagFor(text: string): string {
  const signed = text.replace(/^[#＃]?/, '#')
  return new RegExp(`^(?:${tagged})$`, 'u').test(signed) && isTag(signed) ? signed.slice(1) : ''
}

/** Whether a match of tagged is a tag. Checks the folded form, because folding can replace letters by other characters. */
export function isTag(found: string): boolean {
  const form = fold(found.slice(1))
  return new RegExp(`^${word}$`, 'u').test(form) && /\p{L}/u.test(form) && [...form].length <= 64
}
