// Finds mentions by the rule of the server, which feed/mention/mention.go describes. Both are tested with
// feed/mention/testdata/cases.json.
import { address } from './address'

const word = /[A-Za-z0-9_Ａ-Ｚａ-ｚ０-９＿]/u.source
const invisible = /[\p{DI}\uFFF9-\uFFFB]/u.source
// Scripts that do not separate words by spaces, and the marks of Japanese that belong to no script in Unicode.
const unspaced =
  /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}\u3099\u309A\u30FC\uFF70\uFF9E\uFF9F]/u.source
// A character that makes a mention next to it part of a longer word.
const joining = `(?!${invisible}|${unspaced})` + /[\p{L}\p{Nd}\p{M}_＿@＠]/u.source
// The text before a sign that begins no mention. U+FE0E, U+FE0F and U+20E3 end an emoji, which may be a letter or a digit.
const inside = `(?:(?!\\u20E3)${joining}|[/=])(?:(?![\\uFE0E\\uFE0F])${invisible})*`
// The text after a word that is part of an address.
const elsewhere = /:\/\/|[.:](?:[A-Za-z0-9-]+\.)+[A-Za-z]{2}/u.source

const found = new RegExp(`${address}|(?<!${inside})[@＠](?<handle>${word}{1,30})(?!${invisible}*${joining}|${elsewhere})`, 'gu')

/** How many mentions of a text count: the first ones. */
const max = 30

/** A part of a text that names a user. */
export interface Mention {
  /** In lower case, as users have it. */
  handle: string
  /** The indices of the sign and of the character behind the handle, in UTF-16 units as in all strings. */
  start: number
  end: number
}

/** Returns the mentions of a text in their order. They may name users that do not exist. */
export function mentions(text: string): Mention[] {
  const list: Mention[] = []
  for (const { 0: match, index, groups } of text.matchAll(found)) {
    const handle = groups?.handle?.normalize('NFKC').toLowerCase()
    if (handle && list.push({ handle, start: index, end: index + match.length }) === max) break
  }
  return list
}
