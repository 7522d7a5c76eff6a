// Runs the core against a model of the server. However events are reordered, repeated, cut off or invalidated, the client
// ends with the server's timeline, never shows a removed post, and never shows a post twice.
//
// To run one failed seed: SEED=123 node --test build/test/core.test.js. To run more seeds: RUNS=20000.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { collapse, empty, foreign, merge, readLine, restore, save, shownTop, step, type Edge, type Held, type Page, type Saved, type Step, type TimelineEvent } from '../src/core.js'

/** The mulberry32 generator: the same seed gives the same numbers. */
function random(seed: number) {
  const next = () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n: number) => Math.floor(next() * n)
  return { below, chance: (p: number) => next() < p, of: <T>(list: T[]): T | undefined => list[below(list.length)] }
}
type Random = ReturnType<typeof random>

const viewer = 'me'
type Told = { at: number; event: TimelineEvent }

/** A model of the server: the timeline, and the log of its changes. A position is an index in the log. */
class Server {
  timeline = new Map<string, Edge>()
  hidden: Edge[] = []
  log: ({ added: Edge } | { edited: string } | { removed: string } | { invalidated: true })[] = []
  /** The server can no longer send the log entries before this index. */
  kept = 0
  #clock = 1000
  #ids = 0
  mark = 0

  /** falling: each new post has a lower score than the ones before, as in a list of replies with the oldest first. */
  constructor(
    readonly r: Random,
    readonly falling = false,
  ) {}

  get sorted() {
    return [...this.timeline.values()].sort((a, b) => b.score - a.score)
  }

  #edge(score: number, author: string): Edge {
    const id = `post ${++this.#ids}`
    return { cursor: `${score}`, score, node: { id, author: { id: author }, text: id } }
  }

  #enter(edge: Edge) {
    this.timeline.set(edge.node.id, edge)
    this.log.push({ added: edge })
  }

  leave(edge: Edge) {
    if (!this.timeline.has(edge.node.id)) return
    this.timeline.delete(edge.node.id)
    this.hidden.push(edge)
    this.log.push({ removed: edge.node.id })
  }

  post(author = this.r.chance(0.2) ? viewer : 'someone', text?: string) {
    const edge = this.#edge((this.#clock += (1 + this.r.below(3)) * (this.falling ? -1 : 1)), author)
    if (text) edge.node.text = text
    this.#enter(edge)
    return edge
  }

  happen() {
    const { r } = this
    const kind = r.below(24)
    if (kind < 9) this.post()
    else if (kind < 11) {
      // A post that is delivered late, below newer ones. The fraction keeps scores unique.
      const edge = this.#edge(this.#clock - r.below(40) - 0.5 - this.#ids / 1e6, 'someone')
      this.#enter(edge)
    } else if (kind < 14) {
      const edge = r.of(this.sorted)
      if (edge) this.leave(edge)
    } else if (kind < 16) {
      const edge = r.of(this.hidden)
      if (edge) {
        this.hidden = this.hidden.filter((e) => e !== edge)
        this.timeline.set(edge.node.id, edge)
        // A client that may have had the post gets an update.
        this.log.push(r.chance(0.2) ? { added: edge } : { edited: edge.node.id })
      }
    } else if (kind < 17) {
      // As after a block or an unfollow: posts leave and come without an event for each.
      for (const edge of this.sorted) if (r.chance(0.2)) this.timeline.delete(edge.node.id)
      for (let n = r.below(4); n > 0; n--) {
        const edge = this.#edge(this.#clock - r.below(60) - 0.25 - this.#ids / 1e6, 'someone')
        this.timeline.set(edge.node.id, edge)
      }
      this.log.push({ invalidated: true })
    } else if (kind < 18) {
      // As if Redis had lost the journal: earlier positions cannot be resumed.
      this.kept = this.log.length
    } else if (kind < 19) this.mark = this.#clock - r.below(20)
    else if (kind > 19) {
      // Mostly edit the newest post, so that a client may receive the post and its edit during one read.
      const editable = this.sorted.filter(({ node }) => node.text === node.id || node.text?.startsWith('edited'))
      const edge = r.chance(0.7) ? editable[0] : r.of(editable)
      if (edge) {
        this.timeline.set(edge.node.id, { ...edge, node: { ...edge.node, text: `edited ${this.log.length}` } })
        this.log.push({ edited: edge.node.id })
      }
    }
  }

  get unread() {
    return this.sorted.filter((e) => e.score > this.mark && e.node.author!.id !== viewer).length
  }

  page(after: string | null, first: number): Page {
    // All entries of a page may be hidden.
    if (after !== null && this.r.chance(0.1)) return { edges: [], next: after, position: `${this.log.length}`, unreadCount: this.unread }
    const all = this.sorted.filter((e) => after === null || e.score < +after)
    const edges = all.slice(0, first)
    return { edges, next: all.length > first ? edges.at(-1)!.cursor : null, position: `${this.log.length}`, unreadCount: this.unread }
  }

  /** Returns the next event of a stream at this index in the log. */
  tell(from: number): Told | null {
    if (from < this.kept) return { at: this.log.length, event: { __typename: 'TimelineInvalidated', position: `${this.log.length}` } }
    for (let at = from; at < this.log.length; at++) {
      const what = this.log[at]!
      const position = `${at + 1}`
      if ('invalidated' in what) return { at: at + 1, event: { __typename: 'TimelineInvalidated', position } }
      if ('removed' in what) return { at: at + 1, event: { __typename: 'TimelinePostRemoved', position, postId: what.removed } }
      // A post that is no longer visible is not sent.
      const edge = this.timeline.get('edited' in what ? what.edited : what.added.node.id)
      if (edge) return { at: at + 1, event: { __typename: 'edited' in what ? 'TimelinePostUpdated' : 'TimelinePostAdded', position, edge } }
    }
    return null
  }
}

