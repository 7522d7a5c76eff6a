// What a store holds, told to another cache post by post.
import type { Post } from './core.js'
import type { TimelineStore } from './store.js'

/** A cache that has posts by their ids. */
export type Cache<P extends Post> = {
  write: (post: P) => unknown
  evict: (postId: string) => unknown
}

/**
 * Writes each post into the cache that the store holds, again when it changes, and has those evicted that left the
 * timeline; not those that are no longer held because they are too old. Returns the way to stop.
 */
export function mirror<P extends Post>(store: TimelineStore<P>, cache: Cache<P>): () => void {
  let known = new Map<string, { node: P; score: number }>()
  const look = () => {
    const { entries, waiting, next, end, gap, loaded, order } = store.getSnapshot()
    const held = new Map([...entries, ...waiting].map((edge) => [edge.node.id, edge]))
    for (const [id, { node }] of held) if (known.get(id)?.node !== node) cache.write(node)
    // What lies where nothing was read may still be there.
    const rest = gap ? (entries.find((e) => e.score < gap.end)?.score ?? -Infinity) : Infinity
    const read = (score: number) => (!next || score >= end) && (!gap || score >= gap.end || score <= rest)
    if (loaded && order === 'LATEST') for (const [id, { score }] of known) if (!held.has(id) && read(score)) cache.evict(id)
    // While another list is read, what was held is still in the cache.
    known = loaded ? held : new Map([...known, ...held])
  }
  look()
  return store.subscribe(look)
}
