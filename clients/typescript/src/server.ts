// The way to the server: requests over HTTP, and the documents that a timeline needs.

/** A refusal by the server; code is the extensions.code of its first error, '' where no answer came. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

/**
 * The present token of the user. Given one that the server refused, it answers with a new one, or with null: the session
 * is over.
 */
export type TokenSource = (refused?: string) => string | null | Promise<string | null>

/** Runs a query or mutation and returns its data; throws a Refusal. */
export type Request = (query: string, variables: Record<string, unknown>) => Promise<any>

/** How long the server may take to answer, in milliseconds: longer than its own limit. */
const patience = 35_000

/** Asks for a token, and for one refused token only once at a time. */
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

/** Requests over HTTP. A refused token is renewed, and the request repeated, once. */
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
 * The milliseconds after which a client of a server that stops is to connect again, by the reason with which its socket was
 * closed: with a random part, so that not all come at once. Undefined: the reason says nothing of it.
 */
export function reconnectDelay(reason: string): number | undefined {
  const said = /^reconnect in (\d{1,5})ms$/.exec(reason)
  return said && +said[1]! <= 60_000 ? +said[1]! * (1 + Math.random() / 10) : undefined
}

/** What is selected of a post where nothing else is asked for. */
export const defaultFields = 'id text visibility createdAt likeCount viewerHasLiked author { id handle name }'

/** A post with what is selected by default. */
export type DefaultPost = {
  id: string
  text: string
  visibility: 'PUBLIC' | 'FOLLOWERS' | 'MUTUALS' | 'PRIVATE'
  createdAt: string
  likeCount: number
  viewerHasLiked: boolean
  author: { id: string; handle: string; name: string }
}

/**
 * The texts of what a timeline sends, for the fields of a post; fragments are what those fields need. A server that
 * executes trusted documents only needs them on its list.
 */
export function documents(fields: string, fragments: string) {
  const entry = `cursor score node { ${fields} }`
  return {
    page: `query Timeline($first: Int, $after: Cursor, $last: Int, $before: Cursor, $order: TimelineOrder!) { timeline(first: $first, after: $after, last: $last, before: $before, order: $order) {
  unreadCount position edges { ${entry} } pageInfo { hasNextPage endCursor } } } ${fragments}`,
    events: (updates: boolean) => `subscription TimelineEvents($after: Cursor, $heartbeat: Int) { timelineEvents(after: $after, heartbeat: $heartbeat${updates ? ', updates: true' : ''}) { __typename
  ... on TimelinePostAdded { position edge { ${entry} } }${updates ? `
  ... on TimelinePostUpdated { position edge { ${entry} } }` : ''}
  ... on TimelinePostRemoved { position postId removal: reason }
  ... on TimelineInvalidated { position reason }
  ... on TimelineHeartbeat { position unreadCount${updates ? ' lateBy' : ''} } } } ${fragments}`,
    create: `mutation CreatePost($input: CreatePostInput!) { createPost(input: $input) { edge { ${entry} } } } ${fragments}`,
    read: `mutation MarkRead($input: MarkTimelineReadInput!) { markTimelineRead(input: $input) { unreadCount } }`,
    viewer: `query Viewer { viewer { id } }`,
  }
}