/** A client that reads and subscribes as the store does, over a connection that can be cut at any point. */
class Client {
  held: Held
  #reads = 0
  /** The read in progress, and the pages answered so far. */
  reading: { id: number; pages: Page[]; wanted: number; what: 'top' | 'older' } | null = null
  stream: { at: number } | null = null
  wire: TimelineEvent[] = []
  saved: Saved | null = null
  /** The posts removed by an event and not seen again since, with the position of the event. */
  gone = new Map<string, number>()

  constructor(
    readonly server: Server,
    readonly r: Random,
    readonly hold: boolean,
  ) {
    this.held = this.#empty()
  }

  #empty = () => empty(viewer, this.hold, this.server.falling ? 'OLDEST' : 'LATEST')

  step(a: Step) {
    const before = this.held
    this.held = step(before, a)
    this.check()
    const { hold, order, entries, waiting } = this.held
    if (!hold || order !== before.order || before.entries.length === 0) return
    assert.ok(entries.length > 0 || waiting.length === 0, 'it went blank while posts wait')
    // With hold, the first entry on screen stays if it still exists.
    const first = before.entries.find((e) => foreign(before, e))
    if (a.type !== 'page' || before.reading?.show || !first || this.gone.has(first.node.id)) return
    const still = [...a.page.edges, ...(a.page.apart?.edges ?? [])].some(({ node }) => node.id === first.node.id)
    if (still) assert.equal(entries.find((e) => foreign(before, e))?.node.id, first.node.id, 'the first entry shown is another')
  }

  check() {
    const { entries, waiting } = this.held
    const ids = [...entries, ...waiting].map(({ node }) => node.id)
    assert.equal(new Set(ids).size, ids.length, 'a post is there twice')
    for (const list of [entries, waiting]) assert.deepEqual(list, merge(list), 'not newest first')
    // A post that an event removed, and that the server still does not show, is not shown.
    for (const id of ids) assert.ok(!this.gone.has(id) || this.server.timeline.has(id), `${id} is shown though it was told to be gone`)
    assert.ok(this.held.unread >= 0)
  }

