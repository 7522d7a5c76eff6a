// Copies the posts of a store into another cache.
import type { Post } from './core.js'
import type { TimelineStore } from './store.js'

/** A cache that stores posts by id. */
export type Cache<P extends Post> = {
  write: (post: P) => unknown
  evict: (postId: string) => unknown
}

/**
 * Writes each post of the store into the cache, again when it changes, and evicts posts that left the timeline. A post that
 * was removed is evicted even if the store does not have it. Posts that the store dropped only because of their age stay in
 * the cache. Returns a function that stops it.
 */
export function mirror<P extends Post>(store: TimelineStore<P>, cache: Cache<P>): () => void {
  let known = new Map<string, { node: P; score: number }>()
  const look = () => {
    const { entries, waiting, next, end, gap, loaded, order } = store.getSnapshot()
    const held = new Map([...entries, ...waiting].map((edge) => [edge.node.id, edge]))
    for (const [id, { node }] of held) if (known.get(id)?.node !== node) cache.write(node)
    // A post in a part of the timeline that was not read may still exist.
    const rest = gap ? (entries.find((e) => e.score < gap.end)?.score ?? -Infinity) : Infinity
    const read = (score: number) => (!next || score >= end) && (!gap || score >= gap.end || score <= rest)
    if (loaded && order === 'LATEST') for (const [id, { score }] of known) if (!held.has(id) && read(score)) cache.evict(id)
    // While a list in another order is being read, the cache still has the earlier posts.
    known = loaded ? held : new Map([...known, ...held])
  }
  look()
  const stops = [
    store.subscribe(look),
    store.subscribeToRemovals((id) => {
      known.delete(id)
      cache.evict(id)
    }),
  ]
  return () => stops.forEach((stop) => stop())
}
