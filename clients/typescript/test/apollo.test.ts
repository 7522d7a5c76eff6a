// mirrorToApollo keeps the posts in Apollo's cache in step with the store.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gql, InMemoryCache } from '@apollo/client'

import { mirrorToApollo } from '../src/apollo.js'
import { edge, everyChange, timelineOf, type Shown } from './timeline.js'

const fragment = gql`
  fragment Shown on Post { id text author { id handle } }
`

test("posts are written into Apollo's cache, changed there, and evicted when they leave", async () => {
  const timeline = timelineOf([edge(3), edge(2), edge(1)])
  const cache = new InMemoryCache()
  const stop = mirrorToApollo(timeline.store, cache, fragment)
  const ids = () => Object.keys(cache.extract()).filter((id) => id.startsWith('Post:')).map((id) => id.slice(5)).sort().join(' ')
  const textOf = (id: string) => cache.readFragment<Shown>({ id: `Post:${id}`, fragment })?.text
  timeline.store.subscribe(() => assert.ok(ids() === '' || 'User:u' in cache.extract(), 'gc keeps the author while a post is cached'))
  await everyChange(timeline, ids, textOf, assert.equal)

  // An evicted post that a query writes again stays only while a query refers to it.
  const query = gql`query { post { ...Shown } } ${fragment}`
  cache.writeQuery({ query, data: { post: edge(5).node } })
  assert.equal(ids(), 'p1 p5')
  cache.writeQuery({ query, data: { post: null } })
  cache.gc()
  assert.equal(ids(), 'p1')

  stop()
  timeline.server.edges = [edge(6)]
  await timeline.store.refresh()
  assert.equal(ids(), 'p1')
  timeline.store.stop()
})
