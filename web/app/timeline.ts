// The home timeline: the client kit's store and this app's additions. It adds texts, drafts, broadcast changes, the line
// above which posts are new, and the posts that the reader has seen since.
import { collapse, originalOf, readLine, TimelineStore, type Order, type Shown, type Snapshot, type Status, type TimelineEvent } from '@tideline/client'

import { address, print, send } from './api'
import { tell, watchChanges } from './changes'
import { Ranked, timelineFields, type Entry, type Original, type Post, type Session } from './documents'
import { askLimits, largestPage, limits, readSize } from './limits'
import { asPost, type Outbox } from './outbox'
import { preferences } from './preferences'
import { ApiError } from './refusal'
import { expire } from './session'
import { Store } from './store'

export type { Order, Status }

export type State = {
  order: Order
  /** The entries on display, in the chosen order, each original once with its reposts. */
  entries: Shown<Post>[]
  /** New entries that wait until the reader asks for them, newest first. */
  waiting: Shown<Post>[]
  /** The viewer's posts that the server has not answered yet, newest first. */
  pending: Original[]
  /** The cursor of the next page; null if there is none. */
  next: string | null
  loaded: boolean
  busy: boolean
  error: string
  status: Status
  /** The delay with which posts arrive, in seconds. */
  lateBy: number
  /** The number of new entries when the line was drawn. */
  unread: number
  /** The line: entries with a higher score are new. undefined: the line is further down. */
  read: number | undefined
}

/** The maximum number of new entries that one read loads. */
const mostNew = 2000
/** The maximum number of times in a row that a read waits because the server limits its rate. */
const mostWaits = 5
const seenKey = 'tideline:seen'

/**
 * Loads and follows the timeline of a session. New posts wait until the reader asks for them, so that nothing moves.
 * Posts that the viewer may no longer see disappear at once.
 */
export class Timeline {
  readonly store: Store<State>
  readonly #kit: TimelineStore<Post>
  /** The originals above the read mark whose end the reader has seen. */
  readonly #seen: Set<string>
  // The posts that the viewer reposted on this page. They stay where the viewer reads them until the reader asks for new posts.
  readonly #reposted = new Set<string>()
  // Whether this page has moved the read mark since the line was drawn.
  #moved = false
  #marking = false
  #live = false
  #stops: (() => void)[] = []

  constructor(readonly session: Session) {
    const before: { token: string; seen: string[] } | null = JSON.parse(sessionStorage.getItem(seenKey) ?? 'null')
    this.#seen = new Set(before?.token === session.token ? before.seen : [])
    this.#kit = new TimelineStore<Post>({
      url: address,
      viewer: session.user.id,
      // A refused token has no replacement.
      token: (refused) => (refused === undefined ? session.token : null),
      ...timelineFields,
      // The kit knows the order of a timeline, but no rankings.
      request: (document, variables) => (variables.order === 'RANKED' ? this.#ranked(variables) : send(document, variables)),
      hold: true,
      most: mostNew,
      readSize,
      // Timeline events do not report likes.
      reread: true,
      onEvent: (event) => this.#onEvent(event),
      onSessionEnded: () => expire(session.token),
    })
    this.store = new Store(this.#state({ unread: 0, read: undefined }))
  }

