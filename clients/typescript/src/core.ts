// The client's copy of a timeline or of the replies to a post, as a pure state machine: step() computes the next state from
// the previous state and a page, an event or a user action. Nothing here does I/O, waits or reads the clock.

/** The fields of a post that this module reads. */
export type Post = { id: string; author?: { id: string } | null; text?: string | null; repostOf?: Post | null }

/** An entry of the timeline, as the API gives it. The entries of a conversation have a score that the client computes. */
export type Edge<P extends Post = Post> = { cursor: string; score: number; node: P }

export type Order = 'LATEST' | 'RANKED'

export type ReplyOrder = 'OLDEST' | 'NEWEST' | 'TOP'

/** The result of a read: one page, or several consecutive pages joined. */
export type Page<P extends Post = Post> = {
  edges: Edge<P>[]
  /** The cursor after which the next page begins; null if there is none. */
  next: string | null
  /** The position of the first (newest) page. */
  position: string
  unreadCount: number
  /** The posts around a list of replies; see {@link Held}. */
  around?: P[]
  /** With `hold`: the entries on screen, read again separately because the read ended above them. */
  apart?: { edges: Edge<P>[]; next: string | null }
}

/** An event of the subscription. */
export type TimelineEvent<P extends Post = Post> =
  | { __typename: 'TimelinePostAdded'; position: string; edge: Edge<P>; unreadCount?: number }
  /** The post's content changed. */
  | { __typename: 'TimelinePostUpdated'; position: string; edge: Edge<P> }
  /** DELETED: the viewer's own post was deleted. Otherwise the viewer may no longer see the post in this timeline. */
  | { __typename: 'TimelinePostRemoved'; position: string; postId: string; removal?: 'DELETED' | 'NOT_VISIBLE' }
  | { __typename: 'TimelineInvalidated'; position: string; reason?: string }
  | { __typename: 'TimelineHeartbeat'; position: string; unreadCount: number; lateBy?: number }

/** A post by the viewer that the server has not confirmed yet. */
export type Pending = {
  /** The idempotency key: the server creates the post once, however often it is sent. */
  key: string
  text: string
  visibility?: string
  /** The other fields of CreatePostInput, such as replyTo. */
  input?: Record<string, unknown>
  createdAt: string
  /** Why the last attempt failed; code is '' if no answer came. Undefined while a request is in flight. */
  error?: { code: string; message: string }
}

/** The state of a list. It is immutable: each step returns a new one. */
export type Held<P extends Post = Post> = {
  /** The id of the user who reads; '' if nobody is signed in. */
  viewer: string
  /**
   * Whether entries that arrive by event go to `waiting` until the user asks for them. A reply below all others is shown at
   * once, because it moves nothing.
   */
  hold: boolean
  order: Order | ReplyOrder
  /** For a list of replies: the ancestors of the post, from the root down, and the post. Empty for a timeline. */
  around: P[]
  /** The entries on screen, sorted by `order`, each post once. */
  entries: Edge<P>[]
  /** Entries that have arrived but are not shown yet, newest first. */
  waiting: Edge<P>[]
  /** The viewer's posts that the server has not confirmed yet, newest first. */
  pending: Pending[]
  /** The cursor after which the next page begins; null if there is none. */
  next: string | null
  /** The score down to which the timeline was read. Meaningful only if `next` is not null. */
  end: number
  /**
   * The unread stretch of the timeline between `waiting` and `entries`: the cursor and the score below which it begins.
   * Null if there is none.
   */
  gap: { next: string; end: number } | null
  /** The position after which a subscription resumes. Null: there is none. */
  position: string | null
  /** Whether a first page has been read. */
  loaded: boolean
  /** Whether the first page must be read again: events may be missing. */
  stale: boolean
  /** The number of entries by other users above the read mark. */
  unread: number
  /** The delivery delay of posts in seconds, from the last heartbeat. */
  lateBy: number
  /** The number of first pages read so far. */
  landed: number
  /** For each unanswered createPost, by key: the post, and the value of `landed` when it was sent. */
  sending: Record<string, { post: Pending; landed: number }>
  /** Posts removed while a createPost was unanswered: the removal of a new post may arrive before the answer. */
  gone: string[]
  /** The read in progress. */
  reading: Reading<P> | null
}

