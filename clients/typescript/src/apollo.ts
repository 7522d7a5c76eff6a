// A timeline whose posts are those of Apollo's cache.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** What is needed of Apollo's InMemoryCache. */
export type ApolloCache = {
  identify: (object: any) => string | undefined
  writeFragment: (options: any) => unknown
  evict: (options: any) => boolean
  release?: (id: string) => number
  gc: () => unknown
}

/**
 * Keeps the posts in the cache as the store has them: written as the fragment says, which selects what the store's fields
 * do, evicted when they leave the timeline. Both select __typename, so that authors are found by their ids. Returns the
 * way to stop.
 */
export function mirrorToApollo<P extends Post>(store: TimelineStore<P>, cache: ApolloCache, fragment: unknown, fragmentName?: string): () => void {
  const idOf = (id: string) => cache.identify({ __typename: 'Post', id })
  return mirror(store, {
    write: (post) => void cache.writeFragment({ id: idOf(post.id), fragment, fragmentName, data: { __typename: 'Post', ...post } }),
    evict: (id) => {
      const cached = idOf(id)!
      cache.evict({ id: cached })
      // Each write kept it from being collected, also when another query brings it back.
      while (cache.release?.(cached));
      cache.gc()
    },
  })
}
