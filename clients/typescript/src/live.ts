// LiveStore reads a list of posts, subscribes to its events and writes posts to it. It has everything that a timeline and a
// conversation have in common: transport, delays, resumption and the handling of invalidations.
import { createClient, type Client } from 'graphql-ws'

import { empty, ranked, restore, save, shownTop, step, type Edge, type Held, type Order, type Page, type Pending, type Post, type ReplyOrder, type Step } from './core.js'
import { httpRequest, reconnectDelay, Tokens, viewerDocument, type Refusal, type Request, type TokenSource } from './server.js'
import type { Storage } from './storage.js'

export type LiveOptions = {
  /** The URL of the API, such as https://example.org/graphql. */
  url: string
  /** The user's token, or a function that returns it and renews it when it expires. null: nobody is signed in, so there are no events. */
  token: string | TokenSource | null
  /** The fields selected of a post. Must include id and author { id }, and text if the app creates posts. */
  fields?: string
  /** The definitions of the fragments that `fields` uses. */
  fragments?: string
  /**
   * Whether new entries wait for {@link LiveStore.show}, so that the list stays still. A post created with this store does not
   * wait, nor does a reply below all others in OLDEST or NEWEST. In RANKED and TOP new entries always wait.
   */
  hold?: boolean
  /** The number of entries per page. Defaults to 20, which every server allows. */
  pageSize?: number
  /** The number of entries per request in a read of several pages. Defaults to pageSize, which is also the minimum. */
  readSize?: () => number
  /**
   * The maximum number of entries to read again, from the first one on, when events may have been missed. Defaults to 200.
   * With hold, in LATEST, the entries shown are read again even beyond it, except by refresh(true). Also the maximum number of
   * entries stored, where it defaults to 100.
   */
  most?: number
  /** Whether to read everything shown again after a lost connection, for changes without an event, such as like counts. */
  reread?: boolean
  /** Returns the delay in milliseconds before the nth retry. */
  backoff?: (n: number) => number
  /** Replaces the HTTP transport of queries and mutations. */
  request?: Request
  fetch?: typeof globalThis.fetch
  webSocketImpl?: unknown
  /** Called when the session is over: a token was refused and could not be renewed. */
  onSessionEnded?: () => void
}

/** The settings of a new post. input has further fields of CreatePostInput. */
export type Draft = { visibility?: string; key?: string; input?: Record<string, unknown> }

/** stopped: the session has ended. {@link LiveStore.stop} does not set it. */
export type Status = 'connecting' | 'live' | 'catchingUp' | 'reconnecting' | 'offline' | 'stopped'

/** The fields that every snapshot has besides the entries. */
export type Live = {
  status: Status
  /** Whether a read is in progress. */
  busy: boolean
  /** The error of the last read; undefined if it succeeded. */
  error: Error | undefined
}

/** Which page to read: the first entries after a cursor, or the last ones before it. */
export type Place = { first: number; after?: string | null } | { last: number; before: string }

/** What a list is: how it is read, and what its events mean. S is its snapshot, E its event. */
export type List<P extends Post, S, E> = {
  viewer: string
  order: Order | ReplyOrder
  snapshot: (held: Held<P>, live: Live) => S
  /** Reads a page. */
  page: (request: Request, place: Place, held: Held<P>) => Promise<Page<P>>
  /** Whether a page can be read backwards. */
  backwards: boolean
  /** The subscription document. */
  events: string
  variables: () => Record<string, unknown>
  /** The interval of the server's heartbeats, in seconds; 0 if it sends none. */
  heartbeat: number
  /** The field of the subscription. */
  field: string
  /** Returns how the event changes the list. */
  step: (event: E, held: Held<P>) => Step<P>
  /** Whether the list was read and does not exist. No subscription is then opened; an open one continues. */
  missing: (held: Held<P>) => boolean
  onEvent: ((event: E) => void) | undefined
  /** The mutation that creates a post, and the entries in its answer: of this list, and of the viewer's timeline. */
  create: string
  created: (answer: any, held: Held<P>) => { entry: Edge<P>; home: Edge<P> }
  storage?: Storage<P> | undefined
}

