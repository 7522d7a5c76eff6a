// Tests the store against a server in the same process: token renewal, close codes, refused positions, failed posts and
// storage.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { WebSocket as Socket } from 'ws'

import { memoryStorage, mirror, reconnectDelay, TimelineStore, type DefaultPost, type Edge, type Options, type Snapshot } from '../src/index.js'
import { Server, until } from './server.js'

const edge = (n: number, author = 'someone'): Edge => ({ cursor: `c${n}`, score: n, node: { id: `p${n}`, author: { id: author }, text: `text ${n}` } })

async function world(more: Partial<Options> = {}, begin = true) {
  const server = await new Server().listen()
  server.timeline = [edge(3), edge(2), edge(1)]
  const store = new TimelineStore({ url: server.url, viewer: 'me', token: 'good', pageSize: 2, heartbeat: 0, backoff: () => 5, webSocketImpl: Socket, ...more })
  after(() => store.stop())
  if (begin) await store.start()
  return { server, store }
}

const ids = ({ entries }: Snapshot) => entries.map(({ node }) => node.id).join(' ')

test('it resumes with the newest cursor of what it holds, not with its first', async () => {
  const { server, store } = await world()
  assert.equal(ids(store.getSnapshot()), 'p3 p2')
  const one = await server.subscription(1)
  assert.equal(one.after, 'start')
  server.tell(one, { __typename: 'TimelinePostAdded', position: 'after 4', edge: edge(4) })
  await until(store, (s) => ids(s) === 'p4 p3 p2')
  one.socket.close(1012)
  const two = await server.subscription(2)
  assert.equal(two.after, 'after 4')
  two.socket.terminate()
  assert.equal((await server.subscription(3)).after, 'after 4')
  await store.more()
  assert.equal(ids(store.getSnapshot()), 'p4 p3 p2 p1')
  assert.equal(store.getSnapshot().next, null)
})

test('it reads again when the timeline was invalidated, however often that fails', async () => {
  const { server, store } = await world()
  const one = await server.subscription(1)
  let failures = 3
  server.answers.set('Timeline', () => failures-- > 0 && { errors: [{ message: 'no', extensions: { code: 'INTERNAL' } }] })
  server.timeline = [edge(9), edge(2)]
  server.position = 'later'
  server.tell(one, { __typename: 'TimelineInvalidated', position: 'x' })
  const held = await until(store, (s) => ids(s) === 'p9 p2')
  assert.deepEqual([held.position, held.error, held.stale], ['later', undefined, false])
})

test('a token that was refused is renewed, for requests and for connections', async () => {
  const refused: (string | undefined)[] = []
  let token = 'old'
  const { server, store } = await world({
    token: (before) => {
      if (before !== undefined) {
        refused.push(before)
        token = before === 'old' ? 'good' : 'better'
      }
      return token
    },
  })
  assert.equal(ids(store.getSnapshot()), 'p3 p2')
  const one = await server.subscription(1)
  assert.deepEqual([one.token, refused], ['good', ['old']])
  server.tokens = new Set(['better'])
  one.socket.close(4403, 'Forbidden')
  assert.equal((await server.subscription(2)).token, 'better')
})

test('without another token the session is over', async () => {
  let ended = 0
  const { server, store } = await world({ onSessionEnded: () => ended++ })
  const one = await server.subscription(1)
  server.tokens.clear()
  one.socket.close(4403, 'Forbidden')
  await until(store, (s) => s.status === 'stopped')
  assert.equal(ended, 1)
})

test('a subscription that the server completes is taken up again, or the session is over', async () => {
  const { server, store } = await world()
  const one = await server.subscription(1)
  one.socket.send(JSON.stringify({ type: 'complete', id: one.id }))
  const two = await server.subscription(2)
  assert.equal(two.after, 'start')
  server.answers.set('Viewer', () => ({ data: { viewer: null } }))
  two.socket.send(JSON.stringify({ type: 'complete', id: two.id }))
  await until(store, (s) => s.status === 'stopped')
})

