// Copies the posts of a timeline into Apollo's cache.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** The part of Apollo's InMemoryCache that mirrorToApollo uses. */
export type ApolloCache = {
  identify: (object: any) => string | undefined
  writeFragment: (options: any) => unknown
  evict: (options: any) => boolean
  release?: (id: string) => number
  gc: () => unknown
}

/**
 * Keeps the posts in Apollo's cache in step with the store: writes each post with the fragment, and evicts it when it leaves
 * the timeline. The fragment must select the same fields as the store. Both must select __typename, so that Apollo can
 * identify authors by their ids. Returns a function that stops it.
 */
export function mirrorToApollo<P extends Post>(store: TimelineStore<P>, cache: ApolloCache, fragment: unknown, fragmentName?: string): () => void {
  const idOf = (id: string) => cache.identify({ __typename: 'Post', id })
  return mirror(store, {
    write: (post) => void cache.writeFragment({ id: idOf(post.id), fragment, fragmentName, data: { __typename: 'Post', ...post } }),
    evict: (id) => {
      const cached = idOf(id)!
      cache.evict({ id: cached })
      // Each write retained the post. Release it as often, or a later copy from another query would never be collected.
      while (cache.release?.(cached));
      cache.gc()
    },
  })
}
