// Texts that people wrote, with links.
import { address, trim } from './address'
import { mentions } from './mention'
import { isTag, tagged } from './tag'

const linked = new RegExp(`${address}|${tagged}`, 'gu')

/** Turns an address or a possible tag into a link. A match that is no tag stays text. */
function link(found: string) {
  if (found[0] === '#' || found[0] === '＃') return isTag(found) ? <a href={`/tag/${encodeURIComponent(found.slice(1))}`}>{found}</a> : found
  return (
    <a href={found} target="_blank" rel="nofollow ugc noopener noreferrer">
      {found}
    </a>
  )
}

/** A mention that the server recorded. start is in code points. */
type Recorded = { start: number; user: { handle: string } }

/**
 * Draws a text in which web addresses, mentions and tags are links. A recorded mention leads to its user even if the user
 * has another handle by now, and somebody else the old one.
 */
export function Words({ text, recorded = [] }: { text: string; recorded?: Recorded[] }) {
  const current = (handle: string, start: number) =>
    (recorded.length > 0 && recorded.find((mention) => mention.start === [...text.slice(0, start)].length)?.user.handle) || handle
  const links = [
    ...mentions(text).map(({ handle, start, end }) => ({ start, end, part: <a href={`/@${current(handle, start)}`}>{text.slice(start, end)}</a> })),
    ...Array.from(text.matchAll(linked), ({ 0: match, index }) => {
      const word = match[0] === 'h' ? trim(match) : match
      return { start: index, end: index + word.length, part: link(word) }
    }),
  ].sort((a, b) => a.start - b.start)
  const parts = []
  let at = 0
  for (const { start, end, part } of links) {
    parts.push(text.slice(at, start), part)
    at = end
  }
  return (
    <>
      {parts}
      {text.slice(at)}
    </>
  )
}