/** The close code for a refused token. */
const forbidden = 4403
/** The close code of a server that is stopping. */
const restart = 1012
/** The time allowed for the answer to a ping, in milliseconds. */
const pongWait = 5_000
/** The time from a change of the state until it is stored, with all changes since, in milliseconds. */
const saveAfter = 500
/** How many invalidations in a row are each followed by a read without delay. The reads after further ones are delayed. */
const undelayedReads = 3
/**
 * How long a post without an answer is sent again by itself, in milliseconds since it was written. The server forgets an
 * idempotency key after 24 hours, and would then create the post twice.
 */
const keyLives = 23 * 3_600_000
/**
 * An invalidation this many milliseconds after the last read of the first pages counts as the first again. So does a lost
 * connection that lasted longer.
 */
const calm = 30_000

const defaultBackoff = (n: number) => Math.min(500 * 2 ** n, 15_000) * (0.5 + Math.random())

const stopped = 'The store was stopped.'

/** Calls a function of the app. An exception in it is reported as an uncaught one, and does not stop the store. */
function guard<T>(run: () => T): T | undefined {
  try {
    return run()
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
    return undefined
  }
}

/** Adds the item to the set. Returns a function that deletes it again. */
function include<T>(set: Set<T>, item: T): () => void {
  set.add(item)
  return () => {
    set.delete(item)
  }
}

/** Returns a new idempotency key. Unlike crypto.randomUUID, it works on pages without TLS. */
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

/** The state of the connection. stopped: the session has ended; stop() does not set it. */
type Link = 'connecting' | 'open' | 'lost' | 'offline' | 'stopped'

/**
 * A live list of posts. Its subscription resumes after the last event applied; if the server cannot resume from there, the
 * store reads the list again. The store is observable and independent of any UI framework.
 */
export abstract class LiveStore<P extends Post, S, E extends { position: string }> {
  readonly #options: LiveOptions
  readonly #list: List<P, S, E>
  readonly #tokens: Tokens
  readonly #request: Request
  readonly #watchers = new Set<() => void>()
  readonly #removals = new Set<(postId: string) => void>()
  #held: Held<P>
  #link: Link = 'connecting'
  // The error of the last read, and which read failed last.
  #error: Error | undefined
  #failed: 'top' | 'older' | undefined
  #snapshot: S | undefined

  #running = false
  #restored: Promise<void> | undefined
  #client: Client | undefined
  #unsubscribe = () => {}
  // The token of the connection, and the token that the server refused last.
  #token: string | undefined
  #refused: string | undefined
  #reads = 0
  #work: Promise<void> | undefined
  // Whether the first pages are to be read although the list is not stale, and whether the next page is.
  #top = false
  #older = false
  // Whether the next read of the first pages shows new entries instead of letting them wait.
  #showAll = false
  // The number of entries that the first read of a list asks for.
  #first: number
  readonly #pauses = new Set<() => void>()
  #saving: ReturnType<typeof setTimeout> | undefined
  #silence: ReturnType<typeof setTimeout> | undefined
  // How often a subscription has ended since the last event. While #subscriptionEnded asks the server why, #asking is the
  // client of the subscription.
  #failures = 0
  #asking: Client | undefined
  // How often posts without an answer have waited to be sent again since a post was created, and whether they wait now.
  #resends = 0
  #resending = false
  // How many times in a row the list became stale within `calm` ms of the last read of its first pages, not counting the
  // first. #soon is the end of that time.
  #repeats = 0
  #soon = 0
  // Whether #rest has already decided about the next read of the first pages; reset when that read succeeds.
  #rested = false
  #stops: (() => void)[] = []

  protected constructor(options: LiveOptions, list: List<P, S, E>) {
    const { token, url } = options
    this.#options = options
    this.#list = list
    this.#tokens = new Tokens(typeof token === 'function' ? token : () => token)
    this.#request = options.request ?? httpRequest(url, this.#tokens, options.fetch ?? ((...a) => fetch(...a)))
    this.#held = empty(list.viewer, options.hold, list.order)
    this.#first = options.pageSize ?? 20
  }