  subscribe() {
    if (!this.stream && this.held.loaded && this.held.position !== null) this.stream = { at: +this.held.position }
  }

  /** Cuts the connection. Events in flight are lost. */
  cut() {
    this.stream = null
    this.wire = []
  }

  /** Sends the next event of the server. */
  send() {
    const told = this.stream && this.server.tell(this.stream.at)
    if (!told) return false
    this.stream!.at = told.at
    this.wire.push(told.event)
    // A removal may be sent twice.
    if (told.event.__typename === 'TimelinePostRemoved' && this.r.chance(0.1)) this.wire.push(told.event)
    return true
  }

  receive() {
    const event = this.wire.shift()
    if (!event) return false
    if (event.__typename === 'TimelinePostRemoved') this.gone.set(event.postId, +event.position)
    if (event.__typename === 'TimelinePostAdded' || event.__typename === 'TimelinePostUpdated') this.gone.delete(event.edge.node.id)
    this.step({ type: 'event', event })
    return true
  }

  read(what: 'top' | 'older', show = false) {
    if (this.reading || (what === 'older' && !this.held.next)) return
    const id = ++this.#reads
    this.reading = { id, pages: [], wanted: 1 + this.r.below(3), what }
    this.step({ type: 'read', id, what, show })
  }

  /** Answers the next page of the read. */
  answer() {
    if (!this.reading) return
    const { pages, wanted, what } = this.reading
    const last = pages.at(-1)
    // The answer may stay in flight for long after the last page.
    if (pages.length && (!last!.next || pages.length >= wanted || what === 'older')) return this.r.chance(0.3) ? this.land() : undefined
    pages.push(this.server.page(last ? last.next : what === 'older' ? this.held.next : null, 1 + this.r.below(5)))
  }

  /** Delivers the answer of the read, or loses it. */
  land(lost = this.r.chance(0.15)) {
    const { id, pages, what } = this.reading!
    this.reading = null
    if (lost || !pages.length) return this.step({ type: 'failed', id })
    const edges = pages.flatMap((p) => p.edges)
    // A page read after a post was removed proves that the post is visible again.
    for (const p of pages) for (const { node } of p.edges) if (+p.position >= (this.gone.get(node.id) ?? Infinity)) this.gone.delete(node.id)
    const { next } = pages.at(-1)!
    const end = edges.at(-1)?.score ?? -Infinity
    const shown = what === 'top' && this.held.hold && next && shownTop(this.held) < end ? this.held.entries.filter(({ score }) => score < end) : []
    const rest = this.server.sorted.filter(({ score }) => score <= (shown[0]?.score ?? -Infinity))
    const apart = rest.filter(({ score }) => score >= (shown.at(-1)?.score ?? Infinity))
    if (apart.length) for (const { node } of apart) this.gone.delete(node.id)
    this.step({
      type: 'page', id,
      page: { ...pages[0]!, edges, next, ...(shown.length && { apart: { edges: apart, next: rest.length > apart.length ? apart.at(-1)?.cursor ?? null : null } }) },
    })
  }

