// TimelineStore reads a timeline, subscribes to its events and stores it.
import type { Edge, Held, Order, Post, TimelineEvent } from './core.js'
import { LiveStore, type Draft, type Live, type LiveOptions } from './live.js'
import { defaultFields, documents, type DefaultPost } from './server.js'
import type { Storage } from './storage.js'

export type Options<P extends Post = DefaultPost> = LiveOptions & {
  /** The id of the user. */
  viewer: string
  /** Where the timeline is stored; nowhere by default. */
  storage?: Storage<P>
  /** The interval of the server's heartbeats, in seconds. Defaults to 30; 0 turns them off. */
  heartbeat?: number
  /** Called with each event before the store applies it. */
  onEvent?: (event: TimelineEvent<P>) => void
}

/** The state that a view renders. Each change creates a new one. */
export type Snapshot<P extends Post = DefaultPost> = Held<P> & Live & { order: Order }

/** The home timeline of a user. */
export class TimelineStore<P extends Post = DefaultPost> extends LiveStore<P, Snapshot<P>, TimelineEvent<P>> {
  readonly #read: string

  constructor(options: Options<P>) {
    const { viewer, storage, onEvent, heartbeat = 30, fields = defaultFields, fragments = '' } = options
    const { page, events, create, read } = documents(fields, fragments)
    super(options, {
      viewer, storage, onEvent, heartbeat, events, create,
      order: 'LATEST',
      snapshot: (held, live) => ({ ...(held as Held<P> & { order: Order }), ...live }),
      page: async (request, place, { order }) => {
        const { timeline } = await request(page, { ...place, order })
        const { edges, position, unreadCount, pageInfo } = timeline
        return { edges, position, unreadCount, next: pageInfo.hasNextPage ? (pageInfo.endCursor ?? null) : null }
      },
      backwards: true,
      variables: () => ({ heartbeat: heartbeat || null }),
      field: 'timelineEvents',
      step: (event) => ({ type: 'event', event }),
      missing: () => false,
      created: ({ edge }) => ({ entry: edge, home: edge }),
    })
    this.#read = read
  }

  /** Creates a post, shown as pending at once; input has further fields of CreatePostInput, such as replyTo. Resolves to null on failure; the post then stays with its error. */
  post = (text: string, options: Draft = {}): Promise<Edge<P> | null> => this.write(text, options)

  /** Shows at once, instead of letting it wait, what another part of the program has posted, such as the reply of a conversation. */
  created = (edge: Edge<P>): void => this.apply({ type: 'posted', key: '', edge })

  setOrder = (order: Order): Promise<void> => this.reorder(order)

  /** Moves the read mark to an entry, by default the newest shown. Reports whether it succeeded. */
  markRead = async (upTo: Edge<P> | undefined = this.held.entries[0]): Promise<boolean> => {
    if (!upTo || this.held.order !== 'LATEST') return false
    const answer = await this.ask(this.#read, { input: { upTo: upTo.cursor } }).catch(() => null)
    if (answer) this.apply({ type: 'unread', count: answer.markTimelineRead.unreadCount })
    return answer !== null
  }
}