  /** Calls watcher after each change. Returns a function that unsubscribes it. */
  subscribe = (watcher: () => void): (() => void) => include(this.#watchers, watcher)

  /**
   * Calls watcher with the id of each post that an event or {@link remove} removes, also if the list does not have it. Returns a
   * function that unsubscribes it.
   */
  subscribeToRemovals = (watcher: (postId: string) => void): (() => void) => include(this.#removals, watcher)

  /** Returns the state: the same object until something changes. */
  getSnapshot = (): S =>
    (this.#snapshot ??= this.#list.snapshot(this.#held, { status: this.#status(), busy: this.#held.reading !== null || this.#older, error: this.#error }))

  #status(): Status {
    if (this.#link === 'open') return this.#held.stale || this.#top ? 'catchingUp' : 'live'
    return this.#link === 'lost' ? 'reconnecting' : this.#link
  }

  #changed() {
    this.#snapshot = undefined
    this.#watchers.forEach(guard)
  }

  protected get held(): Held<P> {
    return this.#held
  }

  protected readonly ask: Request = (query, variables) => this.#request(query, variables)

  /** Applies steps to the state, and reads again if it is stale then. */
  protected apply(...steps: Step<P>[]) {
    this.#held = steps.reduce<Held<P>>(step, this.#held)
    this.#snapshot = undefined
    for (const a of steps) {
      const id = a.type === 'gone' ? a.postId : a.type === 'event' && a.event.__typename === 'TimelinePostRemoved' ? a.event.postId : null
      if (id !== null) this.#removals.forEach((watcher) => guard(() => watcher(id)))
    }
    this.#changed()
    this.#saveSoon()
    if (this.#running && this.#held.stale) void this.#go()
  }

  #to(link: Link) {
    if (this.#link === 'stopped' && this.#running && link !== 'connecting') return
    this.#link = link
    this.#changed()
  }

  /** Loads the stored state, reads what is missing, and subscribes. Resolves once there is something to show. */
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
    const saved = await this.#list.storage?.load().catch(() => null)
    this.#held = restore(this.#held, saved)
    this.#changed()
  }

  /** Stops reading and following, and stores the state. The store keeps its entries and can be started again. */
  stop() {
    this.#running = false
    this.#asking = undefined
    this.#stops.splice(0).forEach((stop) => stop())
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
    // The browser notices before the connection fails.
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

  /**
   * Waits for the delay of the nth retry, or until #wake. A delay that the server named replaces the first one, and is the
   * minimum of the others.
   */
  #pause(n: number, named?: number): Promise<void> {
    const delay = n === 0 && named !== undefined ? named : Math.max(named ?? 0, guard(() => this.#options.backoff?.(n)) ?? defaultBackoff(n))
    return new Promise((done) => {
      const wake = () => {
        clearTimeout(timer)
        this.#pauses.delete(wake)
        done()
      }
      const timer = setTimeout(wake, delay)
      this.#pauses.add(wake)
    })
  }

  #wake() {
    this.#pauses.forEach((wake) => wake())
  }

  // ---- Reading

  /** Does all reads that are due, one after the other. */
  #go(): Promise<void> {
    const end = () => {
      this.#work = undefined
      this.#changed()
      // A read may have been requested after #readAll checked last.
      return this.#wanted() ? this.#go() : undefined
    }
    return (this.#work ??= this.#readAll().then(end, (error) => {
      this.#older = this.#top = false
      end()
      throw error
    }))
  }

  /** Returns the next read that is due; undefined if there is none. */
  #wanted(): 'top' | 'older' | undefined {
    if (!this.#running || this.#link === 'stopped') return undefined
    return this.#held.stale || this.#top ? 'top' : this.#older && this.#held.next ? 'older' : undefined
  }