test('a position that the server refuses is a clean start', async () => {
  const { server, store } = await world()
  const one = await server.subscription(1)
  server.timeline = [edge(7)]
  server.position = 'new'
  one.socket.send(JSON.stringify({ type: 'error', id: one.id, payload: [{ message: 'no cursor', extensions: { code: 'BAD_USER_INPUT' } }] }))
  assert.equal((await server.subscription(2)).after, 'new')
  assert.equal(ids(store.getSnapshot()), 'p7')
})

test('a close code that graphql-ws takes for fatal ends nothing', async () => {
  const { server } = await world()
  const one = await server.subscription(1)
  one.socket.close(4500, 'Internal')
  assert.equal((await server.subscription(2)).after, 'start')
})

test('a server that stops says when to connect again; a later try waits longer each time', async () => {
  const waits: number[] = []
  const { server } = await world({ backoff: (n) => (waits.push(n), 1) })
  const delays: (number | undefined)[] = []
  const real = globalThis.setTimeout
  globalThis.setTimeout = ((run: () => void, delay?: number) => (delays.push(delay), real(run, delay))) as typeof setTimeout
  after(() => void (globalThis.setTimeout = real))
  ;(await server.subscription(1)).socket.close(1012, 'reconnect in 60ms')
  const two = await server.subscription(2)
  assert.ok(delays.some((delay = 0) => delay >= 60 && delay <= 66))
  assert.deepEqual(waits, [])
  for (const [n, reason] of ['', 'reconnect in 70000ms', 'reconnect in 5ms, please'].entries()) {
    ;(await server.subscription(2 + n)).socket.close(1012, reason)
    await server.subscription(3 + n)
  }
  assert.deepEqual(waits, [1, 2, 3])
  assert.ok(two.socket.readyState > Socket.OPEN)
})

test('a server that accepts each connection and closes it is tried later each time, until one lasts or brings an event', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() })
  const waits: number[] = []
  const { server, store } = await world({ backoff: (n) => (waits.push(n), 1) })
  let n = 0
  const close = async () => (await server.subscription(++n)).socket.close(1013, 'Too slow')
  for (let i = 0; i < 4; i++) await close()
  server.tell(await server.subscription(++n), { __typename: 'TimelineHeartbeat', position: 'x', unreadCount: 7 })
  await until(store, (s) => s.unread === 7)
  server.subscriptions.at(-1)!.socket.close(1013)
  await close()
  const last = await server.subscription(++n)
  t.mock.timers.tick(31_000)
  last.socket.close(1013)
  await close()
  await server.subscription(++n)
  assert.deepEqual(waits, [0, 1, 2, 3, 0, 1, 0, 1])
})

test('a subscription that is refused for its rate is taken up again from its position, when the server says', async () => {
  const { server } = await world()
  const delays: (number | undefined)[] = []
  const real = globalThis.setTimeout
  globalThis.setTimeout = ((run: () => void, delay?: number) => (delays.push(delay), real(run, delay))) as typeof setTimeout
  after(() => void (globalThis.setTimeout = real))
  for (let n = 1; n < 6; n++) {
    const { socket, id } = await server.subscription(n)
    socket.send(JSON.stringify({ type: 'error', id, payload: [{ message: 'too much', extensions: { code: 'RATE_LIMITED', retryAfter: 0.017 } }] }))
  }
  assert.equal((await server.subscription(6)).after, 'start')
  assert.deepEqual([server.asked, delays.filter((delay) => delay === 17).length], [['Timeline'], 5])
})

test('a delay of a server that stops is longer at random by up to a tenth', () => {
  const delays = Array.from({ length: 100 }, () => reconnectDelay('reconnect in 1000ms')!)
  assert.ok(Math.min(...delays) >= 1000 && Math.max(...delays) <= 1100 && new Set(delays).size > 50)
  assert.equal(reconnectDelay('reconnect in 0ms'), 0)
})

