// A timeline whose posts are those of Relay's store.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** What is needed of Relay's Environment. */
export type RelayEnvironment<Operation> = {
  commitPayload: (operation: Operation, payload: any) => void
  commitUpdate: (updater: (store: { delete: (id: string) => void }) => void) => void
  retain: (operation: Operation) => { dispose: () => void }
}

/**
 * Keeps the posts in Relay's store as the timeline has them, under the ids that they have in the API; deletes them when
 * they leave the timeline. The operation is that of a query of node(id) that selects what the timeline's fields do:
 * (id) => createOperationDescriptor(PostQuery, { id }). What it selects is not collected as garbage while the timeline
 * has the post. The timeline's fields select the __typename of whatever the query asks for by a fragment. Returns the
 * way to stop.
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