  /** Ends the program, and starts it with its stored state. */
  reborn() {
    if (this.r.chance(0.5)) this.saved = JSON.parse(JSON.stringify(save(this.held, 1 + this.r.below(20))))
    this.cut()
    this.reading = null
    this.gone.clear()
    this.held = restore(this.#empty(), this.saved)
    this.check()
  }

  /** Runs until nothing is left to do. */
  settle() {
    for (let n = 0; ; n++) {
      assert.ok(n < 10_000, 'it never settles')
      if (this.reading) {
        this.answer()
        continue
      }
      if (this.held.stale) this.read('top')
      else {
        this.subscribe()
        if (!this.send() && !this.receive()) return
      }
    }
  }
}

const ids = (edges: Edge[]) => edges.map(({ node }) => node.id)
const says = (edges: Edge[]) => edges.map(({ node }) => `${node.id}: ${node.text?.trim()}`)

/** The number of histories that ended with a gap. */
let gaps = 0

/** Plays one random history of a server and a client, and checks its end. */
function world(seed: number) {
  const r = random(seed)
  const server = new Server(r, r.chance(0.3))
  const client = new Client(server, r, r.chance(0.5))
  for (let n = r.below(30); n > 0; n--) server.post()
  for (let n = 20 + r.below(150); n > 0; n--) {
    switch (r.below(16)) {
      case 0: case 1: case 2: case 3:
        server.happen()
        break
      case 4: case 5: case 6:
        client.send()
        break
      case 7: case 8: case 9:
        client.receive()
        break
      case 10:
        client.subscribe()
        break
      case 11:
        if (client.held.stale || r.chance(0.2)) client.read('top', r.chance(0.3))
        else client.read('older')
        break
      case 12: case 13:
        client.answer()
        break
      case 14:
        if (r.chance(0.4)) client.cut()
        else if (r.chance(0.2)) client.reborn()
        else if (r.chance(0.3)) client.step({ type: 'show' })
        break
      case 15:
        if (r.chance(0.2)) post(client, server, r)
        else if (r.chance(0.1)) client.step({ type: 'restart' })
        // Many changes happen while a page is in flight.
        else if (client.reading) for (let n = r.below(20); n > 0; n--) [server.happen(), client.send(), client.receive()]
    }
  }
  client.settle()
  const held = () => merge(client.held.entries, client.held.waiting)
  const { gap } = client.held
  if (gap) {
    const above = (edges: Edge[]) => says(edges.filter((e) => e.score >= gap.end))
    assert.deepEqual(above(held()), above(server.sorted), 'what waits is not the timeline')
    const below = held().filter((e) => e.score < gap.end)
    assert.ok(below.length > 0, 'nothing is held apart')
    assert.deepEqual(says(below), says(below.map(({ node }) => server.timeline.get(node.id)!)), 'what is shown apart is not in the timeline')
    if (r.chance(0.3)) client.read('older')
    client.step({ type: 'show' })
    gaps++
  }
  client.settle()
  const end = client.held.next ? client.held.end : -Infinity
  const within = (edges: Edge[]) => edges.filter((e) => e.score >= end)
  assert.deepEqual(says(within(held())), says(within(server.sorted)), 'what is held is not the timeline')
  // The viewer's own new post is shown at once, even if the pages above it have not been read.
  for (const edge of held()) if (edge.score < end) assert.deepEqual(says([edge]), says([server.timeline.get(edge.node.id)!]))
  client.step({ type: 'event', event: { __typename: 'TimelineHeartbeat', position: client.held.position!, unreadCount: server.unread } })
  const line = readLine(client.held)
  if (line !== undefined) assert.equal(held().filter((e) => e.score > line && e.node.author!.id !== viewer).length, server.unread, 'the line')
  // Read to the last page, while the timeline keeps changing.
  for (let n = 0; client.held.next || client.held.gap; n++) {
    if (n < 20) server.happen()
    if (n === 10) client.cut()
    if (client.held.gap) client.step({ type: 'show' })
    client.read('older')
    client.settle()
  }
  assert.deepEqual(says(held()), says(server.sorted), 'what is held in the end is not the timeline')
}

/** Creates a post. Its answer comes at once, after the event, or never. */
function post(client: Client, server: Server, r: Random) {
  const key = `key ${r.below(1e9)}`
  client.step({ type: 'compose', post: { key, text: ` ${key} `, createdAt: '' } })
  const edge = server.post(viewer, key)
  for (let n = r.below(6); n > 0; n--) {
    if (r.chance(0.3)) client.subscribe()
    if (r.chance(0.5)) client.send()
    if (r.chance(0.5)) client.receive()
    if (r.chance(0.3)) client.read('top')
    if (r.chance(0.5)) client.answer()
    // Delete the post before its answer comes.
    if (r.chance(0.2)) server.leave(edge)
  }
  if (r.chance(0.7)) {
    client.step({ type: 'posted', key, edge })
  } else client.step({ type: 'refused', key, error: { code: '', message: '' } })
  client.step({ type: 'discard', key })
  assert.ok(!client.held.pending.some((p) => p.key === key))
}

test('what is held is what the timeline says', () => {
  const one = process.env.SEED
  const first = one ? +one : 1
  const runs = one ? 1 : +(process.env.RUNS ?? 2000)
  for (let seed = first; seed < first + runs; seed++) {
    try {
      world(seed)
    } catch (error) {
      throw new Error(`SEED=${seed}: ${(error as Error).stack}`)
    }
  }
  assert.ok(one || gaps > runs / 100, `only ${gaps} of ${runs} histories had a gap`)
})

test('what is shown stays while more is missed than is read', () => {
  const edge = (score: number): Edge => ({ cursor: `${score}`, score, node: { id: `p${score}`, author: { id: 'a' }, text: '' } })
  const down = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, i) => edge(from - i))
  const page = { position: '1', unreadCount: 0 }
  let held = step(step(empty(viewer, true), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: { ...page, edges: down(40, 1), next: null } })
  held = step(held, { type: 'read', id: 2, what: 'top' })
  held = step(held, { type: 'page', id: 2, page: { ...page, edges: down(290, 91), next: '91', unreadCount: 250, apart: { edges: down(40, 1), next: null } } })
  assert.deepEqual([ids(held.entries), held.waiting.length, held.unread], [ids(down(40, 1)), 200, 250])
  // A late post in the gap comes with its page.
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: { ...edge(60), node: { ...edge(60).node, id: 'late' } } } })
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostRemoved', position: '3', postId: 'p40' } })
  assert.deepEqual([ids(held.entries), held.waiting.length], [ids(down(39, 1)), 200])
  // The page after the dropped entries is in flight; its answer is ignored.
  held = step(held, { type: 'read', id: 3, what: 'older' })
  held = step(held, { type: 'show' })
  held = step(held, { type: 'page', id: 3, page: { ...page, edges: [edge(0)], next: null } })
  assert.deepEqual([ids(held.entries), held.waiting.length, held.next, held.end, held.gap], [ids(down(290, 91)), 0, '91', 91, null])
})

