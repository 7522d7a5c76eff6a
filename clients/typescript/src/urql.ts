// A timeline whose posts are those of urql's Graphcache.
import type { Post } from './core.js'
import { mirror } from './mirror.js'
import type { TimelineStore } from './store.js'

/** What is needed of urql's Client. */
export type UrqlClient = {
  subscription: (document: string, variables: any) => { subscribe: (onResult: (result: any) => void) => { unsubscribe: () => void } }
}

/** What is needed of Graphcache inside an update. */
export type Graphcache = {
  invalidate: (entity: any) => void
  link: (entity: any, field: string, args: any, to: any) => void
}

type Sink = { next: (result: any) => void; error: (error: any) => void; complete: () => void }
type Forward = (request: any, operation: any) => { subscribe: (sink: any) => { unsubscribe: () => void } }

/** The operations by which the cache is told. They never leave the program. */
const posts = 'TimelineOfTheKit'
const removals = 'RemovalsOfTheKit'

/**
 * Keeps the posts in Graphcache as the timeline has them; what leaves the timeline is invalidated there, so that active
 * queries that show it are made again. Graphcache takes in nothing but results, so the posts come as those of a
 * subscription that this program answers itself. The client is made with its parts:
 *
 *     const posts = mirrorToUrql(timeline, fields)
 *     cacheExchange({ keys: posts.keys, updates: { Subscription: posts.updates } })
 *     subscriptionExchange({ forwardSubscription: posts.forward() })
 *     const stop = posts.start(client)
 *
 * Fields are those of the timeline. They select __typename of the post and of each object in it, for Graphcache finds
 * objects by it.
 */
export function mirrorToUrql<P extends Post>(store: TimelineStore<P>, fields: string) {
  // One for each type, as a cache without a schema takes every fragment for one of the type at hand.
  const document = (name: string, fragment: string) => `subscription ${name} { timelineEvents { __typename ... on ${fragment} } }`
  const documents = [
    document(posts, `TimelinePostAdded { edge { __typename node { ${fields} } } }`),
    document(removals, 'TimelinePostRemoved { postId }'),
  ]
  const embedded = () => null
  return {
    /** The objects of the subscription that have no key of their own. */
    keys: { TimelinePostAdded: embedded, TimelinePostRemoved: embedded, TimelineEdge: embedded },
    /** For Graphcache's updates of Subscription. */
    updates: {
      timelineEvents: ({ timelineEvents: event }: any, _: unknown, cache: Graphcache) => {
        const id = event?.postId ?? event?.edge?.node?.id
        if (!id) return
        const post = { __typename: 'Post', id }
        const removed = event.__typename === 'TimelinePostRemoved'
        if (removed) cache.invalidate(post)
        // A post to which nothing refers any more is collected, also when it was another query that referred to it.
        cache.link('Query', 'timelineOfTheKit', { id }, removed ? null : post)
      },
    },
    /** For the subscriptionExchange: next forwards the subscriptions that are the app's own. */
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
    /** Begins; returns the way to stop. */
    start: (client: UrqlClient): (() => void) => {
      const running = documents.map((document) => client.subscription(document, {}).subscribe(() => {}))
      return () => running.forEach(({ unsubscribe }) => unsubscribe())
    },
  }
}