/** Where an entry came from: the answer to createPost, for which no event has arrived yet, or the event. */
type Source = 'answer' | 'added' | 'updated'

/** A read in progress, and the events received since it began. The answer may include their effects or not. */
export type Reading<P extends Post = Post> = {
  id: number
  what: 'top' | 'older'
  /** Whether the whole answer is shown, instead of new entries waiting. */
  show: boolean
  added: Map<string, { edge: Edge<P>; by: Source }>
  gone: Set<string>
  changed: Map<string, P>
  /** The position of the last event since the read began. */
  position: string | null
  /** Whether the timeline was invalidated since the read began: it must then be read once more. */
  void: boolean
}

/** An input of the state machine. */
export type Step<P extends Post = Post> =
  /** A read begins. Only one runs at a time, and each has its own id. */
  | { type: 'read'; id: number; what: 'top' | 'older'; show?: boolean }
  | { type: 'page'; id: number; page: Page<P> }
  | { type: 'failed'; id: number }
  | { type: 'event'; event: TimelineEvent<P> }
  /** An event that adds no entry. node: the post that it changed, which may be an entry or around the list. */
  | { type: 'passed'; position: string; node?: P }
  /** The position is no longer usable, or the entries belong to another list. */
  | { type: 'restart' }
  /** The list is read from the start, in this order. */
  | { type: 'order'; order: Order | ReplyOrder }
  /** The waiting entries are shown. */
  | { type: 'show' }
  /** The app itself has learned that a post changed, or is gone. */
  | { type: 'changed'; node: P }
  | { type: 'gone'; postId: string }
  | { type: 'unread'; count: number }
  | { type: 'compose'; post: Pending }
  | { type: 'posted'; key: string; edge: Edge<P> }
  | { type: 'refused'; key: string; error: { code: string; message: string } }
  | { type: 'discard'; key: string }

/** Returns the state of a list that has not been read yet. */
export function empty<P extends Post>(viewer: string, hold = false, order: Order | ReplyOrder = 'LATEST'): Held<P> {
  return {
    viewer, hold, order, around: [], entries: [], waiting: [], pending: [], next: null, end: 0, gap: null,
    position: null, loaded: false, stale: true, unread: 0, lateBy: 0, landed: 0, sending: {}, gone: [], reading: null,
  }
}

/** Whether the entries have an order that only the server knows, instead of that of their scores. */
export const ranked = ({ order }: Pick<Held, 'order'>): boolean => order === 'RANKED' || order === 'TOP'

const has = (list: Edge[], id: string) => list.some(({ node }) => node.id === id)
const without = <P extends Post>(list: Edge<P>[], id: string) => (has(list, id) ? list.filter(({ node }) => node.id !== id) : list)

/** Joins the lists, newest first. A post in several lists appears once, as the last of them has it. */
export function merge<P extends Post>(...lists: Edge<P>[][]): Edge<P>[] {
  const byPost = new Map(lists.flat().map((edge) => [edge.node.id, edge]))
  return [...byPost.values()].sort((a, b) => b.score - a.score)
}

/** Reports whether the entry's author is not the viewer. */
export const foreign = (s: Held, { node }: Edge) => node.author?.id !== s.viewer

/** Reports whether a score lies below the start of the gap: the number of entries above it is then unknown. */
const below = (s: Held, score: number) => s.gap !== null && score < s.gap.end

/** The number of held entries by others above the score; Infinity if it is unknown. */
const newer = <P extends Post>(s: Held<P>, score: number) =>
  below(s, score) ? Infinity : [...s.entries, ...s.waiting].filter((e) => e.score > score && foreign(s, e)).length

/** The held entries from the newest down to the gap. */
const newest = <P extends Post>(s: Held<P>) => merge(s.entries, s.waiting).filter(({ score }) => !below(s, score))

/**
 * Returns the score of the newest entry that the user has read: entries by others above it are new.
 * Undefined: that entry is below the ones held.
 */
export function readLine<P extends Post>(s: Held<P>, unread = s.unread): number | undefined {
  const all = newest(s)
  if (unread === 0) return all[0]?.score ?? -Infinity
  for (const [i, entry] of all.entries()) if (foreign(s, entry) && --unread === 0) return all[i + 1]?.score ?? (s.gap || s.next ? undefined : -Infinity)
  return undefined
}

