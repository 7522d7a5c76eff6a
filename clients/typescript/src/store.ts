// A timeline that is read, followed and kept.
import { createClient, type Client } from 'graphql-ws'

import { empty, restore, save, shownTop, step, type Edge, type Held, type Order, type Page, type Pending, type Post, type Step, type TimelineEvent } from './core.js'
import { defaultFields, documents, type DefaultPost, httpRequest, reconnectDelay, type Refusal, Tokens, type Request, type TokenSource } from './server.js'
import type { Storage } from './storage.js'

export type Options<P extends Post = DefaultPost> = {
  /** The address of the API, as https://example.org/graphql. */
  url: string
  /** The id of the user. */
  viewer: string
  /** The user's token, or where to get it and a new one when it has ended. */
  token: string | TokenSource
  /** What is selected of a post; id and author { id } are needed, and text for own posts. */
  fields?: string
  /** The fragments that fields names. */
  fragments?: string
  /** Where it is kept; nowhere by default. */
  storage?: Storage<P>
  /** Whether what comes by event waits until {@link TimelineStore.show}, so that nothing moves under the reader's eyes. */
  hold?: boolean
  /** How many entries one read asks for: 20, which every server gives. */
  pageSize?: number
  /** How many entries one request asks for where more than a page is read: as many as a page has. */
  readSize?: () => number
  /** How many entries are read again at most, from the newest down, when that must be: 200. With hold, those shown are always read again. */
  most?: number
  /** Every how many seconds the server says that nothing was missed, and how much is unread: 30; 0: never. */
  heartbeat?: number
  /** Whether all is read again after a lost connection, for the counts and texts of which no event tells. */
  reread?: boolean
  /** Milliseconds before the nth try after a failure. */
  backoff?: (n: number) => number
  /** Runs queries and mutations in another way. */
  request?: Request
  fetch?: typeof globalThis.fetch
  webSocketImpl?: unknown
  /** Told when the session is over: no new token came for one that was refused. */
  onSessionEnded?: () => void
  /** Told of each event, before what it changes is held. */
  onEvent?: (event: TimelineEvent<P>) => void
}

export type Status = 'connecting' | 'live' | 'catchingUp' | 'reconnecting' | 'offline' | 'stopped'

/** What is shown. Each change makes a new one. */
export type Snapshot<P extends Post = DefaultPost> = Held<P> & {
  status: Status
  /** Whether something is being read. */
  busy: boolean
  /** Why the last read failed; undefined: it did not. */
  error: Error | undefined
}

/** The close code that refuses a token. */
const forbidden = 4403
/** The close code of a server that stops. */
const restart = 1012
/** How long a ping may stay unanswered, in milliseconds. */
const pongWait = 5_000
const saveAfter = 500
/** How often in succession a timeline is read again at once. */
const patient = 3
/** For how long a timeline must not be invalidated until the next time is the first again, in milliseconds. */
const calm = 30_000

const spread = (n: number) => Math.min(500 * 2 ** n, 15_000) * (0.5 + Math.random())

/** The key of a post; unlike crypto.randomUUID it needs no secure page. */
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

type Link = 'connecting' | 'open' | 'lost' | 'offline' | 'stopped'

/**
 * The timeline of a user. Its subscription resumes where what it holds ends, each time; what it cannot resume it reads
 * again. It is observable, and belongs to no framework.
 */
export class TimelineStore<P extends Post = DefaultPost> {
  readonly #options: Options<P>
  readonly #documents: ReturnType<typeof documents>
  readonly #tokens: Tokens
  readonly #request: Request
  readonly #watchers = new Set<() => void>()
  #held: Held<P>
  #link: Link = 'connecting'
  #error: Error | undefined
  #snapshot: Snapshot<P> | undefined

  #running = false
  #restored: Promise<void> | undefined
  #client: Client | undefined
  // The token of the connection, and the one that the server refused.
  #token: string | undefined
  #refused: string | undefined
  #reads = 0
  #work: Promise<void> | undefined
  #top = false
  #older = false
  #showAll = false
  #first: number
  readonly #pauses = new Set<() => void>()
  #saving: ReturnType<typeof setTimeout> | undefined
  #silence: ReturnType<typeof setTimeout> | undefined
  // How often the subscription ended without an event, and whether that is being looked into.
  #failures = 0
  #asking = false
  // What the server that closed the socket said of the delay.
  #delay: number | undefined
  // How often in succession the timeline was invalidated soon after it had been read, and until when that is soon.
  #repeats = 0
  #soon = 0
  // Whether that was waited for, and the read has not ended since.
  #rested = false
  // Whether edits are not told, as the server is of a version that does not know them.
  #untold = false
  #stops: (() => void)[] = []