test('a timeline that is invalidated again and again is read again later each time', async () => {
  const waits: number[] = []
  const { server, store } = await world({ backoff: (n) => (waits.push(n), 1) })
  const one = await server.subscription(1)
  for (let n = 0; n < 6; n++) {
    server.position = `read ${n}`
    server.tell(one, { __typename: 'TimelineInvalidated', position: 'x' })
    await until(store, (s) => s.position === server.position && s.status === 'live')
  }
  assert.deepEqual(waits, [0, 1, 2, 3])
  // A read that the user asks for is not delayed.
  await store.refresh()
  assert.deepEqual(waits, [0, 1, 2, 3])
})

test('a heartbeat says by how much posts are late', async () => {
  const { server, store } = await world()
  const one = await server.subscription(1)
  server.tell(one, { __typename: 'TimelineHeartbeat', position: 'x', unreadCount: 0, lateBy: 34 })
  await until(store, (s) => s.lateBy === 34)
  server.tell(one, { __typename: 'TimelineHeartbeat', position: 'y', unreadCount: 0 })
  await until(store, (s) => s.lateBy === 0)
})

test('what waits is shown when asked for', async () => {
  const { server, store } = await world({ hold: true })
  server.tell(await server.subscription(1), { __typename: 'TimelinePostAdded', position: 'x', edge: edge(4) })
  const held = await until(store, (s) => s.waiting.length === 1)
  assert.deepEqual([ids(held), held.unread], ['p3 p2', 2])
  await store.show()
  assert.equal(ids(store.getSnapshot()), 'p4 p3 p2')
  assert.equal(await store.markRead(), true)
  assert.equal(store.getSnapshot().unread, 0)
})

test('the entries shown stay when more is missed than is read again, if they are still there', async () => {
  const { server, store } = await world({ hold: true, pageSize: 20 }, false)
  server.timeline = Array.from({ length: 60 }, (_, i) => edge(60 - i))
  await store.start()
  await store.more()
  const shown = ids(store.getSnapshot())
  const evicted: string[] = []
  after(mirror(store, { write: () => {}, evict: (id) => evicted.push(id) }))
  const one = await server.subscription(1)
  server.timeline.unshift(edge(61))
  server.tell(one, { __typename: 'TimelinePostAdded', position: 'after 61', edge: edge(61) })
  await until(store, (s) => s.waiting.length === 1)
  server.timeline = [...Array.from({ length: 250 }, (_, i) => edge(311 - i)), ...server.timeline.filter(({ score }) => score !== 50)]
  server.position = 'later'
  server.tell(one, { __typename: 'TimelineInvalidated', position: 'x' })
  const held = await until(store, (s) => s.position === 'later' && !s.busy)
  // p61 was waiting and now lies in the gap, where it may still exist.
  assert.deepEqual(evicted, ['p50'])
  assert.ok(ids(held).startsWith(shown.replace('p50 ', '')), ids(held))
  assert.deepEqual([held.waiting.length, held.waiting.at(-1)!.score], [200, 112])
  await store.show()
  await store.more()
  const { entries } = store.getSnapshot()
  assert.deepEqual([entries.length, entries[0]!.score, entries.at(-1)!.score], [220, 311, 92])
})

test('a removed post leaves the cache once, in any order and whether or not the timeline has it', async () => {
  const { server, store } = await world()
  const evicted: string[] = []
  const stop = mirror(store, { write: () => {}, evict: (id) => evicted.push(id) })
  const one = await server.subscription(1)
  const tell = async (postId: string, position: string) => {
    server.tell(one, { __typename: 'TimelinePostRemoved', position, postId })
    await until(store, (s) => s.position === position)
  }
  await tell('p3', 'a')
  await tell('p1', 'b') // below the oldest page
  store.remove('elsewhere')
  await store.setOrder('RANKED')
  await tell('p2', 'c')
  assert.deepEqual(evicted, ['p3', 'p1', 'elsewhere', 'p2'])
  stop()
  store.remove('later')
  assert.equal(evicted.length, 4)
})