test('a list whose last entry leaves shows what waits', () => {
  const edge = (score: number): Edge => ({ cursor: `${score}`, score, node: { id: `p${score}`, author: { id: 'a' }, text: '' } })
  let held = step(step(empty(viewer, true), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: { edges: [edge(1)], next: null, position: '1', unreadCount: 0 } })
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: edge(2) } })
  assert.equal(held.waiting.length, 1)
  held = step(held, { type: 'gone', postId: 'p1' })
  assert.deepEqual([ids(held.entries), held.waiting.length], [['p2'], 0])
})

test('a cut at every point loses nothing', () => {
  for (let cut = 0; cut < 60; cut++) {
    const r = random(7)
    const server = new Server(r)
    const client = new Client(server, random(8), false)
    for (let n = 0; n < 12; n++) server.post()
    client.read('top')
    for (let n = 0; n < 60; n++) {
      server.happen()
      client.subscribe()
      if (n % 3) client.send()
      if (n % 2) client.receive()
      if (n === cut) client.cut()
      if (n % 5 === 0) client.answer()
      if (n % 7 === 0) client.read(client.held.stale ? 'top' : 'older')
    }
    client.settle()
    const end = client.held.next ? client.held.end : -Infinity
    assert.deepEqual(ids(client.held.entries), ids(server.sorted.filter((e) => e.score >= end)), `cut at ${cut}`)
  }
})

test('a post that was refused stays with its reason', () => {
  let held = empty(viewer)
  held = step(held, { type: 'compose', post: { key: 'a', text: 'said', createdAt: '' } })
  held = step(held, { type: 'refused', key: 'a', error: { code: 'BAD_USER_INPUT', message: 'too long' } })
  assert.deepEqual(held.pending, [{ key: 'a', text: 'said', createdAt: '', error: { code: 'BAD_USER_INPUT', message: 'too long' } }])
  // A post with the same text from another device does not replace the failed one.
  const edge = { cursor: '1', score: 1, node: { id: 'p', text: 'said', author: { id: viewer } } }
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '1', edge } })
  assert.equal(held.pending.length, 1)
  assert.equal(restore(empty(viewer), JSON.parse(JSON.stringify(save(held)))).pending.length, 1)
  assert.equal(restore(empty('another'), save(held)).pending.length, 0)
})

