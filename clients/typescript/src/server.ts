// Requests over HTTP, and the GraphQL documents of timelines and conversations.

/** An error answer of the server. code is the extensions.code of the first error, or '' if no answer came. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

/**
 * Returns the user's current token. Called with a token that the server refused, it returns a new one, or null if the
 * session is over.
 */
export type TokenSource = (refused?: string) => string | null | Promise<string | null>

/** Runs a query or mutation and returns its data; throws a Refusal. */
export type Request = (query: string, variables: Record<string, unknown>) => Promise<any>

/** The timeout of a request in milliseconds: longer than the server's own limit. */
const patience = 35_000

/** Gets tokens from a source. Concurrent calls for a refused token share one renewal. */
export class Tokens {
  #renewal: Promise<string | null> | undefined

  constructor(readonly source: TokenSource) {}

  async get(refused?: string): Promise<string | null> {
    if (refused === undefined) return this.source()
    this.#renewal ??= Promise.resolve(this.source(refused)).finally(() => (this.#renewal = undefined))
    const token = await this.#renewal
    return token === refused ? null : token
  }
}

/** Returns a Request over HTTP. If the token is refused, it renews the token and repeats the request once. */
export function httpRequest(url: string, tokens: Tokens, fetch: typeof globalThis.fetch): Request {
  const send = async (token: string | null, query: string, variables: Record<string, unknown>) => {
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...(token !== null && { Authorization: `Bearer ${token}` }) },
        body: JSON.stringify({ query, variables }),
        signal: AbortSignal.timeout(patience),
      })
      return await response.json()
    } catch {
      throw new Refusal('', 'The server cannot be reached.')
    }
  }
  return async (query, variables) => {
    const token = await tokens.get()
    let answer = await send(token, query, variables)
    if (answer.errors?.[0]?.extensions?.code === 'UNAUTHENTICATED' && token !== null) {
      const renewed = await tokens.get(token)
      if (renewed !== null) answer = await send(renewed, query, variables)
    }
    const error = answer.errors?.[0]
    if (error || !answer.data) throw new Refusal(error?.extensions?.code ?? 'INTERNAL', error?.message ?? 'The server gave no data.')
    return answer.data
  }
}

/**
 * Parses the close reason of a server that is stopping, and returns the delay before reconnecting in milliseconds. Up to a
 * tenth is added at random, so that clients do not all return at once. Undefined: the reason names no delay of at most 60
 * seconds.
 */
export function reconnectDelay(reason: string): number | undefined {
  const said = /^reconnect in (\d{1,5})ms$/.exec(reason)
  return said && +said[1]! <= 60_000 ? +said[1]! * (1 + Math.random() / 10) : undefined
}

/** The fields selected of a post that is no repost. */
export const postFields = 'id text visibility createdAt likeCount viewerHasLiked author { id handle name }'

/** The fields selected of a post by default. A server that does not know one of them refuses every document with it. */
export const defaultFields = `${postFields} repostOf { ${postFields} }`

/** A post with the default fields. */
export type DefaultPost = OriginalPost & { repostOf?: OriginalPost | null }

/** A post that is no repost. */
export type OriginalPost = {
  id: string
  text: string
  visibility: 'PUBLIC' | 'FOLLOWERS' | 'MUTUALS' | 'PRIVATE'
  createdAt: string
  likeCount: number
  viewerHasLiked: boolean
  author: { id: string; handle: string; name: string }
}

/**
 * Returns the GraphQL documents of a timeline with the given post fields and the fragments that these use. A server that
 * executes only trusted documents needs them on its list.
 */
export function documents(fields: string, fragments: string) {
  const entry = `cursor score node { ${fields} }`
  return {
    page: `query Timeline($first: Int, $after: Cursor, $last: Int, $before: Cursor, $order: TimelineOrder!) { timeline(first: $first, after: $after, last: $last, before: $before, order: $order) {
  unreadCount position edges { ${entry} } pageInfo { hasNextPage endCursor } } } ${fragments}`,
    events: `subscription TimelineEvents($after: Cursor, $heartbeat: Int) { timelineEvents(after: $after, heartbeat: $heartbeat, updates: true) { __typename
  ... on TimelinePostAdded { position edge { ${entry} } }
  ... on TimelinePostUpdated { position edge { ${entry} } }
  ... on TimelinePostRemoved { position postId removal: reason }
  ... on TimelineInvalidated { position reason }
  ... on TimelineHeartbeat { position unreadCount lateBy } } } ${fragments}`,
    create: `mutation CreatePost($input: CreatePostInput!) { createPost(input: $input) { edge { ${entry} } } } ${fragments}`,
    read: `mutation MarkRead($input: MarkTimelineReadInput!) { markTimelineRead(input: $input) { unreadCount } }`,
    viewer: viewerDocument,
  }
}

export const viewerDocument = `query Viewer { viewer { id } }`

/**
 * Returns the GraphQL documents of a conversation with the given post fields and the fragments that these use. A server that
 * executes only trusted documents needs them on its list.
 */
export function conversationDocuments(fields: string, fragments: string) {
  const post = `id createdAt replyTo { id } ${fields}`
  const page = `replies(first: $first, after: $after, order: $order) { position edges { cursor node { ${post} } } pageInfo { hasNextPage endCursor } }`
  const variables = '$id: ID!, $first: Int, $after: Cursor, $order: ReplyOrder!'
  return {
    first: `query Conversation(${variables}) { post(id: $id) { ${post} root { id } repostOf { id } ${page} } } ${fragments}`,
    ancestors: `query Ancestors($id: ID!) { post(id: $id) { ancestors { ${post} } } } ${fragments}`,
    page: `query Replies(${variables}) { post(id: $id) { id ${page} } } ${fragments}`,
    events: `subscription ConversationEvents($postId: ID!, $after: Cursor) { conversationEvents(postId: $postId, after: $after) { __typename
  ... on ConversationPostAdded { position post { ${post} } }
  ... on ConversationPostUpdated { position post { ${post} } }
  ... on ConversationPostRemoved { position postId }
  ... on ConversationInvalidated { position reason } } } ${fragments}`,
    create: `mutation Reply($input: CreatePostInput!) { createPost(input: $input) { edge { cursor score } post { ${post} } } } ${fragments}`,
    viewer: viewerDocument,
  }
}
