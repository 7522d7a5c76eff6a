// Follows a timeline with Apollo Client: reads all pages into the cache and prints them, then prints changes as they happen.
//
//   TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… npm run apollo
import { ApolloClient, ApolloLink, gql, HttpLink, InMemoryCache } from '@apollo/client'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { OperationTypeNode } from 'graphql'
import { relayStylePagination } from '@apollo/client/utilities'
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

const client = new ApolloClient({
  link: ApolloLink.split(
    ({ operationType }) => operationType === OperationTypeNode.SUBSCRIPTION,
    new GraphQLWsLink(socket),
    new HttpLink({ uri: url, headers: { Authorization: authorization } }),
  ),
  cache: new InMemoryCache({
    // Join the pages of a timeline into one list per order.
    typePolicies: { Query: { fields: { timeline: relayStylePagination(['order']) } } },
  }),
})

const Timeline = gql`
  query Timeline($after: Cursor) {
    timeline(first: 2, after: $after) {
      position
      edges { cursor node { id text author { id handle } } }
      pageInfo { hasNextPage endCursor }
    }
  }
`

const TimelineEvents = gql`
  subscription TimelineEvents($after: Cursor) {
    timelineEvents(after: $after) {
      __typename
      ... on TimelinePostAdded { position edge { cursor node { id text author { id handle } } } }
      ... on TimelinePostRemoved { position postId }
      ... on TimelineInvalidated { position reason }
    }
  }
`

type Author = { id: string; handle: string }
type Edge = { cursor: string; node: { id: string; text: string; author: Author } }
type Page = { timeline: { position: string; edges: Edge[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } } }
type Event =
  | { __typename: 'TimelinePostAdded'; position: string; edge: Edge }
  | { __typename: 'TimelinePostRemoved'; position: string; postId: string }
  | { __typename: 'TimelineInvalidated'; position: string; reason: string }

/** Reads the timeline to its end. The cache joins the pages. */
async function readTimeline() {
  const query = client.watchQuery<Page>({ query: Timeline, fetchPolicy: 'network-only' })
  const reading = query.subscribe({})
  let page = (await query.refetch()).data?.timeline
  // Resume from the position of the newest page: the events since then include all that happens during the read.
  const read = page?.position ?? null
  while (page?.pageInfo.hasNextPage) {
    const after = page.pageInfo.endCursor
    page = (await query.fetchMore({ variables: { after } })).data?.timeline
  }
  const { edges } = client.readQuery<Page>({ query: Timeline })!.timeline
  position = read
  for (const { node } of edges) console.log(`@${node.author.handle}: ${node.text}`)
  reading.unsubscribe()
}

await readTimeline()
client.subscribe<{ timelineEvents: Event }>({ query: TimelineEvents, variables: { after: position } }).subscribe(async ({ data, error }) => {
  if (error) {
    console.error(error.message)
    process.exit(1)
  }
  const event = data!.timelineEvents
  switch (event.__typename) {
    case 'TimelinePostAdded':
      console.log(`new from @${event.edge.node.author.handle}: ${event.edge.node.text}`)
      break
    case 'TimelinePostRemoved':
      // Removes the post from every list that contains it.
      client.cache.evict({ id: client.cache.identify({ __typename: 'Post', id: event.postId }) })
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
