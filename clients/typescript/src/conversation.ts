// ConversationStore reads a post, its ancestors and its replies, and subscribes to the events of the conversation.
import type { Edge, Held, Order, Page, Pending, Post, ReplyOrder, Step } from './core.js'
import { LiveStore, type Draft, type Live, type LiveOptions, type Status } from './live.js'
import { conversationDocuments, postFields, type DefaultPost } from './server.js'

/** An event of the subscription. */
export type ConversationEvent<P extends Post = Post> =
  | { __typename: 'ConversationPostAdded'; position: string; post: Reply<P> }
  /** The post's content or audience changed. */
  | { __typename: 'ConversationPostUpdated'; position: string; post: Reply<P> }
  /** The viewer may no longer see the post, or it was deleted. */
  | { __typename: 'ConversationPostRemoved'; position: string; postId: string }
  | { __typename: 'ConversationInvalidated'; position: string; reason?: string }

/** A post with the fields that the store selects itself. */
export type Reply<P extends Post = DefaultPost> = P & { createdAt: string; replyTo: { id: string } | null }

export type ConversationOptions<P extends Post = DefaultPost> = LiveOptions & {
  /** The post whose replies are read. A repost stands for its original. */
  postId: string
  /** The id of the user who reads; none if nobody is signed in. */
  viewer?: string
  /** Defaults to OLDEST. */
  order?: ReplyOrder
  /** Called with each event of the conversation before the store applies it, also with replies to other posts than this one. */
  onEvent?: (event: ConversationEvent<P>) => void
}

/** The state that a view renders. Each change creates a new one. */
export type Conversation<P extends Post = DefaultPost> = Omit<Live, 'status'> & {
  /**
   * notFound: the post does not exist, or the viewer may not see it. static: nobody is signed in, and the server sends events
   * only to users.
   */
  status: Status | 'notFound' | 'static'
  /** undefined until it has been read, null if it is not found. */
  post: Reply<P> | null | undefined
  /** The posts that lead to it, from the root down. */
  ancestors: Reply<P>[]
  order: ReplyOrder
  /** The direct replies, in this order. */
  replies: Reply<P>[]
  /** Replies that have arrived but are not shown yet, in the same order. With TOP, the newest is first. */
  waiting: Reply<P>[]
  /** The viewer's own replies that the server has not confirmed yet, newest first. */
  pending: Pending[]
  /** The cursor after which the next page begins; null if there is none. */
  next: string | null
  /** Whether the first page has been read. */
  loaded: boolean
}

/**
 * The conversation at a post: the posts that lead to it, the post, and its direct replies. At any depth, a page about one post
 * shows only its direct replies. Their list has three orders, and its cost does not depend on the size of the whole
 * conversation.
 */
export class ConversationStore<P extends Post = DefaultPost> extends LiveStore<Reply<P>, Conversation<P>, ConversationEvent<P>> {
  readonly #id: () => string