/** The original of a repost, or the post itself. */
export const originalOf = <P extends Post>(node: P): Omit<P, 'repostOf'> => (node.repostOf as P | null | undefined) ?? node

/** An entry as a view shows it: a post with its reposts among the entries, newest first. It stands where the newest of them does. */
export type Shown<P extends Post = Post> = Edge<P> & { post: Omit<P, 'repostOf'>; reposts: Edge<P>[] }

/**
 * Returns the entries with each original once, at the first of its entries. The state keeps all entries, so an original
 * whose newest repost is undone moves to the next one, or to its own place.
 */
export function collapse<P extends Post>(entries: Edge<P>[]): Shown<P>[] {
  const byOriginal = new Map<string, Shown<P>>()
  for (const edge of entries) {
    const post = originalOf(edge.node)
    let shown = byOriginal.get(post.id)
    if (!shown) byOriginal.set(post.id, (shown = { ...edge, post, reposts: [] }))
    if (edge.node.repostOf) shown.reposts.push(edge)
    else shown.post = post
  }
  return [...byOriginal.values()]
}

/** Returns the state after the step. */
export function step<P extends Post>(s: Held<P>, a: Step<P>): Held<P> {
  switch (a.type) {
    case 'read':
      return { ...s, reading: { ...a, show: a.show ?? false, added: new Map(), gone: new Set(), changed: new Map(), position: null, void: false } }
    case 'failed':
      return s.reading?.id === a.id ? { ...s, reading: null } : s
    case 'page': {
      const { reading } = s
      if (reading?.id !== a.id) return s
      return reading.what === 'top' ? landTop(s, reading, a.page) : landOlder(s, reading, a.page)
    }
    case 'event':
      return happen(s, a.event)
    case 'passed':
      return at(s, a.node ? change(s, a.node) : s, a.position)
    case 'restart':
      return { ...s, position: null, stale: true, reading: s.reading && { ...s.reading, void: true } }
    case 'order':
      return { ...s, order: a.order, entries: [], waiting: [], next: null, gap: null, loaded: false, stale: true, reading: null }
    case 'show':
      return show(s)
    case 'changed':
      return change(s, a.node)
    case 'gone':
      return remove(s, a.postId)
    case 'unread':
      return { ...s, unread: a.count }
    case 'compose':
      return { ...s, sending: { ...s.sending, [a.post.key]: { post: a.post, landed: s.landed } }, pending: [a.post, ...s.pending.filter(({ key }) => key !== a.post.key)] }
    case 'posted':
      return posted(s, a.key, a.edge)
    case 'refused':
      return refused(s, a.key, a.error)
    case 'discard':
      return { ...answered(s, a.key), pending: s.pending.filter(({ key }) => key !== a.key) }
  }
}

/** Shows the waiting entries. Entries below the gap are dropped; they return with their page. */
function show<P extends Post>(s: Held<P>): Held<P> {
  if (ranked(s)) return { ...s, waiting: [], entries: [...s.waiting, ...s.entries] }
  const shown = { ...s, waiting: [], entries: newest(s) }
  // A next page in flight follows the entries that were just dropped, so its answer is ignored.
  return s.gap ? { ...shown, ...s.gap, gap: null, reading: s.reading?.what === 'older' ? null : s.reading } : shown
}

function happen<P extends Post>(s: Held<P>, event: TimelineEvent<P>): Held<P> {
  if (event.__typename === 'TimelineInvalidated')
    // Keep the position: if the connection breaks now, the server sends the invalidation again.
    return { ...s, stale: true, reading: s.reading && { ...s.reading, void: true } }
  const next =
    event.__typename === 'TimelinePostAdded' ? add(s, event.edge, event.unreadCount)
    : event.__typename === 'TimelinePostUpdated' ? update(s, event.edge)
    : event.__typename === 'TimelinePostRemoved' ? remove(s, event.postId)
    : event.__typename === 'TimelineHeartbeat' ? { ...s, unread: event.unreadCount, lateBy: event.lateBy ?? 0 }
    : s // an event type of a newer server
  return at(s, next, event.position)
}