  constructor(options: Options<P>) {
    const { token, url, fields = defaultFields, fragments = '' } = options
    this.#options = options
    this.#documents = documents(fields, fragments)
    this.#tokens = new Tokens(typeof token === 'string' ? () => token : token)
    this.#request = options.request ?? httpRequest(url, this.#tokens, options.fetch ?? ((...a) => fetch(...a)))
    this.#held = empty(options.viewer, options.hold)
    this.#first = options.pageSize ?? 20
  }

  /** Calls watcher after each change; returns the way to stop. */
  subscribe = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher)
    return () => {
      this.#watchers.delete(watcher)
    }
  }

  /** The same object until something changes. */
  getSnapshot = (): Snapshot<P> =>
    (this.#snapshot ??= { ...this.#held, status: this.#status(), busy: this.#held.reading !== null || this.#older, error: this.#error })

  #status(): Status {
    if (this.#link === 'open') return this.#held.stale || this.#top ? 'catchingUp' : 'live'
    return this.#link === 'lost' ? 'reconnecting' : this.#link
  }

  #changed() {
    this.#snapshot = undefined
    this.#watchers.forEach((watcher) => watcher())
  }

  #step(...steps: Step<P>[]) {
    this.#held = steps.reduce<Held<P>>(step, this.#held)
    this.#changed()
    this.#keep()
    if (this.#running && this.#held.stale) void this.#go()
  }

  #to(link: Link) {
    if (this.#link === 'stopped' && this.#running && link !== 'connecting') return
    this.#link = link
    this.#changed()
  }

  /** Takes up what was kept, reads what must be read, and follows. Resolves once there is something to show. */
  async start(entries?: number): Promise<void> {
    if (this.#running) return
    this.#running = true
    this.#first = entries ?? this.#first
    this.#to('connecting')
    this.#watchNetwork()
    await (this.#restored ??= this.#restore())
    if (!this.#running) return
    if (this.#held.stale) await this.#go()
    else this.#follow()
  }

  async #restore() {
    const saved = await this.#options.storage?.load().catch(() => null)
    this.#held = restore(this.#held, saved)
    this.#changed()
  }

  /** Ends it, until it is started again. What it holds is kept. */
  stop() {
    this.#running = false
    this.#stops.splice(0).forEach((stop) => stop())
    clearTimeout(this.#silence)
    this.#unfollow()
    this.#wake()
    this.#flush()
  }

  #watchNetwork() {
    if (typeof document === 'undefined') return
    const online = () => {
      if (this.#link === 'offline') this.#to('lost')
      this.#wake()
    }
    // The browser knows before the connection does.
    const offline = () => {
      this.#to('offline')
      this.#client?.terminate()
    }
    addEventListener('online', online)
    addEventListener('offline', offline)
    this.#stops.push(() => {
      removeEventListener('online', online)
      removeEventListener('offline', offline)
    })
  }

  #offline = () => typeof document !== 'undefined' && !navigator.onLine

  /** Resolves when the time has come for another try, or the network is back. */
  #pause(n: number, delay?: number): Promise<void> {
    return new Promise((done) => {
      const over = () => {
        clearTimeout(timer)
        this.#pauses.delete(over)
        done()
      }
      const timer = setTimeout(over, delay ?? (this.#options.backoff ?? spread)(n))
      this.#pauses.add(over)
    })
  }

  #wake() {
    this.#pauses.forEach((over) => over())
  }

  // ---- Reading

  /** Reads what must be read or was asked for, one thing after the other. */
  #go(): Promise<void> {
    return (this.#work ??= this.#readAll().then(() => {
      this.#work = undefined
      this.#changed()
      // It may have been asked for after the last look.
      return this.#wanted() ? this.#go() : undefined
    }))
  }

  /** What is to be read next; undefined: nothing. */
  #wanted(): 'top' | 'older' | undefined {
    if (!this.#running || this.#link === 'stopped') return undefined
    return this.#held.stale || this.#top ? 'top' : this.#older && this.#held.next ? 'older' : undefined
  }

  async #readAll() {
    await null // so that the caller has the promise
    let what: 'top' | 'older' | undefined
    for (let failures = 0; (what = this.#wanted()); ) {
      if (await this.#rest()) continue
      const show = this.#showAll
      if (await this.#read(what, show)) {
        failures = 0
        if (what === 'top') {
          [this.#top, this.#showAll] = [false, this.#showAll && !show]
          this.#rested = false
          this.#soon = Date.now() + calm
        }
        else this.#older = false
        if (this.#held.loaded && !this.#client) this.#follow()
        continue
      }
      // What the user asked for is theirs to repeat.
      this.#older = this.#top = false
      this.#changed()
      if (!this.#held.stale) break
      await this.#pause(failures++)
    }
    this.#older = false
  }

  /** Waits where the timeline is invalidated again and again, longer each time; reports whether it did. */
  async #rest(): Promise<boolean> {
    if (this.#rested || !this.#held.loaded || !this.#held.stale || this.#top) return false
    this.#repeats = Date.now() < this.#soon ? this.#repeats + 1 : 0
    this.#rested = true
    if (this.#repeats < patient) return false
    await this.#pause(this.#repeats - patient)
    return true
  }

  async #read(what: 'top' | 'older', show: boolean): Promise<boolean> {
    const id = ++this.#reads
    this.#step({ type: 'read', id, what, show })
    try {
      const page = what === 'top' ? await this.#pages(show) : await this.#page({ first: this.#options.pageSize ?? 20, after: this.#held.next })
      this.#error = undefined
      this.#step({ type: 'page', id, page })
      return true
    } catch (error) {
      this.#error = error as Error
      this.#step({ type: 'failed', id })
      this.#authenticated(error)
      return false
    }
  }

  async #page(place: { first: number; after?: string | null } | { last: number; before: string }): Promise<Page<P>> {
    const { timeline } = await this.#request(this.#documents.page, { ...place, order: this.#held.order })
    const { edges, position, unreadCount, pageInfo } = timeline
    return { edges, position, unreadCount, next: pageInfo.hasNextPage ? (pageInfo.endCursor ?? null) : null }
  }

  /** The first pages, down to the oldest entry shown, within bounds. */
  async #pages(show: boolean): Promise<Page<P>> {
    const { entries, order, loaded, hold } = this.#held
    const { pageSize = 20, most = 200 } = this.#options
    const readSize = Math.max(pageSize, this.#options.readSize?.() ?? 0)
    const wanted = !loaded ? this.#first : order === 'RANKED' ? Math.min(most, Math.max(entries.length, pageSize)) : pageSize
    const oldest = loaded && order === 'LATEST' ? entries.at(-1)?.score : undefined
    const page = await this.#page({ first: Math.min(Math.max(wanted, oldest === undefined ? 0 : entries.length), readSize) })
    const top = shownTop(this.#held)
    const last = (edges: Edge<P>[]) => edges.at(-1)?.score ?? -Infinity
    const down = await this.#down(readSize, page, (edges) => {
      if (edges.length >= Math.max(most, wanted) && !(hold && !show && loaded && last(edges) <= top)) return false
      return edges.length < wanted || (oldest !== undefined && last(edges) > oldest)
    })
    const held = { ...page, ...down }
    if (!hold || show || oldest === undefined || !down.next || top >= last(down.edges)) return held
    // So much is new that the read ends above what is shown, which stays if it is still there.
    const shown = entries.find(({ score }) => score < last(down.edges))!
    const rest = await this.#page({ first: readSize, after: shown.cursor })
    // The first of them alone is above the cursor of each.
    const first = await this.#page({ last: 1, before: (rest.edges[0] ?? shown).cursor })
    const edges = [...first.edges.filter(({ node }) => node.id === shown.node.id), ...rest.edges]
    return { ...held, apart: await this.#down(readSize, { ...rest, edges }, (all) => last(all) > oldest) }
  }

  /** The page, and after it as many as are wanted. */
  async #down(first: number, { edges, next }: Page<P>, wants: (edges: Edge<P>[]) => boolean): Promise<Pick<Page<P>, 'edges' | 'next'>> {
    const all = [...edges]
    while (next && wants(all)) {
      const more: Page<P> = await this.#page({ first, after: next })
      all.push(...more.edges)
      next = more.next
    }
    return { edges: all, next }
  }

  #authenticated(error: unknown) {
    if ((error as Partial<Refusal> | undefined)?.code === 'UNAUTHENTICATED') this.#over()
  }

  #over() {
    if (this.#link === 'stopped') return
    this.#to('stopped')
    this.#unfollow()
    this.#options.onSessionEnded?.()
  }

  /** Adds the next page. Resolves when it is there, or has failed. */
  more = async (): Promise<void> => {
    if (!this.#held.next || this.#older) return this.#work
    this.#older = true
    this.#changed()
    await this.#go()
  }

  /** Reads again what is shown; with show nothing of it waits. */
  refresh = async (show = false): Promise<void> => {
    this.#top = true
    this.#showAll ||= show
    // A read under way may be from before what is asked for.
    if (this.#held.reading?.what === 'top') this.#held = { ...this.#held, stale: true, reading: { ...this.#held.reading, void: true } }
    this.#wake()
    await this.#go()
  }

  /** Repeats what failed. */
  retry = (): Promise<void> => (this.#error && this.#held.loaded && this.#held.next && !this.#held.stale ? this.more() : this.refresh())

  setOrder = async (order: Order): Promise<void> => {
    if (order === this.#held.order) return
    this.#error = undefined
    this.#step({ type: 'order', order })
    this.#wake()
    await this.#go()
  }

  /** Shows what waits. */
  show = async (): Promise<void> => {
    if (this.#held.order === 'LATEST') return this.#step({ type: 'show' })
    this.#step({ type: 'order', order: 'LATEST' }, { type: 'order', order: 'RANKED' })
    await this.#go()
  }

  // ---- Following

  #follow() {
    if (this.#client || this.#asking || !this.#running || this.#link === 'stopped') return
    const { url, heartbeat = 30, webSocketImpl = globalThis.WebSocket } = this.#options
    let again = false
    let pong: ReturnType<typeof setTimeout> | undefined
    const client: Client = createClient({
      url: url.replace(/^http/, 'ws'),
      webSocketImpl: closed(webSocketImpl as typeof WebSocket),
      connectionParams: async () => {
        const refused = this.#refused
        const token = await this.#tokens.get(refused)
        if (token === null) {
          this.#over()
          throw new Error('The session is over.')
        }
        this.#token = token
        return { Authorization: `Bearer ${token}` }
      },
      keepAlive: 20_000,
      lazyCloseTimeout: 5_000,
      retryAttempts: Infinity,
      // A refused token is renewed, and whoever does not listen now may do so later.
      shouldRetry: () => this.#client === client && this.#link !== 'stopped',
      retryWait: (n) => this.#pause(n, n === 0 ? this.#delay : undefined),
      on: {
        connected: () => {
          this.#refused = undefined
          if (again && this.#options.reread) this.#top = true
          again = true
          this.#to('open')
          if (this.#top) void this.#go()
          this.#repeat()
          this.#listen()
        },
        closed: (event) => {
          clearTimeout(pong)
          clearTimeout(this.#silence)
          const { code, reason } = event as CloseEvent
          if (code === forbidden) this.#refused = this.#token
          this.#delay = code === restart ? reconnectDelay(String(reason)) : undefined
          if (this.#client !== client) return
          this.#to(this.#offline() ? 'offline' : 'lost')
          if (!this.#untold) return
          // The next server may be of another version. Nobody has told of what was edited before.
          this.#untold = false
          this.#step({ type: 'event', event: { __typename: 'TimelineInvalidated', position: this.#held.position ?? '' } })
        },
        ping: (received) => {
          if (!received) pong = setTimeout(() => client.terminate(), pongWait)
        },
        pong: (received) => {
          if (received) clearTimeout(pong)
        },
      },
    })
    this.#client = client
    const position = () => this.#held.position
    const query = () => this.#documents.events(!this.#untold)
    client.subscribe<{ timelineEvents: TimelineEvent<P> }>(
      {
        // Both are read anew each time the client subscribes, also after a lost connection.
        get query() {
          return query()
        },
        variables: {
          get after() {
            return position()
          },
          heartbeat: heartbeat || null,
        },
      },
      {
        next: ({ data, errors }) => {
          if (this.#client !== client) return
          if (!data) return void this.#ended(client, errors)
          this.#failures = 0
          this.#listen()
          this.#options.onEvent?.(data.timelineEvents)
          this.#step({ type: 'event', event: data.timelineEvents })
        },
        error: (cause) => void this.#ended(client, cause),
        complete: () => void this.#ended(client, undefined),
      },
    )
  }

  #unfollow() {
    const client = this.#client
    this.#client = undefined
    // It fails where the connection has failed already.
    if (client) Promise.resolve(client.dispose()).catch(() => null)
  }

  /** Two heartbeats that do not come say that the connection is dead. */
  #listen() {
    const { heartbeat = 30 } = this.#options
    clearTimeout(this.#silence)
    if (heartbeat) this.#silence = setTimeout(() => this.#client?.terminate(), heartbeat * 2000 + pongWait)
  }

  /** The subscription has ended for good, or an event could not be made: another one takes up, if that can be. */
  async #ended(client: Client, cause: unknown) {
    if (this.#client !== client) return
    this.#unfollow()
    if (!this.#running || this.#link === 'stopped') return
    this.#to(this.#offline() ? 'offline' : 'lost')
    const codes = Array.isArray(cause) ? cause.map((e) => e.extensions?.code) : []
    if (!this.#untold && codes.includes('GRAPHQL_VALIDATION_FAILED')) {
      this.#untold = true
      return this.#held.stale ? this.#go() : this.#follow()
    }
    this.#asking = true
    this.#failures++
    // The position is of another database, or what comes after it cannot be told.
    if (codes.includes('BAD_USER_INPUT') || this.#failures > 3) this.#step({ type: 'restart' })
    try {
      const { viewer } = await this.#request(this.#documents.viewer, {})
      if (!viewer && (this.#token === undefined || (await this.#tokens.get(this.#token)) === null)) this.#over()
    } catch (error) {
      this.#authenticated(error)
    }
    if (this.#failures > 1) await this.#pause(this.#failures)
    this.#asking = false
    if (this.#held.loaded && !this.#held.stale) this.#follow()
    else await this.#go()
  }

  // ---- Writing

  /** Posts a text, which is shown as pending at once. Null: it failed, and is kept with its error. */
  post = (text: string, input: { visibility?: string; key?: string } = {}): Promise<Edge<P> | null> => {
    const { visibility, key = newKey() } = input
    this.#step({ type: 'compose', post: { key, text, createdAt: new Date().toISOString(), ...(visibility && { visibility }) } })
    return this.#send(key)
  }

  /** Sends a post again that failed; it is posted once, however often. */
  resend = (key: string): Promise<Edge<P> | null> => {
    const post = this.#held.pending.find((p) => p.key === key)
    if (!post) return Promise.resolve(null)
    const { error: _, ...again } = post
    this.#step({ type: 'compose', post: again })
    return this.#send(key)
  }

  /** Drops a post that failed. */
  discard = (key: string): void => this.#step({ type: 'discard', key })

  async #send(key: string): Promise<Edge<P> | null> {
    const { text, visibility } = this.#held.pending.find((p) => p.key === key) as Pending
    try {
      const { createPost } = await this.#request(this.#documents.create, { input: { text, visibility, idempotencyKey: key } })
      this.#step({ type: 'posted', key, edge: createPost.edge })
      return createPost.edge
    } catch (error) {
      const { code, message } = error as Refusal
      this.#step({ type: 'refused', key, error: { code: code ?? '', message } })
      return null
    }
  }

  /** What got no answer is sent again when the server is back. */
  #repeat() {
    for (const { key, error } of this.#held.pending) if (error?.code === '') void this.resend(key)
  }

  /** Moves the read mark to an entry, by default the newest shown. False: it failed; the next one moves it as well. */
  markRead = async (upTo: Edge<P> | undefined = this.#held.entries[0]): Promise<boolean> => {
    if (!upTo || this.#held.order !== 'LATEST') return false
    const answer = await this.#request(this.#documents.read, { input: { upTo: upTo.cursor } }).catch(() => null)
    if (answer) this.#step({ type: 'unread', count: answer.markTimelineRead.unreadCount })
    return answer !== null
  }

  /** A post is another now, as another part of the program knows. */
  change = (node: P): void => this.#step({ type: 'changed', node })

  /** A post is gone, as another part of the program knows. */
  remove = (postId: string): void => this.#step({ type: 'gone', postId })

  // ---- Keeping

  #keep() {
    if (this.#options.storage && this.#running) this.#saving ??= setTimeout(() => this.#flush(), saveAfter)
  }

  #flush() {
    if (this.#saving === undefined) return
    clearTimeout(this.#saving)
    this.#saving = undefined
    const held = this.#untold ? { ...this.#held, stale: true } : this.#held
    this.#options.storage?.save(save(held, this.#options.most)).catch(() => null)
  }
}

/**
 * The socket, deaf once it is closed. Some go on to deliver what was on its way, and graphql-ws would take that for an
 * answer to the operation of the same id on its next connection.
 */
function closed(impl: typeof WebSocket): typeof WebSocket {
  return class extends impl {
    override close(code?: number, reason?: string) {
      this.onmessage = null
      super.close(code, reason)
    }
  }
}
