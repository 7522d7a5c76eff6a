// mirrorToRelay keeps the posts in Relay's store in step with the timeline.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import relay from 'relay-runtime'

import { mirrorToRelay } from '../src/relay.js'
import { PostQuery } from './post-query.js'
import { edge, everyChange, timelineOf } from './timeline.js'

const { createOperationDescriptor, Environment, Network, Observable, RecordSource, Store } = relay

test("posts are written into Relay's store, changed there, kept while the timeline has them, and deleted when they leave", async () => {
  const timeline = timelineOf([edge(3), edge(2), edge(1)])
  // Records that are not retained are collected at once.
  const store = new Store(new RecordSource(), { gcScheduler: (run) => run(), gcReleaseBufferSize: 0 })
  const environment = new Environment({ store, network: Network.create(() => Observable.create(() => assert.fail('asked the server'))) })
  const operation = (id: string) => createOperationDescriptor(PostQuery, { id })
  const read = (id: string) => environment.lookup(operation(id).fragment).data as { node: { text: string; author: { handle: string } } | null | undefined }
  const stop = mirrorToRelay(timeline.store, environment, operation)

  const ids = () => {
    environment.retain(operation('none')).dispose() // starts garbage collection
    const records = store.getSource()
    return records.getRecordIDs().filter((id) => records.get(id)?.__typename === 'Post').sort().join(' ')
  }
  await everyChange(timeline, ids, (id) => read(id).node?.text, assert.equal)
  assert.equal(read('p1').node?.author.handle, 'ada')
  assert.ok(!read('p4').node)

  stop()
  timeline.server.edges = [edge(6)]
  await timeline.store.refresh()
  assert.equal(ids(), '', 'what is followed no more is garbage')
  timeline.store.stop()
})
