// The home timeline: pages from the query, kept up to date by the subscription.
import type { ResultOf } from 'gql.tada'
import type { Client } from 'graphql-ws'

import { connect, print, request } from './api'
import { changed, tell, watchChanges, type Change } from './changes'
import { CreatePost, MarkRead, Timeline as TimelineQuery, TimelineEvents, Viewer, type Entry, type Post, type Session, type Visibility } from './documents'
import { draftOf, putBack, take } from './draft'
import { t } from './preferences'
import { expire, session } from './session'
import { Store } from './store'

export type Status = 'connecting' | 'live' | 'reconnecting' | 'catchingUp' | 'offline' | 'stopped'
export type Order = 'LATEST' | 'RANKED'

export type State = {
  order: Order
  /** What is shown, in the order of choice, each post once. */
  entries: Entry[]
  /** What has come since and waits to be asked for, newest first. */
  waiting: Entry[]
  /** Own posts on their way to the server, newest first. */
  pending: Post[]
  /** Where the next page begins; null: there is none. */
  next: string | null
  loaded: boolean
  busy: boolean
  error: string
  status: Status
  /** How many entries were new when the timeline was opened. */
  unread: number
  /** Entries with a higher score are new since the last visit; undefined: the line is further down. */
  read: number | undefined
}

type TimelineEvent = ResultOf<typeof TimelineEvents>['timelineEvents']
type Page = ResultOf<typeof TimelineQuery>['timeline']

/** Every server gives pages of this size, however small its largest is. */
const pageSize = 20
/** The most entries that are read at once, page by page. */
const mostAtOnce = 100

/** Newest first, each post once: a post can come by page, by event and by the answer to createPost. */
function merge(a: Entry[], b: Entry[]): Entry[] {
  const byPost = new Map([...a, ...b].map((entry) => [entry.node.id, entry]))
  return [...byPost.values()].sort((x, y) => y.score - x.score)
}

/**
 * Loads and follows the timeline of a session. What is new waits, so that nothing moves under the reader's
 * eyes; what may no longer be seen goes at once.
 */
export class Timeline {
  readonly store = new Store<State>({
    order: 'LATEST',
    entries: [],
    waiting: [],
    pending: [],
    next: null,
    loaded: false,
    busy: false,
    error: '',
    status: 'connecting',
    unread: 0,
    read: undefined,
  })

  #client: Client | undefined
  #disposed = false
  // Where a subscription takes up again: after the page that was read, or the last event.
  #resume: string | undefined
  // Counts reloads: an answer that was overtaken by a reload is dropped.
  #generation = 0
  // What changes while a page is on its way waits for it, or the page, read earlier, would undo it.
  #loading = 0
  #held: (() => void)[] = []
  // Pages are not added while all is read again, nor the other way round: there would be a gap between the two.
  #turn: Promise<unknown> = Promise.resolve()
  #refreshing = false
  #refreshAgain = false
  #showAll = false
  #marked = -Infinity
  readonly #stops: (() => void)[] = []

  constructor(readonly session: Session) {}