test('of two own posts with the same text, the one that fails stays with its error', () => {
  const created: Edge = { cursor: '1', score: 1, node: { id: 'p', text: 'twice', author: { id: viewer } } }
  const told: Step = { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: created } }
  const error = { code: 'INTERNAL', message: 'no' }
  const compose = (key: string): Step => ({ type: 'compose', post: { key, text: 'twice', createdAt: '' } })
  const after = (...steps: Step[]) => [compose('one'), compose('two'), ...steps].reduce(step, empty(viewer))
  for (const [ok, failed] of [['one', 'two'], ['two', 'one']] as const) {
    const answer: Step = { type: 'posted', key: ok, edge: created }
    const failure: Step = { type: 'refused', key: failed, error }
    for (const steps of [[told, answer, failure], [told, failure, answer], [answer, told, failure]]) {
      const held = after(...steps)
      assert.deepEqual([ids(held.entries), held.pending.map((p) => [p.key, p.error])], [['p'], [[failed, error]]])
    }
    assert.deepEqual(after(answer, told).pending.map((p) => p.key), [failed])
    assert.deepEqual(after(told, { type: 'discard', key: ok }, { type: 'discard', key: failed }, failure).pending, [])
  }
})

test('what was written before the stored state is loaded stays, beside the stored posts', () => {
  const post = (key: string) => ({ key, text: key, createdAt: '' })
  const stored = [post('both'), post('stored')].reduce<Held>((s, post) => step(s, { type: 'compose', post }), empty(viewer))
  const held = [post('both'), post('new')].reduce<Held>((s, post) => step(s, { type: 'compose', post }), empty(viewer))
  const page: Page = { edges: [], next: null, position: '1', unreadCount: 0 }
  const good = step(step(stored, { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page })
  for (const saved of [save(stored), save(good)]) {
    assert.deepEqual(restore(held, saved).pending.map(({ key, error }) => [key, error?.code]), [['new', undefined], ['both', undefined], ['stored', '']])
  }
})

test('an edit takes the place of what was said, and is no news', () => {
  const edge = (id: string, score: number, text = id): Edge => ({ cursor: id, score, node: { id, author: { id: 'a' }, text } })
  for (const hold of [false, true]) {
    let held = step(step(empty(viewer, hold), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: { edges: [edge('c', 9), edge('b', 5)], next: 'b', position: '1', unreadCount: 1 } })
    const tell = (position: string, edited: Edge) => (held = step(held, { type: 'event', event: { __typename: 'TimelinePostUpdated', position, edge: edited } }))
    tell('2', edge('b', 5, 'said anew'))
    tell('3', edge('unmuted', 7))
    tell('4', edge('further down', 1))
    assert.deepEqual(says(held.entries), ['c: c', 'unmuted: unmuted', 'b: said anew'])
    assert.deepEqual([held.unread, held.position], [1, '4'])
  }
})

test('a post that comes and is edited during a read says what it said last', () => {
  const edge = (text: string): Edge => ({ cursor: 'a', score: 1, node: { id: 'a', author: { id: 'a' }, text } })
  // The page was read before the post was created.
  const page: Page = { edges: [], next: null, position: '1', unreadCount: 0 }
  for (const edited of [
    { type: 'event', event: { __typename: 'TimelinePostUpdated', position: '3', edge: edge('edited') } },
    { type: 'changed', node: edge('edited').node },
  ] satisfies Step[])
    for (const what of ['top', 'older'] as const) {
      let held = step(empty(viewer), { type: 'read', id: 1, what })
      held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: edge('first') } })
      held = step(step(held, edited), { type: 'page', id: 1, page })
      assert.deepEqual(says(held.entries), ['a: edited'])
    }
})

