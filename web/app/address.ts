// Web addresses in texts that people wrote.

/** The source of a pattern for the flag u: a web address. Punctuation may follow it that does not belong to it. */
export const address = /\bhttps?:\/\/[^\s<>"“”«»（）【】、。，！？；：]+/u.source

const count = (text: string, sign: string) => text.split(sign).length

/** Removes punctuation that follows an address but does not belong to it, and brackets that close more than it opens. */
export function trim(found: string): string {
  let end = found.length
  for (let surplus = count(found, ')') - count(found, '('); end > 0; end--) {
    const last = found[end - 1]!
    if (last === ')' ? surplus-- <= 0 : !".,;:!?'*_~]".includes(last)) break
  }
  return found.slice(0, end)
}
