// Texts that people wrote, with links.
import { isTag, tagged } from './tag'

const linked = new RegExp(/\bhttps?:\/\/[^\s<>"“”«»（）【】、。，！？；：]+|(?<![\w@\/.])@\w{1,30}(?![\w@])|/u.source + tagged, 'gu')

/** Removes punctuation and a closing bracket that follow an address but do not belong to it. */
function trim(address: string): string {
  const plain = address.replace(/[.,;:!?'*_~\]]+$/, '')
  return plain.endsWith(')') && !plain.includes('(') ? trim(plain.slice(0, -1)) : plain
}

/** Turns a match into a link. A match that is no tag stays text. */
function link(found: string) {
  if (found[0] === '@') return <a href={`/${found.toLowerCase()}`}>{found}</a>
  if (found[0] === '#' || found[0] === '＃') return isTag(found) ? <a href={`/tag/${encodeURIComponent(found.slice(1))}`}>{found}</a> : found
  return (
    <a href={found} target="_blank" rel="nofollow ugc noopener noreferrer">
      {found}
    </a>
  )
}

/** Draws a text in which web addresses, handles and tags are links. */
export function Words({ text }: { text: string }) {
  const parts = []
  let end = 0
  for (const { 0: match, index } of text.matchAll(linked)) {
    const word = match[0] === 'h' ? trim(match) : match
    parts.push(text.slice(end, index), link(word))
    end = index + word.length
  }
  return (
    <>
      {parts}
      {text.slice(end)}
    </>
  )
}
