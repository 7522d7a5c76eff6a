// Follows a timeline with urql: reads and prints all pages, then prints changes as they happen.
//
//   TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… npm run urql
import { Client, fetchExchange, gql, subscriptionExchange } from '@urql/core'
import { createClient } from 'graphql-ws'
import WebSocket from 'ws'

const url = new URL('/graphql', process.env.TIDELINE_URL ?? 'http://127.0.0.1:8080').href
const authorization = `Bearer ${process.env.TIDELINE_TOKEN}`

// Where the subscription resumes: the position of the page read, then of the last event handled.
let position: string | null = null

const socket = createClient({
  url: url.replace(/^http/, 'ws'),
  webSocketImpl: WebSocket,
  connectionParams: { Authorization: authorization },
  // After each lost connection, graphql-ws connects and subscribes again; `after` is then the current position.
  retryAttempts: Infinity,
  shouldRetry: () => true, // also while the server is down
  jsonMessageReplacer: (key, value) => (key === 'after' ? position : value),
})

const client = new Client({
  url,
  preferGetMethod: false,
  fetchOptions: { headers: { Authorization: authorization } },
  // urql aborts each request when it is done with it, even after the answer. Node may then reject a promise that nothing
  // awaits, which ends the program. So do not pass the signal on.
  fetch: (input, init) => fetch(input, { ...init, signal: undefined }),
  exchanges: [
    fetchExchange,
    subscriptionExchange({
      forwardSubscription: ({ query = '', variables }) => ({
        subscribe: (sink) => ({ unsubscribe: socket.subscribe({ query, variables }, sink) }),
      }),
    }),
  ],
})

const Timeline = gql`
  query Timeline($after: Cursor) {
    timeline(first: 2, after: $after) {
      position
      edges { node { id text author { handle } } }
      pageInfo { hasNextPage endCursor }
    }
  }
`

const TimelineEvents = gql`
  subscription TimelineEvents($after: Cursor) {
    timelineEvents(after: $after) {
      __typename
      ... on TimelinePostAdded { position edge { node { id text author { handle } } } }
      ... on TimelinePostRemoved { position postId }
      ... on TimelineInvalidated { position reason }
    }
  }
`

type Post = { id: string; text: string; author: { handle: string } }
type Page = { timeline: { position: string; edges: { node: Post }[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } } }
type Event =
  | { __typename: 'TimelinePostAdded'; position: string; edge: { node: Post } }
  | { __typename: 'TimelinePostRemoved'; position: string; postId: string }
  | { __typename: 'TimelineInvalidated'; position: string; reason: string }

async function readPage(after: string | null): Promise<Page['timeline']> {
  const { data, error } = await client.query<Page>(Timeline, { after }, { requestPolicy: 'network-only' })
  if (!data) throw error
  return data.timeline
}

/** Reads and prints all pages, newest post first. */
async function readTimeline() {
  let page = await readPage(null)
  position = page.position
  for (;;) {
    for (const { node } of page.edges) console.log(`@${node.author.handle}: ${node.text}`)
    if (!page.pageInfo.hasNextPage) break
    page = await readPage(page.pageInfo.endCursor)
  }
}

await readTimeline()
client.subscription<{ timelineEvents: Event }>(TimelineEvents, { after: position }).subscribe(async ({ data, error }) => {
  if (!data) {
    console.error(error?.message)
    process.exit(1)
  }
  const event = data.timelineEvents
  switch (event.__typename) {
    case 'TimelinePostAdded':
      console.log(`new from @${event.edge.node.author.handle}: ${event.edge.node.text}`)
      break
    case 'TimelinePostRemoved':
      console.log(`gone: ${event.postId}`)
      break
    case 'TimelineInvalidated':
      console.log(`read again: ${event.reason}`)
      try {
        await readTimeline()
      } catch (cause) {
        // Keep the old position, so that the next connection receives this event again.
        console.error(cause)
        return
      }
  }
  position = event.position
})
console.log('listening')
