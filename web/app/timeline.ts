// The home timeline: the kit's store, with what this app adds to it: its texts, its draft, its changes, and the line down
// to which the reader had read when it was opened.
import { readLine, TimelineStore, type Order, type Status, type TimelineEvent } from '@tideline/client'

import { address, send } from './api'
import { tell, watchChanges } from './changes'
import { ofTimeline, type Entry, type Post, type Session, type Visibility } from './documents'
import { draftOf, putBack, take } from './draft'
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
  /** How many entries were new when the timeline was opened. */
  unread: number
  /** Entries with a higher score are new since the last visit; undefined: the line is further down. */
  read: number | undefined
}

/** The most entries that are read at once when a page is loaded again. */
const mostAtOnce = 100
/** The most entries that are read again in place. */
const mostAgain = 2000

/**
 * Loads and follows the timeline of a session. What is new waits, so that nothing moves under the reader's
 * eyes; what may no longer be seen goes at once.
 */
export class Timeline {
  readonly store: Store<State>
  readonly #kit: TimelineStore<Post>
  #opened = false
  #marked = -Infinity
  #stops: (() => void)[] = []

  constructor(readonly session: Session) {
    this.#kit = new TimelineStore<Post>({
      url: address,
      viewer: session.user.id,
      // There is no other token than that of the session.
      token: (refused) => (refused === undefined ? session.token : null),
      ...ofTimeline,
      request: send,
      hold: true,
      most: mostAgain,
      // Another device that reads is told of at once; the connection is watched by pings.
      heartbeat: 3600,
      // No event of the timeline tells of likes.
      reread: true,
      onEvent: (event) => this.#onEvent(event),
      onSessionEnded: () => expire(session.token),
    })
    this.store = new Store(this.#state({ unread: 0, read: undefined }))
  }

  /** Begins; first asks for as many entries as were shown before the page was loaded again. */
  async start(entries?: number) {
    this.#stops = [
      this.#kit.subscribe(() => this.#update()),
      watchChanges((change) => {
        if (change.what === 'relation') void this.#kit.refresh(true)
        else if (change.what === 'post') this.#kit.change(change.post)
        else if (change.what === 'gone') this.#kit.remove(change.postId)
      }),
    ]
    await this.#kit.start(entries && Math.min(entries, mostAtOnce))
  }

  dispose() {
    this.#stops.forEach((stop) => stop())
    this.#kit.stop()
  }

  #state({ unread, read }: Pick<State, 'unread' | 'read'>): State {
    const { order, entries, waiting, pending, next, loaded, busy, error, status } = this.#kit.getSnapshot()
    const { id, handle, name, avatarUrl = null } = (session.state ?? this.session).user
    const shown = pending.map(({ key, text, visibility, createdAt }) => ({
      id: `pending:${key}`,
      text: text.trim(),
      visibility: visibility as Visibility,
      createdAt,
      editedAt: null,
      likeCount: 0,
      viewerHasLiked: false,
      author: { id, handle, name, avatarUrl },
    }))
    return { order, entries, waiting, pending: shown, next, loaded, busy, error: error?.message ?? '', status, unread, read }
  }

  #update() {
    const held = this.#kit.getSnapshot()
    let { unread, read } = this.store.state
    // Ranks say nothing about time, so there the line is nowhere.
    if (held.loaded && held.order === 'LATEST') {
      if (!this.#opened) [unread, read] = [held.unread, undefined]
      this.#opened = true
      read ??= readLine({ ...held, waiting: [] }, unread)
    }
    this.store.set(this.#state({ unread, read }))
  }

  #onEvent(event: TimelineEvent<Post>) {
    const { entries } = this.store.state
    // Read on another device. Once this one has marked something, its line says where the reader was when it opened.
    if (event.__typename === 'TimelineHeartbeat' && this.#marked === -Infinity && event.unreadCount < this.store.state.unread)
      this.store.patch({ unread: event.unreadCount, read: undefined })
    if (event.__typename === 'TimelinePostRemoved') tell({ what: 'gone', postId: event.postId, deleted: event.removal === 'DELETED' })
    if (event.__typename === 'TimelineInvalidated') tell({ what: 'much' })
    if (event.__typename === 'TimelinePostUpdated') tell({ what: 'post', post: event.edge.node })
    if (event.__typename === 'TimelinePostAdded' && entries.some(({ node }) => node.id === event.edge.node.id)) tell({ what: 'post', post: event.edge.node })
  }

  more = () => void this.#kit.more()

  retry = () => void this.#kit.retry()

  /** Shows what waits, above a line that marks where the reader was. */
  showWaiting() {
    const { order, entries, waiting } = this.store.state
    if (order === 'LATEST') {
      const oldest = waiting.at(-1)?.score ?? Infinity
      this.store.patch({ unread: 0, read: entries.find(({ score }) => score < oldest)?.score })
    }
    void this.#kit.show()
  }

  setOrder(order: Order) {
    this.#opened = false
    void this.#kit.setOrder(order)
  }

  /** The reader has seen the newest entry shown. */
  async markRead() {
    const { order, entries } = this.store.state
    const newest = entries[0]
    if (order !== 'LATEST' || !newest || newest.score <= this.#marked) return
    const before = this.#marked
    this.#marked = newest.score
    if (!(await this.#kit.markRead(newest))) this.#marked = before
  }

  /** Posts the draft: it is shown at once, and goes back into its box when it is refused. */
  async post(visibility: Visibility) {
    const box = draftOf(this.session.user.handle)
    const draft = take(box)
    const { key } = draft
    if (await this.#kit.post(draft.text, { visibility, key })) return
    const refused = this.#kit.getSnapshot().pending.find((post) => post.key === key)
    this.#kit.discard(key)
    putBack(box, draft, t.notPosted(refused?.error?.message ?? ''))
  }
}