/** Returns the next state with the position of an event. s is the state before the event. */
function at<P extends Post>(s: Held<P>, next: Held<P>, position: string): Held<P> {
  const { reading } = next
  return {
    ...next,
    // While the state is stale, the event's position is ahead of the entries held.
    position: s.stale ? s.position : position,
    reading: reading && !reading.void ? { ...reading, position } : reading,
  }
}

/** Returns the read with an entry that arrived since it began. */
function meanwhile<P extends Post>(reading: Reading<P> | null, edge: Edge<P>, by: Source): Reading<P> | null {
  if (!reading) return null
  const { id } = edge.node
  const gone = new Set(reading.gone)
  if (by !== 'answer') gone.delete(id)
  const before = reading.added.get(id)?.by
  // A new post is still new if it is also edited during the read.
  const isNew = before === 'added' || (before === 'answer' && by === 'updated')
  const added = new Map(reading.added).set(id, { edge, by: isNew ? 'added' : by })
  return { ...reading, gone, added, changed: new Map(reading.changed).set(id, edge.node) }
}

function add<P extends Post>(s: Held<P>, edge: Edge<P>, unreadCount?: number): Held<P> {
  const { id, text } = edge.node
  const known = has(s.entries, id) || has(s.waiting, id)
  // The event of the viewer's own post may arrive before the answer to createPost. Of two with the same text, the older
  // one was probably created first.
  const mine = !known && !foreign(s, edge) && s.pending.findLast((p) => p.text.trim() === text && !p.error)
  if (mine) return own({ ...s, pending: s.pending.filter((p) => p !== mine) }, edge, 'added')
  const reading = meanwhile(s.reading, edge, 'added')
  if (known) return { ...change(s, edge.node), reading, unread: unreadCount ?? s.unread }
  const unread = unreadCount ?? s.unread + (foreign(s, edge) && newer(s, edge.score) <= s.unread ? 1 : 0)
  // An entry below the oldest page, or below the start of the gap, comes with its page.
  if (!ranked(s) && ((s.next && edge.score < s.end) || below(s, edge.score))) return { ...s, reading, unread: unreadCount ?? s.unread }
  const last = s.entries.at(-1)
  const movesNothing = s.order !== 'LATEST' && (!last || edge.score < last.score)
  return ranked(s) || (s.hold && !movesNothing)
    ? { ...s, reading, unread, waiting: merge(s.waiting, [edge]) }
    : { ...s, reading, unread, entries: merge(s.entries, [edge]) }
}

/**
 * Applies an edit. A post that is not held (because it contained a muted word before the edit, for example) is inserted at
 * its score, and not counted as unread.
 */
function update<P extends Post>(s: Held<P>, edge: Edge<P>): Held<P> {
  const next = { ...change(s, edge.node), reading: meanwhile(s.reading, edge, 'updated') }
  const known = has(s.entries, edge.node.id) || has(s.waiting, edge.node.id)
  if (known || ranked(s) || (s.next && edge.score < s.end) || below(s, edge.score)) return next
  return { ...next, entries: merge(s.entries, [edge]) }
}

/** Drops the bookkeeping for a createPost that has been answered. */
function answered<P extends Post>(s: Held<P>, key: string): Held<P> {
  const { [key]: _, ...sending } = s.sending
  return { ...s, sending, gone: Object.keys(sending).length ? s.gone : [] }
}

/** Applies the answer to createPost. Events may have added the post, and even removed it, before. */
function posted<P extends Post>(s: Held<P>, key: string, edge: Edge<P>): Held<P> {
  const left = { ...answered(s, key), pending: s.pending.filter((p) => p.key !== key) }
  if (s.gone.includes(edge.node.id)) return left
  // A first page that landed since the request lacks the post: it was read before the post was created, or after the post
  // was removed. Another read decides.
  const doubt = !has(s.entries, edge.node.id) && !has(s.waiting, edge.node.id) && s.sending[key]?.landed !== s.landed
  return own({ ...left, stale: s.stale || doubt }, edge, 'answer')
}

/** Keeps a failed post with its error, also if the event of a post with the same text took it out of `pending`. */
function refused<P extends Post>(s: Held<P>, key: string, error: Pending['error']): Held<P> {
  const lost = s.pending.some((p) => p.key === key) ? undefined : s.sending[key]?.post
  const pending = lost ? [lost, ...s.pending] : s.pending
  return { ...answered(s, key), pending: pending.map((p) => (p.key === key ? { ...p, error } : p)) }
}