  get #state() {
    return this.store.state
  }

  /** Begins; first asks for as many entries as were shown before the page was loaded again. */
  async start(entries = pageSize) {
    const online = () => this.#state.status === 'offline' && this.store.patch({ status: 'reconnecting' })
    // The browser knows before the connection does.
    const offline = () => {
      this.store.patch({ status: 'offline' })
      this.#client?.terminate()
    }
    addEventListener('online', online)
    addEventListener('offline', offline)
    this.#stops.push(
      () => removeEventListener('online', online),
      () => removeEventListener('offline', offline),
      watchChanges((change) => {
        if (change.what === 'relation') void this.refresh(true)
        else this.#apply(() => this.#onChange(change))
      }),
    )
    await this.#load(null, Math.min(entries, mostAtOnce))
    if (!this.#disposed) this.#follow()
  }

  dispose() {
    this.#disposed = true
    this.#generation++
    this.#stops.forEach((stop) => stop())
    // It fails where the connection has failed already.
    Promise.resolve(this.#client?.dispose()).catch(() => null)
  }

  #follow() {
    let before = false
    this.#client = connect(this.session.token, {
      connected: () => void this.#connected(before).then(() => (before = true)),
      closed: () => !this.#disposed && this.store.patch({ status: navigator.onLine ? 'reconnecting' : 'offline' }),
    })
    const stopped = () => this.#stopped()
    const resume = () => this.#resume ?? null
    this.#client.subscribe<ResultOf<typeof TimelineEvents>>(
      {
        query: print(TimelineEvents),
        variables: {
          // Read anew each time the client subscribes, also after a lost connection.
          get after() {
            return resume()
          },
        },
      },
      {
        next: ({ data }) => data && this.#apply(() => this.#onEvent(data.timelineEvents)),
        error: stopped,
        complete: stopped,
      },
    )
  }

  // The subscription brings the posts that were missed; what left meanwhile is found by reading again.
  async #connected(again: boolean) {
    if (again || !this.#resume) {
      this.store.patch({ status: 'catchingUp' })
      await (this.#state.loaded ? this.refresh() : this.#load(null))
    }
    if (!this.#disposed && (this.#state.status === 'catchingUp' || !again)) this.store.patch({ status: 'live' })
  }

  // The server ended the subscription for good. If the session is over, the app asks to log in again.
  async #stopped() {
    if (this.#disposed) return
    this.store.patch({ status: 'stopped' })
    const answer = await request(Viewer, {}).catch(() => null)
    if (answer && !answer.viewer) expire(this.session.token)
  }

  #apply(change: () => void) {
    if (this.#loading > 0) this.#held.push(change)
    else if (!this.#disposed) change()
  }

  #settle() {
    if (--this.#loading === 0) this.#held.splice(0).forEach((change) => this.#apply(change))
  }

  #foreign = ({ node }: Entry) => node.author.id !== this.session.user.id

  /** The first entries after a cursor, as if they were one page. */
  async #page(first: number, after: string | null): Promise<Page> {
    const { order } = this.#state
    const part = (left: number, from: string | null) =>
      request(TimelineQuery, { first: Math.min(left, pageSize), after: from, order }).then(({ timeline }) => timeline)
    const page = await part(first, after)
    const edges = [...page.edges]
    let { pageInfo } = page
    for (let next = nextOf(page); next && edges.length < first; ) {
      const more = await part(first - edges.length, next)
      edges.push(...more.edges)
      pageInfo = more.pageInfo
      next = nextOf(more)
    }
    return { ...page, edges, pageInfo }
  }

  /** What was read, with the own posts that have been shown since it was asked for: it may not know of them. */
  #withOwn(before: Entry[], read: Entry[]): Entry[] {
    const known = new Set([...before, ...read].map(({ node }) => node.id))
    const own = this.#state.entries.filter((entry) => !this.#foreign(entry) && !known.has(entry.node.id))
    return this.#state.order === 'LATEST' ? merge(read, own) : [...own, ...read]
  }

  /** Replaces what is shown by the first page, or adds the page after it. */
  async #load(after: string | null, first = pageSize) {
    const mine = after ? this.#generation : ++this.#generation
    const before = this.#state.entries
    this.#loading++
    this.store.patch({ busy: true, error: '' })
    try {
      const page = await this.#page(first, after)
      if (mine !== this.#generation) return
      const { order, entries, read } = this.#state
      if (!after && order === 'LATEST') this.#resume = page.position
      const known = new Set(entries.map(({ node }) => node.id))
      const all = after ? [...entries, ...page.edges.filter(({ node }) => !known.has(node.id))] : this.#withOwn(before, page.edges)
      this.store.patch({
        entries: all,
        next: nextOf(page),
        loaded: true,
        // Ranks say nothing about time, so there the line is nowhere.
        ...(order === 'LATEST' && !after && { waiting: [], unread: page.unreadCount, read: this.#line(all, page.unreadCount) }),
        ...(order === 'LATEST' && after && read === undefined && { read: this.#line(all, this.#state.unread) }),
      })
    } catch (e) {
      if (mine === this.#generation) this.store.patch({ error: (e as Error).message })
    } finally {
      this.store.patch({ busy: false })
      this.#settle()
    }
  }

  /** The score down to which entries have been read, when the newest unread ones of others have not. */
  #line(entries: Entry[], unread: number): number | undefined {
    if (unread === 0) return entries[0]?.score ?? -Infinity
    for (const [i, entry] of entries.entries()) {
      if (this.#foreign(entry) && --unread === 0) return entries[i + 1]?.score
    }
    return undefined
  }

  /**
   * Reads again what is shown, without moving it: what left goes, what changed changes, what is new waits;
   * with show, at the reader's own wish, nothing waits.
   */
  async refresh(show = false) {
    this.#showAll ||= show
    if (this.#refreshing) {
      this.#refreshAgain = true
      return
    }
    this.#refreshing = true
    this.#loading++
    try {
      do {
        this.#refreshAgain = false
        await this.#inTurn(() => this.#refreshOnce())
      } while (this.#refreshAgain && !this.#disposed)
      this.store.patch({ error: '' })
    } catch (e) {
      this.store.patch({ error: (e as Error).message })
    } finally {
      this.#refreshing = false
      this.#settle()
    }
  }

  #inTurn(read: () => Promise<void>) {
    const turn = this.#turn.catch(() => null).then(read)
    this.#turn = turn
    return turn
  }

  async #refreshOnce() {
    const mine = this.#generation
    const { order } = this.#state
    const showAll = this.#showAll
    this.#showAll = false
    const before = this.#state.entries
    let fresh: Entry[] = []
    let next: string | null = null
    // Down to the oldest shown, however many have come in between.
    const oldest = this.#state.entries.at(-1)?.score ?? Infinity
    const enough = Math.max(this.#state.entries.length, pageSize)
    do {
      const page: Page = await this.#page(fresh.length ? mostAtOnce : Math.min(enough, mostAtOnce), next)
      if (mine !== this.#generation) return
      if (!fresh.length && order === 'LATEST') this.#resume = page.position
      fresh.push(...page.edges)
      next = nextOf(page)
    } while (next && (order === 'LATEST' ? fresh.at(-1)!.score > oldest : fresh.length < enough))

    fresh = this.#withOwn(before, fresh)
    const { entries, waiting, read } = this.#state
    const show = showAll || entries.length === 0 || order === 'RANKED'
    // An own post may have overtaken what is still to come.
    const top = entries.find(this.#foreign)?.score ?? -Infinity
    const shown = new Set(entries.map(({ node }) => node.id))
    const waited = new Set(waiting.map(({ node }) => node.id))
    const waits = ({ score, node }: Entry) => !show && !shown.has(node.id) && (score > top || waited.has(node.id))
    this.store.patch({
      entries: fresh.filter((entry) => !waits(entry)),
      waiting: fresh.filter(waits),
      next,
      loaded: true,
      // With nothing shown before, the line was nowhere either.
      ...(read === undefined && order === 'LATEST' && { read: this.#line(fresh, this.#state.unread) }),
    })
  }

  #onEvent(event: TimelineEvent) {
    if ('position' in event) this.#resume = event.position
    switch (event.__typename) {
      case 'TimelinePostAdded':
        this.#added(event.edge)
        break
      case 'TimelinePostRemoved':
        tell({ what: 'gone', postId: event.postId })
        break
      case 'TimelineInvalidated':
        void this.refresh()
        tell({ what: 'much' })
    }
  }

  #added(edge: Entry) {
    const { entries, waiting } = this.#state
    if (entries.some(({ node }) => node.id === edge.node.id)) tell({ what: 'post', post: edge.node })
    else this.store.patch({ waiting: merge(waiting, [edge]) })
  }

  #onChange(change: Change) {
    const after = (list: Entry[]) => {
      const posts = new Map(
        changed(
          list.map(({ node }) => node),
          change,
        ).map((post) => [post.id, post]),
      )
      return list.flatMap((entry) => (posts.has(entry.node.id) ? { ...entry, node: posts.get(entry.node.id)! } : []))
    }
    const { entries, waiting } = this.#state
    if (change.what !== 'much') this.store.patch({ entries: after(entries), waiting: after(waiting) })
  }

  more = () => {
    const { next, busy } = this.#state
    if (!next || busy) return
    this.store.patch({ busy: true })
    const mine = this.#generation
    void this.#inTurn(async () => {
      if (mine !== this.#generation) return
      // All may have been read again meanwhile: where that ended, this begins.
      const { next } = this.#state
      if (next) await this.#load(next)
      else this.store.patch({ busy: false })
    })
  }

  retry = () => void (this.#state.loaded ? (this.#state.next ? this.more() : this.refresh()) : this.#load(null))

  /** Shows what waits, above a line that marks where the reader was. */
  showWaiting() {
    const { order, entries, waiting } = this.#state
    if (order === 'RANKED') {
      this.store.patch({ waiting: [], entries: [], loaded: false })
      void this.#load(null)
      return
    }
    const oldest = waiting.at(-1)?.score ?? Infinity
    const read = entries.find(({ score }) => score < oldest)?.score
    this.store.patch({ entries: merge(entries, waiting), waiting: [], unread: 0, read })
  }

  setOrder(order: Order) {
    if (order === this.#state.order) return
    this.store.patch({ order, entries: [], next: null, loaded: false })
    void this.#load(null)
  }

  /** The reader has seen the newest entry shown. */
  async markRead() {
    const { order, entries } = this.#state
    const newest = entries[0]
    if (order !== 'LATEST' || !newest || newest.score <= this.#marked) return
    const before = this.#marked
    this.#marked = newest.score
    await request(MarkRead, { input: { upTo: newest.cursor } }).catch(() => (this.#marked = before))
  }

  /** Posts the draft: it is shown at once, and goes back into its box when it is refused. */
  async post(visibility: Visibility) {
    const box = draftOf(this.session.user.handle)
    const draft = take(box)
    const { id, handle, name } = (session.state ?? this.session).user
    const shown: Post = {
      id: `pending:${draft.key}`,
      text: draft.text.trim(),
      visibility,
      createdAt: new Date().toISOString(),
      likeCount: 0,
      viewerHasLiked: false,
      author: { id, handle, name },
    }
    this.store.patch({ pending: [shown, ...this.#state.pending] })
    // The event can come before the answer, and must not be taken for news.
    this.#loading++
    try {
      const { createPost } = await request(CreatePost, { input: { text: draft.text, visibility, idempotencyKey: draft.key } })
      const { order, entries, waiting } = this.#state
      const { edge } = createPost
      this.store.patch({
        entries: order === 'LATEST' ? merge(entries, [edge]) : [edge, ...entries.filter(({ node }) => node.id !== edge.node.id)],
        waiting: waiting.filter(({ node }) => node.id !== edge.node.id),
      })
    } catch (e) {
      putBack(box, draft, t.notPosted((e as Error).message))
    } finally {
      this.store.patch({ pending: this.#state.pending.filter(({ id }) => id !== shown.id) })
      this.#settle()
    }
  }
}

function nextOf({ pageInfo }: Page): string | null {
  return pageInfo.hasNextPage ? (pageInfo.endCursor ?? null) : null
}