test('the only entry shown stays when more is missed than is read again, also at the end of the timeline', async () => {
  const { server, store } = await world({ hold: true, pageSize: 20 }, false)
  server.timeline = [edge(1)]
  await store.start()
  const one = await server.subscription(1)
  server.timeline = Array.from({ length: 251 }, (_, i) => edge(251 - i))
  server.position = 'later'
  server.tell(one, { __typename: 'TimelineInvalidated', position: 'x' })
  const held = await until(store, (s) => s.position === 'later' && !s.busy)
  assert.deepEqual([ids(held), held.waiting.length], ['p1', 200])
})

test('a retry repeats the read that failed', async () => {
  const { server, store } = await world({}, false)
  const fail = () => server.answers.set('Timeline', () => ({ errors: [{ message: 'no', extensions: { code: 'INTERNAL' } }] }))
  server.timeline = [edge(5), edge(4), edge(3), edge(2), edge(1)]
  await store.start()
  fail()
  await store.more()
  assert.deepEqual([store.getSnapshot().error?.message, ids(store.getSnapshot())], ['no', 'p5 p4'])
  server.answers.clear()
  await store.retry()
  assert.deepEqual([store.getSnapshot().error, ids(store.getSnapshot())], [undefined, 'p5 p4 p3 p2'])
  server.timeline.unshift(edge(6))
  fail()
  await store.refresh()
  assert.deepEqual([store.getSnapshot().error?.message, ids(store.getSnapshot())], ['no', 'p5 p4 p3 p2'])
  server.answers.clear()
  await store.retry()
  assert.ok(ids(store.getSnapshot()).startsWith('p6 p5 p4 p3'), ids(store.getSnapshot()))
})

test('an own post is shown at once, once, and when it fails it stays', async () => {
  const { server, store } = await world()
  const keys: string[] = []
  let refusal: string | null = 'BAD_USER_INPUT'
  server.answers.set('CreatePost', ({ input }) => {
    keys.push(input.idempotencyKey)
    const own = { ...edge(5, 'me'), node: { id: 'p5', text: 'text 5', author: { id: 'me' } } }
    return refusal ? { errors: [{ message: 'too long', extensions: { code: refusal } }] } : { data: { createPost: { edge: own } } }
  })
  const posting = store.post('text 5')
  assert.equal(store.getSnapshot().pending[0]?.text, 'text 5')
  assert.equal(await posting, null)
  assert.deepEqual(store.getSnapshot().pending[0]?.error, { code: 'BAD_USER_INPUT', message: 'too long' })
  refusal = null
  await store.resend(store.getSnapshot().pending[0]!.key)
  server.tell(await server.subscription(1), { __typename: 'TimelinePostAdded', position: 'x', edge: edge(5, 'me') })
  const held = await until(store, (s) => s.position === 'x')
  assert.deepEqual([held.pending, ids(held), held.unread], [[], 'p5 p3 p2', 1])
  assert.equal(new Set(keys).size, 1)
})

test('what another part of the program posted is shown at once, and does not wait', async () => {
  const { server, store } = await world({ hold: true })
  const one = await server.subscription(1)
  store.created(edge(6, 'me') as Edge<DefaultPost>)
  assert.equal(ids(store.getSnapshot()), 'p6 p3 p2')
  server.timeline.unshift(edge(6, 'me'))
  await until(store, (s) => s.status === 'live' && !s.busy)
  server.tell(one, { __typename: 'TimelinePostAdded', position: 'x', edge: edge(6, 'me') })
  const held = await until(store, (s) => s.position === 'x')
  assert.deepEqual([ids(held), held.waiting], ['p6 p3 p2 p1', []])
})

test('a post that got no answer is sent again when the server is back', async () => {
  let cut = true
  const { server, store } = await world({
    fetch: (address, init) => (cut && String(init?.body).includes('CreatePost') ? Promise.reject(new Error('cut')) : fetch(address, init)),
  })
  server.answers.set('CreatePost', () => ({ data: { createPost: { edge: edge(6, 'me') } } }))
  await until(store, (s) => s.status === 'live')
  await store.post('text 6')
  assert.equal(store.getSnapshot().pending[0]?.error?.code, '')
  cut = false
  ;(await server.subscription(1)).socket.terminate()
  await until(store, (s) => ids(s) === 'p6 p3 p2' && s.pending.length === 0)
})

