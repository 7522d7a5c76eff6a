// mirrorToUrql keeps the posts in urql's Graphcache in step with the timeline.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, fetchExchange, subscriptionExchange } from '@urql/core'
import { cacheExchange } from '@urql/exchange-graphcache'

import { mirrorToUrql } from '../src/urql.js'
import { edge, everyChange, timelineOf, type Shown } from './timeline.js'

const PostQuery = 'query ($id: ID!) { node(id: $id) { __typename id ... on Post { text author { id handle } } } }'
type Answer = { node: Shown | null }

test('posts are written into Graphcache, changed there, and invalidated when they leave', async (t) => {
  const warned = t.mock.method(console, 'warn', () => {})
  const timeline = timelineOf([edge(3), edge(2), edge(1)])
  let listed: string[] = []
  const posts = mirrorToUrql(timeline.store, '__typename id text author { __typename id handle }')
  let forwarded = (_: string) => {}
  const other = new Promise<string>((resolve) => (forwarded = resolve))
  const client = new Client({
    url: 'http://127.0.0.1:9/graphql', preferGetMethod: false,
    fetch: async () => Response.json({ data: { nodes: listed.map((id) => ({ __typename: 'Post', id })) } }),
    exchanges: [
      cacheExchange({
        keys: posts.keys,
        updates: { Subscription: posts.updates },
        // Graphcache finds a node by its id, as a server would.
        resolvers: { Query: { node: (_, { id }) => ({ __typename: 'Post', id: String(id) }) } },
      }),
      fetchExchange,
      subscriptionExchange({
        forwardSubscription: posts.forward((request) => ({
          subscribe: () => {
            forwarded(String(request.query))
            return { unsubscribe: () => {} }
          },
        })),
      }),
    ],
  })
  const read = (id: string) => client.readQuery<Answer>(PostQuery, { id }, { requestPolicy: 'cache-only' })?.data?.node
  const stop = posts.start(client)

  const all = ['p1', 'p1.5', 'p2', 'p3', 'p4', 'p5', 'p6']
  const ids = () => all.filter(read).join(' ')
  await everyChange(timeline, ids, (id) => read(id)?.text, assert.equal)
  assert.equal(read('p1')?.author.handle, 'ada')

  // A post that another query no longer contains stays while the timeline has it.
  const List = 'query { nodes(ids: ["p1"]) { __typename id } }'
  for (listed of [['p1'], [], []]) await client.query(List, {}, { requestPolicy: 'network-only' })
  await new Promise((collected) => setTimeout(collected))
  assert.equal(ids(), 'p1')

  const mine = client.subscription('subscription Mine { timelineEvents { __typename } }', {}).subscribe(() => {})
  assert.match(await other, /Mine/, "the app's own subscriptions go their own way")
  mine.unsubscribe()
  assert.throws(() => posts.forward()({ query: 'subscription Mine { timelineEvents { __typename } }' }, {}), /No way is known/)

  stop()
  timeline.server.edges = [edge(6)]
  await timeline.store.refresh()
  assert.equal(ids(), 'p1')
  timeline.store.stop()
  assert.deepEqual(warned.mock.calls.map((call) => call.arguments), [])
})