/** Shows the viewer's own post at once. It does not count as unread. */
function own<P extends Post>(s: Held<P>, edge: Edge<P>, by: Source): Held<P> {
  const others = without(s.entries, edge.node.id)
  return {
    ...s,
    reading: meanwhile(s.reading, edge, by),
    waiting: without(s.waiting, edge.node.id),
    entries: ranked(s) ? [edge, ...others] : merge(others, [edge]),
  }
}

function remove<P extends Post>(s: Held<P>, id: string): Held<P> {
  const held = [...s.entries, ...s.waiting].find(({ node }) => node.id === id)
  let { reading } = s
  if (reading) {
    const added = new Map(reading.added)
    added.delete(id)
    reading = { ...reading, added, gone: new Set(reading.gone).add(id) }
  }
  const wasUnread = held && foreign(s, held) && newer(s, held.score) < s.unread
  const gone = Object.keys(s.sending).length ? [...s.gone, id] : []
  const around = s.around.filter((post) => post.id !== id)
  // A reply depends on the posts that lead to it, so the read that follows says what is left.
  const lost = around.length < s.around.length
  if (lost && reading) reading = { ...reading, void: true }
  const left = { ...s, reading, gone, around, stale: s.stale || lost, entries: without(s.entries, id), waiting: without(s.waiting, id), unread: s.unread - (wasUnread ? 1 : 0) }
  return s.entries.length > 0 && left.entries.length === 0 ? show(left) : left
}

/** Replaces a post, also as the original of reposts. */
function change<P extends Post>(s: Held<P>, node: P): Held<P> {
  const shows = (e: Edge<P>) => e.node.id === node.id || e.node.repostOf?.id === node.id
  const replaced = (e: Edge<P>) => ({ ...e, node: e.node.id === node.id ? node : { ...e.node, repostOf: node } })
  const changed = (list: Edge<P>[]) => (list.some(shows) ? list.map((e) => (shows(e) ? replaced(e) : e)) : list)
  const reading = s.reading && { ...s.reading, changed: new Map(s.reading.changed).set(node.id, node) }
  const around = s.around.some(({ id }) => id === node.id) ? s.around.map((post) => (post.id === node.id ? node : post)) : s.around
  return { ...s, reading, around, entries: changed(s.entries), waiting: changed(s.waiting) }
}

/** Returns the entry with the newest content of its post, and of the original of a repost, received during the read. */
const latest = <P extends Post>(reading: Reading<P>, edge: Edge<P>) => {
  const node = reading.changed.get(edge.node.id) ?? edge.node
  const original = node.repostOf && reading.changed.get(node.repostOf.id)
  return original ? { ...edge, node: { ...node, repostOf: original } } : node === edge.node ? edge : { ...edge, node }
}

/** Returns the entries of the page, updated with the events received during the read. */
const read = <P extends Post>(reading: Reading<P>, page: Page<P>) =>
  page.edges.filter(({ node }) => !reading.gone.has(node.id)).map((edge) => latest(reading, edge))

/** Returns the score down to which the timeline is read with the page. A page may be empty and have a next page. */
const endOf = (s: Held, page: Page) => page.edges.at(-1)?.score ?? s.end
const within = <P extends Post>(s: Held<P>, reading: Reading<P>, page: Page<P>) =>
  [...reading.added.values()].map(({ edge }) => latest(reading, edge)).filter(({ score }) => !page.next || score >= endOf(s, page))

/** The score of the newest entry shown by another user, or else of the newest entry: entries above it are new. */
export const shownTop = (s: Held): number => (s.entries.find((e) => foreign(s, e)) ?? s.entries[0])?.score ?? -Infinity