  constructor(options: ConversationOptions<P>) {
    const { viewer = '', order = 'OLDEST', onEvent, fields = postFields, fragments = '' } = options
    const documents = conversationDocuments(fields, fragments)
    let id = options.postId
    const subject = ({ around }: Held<Reply<P>>) => around.find((post) => post.id === id)
    // The ids of all ancestors that were read. One that was hidden may be shown again.
    const known = new Set<string>()
    const missing = (held: Held<Reply<P>>) => held.loaded && !subject(held)
    super(options, {
      viewer, order, onEvent, missing,
      events: documents.events,
      create: documents.create,
      snapshot: (held, { status, busy, error }) => {
        const { around, entries, waiting, pending, next, loaded } = held
        const order = held.order as ReplyOrder
        // Without the post nothing of its conversation is shown.
        if (missing(held)) return { status: 'notFound', busy, error, order, loaded, post: null, ancestors: [], replies: [], waiting: [], pending: [], next: null }
        return {
          status: options.token === null ? 'static' : status,
          busy, error, order, loaded, pending, next,
          post: subject(held),
          ancestors: around.filter((post) => post.id !== id),
          replies: nodes(entries),
          waiting: nodes(waiting),
        }
      },
      page: async (request, place, { order }) => {
        const read = async () => (await request('after' in place && place.after ? documents.page : documents.first, { ...place, id, order })).post
        let post = await read()
        if (post?.repostOf) {
          id = post.repostOf.id
          post = await read()
        }
        if (!post) return { edges: [], next: null, position: '', unreadCount: 0 }
        // The ancestors may cost as much as several pages. They are requested separately, and only for a reply.
        const ancestors = post.root ? ((await request(documents.ancestors, { id })).post?.ancestors ?? []) : []
        for (const { id } of ancestors) known.add(id)
        return pageOf({ ...post, ancestors }, order)
      },
      backwards: false,
      variables: () => ({ postId: id }),
      heartbeat: 0,
      field: 'conversationEvents',
      step: (event, held) => stepOf(event, held, id, known),
      created: ({ post, edge }, { order }) => ({ entry: edgeOf(post, order), home: { ...edge, node: post } }),
    })
    this.#id = () => id
  }

  setOrder = (order: ReplyOrder): Promise<void> => this.reorder(order)

  /**
   * Creates a reply to the post, shown as pending at once. Resolves to its entry in the viewer's timeline, for
   * {@link TimelineStore.created}, or to null on failure; the reply then stays in `pending` with its error.
   */
  reply = (text: string, { input, ...options }: Draft = {}): Promise<Edge<Reply<P>> | null> =>
    this.write(text, { ...options, input: { ...input, replyTo: this.#id() } })
}

const nodes = <P extends Post>(list: Edge<P>[]) => list.map(({ node }) => node)

/** Returns the entry of a reply. Entries are sorted by descending score, so in OLDEST the score falls with time. */
function edgeOf<P extends Post>(node: Reply<P>, order: Order | ReplyOrder, cursor = ''): Edge<Reply<P>> {
  const at = Date.parse(node.createdAt)
  return { cursor, score: order === 'OLDEST' ? -at : at, node }
}

function pageOf<P extends Post>({ replies, ancestors, root, repostOf, ...post }: any, order: Order | ReplyOrder): Page<Reply<P>> {
  const { edges, position, pageInfo } = replies
  return {
    edges: edges.map(({ cursor, node }: Edge<Reply<P>>) => edgeOf(node, order, cursor)),
    next: pageInfo.hasNextPage ? pageInfo.endCursor : null,
    position,
    unreadCount: 0,
    around: [...ancestors, post],
  }
}

function stepOf<P extends Post>(event: ConversationEvent<P>, { order, around }: Held<Reply<P>>, id: string, known: Set<string>): Step<Reply<P>> {
  const { position } = event
  switch (event.__typename) {
    case 'ConversationPostAdded':
    case 'ConversationPostUpdated': {
      const { post } = event
      // The post itself or an ancestor was hidden, and is shown again.
      if ((post.id === id || known.has(post.id)) && !around.some((shown) => shown.id === post.id)) return { type: 'event', event: { __typename: 'TimelineInvalidated', position } }
      // A reply to another post of the conversation is not in the list. The event may be about an ancestor, or the post itself.
      if (post.replyTo?.id !== id) return { type: 'passed', position, node: post }
      const edge = edgeOf(post, order)
      return { type: 'event', event: { __typename: event.__typename === 'ConversationPostAdded' ? 'TimelinePostAdded' : 'TimelinePostUpdated', position, edge } }
    }
    case 'ConversationPostRemoved':
      return { type: 'event', event: { __typename: 'TimelinePostRemoved', position, postId: event.postId } }
    case 'ConversationInvalidated':
      return { type: 'event', event: { __typename: 'TimelineInvalidated', position } }
    default: // an event type of a newer server
      return { type: 'passed', position }
  }
}
