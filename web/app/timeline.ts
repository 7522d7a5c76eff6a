// The home timeline: the kit's store, with what this app adds to it: its texts, its draft, its changes, the line down to
// which the reader had read, and what has been seen since.
import { readLine, TimelineStore, type Snapshot, type Order, type Status, type TimelineEvent } from '@tideline/client'

import { address, send } from './api'
import { tell, watchChanges } from './changes'
import { sayRefused } from './compose'
import { ofTimeline, type Entry, type Post, type Session, type Visibility } from './documents'
import { draftOf, putBack, take } from './draft'
import { askLimits, limits } from './limits'
import { t } from './preferences'
import { expire, session } from './session'
import { Store } from './store'

export type { Order, Status }

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
  /** By how many seconds posts come late. */
  lateBy: number
  /** How many entries were new when the line was drawn. */
  unread: number
  /** The line: entries with a higher score are new. Undefined: it is further down. */
  read: number | undefined
}

/** The most new entries that are read at once. */
const mostNew = 2000
/** The most entries that any server gives in answer to one request. */
const largestPage = 100
const seenKey = 'tideline:seen'

/**
 * Loads and follows the timeline of a session. What is new waits, so that nothing moves under the reader's
 * eyes; what may no longer be seen goes at once.
 */
export class Timeline {
  readonly store: Store<State>
  readonly #kit: TimelineStore<Post>
  /** The entries above the read mark whose end the reader has seen. */
  readonly #seen: Set<string>
  // Whether this device has moved the read mark since the line was drawn.
  #moved = false
  #marking = false
  #stops: (() => void)[] = []

