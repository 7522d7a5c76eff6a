// Copies the posts of a timeline into urql's Graphcache.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** The part of urql's Client that mirrorToUrql uses. */
export type UrqlClient = {
  subscription: (document: string, variables: any) => { subscribe: (onResult: (result: any) => void) => { unsubscribe: () => void } }
}

/** The part of Graphcache that an updater uses. */
export type Graphcache = {
  invalidate: (entity: any) => void
  link: (entity: any, field: string, args: any, to: any) => void
}

type Sink = { next: (result: any) => void; error: (error: any) => void; complete: () => void }
type Forward = (request: any, operation: any) => { subscribe: (sink: any) => { unsubscribe: () => void } }

/** The names of the subscriptions that carry posts and removals to the cache. They are never sent to a server. */
const posts = 'TimelineOfTheKit'
const removals = 'RemovalsOfTheKit'

/**
 * Keeps the posts in Graphcache in step with the timeline. A post that leaves the timeline is invalidated, so that active
 * queries that contain it run again. Graphcache accepts only results of operations, so the posts arrive as results of a
 * subscription that this module answers locally. Build the client from the returned parts:
 *
 *     const posts = mirrorToUrql(timeline, fields)
 *     cacheExchange({ keys: posts.keys, updates: { Subscription: posts.updates } })
 *     subscriptionExchange({ forwardSubscription: posts.forward() })
 *     const stop = posts.start(client)
 *
 * The fields are the same as those of the timeline. They must select __typename of the post and of each object in it,
 * because Graphcache identifies objects by it.
 */
export function mirrorToUrql<P extends Post>(store: TimelineStore<P>, fields: string) {
  // One document per event type: without a schema, Graphcache matches every fragment against the object that it gets.
  const document = (name: string, fragment: string) => `subscription ${name} { timelineEvents { __typename ... on ${fragment} } }`
  const documents = [
    document(posts, `TimelinePostAdded { edge { __typename node { ${fields} } } }`),
    document(removals, 'TimelinePostRemoved { postId }'),
  ]
  const embedded = () => null
  return {
    /** The key functions for Graphcache: objects of the subscription that have no id. */
    keys: { TimelinePostAdded: embedded, TimelinePostRemoved: embedded, TimelineEdge: embedded },
    /** The updaters for Graphcache, under `updates.Subscription`. */
    updates: {
      timelineEvents: ({ timelineEvents: event }: any, _: unknown, cache: Graphcache) => {
        const id = event?.postId ?? event?.edge?.node?.id
        if (!id) return
        const post = { __typename: 'Post', id }
        const removed = event.__typename === 'TimelinePostRemoved'
        if (removed) cache.invalidate(post)
        // The link keeps the post from being garbage collected when no other query refers to it.
        cache.link('Query', 'timelineOfTheKit', { id }, removed ? null : post)
      },
    },
    /** Returns the forwardSubscription of subscriptionExchange. next forwards the app's own subscriptions. */
    forward:
      (next?: Forward): Forward =>
      (request, operation) => {
        const is = (name: string) => String(request.query).includes(`subscription ${name} `)
        const ours = is(posts)
        if (!ours && !is(removals)) {
          if (!next) throw new Error('No way is known for subscriptions other than the timeline: give one to forward().')
          return next(request, operation)
        }
        return {
          subscribe: (sink: Sink) => {
            const tell = (event: object) => sink.next({ data: { timelineEvents: event } })
            const stop = mirror(store, {
              write: (post) => ours && tell({ __typename: 'TimelinePostAdded', edge: { __typename: 'TimelineEdge', node: { __typename: 'Post', ...post } } }),
              evict: (postId) => ours || tell({ __typename: 'TimelinePostRemoved', postId }),
            })
            return { unsubscribe: stop }
          },
        }
      },
    /** Starts copying. Returns a function that stops it. */
    start: (client: UrqlClient): (() => void) => {
      const running = documents.map((document) => client.subscription(document, {}).subscribe(() => {}))
      return () => running.forEach(({ unsubscribe }) => unsubscribe())
    },
  }
}
