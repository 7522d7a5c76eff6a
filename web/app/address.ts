// Web addresses in texts that people wrote.

/** The source of a pattern for the flag u: a web address. Punctuation may follow it that does not belong to it. */
export const address = /\bhttps?:\/\/[^\s<>"“”«»（）【】、。，！？；：]+/u.source

/** Removes punctuation and a closing bracket that follow an address but do not belong to it. */
export function trim(found: string): string {
  const plain = found.replace(/[.,;:!?'*_~\]]+$/, '')
  return plain.endsWith(')') && !plain.includes('(') ? trim(plain.slice(0, -1)) : plain
}