  async #readAll() {
    await null // lets #go store the promise first
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
        if (this.#held.loaded) this.#follow()
        continue
      }
      // Retry only while the list is stale. Other failed reads are left to the user.
      this.#older = this.#top = false
      this.#changed()
      if (!this.#held.stale || !this.#running) break
      await this.#pause(failures++)
    }
    this.#older = false
  }

  /** Delays the read if the timeline is invalidated repeatedly, longer each time. Reports whether it waited. */
  async #rest(): Promise<boolean> {
    if (this.#rested || !this.#held.loaded || !this.#held.stale || this.#top) return false
    this.#repeats = Date.now() < this.#soon ? this.#repeats + 1 : 0
    this.#rested = true
    if (this.#repeats < undelayedReads) return false
    await this.#pause(this.#repeats - undelayedReads)
    return true
  }

  async #read(what: 'top' | 'older', show: boolean): Promise<boolean> {
    const id = ++this.#reads
    this.apply({ type: 'read', id, what, show })
    try {
      const page = what === 'top' ? await this.#pages(show) : await this.#page({ first: this.#options.pageSize ?? 20, after: this.#held.next })
      this.#error = undefined
      this.apply({ type: 'page', id, page })
      return true
    } catch (error) {
      if (this.#running) [this.#error, this.#failed] = [error as Error, what]
      this.apply({ type: 'failed', id })
      this.#authenticated(error)
      return false
    }
  }

  #page = (place: Place): Promise<Page<P>> => this.#list.page(this.#whileRunning, place, this.#held)

  #whileRunning: Request = async (query, variables) => {
    if (!this.#running) throw new Error(stopped)
    return this.#request(query, variables)
  }

  /** Reads the first pages, down to the oldest entry shown or up to the limit `most`. */
  async #pages(show: boolean): Promise<Page<P>> {
    const { entries, loaded, hold } = this.#held
    const byServer = ranked(this.#held)
    const { pageSize = 20, most = 200 } = this.#options
    const readSize = Math.max(pageSize, this.#options.readSize?.() ?? 0)
    const wanted = !loaded ? this.#first : byServer ? Math.min(most, Math.max(entries.length, pageSize)) : pageSize
    const oldest = loaded && !byServer ? entries.at(-1)?.score : undefined
    const page = await this.#page({ first: Math.min(Math.max(wanted, oldest === undefined ? 0 : entries.length), readSize) })
    const top = shownTop(this.#held)
    const last = (edges: Edge<P>[]) => edges.at(-1)?.score ?? -Infinity
    const down = await this.#down(readSize, page, (edges) => {
      if (edges.length >= Math.max(most, wanted) && !(hold && !show && loaded && last(edges) <= top)) return false
      return edges.length < wanted || (oldest !== undefined && last(edges) > oldest)
    })
    const result = { ...page, ...down }
    if (!hold || show || oldest === undefined || !down.next || top >= last(down.edges) || !this.#list.backwards) return result
    // The read stopped before it reached the entries on screen. Read them separately, from the first one that it did not reach.
    const shown = entries.find(({ score }) => score < last(down.edges))!
    // A page after a cursor lacks the entry of the cursor, so the page begins after the entry above.
    const above = await this.#page({ last: 1, before: shown.cursor })
    const rest = await this.#page({ first: readSize, after: above.edges[0]?.cursor ?? null })
    return { ...result, apart: await this.#down(readSize, rest, (all) => last(all) > oldest) }
  }

  /** Reads on from the page for as long as `wants` says so. */
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
    if ((error as Partial<Refusal> | undefined)?.code === 'UNAUTHENTICATED') this.#endSession()
  }

  #endSession() {
    if (!this.#running || this.#link === 'stopped') return
    this.#to('stopped')
    this.#unfollow()
    guard(() => this.#options.onSessionEnded?.())
  }

  /** Reads the next page. Resolves when it has been added or has failed. */
  more = async (): Promise<void> => {
    if (!this.#held.next || this.#older) return this.#work
    this.#older = true
    this.#changed()
    await this.#go()
  }

  /** Reads the entries shown again, and newer ones. If show is true, the newer ones are shown at once instead of waiting. */
  refresh = async (show = false): Promise<void> => {
    this.#top = true
    this.#showAll ||= show
    // The answer of a read in progress may be older than this call.
    if (this.#held.reading?.what === 'top') this.#held = { ...this.#held, stale: true, reading: { ...this.#held.reading, void: true } }
    this.#wake()
    await this.#go()
  }

  /** Repeats the read that failed. */
  retry = (): Promise<void> => (this.#error && this.#failed === 'older' && this.#held.next && !this.#held.stale ? this.more() : this.refresh())

  protected async reorder(order: Order | ReplyOrder): Promise<void> {
    if (order === this.#held.order) return
    this.#error = undefined
    this.apply({ type: 'order', order })
    this.#wake()
    await this.#go()
  }

  /** Shows the waiting entries. In RANKED and TOP it empties the list and reads it again. */
  show = async (): Promise<void> => {
    if (!ranked(this.#held)) return this.apply({ type: 'show' })
    this.apply({ type: 'order', order: this.#held.order })
    await this.#go()
  }

  // ---- Following

  #follow() {
    if (this.#client || this.#asking || !this.#running || this.#link === 'stopped' || this.#options.token === null || this.#list.missing(this.#held)) return
    const { url, webSocketImpl = globalThis.WebSocket } = this.#options
    let again = false
    // How often it has connected again since the last event, or since a connection that lasted. graphql-ws starts again from 0
    // when a connection is accepted, even if it is closed at once.
    let retries = 0
    let opened = Infinity
    // The delay that the server named when it closed the connection, in milliseconds.
    let delay: number | undefined
    let pong: ReturnType<typeof setTimeout> | undefined
    const client: Client = createClient({
      url: url.replace(/^http/, 'ws'),
      webSocketImpl: silentAfterClose(webSocketImpl as typeof WebSocket),
      connectionParams: async () => {
        const token = this.#client === client ? await this.#tokens.get(this.#refused) : null
        // An error closes the connection.
        if (this.#client !== client) throw new Error(stopped)
        if (token === null) {
          this.#endSession()
          throw new Error('The session is over.')
        }
        this.#token = token
        return { Authorization: `Bearer ${token}` }
      },
      keepAlive: 20_000,
      lazyCloseTimeout: 5_000,
      retryAttempts: Infinity,
      // Retry after every close code, because a refused token is renewed and the other causes may pass.
      shouldRetry: () => this.#client === client && this.#link !== 'stopped',
      retryWait: () => {
        if (Date.now() - opened > calm) retries = 0
        const named = delay
        opened = Infinity
        delay = undefined
        return this.#pause(retries++, named)
      },
      on: {
        connected: () => {
          if (this.#client !== client) return
          this.#refused = undefined
          opened = Date.now()
          if (again && this.#options.reread) this.#top = true
          again = true
          this.#to('open')
          if (this.#client !== client) return // a watcher has stopped the store
          if (this.#top) void this.#go()
          this.#resendUnanswered()
          this.#restartSilenceTimer()
        },
        closed: (event) => {
          clearTimeout(pong)
          if (this.#client !== client) return
          clearTimeout(this.#silence)
          const { code, reason } = event as CloseEvent
          if (code === forbidden) this.#refused = this.#token
          delay = code === restart ? reconnectDelay(String(reason)) : undefined
          this.#to(this.#offline() ? 'offline' : 'lost')
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
    this.#unsubscribe = client.subscribe<Record<string, E>>(
      {
        query: this.#list.events,
        variables: {
          // A getter, because graphql-ws reads it again each time it subscribes, also after a lost connection.
          get after() {
            return position()
          },
          ...this.#list.variables(),
        },
      },
      {
        next: ({ data, errors }) => {
          if (this.#client !== client) return
          if (!data) return void this.#subscriptionEnded(client, errors)
          this.#failures = retries = 0
          this.#restartSilenceTimer()
          const event = data[this.#list.field]!
          guard(() => this.#list.onEvent?.(event))
          this.apply(this.#list.step(event, this.#held))
        },
        error: (cause) => void this.#subscriptionEnded(client, cause),
        complete: () => void this.#subscriptionEnded(client, undefined),
      },
    )
  }

  #unfollow() {
    const client = this.#client
    this.#client = undefined
    clearTimeout(this.#silence)
    // Unsubscribe before dispose; otherwise the client may subscribe on a connection that opens while it is being closed.
    this.#unsubscribe()
    // dispose fails if the connection has already failed.
    if (client) Promise.resolve(client.dispose()).catch(() => null)
  }

  /** Restarts the timer that closes the connection after two missed heartbeats. */
  #restartSilenceTimer() {
    const { heartbeat } = this.#list
    clearTimeout(this.#silence)
    if (heartbeat) this.#silence = setTimeout(() => this.#client?.terminate(), heartbeat * 2000 + pongWait)
  }

  /** Handles the end of a subscription, or an event with errors instead of data: subscribes again if that is possible. */
  async #subscriptionEnded(client: Client, cause: unknown) {
    if (this.#client !== client) return
    this.#unfollow()
    if (!this.#running || this.#link === 'stopped') return
    this.#to(this.#offline() ? 'offline' : 'lost')
    const reasons: { code?: string; retryAfter?: number }[] = Array.isArray(cause) ? cause.map((e) => e.extensions ?? {}) : []
    const refused = (as: string) => reasons.some(({ code }) => code === as)
    // The server accepts the subscription again after this many seconds. Its position stays good.
    const seconds = reasons.find(({ retryAfter }) => retryAfter)?.retryAfter
    this.#asking = client
    const asks = () => this.#asking === client // false once the store is stopped
    if (seconds) await this.#pause(0, seconds * 1000)
    else {
      this.#failures++
      // The position is unusable, the post cannot be seen, or the subscription ended four times without an event.
      if (refused('BAD_USER_INPUT') || refused('NOT_FOUND') || this.#failures > 3) this.apply({ type: 'restart' })
      try {
        const { viewer } = await this.#whileRunning(viewerDocument, {})
        if (!viewer && asks() && (this.#token === undefined || (await this.#tokens.get(this.#token)) === null) && asks()) this.#endSession()
      } catch (error) {
        if (asks()) this.#authenticated(error)
      }
      if (asks() && this.#failures > 1) await this.#pause(this.#failures)
    }
    if (!asks()) return
    this.#asking = undefined
    if (this.#held.loaded && !this.#held.stale) this.#follow()
    else await this.#go()
  }

  // ---- Writing

  /** Creates a post, shown as pending at once. Resolves to null on failure; the post then stays with its error. */
  protected write(text: string, options: Draft): Promise<Edge<P> | null> {
    const { visibility, key = newKey(), input } = options
    this.apply({ type: 'compose', post: { key, text, createdAt: new Date().toISOString(), ...(visibility && { visibility }), ...(input && { input }) } })
    return this.#send(key)
  }

  /**
   * Sends a failed post again. For 24 hours after it was first sent, the server creates it once, however often it is sent.
   * An older post without an answer may have been created: look for it before you call this.
   */
  resend = (key: string): Promise<Edge<P> | null> => {
    const post = this.#held.pending.find((p) => p.key === key)
    if (!post) return Promise.resolve(null)
    const { error: _, ...again } = post
    this.apply({ type: 'compose', post: again })
    return this.#send(key)
  }

  /** Drops a failed post. */
  discard = (key: string): void => this.apply({ type: 'discard', key })

  async #send(key: string): Promise<Edge<P> | null> {
    const { text, visibility, input } = this.#held.pending.find((p) => p.key === key) as Pending
    try {
      const { createPost } = await this.#request(this.#list.create, { input: { ...input, text, visibility, idempotencyKey: key } })
      const { entry, home } = this.#list.created(createPost, this.#held)
      this.#resends = 0
      this.apply({ type: 'posted', key, edge: entry })
      return home
    } catch (error) {
      const { code, message } = error as Refusal
      // After TIMEOUT, too, the post may have been created.
      const unanswered = !code || code === 'TIMEOUT'
      this.apply({ type: 'refused', key, error: { code: unanswered ? '' : code, message } })
      if (unanswered) void this.#resendLater()
      else this.#resends = 0
      return null
    }
  }

  /** After a pause, sends the posts again that got no answer, if the connection is open. If it is not, its opening does so. */
  async #resendLater() {
    const open = () => this.#running && this.#link === 'open'
    if (this.#resending || !open()) return
    this.#resending = true
    await this.#pause(this.#resends++)
    this.#resending = false
    if (open()) this.#resendUnanswered()
  }

  /** Sends the posts again that got no answer. */
  #resendUnanswered() {
    for (const { key, error, createdAt } of this.#held.pending)
      if (error?.code === '' && Date.now() - Date.parse(createdAt) < keyLives) void this.resend(key)
  }

  /** Replaces a post that another part of the program has changed. */
  change = (node: P): void => this.apply({ type: 'changed', node })

  /** Removes a post that another part of the program has deleted or hidden. */
  remove = (postId: string): void => this.apply({ type: 'gone', postId })

  // ---- Keeping

  #saveSoon() {
    if (this.#list.storage && this.#running) this.#saving ??= setTimeout(() => this.#flush(), saveAfter)
  }

  #flush() {
    if (this.#saving === undefined) return
    clearTimeout(this.#saving)
    this.#saving = undefined
    this.#list.storage?.save(save(this.#held, this.#options.most)).catch(() => null)
  }
}

/**
 * Returns a WebSocket class that delivers no message after close(). Some implementations deliver messages in flight, and
 * graphql-ws would take them for answers to the operation with the same id on its next connection.
 */
function silentAfterClose(impl: typeof WebSocket): typeof WebSocket {
  return class extends impl {
    override close(code?: number, reason?: string) {
      this.onmessage = null
      super.close(code, reason)
    }
  }
}
