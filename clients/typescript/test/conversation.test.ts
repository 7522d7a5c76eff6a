// Tests the conversation store against a server in the same process.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { WebSocket as Socket } from 'ws'

import { ConversationStore, type Conversation, type ConversationEvent, type ConversationOptions, type Reply } from '../src/index.js'
import { Server, until } from './server.js'

type Answer = Reply<{ id: string; text: string; author: { id: string }; repostOf?: { id: string } | null }>

/** Returns the post with the number; it replies to the post named. */
const post = (n: number, to: string | null = 'p0', text = `text ${n}`, author = 'someone'): Answer => ({
  id: `p${n}`, text, author: { id: author }, createdAt: new Date(1e12 + n).toISOString(), replyTo: to === null ? null : { id: to },
})

const added = (n: number, position: string, to?: string) => ({ __typename: 'ConversationPostAdded' as const, position, post: post(n, to) })

/** The server's side of a conversation: the post, its ancestors and its replies, oldest first. */
class Talk {
  subject: Answer | null = post(0, 'a')
  ancestors = [post(-1, null)]
  replies = [post(1), post(2), post(3)]

  constructor(readonly server: Server) {
    server.answers.set('Conversation', (variables) => ({ data: { post: this.subject && { ...this.subject, root: this.subject.replyTo && { id: 'p-1' }, ...this.#page(variables) } } }))
    server.answers.set('Ancestors', () => ({ data: { post: this.subject && { ancestors: this.ancestors } } }))
    server.answers.set('Replies', (variables) => ({ data: { post: this.subject && this.#page(variables) } }))
  }

  #page({ first, after, order }: any) {
    const sorted = order === 'NEWEST' ? [...this.replies].reverse() : order === 'TOP' ? [...this.replies.slice(1), this.replies[0]!] : this.replies
    const from = after ? sorted.findIndex(({ id }) => id === after) + 1 : 0
    const nodes = sorted.slice(from, from + first)
    return {
      replies: {
        position: this.server.position, edges: nodes.map((node) => ({ cursor: node.id, node })),
        pageInfo: { hasNextPage: sorted.length > from + first, endCursor: nodes.at(-1)?.id ?? null },
      },
    }
  }
}

async function world(more: Partial<ConversationOptions<Answer>> = {}) {
  const server = await new Server().listen()
  const talk = new Talk(server)
  const store = new ConversationStore<Answer>({ url: server.url, viewer: 'me', token: 'good', postId: 'p0', pageSize: 2, backoff: () => 5, webSocketImpl: Socket, ...more })
  after(() => store.stop())
  await store.start()
  return { server, talk, store }
}

const ids = (list: { id: string }[]) => list.map(({ id }) => id).join(' ')

test('it reads a post, what leads to it, and its replies page by page', async () => {
  const { server, store } = await world()
  const { post, ancestors, replies, next, loaded } = store.getSnapshot()
  assert.deepEqual([post?.id, ids(ancestors), ids(replies), next, loaded], ['p0', 'p-1', 'p1 p2', 'p2', true])
  await store.more()
  assert.deepEqual([ids(store.getSnapshot().replies), store.getSnapshot().next], ['p1 p2 p3', null])
  assert.deepEqual(server.asked, ['Conversation', 'Ancestors', 'Replies'])
})

test('replies come, change and go, and it resumes after the newest event', async () => {
  const { server, store } = await world({ pageSize: 20 })
  const first = await server.subscription(1)
  assert.deepEqual([first.after, first.variables.postId], ['start', 'p0'])
  server.tell(first, added(4, 'at 4'))
  server.tell(first, { __typename: 'ConversationPostUpdated', position: 'at 5', post: post(2, 'p0', 'edited') })
  server.tell(first, { __typename: 'ConversationPostRemoved', position: 'at 6', postId: 'p1' })
  const held = await until(store, (s) => ids(s.replies) === 'p2 p3 p4')
  assert.equal(held.replies[0]!.text, 'edited')
  first.socket.close(1012)
  const second = await server.subscription(2)
  assert.equal(second.after, 'at 6')
  second.socket.terminate()
  assert.equal((await server.subscription(3)).after, 'at 6')
})

test('replies to other posts are not in the list, and the posts around it change', async () => {
  const seen: string[] = []
  const { server, store } = await world({ pageSize: 20, onEvent: (event) => seen.push(event.__typename) })
  const one = await server.subscription(1)
  server.tell(one, added(5, 'at 5', 'p2'))
  server.tell(one, { __typename: 'ConversationPostUpdated', position: 'at 6', post: post(0, 'a', 'the subject, edited') })
  server.tell(one, { __typename: 'ConversationPostUpdated', position: 'at 7', post: post(-1, null, 'the root, edited') })
  server.tell(one, { __typename: 'ConversationSomethingNew', position: 'at 8' } as unknown as ConversationEvent)
  const held = await until(store, (s) => s.ancestors[0]!.text === 'the root, edited')
  assert.deepEqual([held.post!.text, ids(held.replies)], ['the subject, edited', 'p1 p2 p3'])
  one.socket.terminate()
  assert.equal((await server.subscription(2)).after, 'at 8')
  assert.deepEqual(seen, ['ConversationPostAdded', 'ConversationPostUpdated', 'ConversationPostUpdated', 'ConversationSomethingNew'])
})

test('with hold, a reply waits if it would move what is being read', async () => {
  const { server, store } = await world({ pageSize: 20, hold: true })
  const one = await server.subscription(1)
  server.tell(one, added(9, 'at 9'))
  await until(store, (s) => ids(s.replies) === 'p1 p2 p3 p9')
  // A reply that became visible late belongs further up.
  server.tell(one, { ...added(2, 'at 10'), post: { ...post(2), id: 'late' } })
  const held = await until(store, (s) => s.waiting.length === 1)
  assert.equal(ids(held.replies), 'p1 p2 p3 p9')
  await store.show()
  assert.equal(ids(store.getSnapshot().replies), 'p1 p2 late p3 p9')

  await store.setOrder('NEWEST')
  assert.equal(ids(store.getSnapshot().replies), 'p3 p2 p1')
  server.tell(one, added(11, 'at 11'))
  const waits = await until(store, (s) => s.waiting.length === 1)
  assert.deepEqual([ids(waits.replies), ids(waits.waiting)], ['p3 p2 p1', 'p11'])
  await store.show()
  assert.equal(ids(store.getSnapshot().replies), 'p11 p3 p2 p1')
})

test('in the order of the server, replies wait until they are read with the others', async () => {
  const { server, talk, store } = await world({ pageSize: 20, order: 'TOP' })
  assert.equal(ids(store.getSnapshot().replies), 'p2 p3 p1')
  server.tell(await server.subscription(1), added(4, 'at 4'))
  await until(store, (s) => s.waiting.length === 1)
  talk.replies.push(post(4))
  await store.show()
  assert.equal(ids(store.getSnapshot().replies), 'p2 p3 p4 p1')
})

test('a reply beyond the last page that was read comes with its page', async () => {
  const { server, talk, store } = await world()
  const one = await server.subscription(1)
  talk.replies.push(post(4))
  server.tell(one, added(4, 'at 4'))
  server.tell(one, { __typename: 'ConversationPostRemoved', position: 'at 5', postId: 'p1' })
  await until(store, (s) => ids(s.replies) === 'p2')
  await store.more()
  assert.equal(ids(store.getSnapshot().replies), 'p2 p3 p4')
})

test('an invalidated conversation is read again, later each time', async () => {
  const waits: number[] = []
  const { server, talk, store } = await world({ pageSize: 20, backoff: (n) => (waits.push(n), 1) })
  const one = await server.subscription(1)
  for (let n = 0; n < 6; n++) {
    server.position = `read ${n}`
    talk.replies = [post(10 + n)]
    server.tell(one, { __typename: 'ConversationInvalidated', position: 'x' })
    await until(store, (s) => ids(s.replies) === `p${10 + n}` && s.status === 'live')
  }
  assert.deepEqual(waits, [0, 1, 2, 3])
  one.socket.terminate()
  assert.equal((await server.subscription(2)).after, 'read 5')
})

test('a post that goes is not found, until it comes back', async () => {
  const { server, talk, store } = await world()
  const one = await server.subscription(1)
  for (const back of [
    { __typename: 'ConversationPostAdded', position: 'y', post: post(0, 'a') },
    { __typename: 'ConversationInvalidated', position: 'y' },
  ] satisfies ConversationEvent[]) {
    const reads = () => server.asked.filter((name) => name === 'Conversation').length
    const before = reads()
    talk.subject = null
    server.tell(one, { __typename: 'ConversationPostRemoved', position: 'x', postId: 'p0' })
    const held = await until(store, (s) => s.status === 'notFound' && !s.busy && reads() > before)
    assert.deepEqual([held.post, held.replies], [null, []])
    talk.subject = post(0)
    server.tell(one, back)
    await until(store, (s) => s.post?.id === 'p0' && s.status === 'live' && !s.busy)
  }
  assert.equal(server.subscriptions.length, 1)
})

test('nothing is subscribed to if there is no such post', async () => {
  const server = await new Server().listen()
  new Talk(server).subject = null
  const store = new ConversationStore<Answer>({ url: server.url, viewer: 'me', token: 'good', postId: 'p0', webSocketImpl: class { constructor() { assert.fail('a socket is opened') } } })
  after(() => store.stop())
  await store.start()
  assert.equal(store.getSnapshot().status, 'notFound')
})

test('a subscription to a post that has gone meanwhile is not tried again', async () => {
  const { server, talk, store } = await world()
  const one = await server.subscription(1)
  talk.subject = null
  one.socket.send(JSON.stringify({ type: 'error', id: one.id, payload: [{ message: 'no such post', extensions: { code: 'NOT_FOUND' } }] }))
  await until(store, (s) => s.status === 'notFound' && !s.busy)
  assert.equal(server.subscriptions.length, 1)
})

test('without an ancestor that went, the conversation is read again', async () => {
  const { server, talk, store } = await world()
  talk.ancestors = []
  talk.subject = { ...post(0), replyTo: null }
  server.tell(await server.subscription(1), { __typename: 'ConversationPostRemoved', position: 'x', postId: 'p-1' })
  const held = await until(store, (s) => s.post?.replyTo === null && !s.busy)
  assert.deepEqual([ids(held.ancestors), held.status], ['', 'live'])
})

test('an ancestor that was hidden and is shown again is there again', async () => {
  // As an app does that keeps all its lists alike.
  const remove = (event: ConversationEvent<Answer>) => event.__typename === 'ConversationPostRemoved' && store.remove(event.postId)
  const { server, talk, store } = await world({ onEvent: remove })
  talk.ancestors = [post(-2, null), post(-1, 'p-2')]
  await store.refresh()
  const one = await server.subscription(1)
  for (const back of ['ConversationPostUpdated', 'ConversationPostAdded'] as const) {
    talk.ancestors = [post(-2, null)]
    server.tell(one, { __typename: 'ConversationPostRemoved', position: 'x', postId: 'p-1' })
    await until(store, (s) => ids(s.ancestors) === 'p-2' && s.status === 'live' && !s.busy)
    talk.ancestors = [post(-2, null), post(-1, 'p-2')]
    server.tell(one, { __typename: back, position: 'y', post: post(-1, 'p-2') })
    talk.replies[0] = post(1, 'p0', back)
    server.tell(one, { __typename: 'ConversationPostUpdated', position: `after ${back}`, post: talk.replies[0] })
    await until(store, (s) => s.replies[0]?.text === back && s.status === 'live' && !s.busy)
    assert.equal(ids(store.getSnapshot().ancestors), 'p-2 p-1')
  }
})

test('a repost stands for its original', async () => {
  const server = await new Server().listen()
  const talk = new Talk(server)
  const usual = server.answers.get('Conversation')!
  server.answers.set('Conversation', (variables) => (variables.id === 'repost' ? { data: { post: { ...post(7, null), repostOf: { id: 'p0' }, replies: { edges: [], pageInfo: {} } } } } : usual(variables)))
  const store = new ConversationStore<Answer>({ url: server.url, viewer: 'me', token: 'good', postId: 'repost', webSocketImpl: Socket })
  after(() => store.stop())
  await store.start()
  assert.equal(store.getSnapshot().post?.id, talk.subject!.id)
  assert.equal((await server.subscription(1)).variables.postId, 'p0')
})

test('a visitor reads without a token, and subscribes to nothing', async () => {
  const server = await new Server().listen()
  new Talk(server)
  server.tokens.add('')
  const store = new ConversationStore<Answer>({ url: server.url, token: null, postId: 'p0', pageSize: 2, webSocketImpl: class { constructor() { assert.fail('a socket is opened') } } })
  after(() => store.stop())
  await store.start()
  await store.more()
  const { status, replies } = store.getSnapshot()
  assert.deepEqual([status, ids(replies)], ['static', 'p1 p2 p3'])
})

test('an own reply is shown at once, once, and when it is refused it stays until it is dropped', async () => {
  const { server, store } = await world({ pageSize: 20 })
  const inputs: any[] = []
  let refusal = true
  const mine = post(5, 'p0', 'mine', 'me')
  server.answers.set('Reply', ({ input }) => {
    inputs.push(input)
    return refusal ? { errors: [{ message: 'nobody may reply', extensions: { code: 'FORBIDDEN' } }] } : { data: { createPost: { edge: { cursor: 'home', score: 7 }, post: mine } } }
  })
  const refused = store.reply(' mine ')
  assert.equal(store.getSnapshot().pending[0]!.text, ' mine ')
  assert.equal(await refused, null)
  const [{ key, error }] = store.getSnapshot().pending as [Conversation['pending'][number]]
  assert.deepEqual(error, { code: 'FORBIDDEN', message: 'nobody may reply' })
  store.discard(key)
  assert.deepEqual(store.getSnapshot().pending, [])

  refusal = false
  const replying = store.reply(' mine ', { visibility: 'FOLLOWERS' })
  server.tell(await server.subscription(1), { __typename: 'ConversationPostAdded', position: 'at 5', post: mine })
  assert.deepEqual(await replying, { cursor: 'home', score: 7, node: mine })
  const held = await until(store, (s) => s.pending.length === 0 && ids(s.replies) === 'p1 p2 p3 p5')
  assert.equal(ids(held.waiting), '')
  assert.deepEqual([inputs[1].replyTo, inputs[1].visibility], ['p0', 'FOLLOWERS'])
  assert.notEqual(inputs[0].idempotencyKey, inputs[1].idempotencyKey)
})

test('a reply that got no answer is sent again with its key', async () => {
  let cut = true
  const { server, store } = await world({
    fetch: (address, init) => (cut && String(init?.body).includes('mutation Reply') ? Promise.reject(new Error('cut')) : fetch(address, init)),
  })
  const keys: string[] = []
  server.answers.set('Reply', ({ input }) => (keys.push(input.idempotencyKey), { data: { createPost: { edge: {}, post: post(6, 'p0', 'again', 'me') } } }))
  await store.reply('again')
  const { key, error } = store.getSnapshot().pending[0]!
  assert.equal(error?.code, '')
  cut = false
  const one = await server.subscription(1)
  one.socket.terminate()
  await until(store, (s) => s.pending.length === 0 && s.replies.some(({ id }) => id === 'p6'))
  assert.deepEqual(keys, [key])
})

test('a failed read says so and is tried again', async () => {
  const server = await new Server().listen()
  new Talk(server)
  const usual = server.answers.get('Conversation')!
  let fails = true
  server.answers.set('Conversation', (variables) => (fails ? { errors: [{ message: 'no', extensions: { code: 'INTERNAL' } }] } : usual(variables)))
  const store = new ConversationStore<Answer>({ url: server.url, viewer: 'me', token: 'good', postId: 'p0', backoff: () => 1e6, webSocketImpl: Socket })
  after(() => store.stop())
  void store.start()
  const failed = await until(store, (s) => s.error !== undefined)
  assert.deepEqual([failed.post, failed.loaded], [undefined, false])
  fails = false
  await null // the store now waits before it tries again
  await null
  await store.retry()
  assert.deepEqual([store.getSnapshot().error, store.getSnapshot().post?.id], [undefined, 'p0'])
})