test('a post that got no answer is sent again later and later while the connection stays open', async () => {
  let cuts = 3
  const waits: number[] = []
  const { server, store } = await world({
    backoff: (n) => (waits.push(n), 1),
    fetch: (address, init) => (String(init?.body).includes('CreatePost') && cuts-- > 0 ? Promise.reject(new Error('cut')) : fetch(address, init)),
  })
  server.answers.set('CreatePost', () => ({ data: { createPost: { edge: edge(6, 'me') } } }))
  await until(store, (s) => s.status === 'live')
  await store.post('text 6')
  await until(store, (s) => ids(s) === 'p6 p3 p2' && s.pending.length === 0)
  cuts = 1
  await store.post('text 6')
  await until(store, (s) => s.pending.length === 0)
  await server.subscription(1)
  assert.deepEqual([waits, server.subscriptions.length], [[0, 1, 2, 0], 1])
})

test('a stored post without an answer is sent again, unless the server may have forgotten its key', async () => {
  const storage = memoryStorage<DefaultPost>()
  const written = (key: string, hours: number) => ({ key, text: key, createdAt: new Date(Date.now() - hours * 3_600_000).toISOString() })
  const pending = [written('old', 24), written('young', 22)]
  await storage.save({ version: 1, viewer: 'me', pending, entries: [], next: null, end: 0, position: null, unread: 0 })
  const { server, store } = await world({ storage })
  const sent: string[] = []
  server.answers.set('CreatePost', ({ input }) => {
    sent.push(input.idempotencyKey)
    return { data: { createPost: { edge: edge(6, 'me') } } }
  })
  const held = await until(store, (s) => ids(s) === 'p6 p3 p2')
  assert.deepEqual([sent, held.pending.map((p) => [p.key, p.error?.code])], [['young'], [['old', '']]])
})

test('it comes back with what it kept, and goes on from there', async () => {
  const storage = memoryStorage()
  const { server, store } = await world({ storage })
  server.tell(await server.subscription(1), { __typename: 'TimelinePostAdded', position: 'after 4', edge: edge(4) })
  await until(store, (s) => ids(s) === 'p4 p3 p2')
  store.stop()
  server.asked = []
  const again = new TimelineStore({ url: server.url, viewer: 'me', token: 'good', storage, heartbeat: 0, webSocketImpl: Socket })
  after(() => again.stop())
  await again.start()
  assert.equal(ids(again.getSnapshot()), 'p4 p3 p2')
  assert.equal((await server.subscription(2)).after, 'after 4')
  assert.deepEqual(server.asked, [])
  await again.more()
  assert.equal(ids(again.getSnapshot()), 'p4 p3 p2 p1')
})

test('another order is another list, and news waits until it is read again', async () => {
  const { server, store } = await world()
  server.timeline = [edge(1), edge(3), edge(2)]
  await store.setOrder('RANKED')
  assert.equal(ids(store.getSnapshot()), 'p1 p3')
  server.tell(await server.subscription(1), { __typename: 'TimelinePostAdded', position: 'x', edge: edge(4) })
  await until(store, (s) => s.waiting.length === 1)
  server.timeline = [edge(4), edge(1)]
  await store.show()
  assert.equal(ids(store.getSnapshot()), 'p4 p1')
})

test('a snapshot is the same until something changes, as hooks need it', async () => {
  const { server, store } = await world()
  const before = store.getSnapshot()
  assert.equal(store.getSnapshot(), before)
  store.change({ ...before.entries[0]!.node, text: 'edited' })
  const after = store.getSnapshot()
  assert.notEqual(after, before)
  assert.equal(after.entries[0]!.node.text, 'edited')
  assert.equal(after.entries[1], before.entries[1])
  store.remove('p2')
  assert.equal(ids(store.getSnapshot()), 'p3')
  await server.subscription(1)
})