  /** Starts. entries is the number of entries to load first: as many as were shown before a reload. */
  async start(entries = 0) {
    const keep = () => sessionStorage.setItem(seenKey, JSON.stringify({ token: this.session.token, seen: [...this.#seen] }))
    addEventListener('pagehide', keep)
    this.#stops = [
      () => removeEventListener('pagehide', keep),
      this.#kit.subscribe(() => this.#update()),
      watchChanges((change) => {
        if (change.what === 'relation' && !change.shown) void this.#kit.refresh(true)
        else if (change.what === 'post') this.#kit.change({ ...change.post, repostOf: null })
        else if (change.what === 'gone') this.#kit.remove(change.postId)
        else if (change.what === 'repost') this.#reposted.add(change.postId)
      }),
    ]
    // A long list loads in large pages, and the limits give their size.
    if (entries > largestPage) await askLimits()
    await this.#kit.start(entries || undefined)
  }

  dispose() {
    this.#stops.forEach((stop) => stop())
    this.#kit.stop()
  }

  #state({ unread, read }: Pick<State, 'unread' | 'read'>): State {
    const { order, entries, waiting, pending, next, loaded, busy, error, status, lateBy } = this.#kit.getSnapshot()
    const before = this.store?.state
    const drawn = {
      entries: unchanged(before?.entries, collapse(entries.filter(this.#settled))),
      waiting: unchanged(before?.waiting, collapse(waiting.filter(this.#settled))),
    }
    return { order, ...drawn, pending: pending.map((post) => asPost(post, this.session)), next, loaded, busy, error: error?.message ?? '', status, lateBy, unread, read }
  }

  #update() {
    const held = this.#kit.getSnapshot()
    const live = held.status === 'live'
    if (live && !this.#live) tell({ what: 'requests' }) // no heartbeat told of what changed before the connection
    this.#live = live
    let { unread, read } = this.store.state
    // The ranked order is not by time, so it has no line.
    if (held.loaded && held.order === 'LATEST' && read === undefined) {
      const line = readLine(held)
      const passed = this.#passed(held, line)
      read = passed.at(-1)?.score ?? line
      unread = held.unread - passed.filter(this.#foreign).length
    }
    this.store.set(this.#state({ unread, read }))
  }

  #settled = ({ node }: Entry) => !(node.repostOf && node.author.id === this.session.user.id && this.#reposted.has(node.repostOf.id))

  #foreign = ({ node }: Entry) => node.author.id !== this.session.user.id

  /** The entries above the read mark that the reader has seen without a gap, lowest first. Own posts count as seen. */
  #passed({ entries, waiting }: Snapshot<Post>, line: number | undefined): Entry[] {
    if (line === undefined) return []
    const above = entries.filter(({ score }) => score > line).reverse()
    const lowest = waiting.findLast(({ score }) => score > line)?.score ?? Infinity
    const end = above.findIndex((entry) => entry.score > lowest || (this.#foreign(entry) && !this.#seen.has(originalOf(entry.node).id)))
    return end < 0 ? above : above.slice(0, end)
  }

  /** Draws the line again, above the entries that the reader has seen here or on another device. */
  look() {
    this.#moved = false
    this.store.patch({ read: undefined })
    this.#update()
  }

  /** The reader has seen a post to its end, and so all its reposts. */
  saw(postId: string) {
    this.#seen.add(postId)
  }

  #onEvent(event: TimelineEvent<Post>) {
    const { entries } = this.store.state
    if (event.__typename === 'TimelineHeartbeat') {
      // The reader read on another device, so the line moves. Read marks of this page do not move it.
      if (!this.#moved && event.unreadCount < this.#kit.getSnapshot().unread) this.store.patch({ unread: event.unreadCount, read: undefined })
      tell({ what: 'requests' })
    }
    if (event.__typename === 'TimelinePostRemoved') tell({ what: 'gone', postId: event.postId, deleted: event.removal === 'DELETED' })
    if (event.__typename === 'TimelineInvalidated') tell({ what: 'much' })
    if (event.__typename === 'TimelinePostUpdated') tell({ what: 'post', post: event.edge.node })
    if (event.__typename !== 'TimelinePostAdded') return
    if (entries.some(({ post }) => post.id === event.edge.node.id)) tell({ what: 'post', post: event.edge.node })
    else if (!this.#foreign(event.edge)) tell({ what: 'posted', post: event.edge.node })
  }

  /** Shows at once what the viewer has posted elsewhere on this page. */
  created = (entry: Entry) => this.#kit.created(entry)

  /** Sends the viewer's posts. */
  readonly outbox: Outbox = {
    send: async (text, options) => (await this.#kit.post(text, options))?.node ?? null,
    pending: () => this.#kit.getSnapshot().pending,
    discard: (key) => this.#kit.discard(key),
  }

  more = () => void this.#kit.more()

  retry = () => void this.#kit.retry()

  /** Loads pages until the line is among the entries, or no more can be loaded. */
  async toLine() {
    for (let before = -1, waits = 0; this.store.state.read === undefined; ) {
      const { entries, error } = this.#kit.getSnapshot()
      if (entries.length >= mostNew) return
      if (entries.length > before) waits = 0
      else {
        // So many pages at once may be more than the server allows.
        const seconds = error instanceof ApiError ? error.refusal.retryAfter : undefined
        if (!seconds || ++waits > mostWaits) return
        await new Promise((done) => setTimeout(done, seconds * 1000))
      }
      before = entries.length
      await this.#kit.more()
    }
  }

  /** Marks everything as read except the entries that wait. Reports whether it succeeded. */
  async markAllRead(): Promise<boolean> {
    const { entries, waiting } = this.#kit.getSnapshot()
    const lowest = waiting.at(-1)?.score ?? Infinity // an own post is shown at once, above those that wait
    const upTo = entries.find(({ score }) => score < lowest)
    const done = upTo === undefined || (await this.#kit.markRead(upTo))
    if (done) this.look()
    return done
  }

  /** Shows the waiting entries, above the line. */
  showWaiting() {
    this.#reposted.clear()
    this.look()
    void this.#kit.show()
  }

  setOrder(order: Order) {
    this.look()
    void this.#kit.setOrder(order)
  }

  /** Orders the timeline by another one of the server's rankings. */
  setRanking(ranking: string) {
    preferences.patch({ ranking })
    void this.#kit.setOrder('LATEST')
    this.setOrder('RANKED')
  }

  async #ranked(variables: Record<string, unknown>) {
    const chosen = preferences.state.ranking
    if (chosen) await askLimits()
    // A ranking that this server does not have would be refused.
    const ranking = limits.state?.rankings.includes(chosen) ? chosen : null
    return send(print(Ranked), { ...variables, ranking })
  }

  /** Moves the read mark up to the last entry that the reader has seen without a gap. */
  async markRead() {
    const held = this.#kit.getSnapshot()
    if (held.order !== 'LATEST' || this.#marking) return
    const passed = this.#passed(held, readLine(held))
    const upTo = passed.at(-1)
    if (!upTo) return
    this.#marking = this.#moved = true
    const done = await this.#kit.markRead(upTo)
    this.#marking = false
    if (!done) return
    passed.forEach(({ node }) => this.#seen.delete(originalOf(node).id))
    void this.markRead()
  }
}

/** The new list with the objects of the old one where they are the same, so that only changed posts are drawn again. */
function unchanged(before: Shown<Post>[] | undefined, now: Shown<Post>[]): Shown<Post>[] {
  const old = new Map(before?.map((shown) => [shown.node.id, shown]))
  return now.map((shown) => {
    const was = old.get(shown.node.id)
    const same = was && was.score === shown.score && was.cursor === shown.cursor && was.post === shown.post
    return same && was.reposts.length === shown.reposts.length && was.reposts.every(({ node }, i) => node === shown.reposts[i]!.node) ? was : shown
  })
}