/** Replaces the held entries with the first page. With `hold`, entries on screen stay if they still exist. */
function landTop<P extends Post>(s: Held<P>, reading: Reading<P>, page: Page<P>): Held<P> {
  const edges = read(reading, page)
  const byServer = ranked(s)
  const source = (e: Edge) => reading.added.get(e.node.id)?.by
  // An edited post that the server's order leaves out is no news.
  const since = within(s, reading, page).filter((e) => !has(edges, e.node.id) && !(byServer && source(e) === 'updated'))
  const shown = new Set(s.entries.map(({ node }) => node.id))
  const waited = new Set(s.waiting.map(({ node }) => node.id))
  const top = s.entries.find((e) => foreign(s, e))?.score ?? -Infinity
  const all = byServer ? [...since.filter(({ node }) => shown.has(node.id)), ...edges] : merge(edges, since)
  const holds = s.hold && !reading.show && s.loaded && !byServer && shown.size > 0
  const waits = ({ score, node }: Edge<P>) => holds && !shown.has(node.id) && (score > top || waited.has(node.id))
  const apart = holds && page.apart && page.next && shownTop(s) < endOf(s, page) ? { ...page, ...page.apart } : null
  const rest = apart ? read(reading, apart).filter((e) => !waits(e)) : []
  const landed: Held<P> = {
    ...s,
    reading: null,
    around: (page.around ?? []).filter(({ id }) => !reading.gone.has(id)).map((post) => reading.changed.get(post.id) ?? post),
    entries: all.filter((e) => !waits(e)),
    waiting: byServer ? since.filter(({ node }) => !shown.has(node.id)) : all.filter(waits),
    next: page.next,
    end: endOf(s, page),
    gap: null,
    // Events since the read began are newer than the page.
    position: reading.position ?? page.position,
    loaded: true,
    landed: s.landed + 1,
    // The page lacks a post of the viewer's, and no event told of it: the post is newer than the page, or already gone.
    stale: reading.void || since.some((e) => source(e) === 'answer'),
    unread: page.unreadCount + (byServer ? 0 : since.filter((e) => source(e) === 'added' && foreign(s, e)).length),
  }
  if (apart && rest.length > 0) return { ...landed, entries: merge(landed.entries, rest), next: apart.next, end: endOf(s, apart), gap: { next: page.next!, end: endOf(s, page) } }
  return holds && landed.entries.length === 0 ? show(landed) : landed
}

/** Appends the page that follows the oldest one. */
function landOlder<P extends Post>(s: Held<P>, reading: Reading<P>, page: Page<P>): Held<P> {
  const fresh = [...read(reading, page), ...(ranked(s) ? [] : within(s, reading, page))]
    .filter(({ node }) => !has(s.entries, node.id) && !has(s.waiting, node.id))
  return {
    ...s,
    reading: null,
    entries: ranked(s) ? [...s.entries, ...fresh] : merge(s.entries, fresh),
    next: page.next,
    end: endOf(s, page),
  }
}

/** The part of the state that is stored: the newest entries, the position to resume from, and unconfirmed posts. */
export type Saved<P extends Post = Post> = { version: 1; viewer: string } & Pick<Held<P>, 'entries' | 'next' | 'end' | 'position' | 'unread' | 'pending'>

/**
 * Returns the state to store, with at most `most` entries. Of a stale or ranked timeline it stores no entries, but always
 * the unconfirmed posts.
 */
export function save<P extends Post>(s: Held<P>, most = 100): Saved<P> {
  const { viewer, unread, pending } = s
  // A ranked list has no position to resume from.
  const good = s.loaded && !s.stale && s.order === 'LATEST' && s.position !== null
  const all = good ? newest(s) : []
  const entries = all.slice(0, most)
  const cut = all.length > most
  const { next, end } = s.gap ?? s
  return {
    version: 1, viewer, unread, pending, entries,
    position: good ? s.position : null,
    next: cut ? entries.at(-1)!.cursor : good ? next : null,
    end: cut ? entries.at(-1)!.score : end,
  }
}

/** Returns the state with the stored one loaded into it, if that belongs to the same viewer. */
export function restore<P extends Post>(s: Held<P>, saved: Saved<P> | null | undefined): Held<P> {
  if (saved?.version !== 1 || saved.viewer !== s.viewer) return s
  // A post in flight when the program ended may have been created. Sending it again is safe because of its key.
  const stored = saved.pending.map((p) => (p.error ? p : { ...p, error: { code: '', message: '' } }))
  const pending = [...s.pending, ...stored.filter(({ key }) => !s.pending.some((p) => p.key === key))]
  if (!saved.position) return { ...s, pending }
  const { entries, next, end, position, unread } = saved
  return { ...s, pending, entries, next, end, position, unread, loaded: true, stale: false }
}