test('an exception of the app is reported, and the store goes on', async () => {
  const reported: string[] = []
  const real = globalThis.queueMicrotask
  globalThis.queueMicrotask = (run) =>
    real(() => {
      try {
        run()
      } catch (error) {
        reported.push((error as Error).message)
      }
    })
  after(() => void (globalThis.queueMicrotask = real))
  const fail = (message: string) => () => {
    throw new Error(message)
  }
  const { server, store } = await world({ onEvent: fail('event'), backoff: fail('backoff'), onSessionEnded: fail('end') }, false)
  let failures = 1
  server.answers.set('Timeline', () => failures-- > 0 && { errors: [{ message: 'no', extensions: { code: 'INTERNAL' } }] })
  const ignore = store.subscribe(fail('watcher'))
  await store.start()
  ignore()
  const one = await server.subscription(1)
  server.tell(one, { __typename: 'TimelinePostAdded', position: 'after 4', edge: edge(4) })
  await until(store, (s) => ids(s) === 'p4 p3 p2' && s.position === 'after 4')
  server.tokens.clear()
  await store.refresh()
  assert.equal(store.getSnapshot().status, 'stopped')
  assert.deepEqual([...new Set(reported)].sort(), ['backoff', 'end', 'event', 'watcher'])
})

test('a store that cannot subscribe says so each time, and reads', async () => {
  const { store } = await world({ webSocketImpl: class {} }, false)
  await assert.rejects(store.start(), /WebSocket/)
  assert.equal(ids(store.getSnapshot()), 'p3 p2')
  await assert.rejects(store.more(), /WebSocket/)
  assert.deepEqual([ids(store.getSnapshot()), store.getSnapshot().busy], ['p3 p2 p1', false])
})

test('a store that is stopped and started while it begins, as strict modes do, begins once', async () => {
  const { server, store } = await world({ storage: memoryStorage() }, false)
  const first = store.start()
  store.stop()
  await Promise.all([first, store.start()])
  assert.equal(ids(store.getSnapshot()), 'p3 p2')
  await server.subscription(1)
  assert.deepEqual(server.asked, ['Timeline'])
  assert.equal(server.subscriptions.length, 1)
})

test('a store that is stopped while it connects sends nothing on the connection that it closes', async () => {
  const late: unknown[] = []
  let end = () => {}
  const ended = new Promise<void>((done) => (end = done))
  class Watched extends Socket {
    override send(data: any) {
      if (this.readyState === Socket.OPEN) super.send(data)
      else late.push(data)
      if (!/connection_init/.test(String(data))) return
      this.on('close', () => end())
      store.stop()
    }
  }
  const { store } = await world({ webSocketImpl: Watched as unknown as Options['webSocketImpl'] }, false)
  await store.start()
  await ended
  assert.deepEqual(late, [])
})

test('a store that is stopped while a connection opens sends no token on it, and asks for none', async () => {
  for (const when of ['opening', 'asking'] as const) {
    const sent: unknown[] = []
    let ended = 0
    let closed = () => {}
    const closing = new Promise<void>((done) => (closed = done))
    class Watched extends Socket {
      constructor(...args: ConstructorParameters<typeof Socket>) {
        super(...args)
        this.on('close', () => closed())
        if (when === 'opening') this.on('open', () => store.stop())
      }
      override send(data: any) {
        sent.push(data)
      }
    }
    let asked = 0
    const token = () => {
      if (++asked === 1) return 'good' // for the first page
      store.stop()
      return null
    }
    const { store } = await world({ token, onSessionEnded: () => ended++, webSocketImpl: Watched as unknown as Options['webSocketImpl'] }, false)
    await store.start()
    await closing
    assert.deepEqual([sent, ended, asked], [[], 0, when === 'opening' ? 1 : 2])
    assert.notEqual(store.getSnapshot().status, 'stopped')
  }
})