test('a post that is hidden and shown again during a read is there afterwards, and is no news', () => {
  const edge = (id: string, score: number): Edge => ({ cursor: id, score, node: { id, author: { id: 'a' }, text: id } })
  const page = (edges: Edge[], next: string | null): Page => ({ edges, next, position: '1', unreadCount: 0 })
  const removed = (postId: string): Step => ({ type: 'event', event: { __typename: 'TimelinePostRemoved', position: '2', postId } })
  const updated = (edge: Edge): Step => ({ type: 'event', event: { __typename: 'TimelinePostUpdated', position: '3', edge } })
  const [c, b, a] = [edge('c', 9), edge('b', 5), edge('a', 3)]
  const first = step(step(empty(viewer), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: page([c, b], 'b') })
  const during = (what: 'top' | 'older', steps: Step[], answer: Page, start = first) =>
    [{ type: 'read', id: 2, what }, ...steps, { type: 'page', id: 2, page: answer }].reduce<Held>((s, a) => step(s, a as Step), start)

  // The answer was read while the post was hidden, or before.
  for (const answer of [page([], null), page([a], null)]) {
    assert.deepEqual(ids(during('older', [removed('a'), updated(a)], answer).entries), ['c', 'b', 'a'])
  }
  for (const answer of [page([c], null), page([c, b], null)]) {
    const held = during('top', [removed('b'), updated(b)], answer)
    assert.deepEqual([ids(held.entries), held.unread], [['c', 'b'], 0])
  }
  // In the server's order it stays where the answer has it. An edited post that the answer lacks does not wait.
  const order = during('top', [], page([b, c], 'x'), step(first, { type: 'order', order: 'RANKED' }))
  assert.deepEqual(ids(during('older', [removed('a'), updated(a)], page([a], null), order).entries), ['b', 'c', 'a'])
  const held = during('top', [updated(a)], page([b, c], null), order)
  assert.deepEqual([ids(held.entries), ids(held.waiting)], [['b', 'c'], []])
})

test('a position that lies beyond an unread invalidation is not resumed from', () => {
  const page = (position: string): Page => ({ edges: [], next: null, position, unreadCount: 0 })
  let held = step(step(empty(viewer), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: page('1') })
  held = step(held, { type: 'event', event: { __typename: 'TimelineInvalidated', position: '2' } })
  held = step(held, { type: 'event', event: { __typename: 'TimelineHeartbeat', position: '3', unreadCount: 0 } })
  assert.equal(held.position, '1')
  held = step(step(held, { type: 'read', id: 2, what: 'top' }), { type: 'page', id: 2, page: page('4') })
  assert.deepEqual([held.position, held.stale], ['4', false])
})

test('ranks are shown as they come, and news waits', () => {
  const edge = (id: string, score: number): Edge => ({ cursor: id, score, node: { id, author: { id: 'a' }, text: id } })
  let held = step(empty(viewer), { type: 'order', order: 'RANKED' })
  held = step(held, { type: 'read', id: 1, what: 'top' })
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '1', edge: edge('new', 9) } })
  held = step(held, { type: 'page', id: 1, page: { edges: [edge('b', 1), edge('a', 5)], next: 'x', position: '0', unreadCount: 0 } })
  assert.deepEqual([ids(held.entries), ids(held.waiting)], [['b', 'a'], ['new']])
  held = step(step(held, { type: 'read', id: 2, what: 'older' }), { type: 'page', id: 2, page: { edges: [edge('a', 5), edge('c', 3)], next: null, position: '0', unreadCount: 0 } })
  assert.deepEqual(ids(held.entries), ['b', 'a', 'c'])
})

