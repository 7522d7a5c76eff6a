// Copies the posts of a timeline into Relay's store.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** The part of Relay's Environment that mirrorToRelay uses. */
export type RelayEnvironment<Operation> = {
  commitPayload: (operation: Operation, payload: any) => void
  commitUpdate: (updater: (store: { delete: (id: string) => void }) => void) => void
  retain: (operation: Operation) => { dispose: () => void }
}

/**
 * Keeps the posts in Relay's store in step with the timeline, under their API ids, and deletes them when they leave the
 * timeline. The operation is built from a query of node(id) that selects the same fields as the timeline:
 * (id) => createOperationDescriptor(PostQuery, { id }). It is retained, and so not garbage collected, while the timeline
 * has the post. The timeline's fields must select __typename of each object that the query selects with a fragment.
 * Returns a function that stops it.
 */
export function mirrorToRelay<P extends Post, Operation>(
  store: TimelineStore<P>,
  environment: RelayEnvironment<Operation>,
  operation: (postId: string) => Operation,
): () => void {
  const retained = new Map<string, { dispose: () => void }>()
  const release = (id: string) => {
    retained.get(id)?.dispose()
    retained.delete(id)
  }
  const stop = mirror(store, {
    write: (post) => {
      const query = operation(post.id)
      if (!retained.has(post.id)) retained.set(post.id, environment.retain(query))
      environment.commitPayload(query, { node: { __typename: 'Post', ...post } })
    },
    evict: (id) => {
      environment.commitUpdate((records) => records.delete(id))
      release(id)
    },
  })
  return () => {
    stop()
    for (const id of [...retained.keys()]) release(id)
  }
}
