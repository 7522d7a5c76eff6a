// Both storages return the timeline that was saved.
import 'fake-indexeddb/auto'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { empty, restore, save, step, type Saved } from '../src/core.js'
import { forget, indexedDBStorage, memoryStorage, type DefaultPost, type Storage } from '../src/index.js'

function saved(viewer: string): Saved<DefaultPost> {
  const node = { id: 'p1', text: 'said', visibility: 'PUBLIC' as const, createdAt: '', likeCount: 0, viewerHasLiked: false, author: { id: 'a', handle: 'a', name: 'A' } }
  const page = { edges: [{ cursor: 'c', score: 1, node }], next: null, position: 'here', unreadCount: 1 }
  return save(step(step(empty<DefaultPost>(viewer), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page }))
}

for (const [name, storage] of [
  ['memory', memoryStorage()],
  ['IndexedDB', indexedDBStorage('ada')],
] satisfies [string, Storage][]) {
  test(`${name} keeps the last that was saved`, async () => {
    assert.equal(await storage.load(), undefined)
    await storage.save(saved('bob'))
    await storage.save(saved('ada'))
    const held = restore(empty<DefaultPost>('ada'), await storage.load())
    assert.deepEqual([held.position, held.entries[0]?.node.text, held.stale, held.unread], ['here', 'said', false, 1])
    assert.equal(restore(empty<DefaultPost>('bob'), await storage.load()).loaded, false)
  })
}

test('IndexedDB keeps names apart, and forgets', async () => {
  const storage = indexedDBStorage('bob')
  assert.equal(await storage.load(), undefined)
  await storage.save(saved('bob'))
  await forget('ada')
  assert.equal((await storage.load())?.viewer, 'bob')
  await forget('bob')
  assert.equal(await storage.load(), undefined)
})