test('a late post that is told while its page is on its way is there with the page', () => {
  const edge = (id: string, score: number): Edge => ({ cursor: id, score, node: { id, author: { id: 'a' }, text: id } })
  let held = step(step(empty(viewer), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: { edges: [edge('c', 9)], next: 'c', position: '1', unreadCount: 0 } })
  held = step(held, { type: 'read', id: 2, what: 'older' })
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: edge('late', 5) } })
  held = step(held, { type: 'event', event: { __typename: 'TimelinePostAdded', position: '3', edge: edge('later page', 1) } })
  assert.deepEqual(ids(held.entries), ['c'])
  held = step(held, { type: 'page', id: 2, page: { edges: [edge('b', 6), edge('a', 3)], next: 'a', position: '1', unreadCount: 0 } })
  assert.deepEqual(ids(held.entries), ['c', 'b', 'late', 'a'])
})

test('after an empty page with a next page, a late post still comes with its page', () => {
  const edge = (id: string, score: number): Edge => ({ cursor: id, score, node: { id, author: { id: 'a' }, text: id } })
  const page = (edges: Edge[], next: string | null): Page => ({ edges, next, position: '1', unreadCount: 0 })
  const late: Step = { type: 'event', event: { __typename: 'TimelinePostAdded', position: '2', edge: edge('late', 1) } }
  for (const what of ['top', 'older'] as const) {
    let held = step(step(empty(viewer), { type: 'read', id: 1, what: 'top' }), { type: 'page', id: 1, page: page([edge('c', 9)], 'c') })
    held = step(step(held, { type: 'read', id: 2, what }), late)
    held = step(held, { type: 'page', id: 2, page: page([], 'b') })
    held = step(held, late)
    assert.deepEqual([held.entries.some(({ node }) => node.id === 'late'), held.end, held.next], [false, 9, 'b'])
  }
})

test('an original is shown once, under its newest repost', () => {
  const of = (id: string, text = id) => ({ id, author: { id: 'someone' }, text })
  const entry = (score: number, node: Edge['node']): Edge => ({ cursor: `${score}`, score, node })
  const repost = (score: number, by: string, original = of('original')) => entry(score, { id: `by ${by}`, author: { id: by }, text: '', repostOf: original })
  const shows = (s: Held) => collapse(s.entries).map(({ post, reposts }) => [post.text, ...reposts.map(({ node }) => node.id)].join(', '))
  const after = (...events: TimelineEvent[]) => {
    s = events.reduce<Held>((held, event) => step(held, { type: 'event', event }), s)
    return shows(s)
  }
  const added = (edge: Edge): TimelineEvent => ({ __typename: 'TimelinePostAdded', position: '', edge })
  const removed = (postId: string): TimelineEvent => ({ __typename: 'TimelinePostRemoved', position: '', postId })

  let s = step(step(empty(viewer), { type: 'read', id: 1, what: 'top' }), {
    type: 'page', id: 1, page: { edges: [repost(5, 'ada'), entry(4, of('between'))], next: null, position: '', unreadCount: 0 },
  })
  assert.deepEqual(shows(s), ['original, by ada', 'between'])
  assert.deepEqual(after(added(entry(1, of('original')))), ['original, by ada', 'between'], 'the original arrives')
  assert.deepEqual(after(added(repost(6, 'bob')), added(repost(3, 'cyd'))), ['original, by bob, by ada, by cyd', 'between'])
  assert.deepEqual(after(removed('by bob')), ['original, by ada, by cyd', 'between'], 'the newest repost is undone')
  assert.deepEqual(after(removed('by ada')), ['between', 'original, by cyd'])
  assert.deepEqual(after({ __typename: 'TimelinePostUpdated', position: '', edge: entry(1, of('original', 'edited')) }), ['between', 'edited, by cyd'])
  assert.deepEqual(after(removed('original')), ['between', 'edited, by cyd'], 'a repost carries the edited text')
  assert.deepEqual(after(removed('by cyd')), ['between'])

  // An edit that arrives during a read holds for the original within a repost, too.
  s = step(s, { type: 'read', id: 2, what: 'top' })
  s = step(s, { type: 'changed', node: of('original', 'edited again') })
  s = step(s, { type: 'page', id: 2, page: { edges: [repost(7, 'dan')], next: null, position: '', unreadCount: 0 } })
  assert.deepEqual(shows(s), ['edited again, by dan'])
})
