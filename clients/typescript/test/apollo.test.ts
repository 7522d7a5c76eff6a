// Apollo's own cache has what the store has.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gql, InMemoryCache } from '@apollo/client'

import { mirrorToApollo } from '../src/apollo.js'
import { TimelineStore, type Edge } from '../src/index.js'

const fragment = gql`
  fragment Shown on Post { id text author { id handle } }
`

type Shown = { __typename: 'Post'; id: string; text: string; author: { __typename: 'User'; id: string; handle: string } }

const edge = (n: number, text = `text ${n}`): Edge<Shown> => ({
  cursor: `c${n}`, score: n, node: { __typename: 'Post', id: `p${n}`, text, author: { __typename: 'User', id: 'u', handle: 'ada' } },
})

test("posts are written into Apollo's cache, changed there, and evicted when they leave", async () => {
  let timeline = [edge(3), edge(2), edge(1)]
  let more = true
  const store = new TimelineStore<Shown>({
    url: 'http://127.0.0.1:9/graphql', viewer: 'me', token: 'good', webSocketImpl: class { static OPEN = 1; static CLOSED = 3; static CLOSING = 2; static CONNECTING = 0; close() {} },
    request: async () => ({ timeline: { edges: timeline, position: 'x', unreadCount: 0, pageInfo: { hasNextPage: more, endCursor: timeline.at(-1)?.cursor } } }),
  })
  const cache = new InMemoryCache()
  const stop = mirrorToApollo(store, cache, fragment)
  const ids = () => Object.keys(cache.extract()).filter((id) => id.startsWith('Post:')).sort().join(' ')
  const textOf = (id: string) => cache.readFragment<Shown>({ id, fragment })?.text

  await store.start()
  assert.equal(ids(), 'Post:p1 Post:p2 Post:p3')
  assert.ok('User:u' in cache.extract())
  store.change(edge(2, 'edited').node)
  assert.equal(textOf('Post:p2'), 'edited')
  store.remove('p3')
  assert.equal(ids(), 'Post:p1 Post:p2')

  // Too old to be read again, which is no reason to go; 2 is gone.
  timeline = [edge(5), edge(4), edge(1.5)]
  await store.refresh()
  assert.equal(ids(), 'Post:p1 Post:p1.5 Post:p4 Post:p5')
  more = false
  timeline = []
  await store.refresh()
  assert.equal(ids(), 'Post:p1')

  stop()
  timeline = [edge(6)]
  await store.refresh()
  assert.equal(ids(), 'Post:p1')
  store.stop()
})