  constructor(readonly session: Session) {
    const before: { token: string; seen: string[] } | null = JSON.parse(sessionStorage.getItem(seenKey) ?? 'null')
    this.#seen = new Set(before?.token === session.token ? before.seen : [])
    this.#kit = new TimelineStore<Post>({
      url: address,
      viewer: session.user.id,
      // There is no other token than that of the session.
      token: (refused) => (refused === undefined ? session.token : null),
      ...ofTimeline,
      request: send,
      hold: true,
      most: mostNew,
      readSize: () => Math.min(limits.state?.pageSize ?? 0, largestPage),
      // No event of the timeline tells of likes.
      reread: true,
      onEvent: (event) => this.#onEvent(event),
      onSessionEnded: () => expire(session.token),
    })
    this.store = new Store(this.#state({ unread: 0, read: undefined }))
  }

  /** Begins; first asks for as many entries as were shown before the page was loaded again. */
  async start(entries = 0) {
    const keep = () => sessionStorage.setItem(seenKey, JSON.stringify({ token: this.session.token, seen: [...this.#seen] }))
    addEventListener('pagehide', keep)
    this.#stops = [
      () => removeEventListener('pagehide', keep),
      this.#kit.subscribe(() => this.#update()),
      watchChanges((change) => {
        if (change.what === 'relation') void this.#kit.refresh(true)
        else if (change.what === 'post') this.#kit.change(change.post)
        else if (change.what === 'gone') this.#kit.remove(change.postId)
      }),
    ]
    // A long list comes back in large pages.
    if (entries > largestPage) await askLimits()
    await this.#kit.start(entries || undefined)
  }

  dispose() {
    this.#stops.forEach((stop) => stop())
    this.#kit.stop()
  }

  #state({ unread, read }: Pick<State, 'unread' | 'read'>): State {
    const { order, entries, waiting, pending, next, loaded, busy, error, status, lateBy } = this.#kit.getSnapshot()
    const { id, handle, name, avatarUrl = null } = (session.state ?? this.session).user
    const shown = pending.map(({ key, text, visibility, createdAt }) => ({
      id: `pending:${key}`,
      text: text.trim(),
      visibility: visibility as Visibility,
      hiddenByModerators: false,
      createdAt,
      editedAt: null,
      likeCount: 0,
      viewerHasLiked: false,
      author: { id, handle, name, avatarUrl },
    }))
    return { order, entries, waiting, pending: shown, next, loaded, busy, error: error?.message ?? '', status, lateBy, unread, read }
  }

  #update() {
    const held = this.#kit.getSnapshot()
    let { unread, read } = this.store.state
    // Ranks say nothing about time, so there the line is nowhere.
    if (held.loaded && held.order === 'LATEST' && read === undefined) {
      const line = readLine(held)
      const passed = this.#passed(held, line)
      read = passed.at(-1)?.score ?? line
      unread = held.unread - passed.filter(this.#foreign).length
    }
    this.store.set(this.#state({ unread, read }))
  }

  #foreign = ({ node }: Entry) => node.author.id !== this.session.user.id

  /** The entries above the read mark up to which the reader has seen all, from the lowest up. */
  #passed({ entries, waiting }: Snapshot<Post>, line: number | undefined): Entry[] {
    if (line === undefined) return []
    const above = entries.filter(({ score }) => score > line).reverse()
    const lowest = waiting.findLast(({ score }) => score > line)?.score ?? Infinity
    const end = above.findIndex((entry) => entry.score > lowest || (this.#foreign(entry) && !this.#seen.has(entry.node.id)))
    return end < 0 ? above : above.slice(0, end)
  }

  /** Draws the line anew: above what the reader has passed, or has read on another device. */
  look() {
    this.#moved = false
    this.store.patch({ read: undefined })
    this.#update()
  }

  /** The reader has seen a post to its end. */
  saw(postId: string) {
    this.#seen.add(postId)
  }

  #onEvent(event: TimelineEvent<Post>) {
    const { entries, unread } = this.store.state
    if (event.__typename === 'TimelineHeartbeat') {
      // Read on another device. What this one marked itself does not move its line.
      if (!this.#moved && event.unreadCount < unread) this.store.patch({ unread: event.unreadCount, read: undefined })
      tell({ what: 'requests' })
    }
    if (event.__typename === 'TimelinePostRemoved') tell({ what: 'gone', postId: event.postId, deleted: event.removal === 'DELETED' })
    if (event.__typename === 'TimelineInvalidated') tell({ what: 'much' })
    if (event.__typename === 'TimelinePostUpdated') tell({ what: 'post', post: event.edge.node })
    if (event.__typename !== 'TimelinePostAdded') return
    if (entries.some(({ node }) => node.id === event.edge.node.id)) tell({ what: 'post', post: event.edge.node })
    else if (!this.#foreign(event.edge)) tell({ what: 'posted', post: event.edge.node })
  }

  more = () => void this.#kit.more()

  retry = () => void this.#kit.retry()

  /** Shows what waits, above the line. */
  showWaiting() {
    this.look()
    void this.#kit.show()
  }

  setOrder(order: Order) {
    this.look()
    void this.#kit.setOrder(order)
  }

  /** Moves the read mark up to where the reader has seen all. */
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
    passed.forEach(({ node }) => this.#seen.delete(node.id))
    void this.markRead()
  }

  /**
   * Posts the draft: it is shown at once, and goes back into its box when it is refused. With keep it stays in the box
   * until it is posted. Reports whether it was.
   */
  async post(visibility: Visibility, keep = false): Promise<boolean> {
    const { handle } = this.session.user
    const box = draftOf(handle)
    const draft = keep ? box.state : take(box)
    const { key } = draft
    const posted = await this.#kit.post(draft.text, { visibility, key })
    if (posted) {
      if (box.state.key === key) take(box)
      tell({ what: 'posted', post: posted.node })
      return true
    }
    const refused = this.#kit.getSnapshot().pending.find((post) => post.key === key)
    this.#kit.discard(key)
    putBack(box, draft, t.notPosted(refused?.error?.message ?? ''))
    if (session.state?.token === this.session.token) sayRefused(t.notPosted(refused?.error?.message ?? ''))
    return false
  }
}