test('a connection that is accepted after the store was stopped sends no post and changes no state', async () => {
  const storage = memoryStorage<DefaultPost>()
  const pending = [{ key: 'written', text: 'written', createdAt: new Date().toISOString() }]
  await storage.save({ version: 1, viewer: 'me', pending, entries: [], next: null, end: 0, position: null, unread: 0 })
  let closed = () => {}
  const closing = new Promise<void>((done) => (closed = done))
  class Watched extends Socket {
    override send(data: any) {
      super.send(data)
      this.on('close', () => closed())
      store.stop()
    }
  }
  const { server, store } = await world({ storage, webSocketImpl: Watched as unknown as Options['webSocketImpl'] }, false)
  await store.start()
  await closing
  const { status, pending: kept } = store.getSnapshot()
  assert.deepEqual([status, kept.map(({ error }) => error?.code), server.asked], ['connecting', [''], ['Timeline']])
})

test('a connection from before a stop has no effect after a start', async () => {
  const asked: (string | undefined)[] = []
  const sockets: Socket[] = []
  class Watched extends Socket {
    constructor(...args: ConstructorParameters<typeof Socket>) {
      super(...args)
      sockets.push(this)
    }
  }
  const { server, store } = await world({ token: (refused) => (asked.push(refused), 'good'), webSocketImpl: Watched as unknown as Options['webSocketImpl'] })
  await server.subscription(1)
  const late = sockets[0]!.onclose!
  store.stop()
  await store.start()
  await server.subscription(2)
  late({ code: 4403, reason: 'Forbidden' } as never)
  server.subscriptions[1]!.socket.close(1012)
  await Promise.race([server.subscription(3), until(store, (s) => s.status === 'stopped')])
  assert.deepEqual(asked.filter((refused) => refused !== undefined), [])
})

test('a read that a stop cuts short sends nothing more, and reports nothing', async () => {
  let ended = 0
  const { server, store } = await world({ token: (refused) => (refused ? null : 'good'), onSessionEnded: () => ended++ })
  await store.more()
  for (const answer of [undefined, { errors: [{ message: 'who?', extensions: { code: 'UNAUTHENTICATED' } }] }]) {
    server.asked = []
    server.answers.set('Timeline', () => {
      store.stop()
      return answer
    })
    await store.refresh() // three entries, two per page
    const { error, busy, status } = store.getSnapshot()
    assert.deepEqual([server.asked, error, busy, ended, status === 'stopped'], [['Timeline'], undefined, false, 0, false])
    server.answers.clear()
    await store.start()
  }
  await store.refresh()
  assert.equal(ids(store.getSnapshot()), 'p3 p2 p1')
})

test('what the server says about a subscription from before a stop has no effect after a start', async () => {
  const { server, store } = await world()
  const one = await server.subscription(1)
  server.answers.set('Viewer', () => {
    store.stop()
    void store.start()
    return { data: { viewer: null } }
  })
  one.socket.send(JSON.stringify({ type: 'complete', id: one.id }))
  await Promise.race([server.subscription(2), until(store, (s) => s.status === 'stopped')])
  await until(store, (s) => s.status !== 'connecting')
  assert.equal(store.getSnapshot().status, 'live')
})

test('a page that is asked for at any moment comes', async () => {
  for (let ticks = 0; ticks < 12; ticks++) {
    const store = new TimelineStore({
      url: 'http://127.0.0.1:9/graphql', viewer: 'me', token: 'good', pageSize: 1, webSocketImpl: Socket,
      request: async (_, { after }) => {
        const n = after ? +String(after).slice(1) - 1 : 9
        return { timeline: { edges: [edge(n)], position: 'x', unreadCount: 0, pageInfo: { hasNextPage: n > 1, endCursor: `c${n}` } } }
      },
    })
    store.subscribe(async () => {
      for (let n = 0; n < ticks; n++) await null
      void store.more()
    })
    void store.start()
    await until(store, (s) => s.loaded && s.next === null)
    store.stop()
  }
})
