// What a client holds of its timeline, as a function of what it was told. Nothing here reads, waits or knows the time.

/** The least that is known of a post. */
export type Post = { id: string; author?: { id: string } | null; text?: string | null }

/** An entry of the timeline, as the API gives it. */
export type Edge<P extends Post = Post> = { cursor: string; score: number; node: P }

export type Order = 'LATEST' | 'RANKED'

/** One or more pages that were read one after the other. */
export type Page<P extends Post = Post> = {
  edges: Edge<P>[]
  /** Where the next page begins; null: there is none. */
  next: string | null
  /** That of the first, newest page. */
  position: string
  unreadCount: number
  /** With `hold`: the entries shown that lie below `next`, read again, where the read did not reach down to them. */
  apart?: { edges: Edge<P>[]; next: string | null }
}

/** An event of the subscription. */
export type TimelineEvent<P extends Post = Post> =
  | { __typename: 'TimelinePostAdded'; position: string; edge: Edge<P>; unreadCount?: number }
  /** It says something else than before. */
  | { __typename: 'TimelinePostUpdated'; position: string; edge: Edge<P> }
  /** DELETED: it was the viewer's own, and is gone. Otherwise the viewer may have it here no more. */
  | { __typename: 'TimelinePostRemoved'; position: string; postId: string; removal?: 'DELETED' | 'NOT_VISIBLE' }
  | { __typename: 'TimelineInvalidated'; position: string; reason?: string }
  | { __typename: 'TimelineHeartbeat'; position: string; unreadCount: number; lateBy?: number }

/** An own post on its way to the server. */
export type Pending = {
  /** The idempotency key: however often it is sent, it is posted once. */
  key: string
  text: string
  visibility?: string
  createdAt: string
  /** Why it was not posted; code is '' where no answer came. Without it, it is on its way. */
  error?: { code: string; message: string }
}

/** What is held. It is never changed: each step makes a new one. */
export type Held<P extends Post = Post> = {
  /** The id of the user whose timeline it is. */
  viewer: string
  /** Whether what comes by event waits to be shown. */
  hold: boolean
  order: Order
  /** What is shown, in the order of choice, each post once. */
  entries: Edge<P>[]
  /** What has come since and waits to be shown, newest first. */
  waiting: Edge<P>[]
  /** Own posts that are not posted yet, newest first. */
  pending: Pending[]
  /** Where the next page begins; null: there is none. */
  next: string | null
  /** The score down to which the timeline was read; it says nothing without a next page. */
  end: number
  /** Where the timeline was not read between `waiting` and `entries`: the cursor and the score below which. Null: nowhere. */
  gap: { next: string; end: number } | null
  /** The newest cursor of what is held: where a subscription resumes. Null: nowhere. */
  position: string | null
  /** Whether a first page was read. */
  loaded: boolean
  /** Whether the first page must be read again: what is told has gaps since. */
  stale: boolean
  /** How many entries of others are newer than the read mark. */
  unread: number
  /** By how many seconds posts reach timelines late, as the last heartbeat said. */
  lateBy: number
  /** How many first pages were read. */
  landed: number
  /** How many had been when an own post was sent whose answer has not come, by its key. */
  sending: Record<string, number>
  /** What was removed while own posts were on their way: the answer to one of them may come later than its removal. */
  gone: string[]
  /** The read that is under way. */
  reading: Reading<P> | null
}

/** A read under way, and what happened meanwhile: the answer may know of it or not. */
export type Reading<P extends Post = Post> = {
  id: number
  what: 'top' | 'older'
  /** Whether nothing of the answer waits. */
  show: boolean
  added: Map<string, Edge<P>>
  gone: Set<string>
  changed: Map<string, P>
  /** Of what was added, the viewer's posts that no event has told of yet. */
  untold: Set<string>
  /** The last position that was told since. */
  position: string | null
  /** Whether the timeline was invalidated since: then it must be read once more. */
  void: boolean
}

/** What happens to a timeline. */
export type Step<P extends Post = Post> =
  /** A read begins; one at a time, and each has another id. */
  | { type: 'read'; id: number; what: 'top' | 'older'; show?: boolean }
  | { type: 'page'; id: number; page: Page<P> }
  | { type: 'failed'; id: number }
  | { type: 'event'; event: TimelineEvent<P> }
  /** The position is worth nothing, or what is held is another list. */
  | { type: 'restart' }
  | { type: 'order'; order: Order }
  /** What waits is shown. */
  | { type: 'show' }
  /** A post is another now, or gone, as this client knows by itself. */
  | { type: 'changed'; node: P }
  | { type: 'gone'; postId: string }
  | { type: 'unread'; count: number }
  | { type: 'compose'; post: Pending }
  | { type: 'posted'; key: string; edge: Edge<P> }
  | { type: 'refused'; key: string; error: { code: string; message: string } }
  | { type: 'discard'; key: string }

/** A timeline of which nothing is known. */
export function empty<P extends Post>(viewer: string, hold = false): Held<P> {
  return {
    viewer, hold, order: 'LATEST', entries: [], waiting: [], pending: [], next: null, end: 0, gap: null,
    position: null, loaded: false, stale: true, unread: 0, lateBy: 0, landed: 0, sending: {}, gone: [], reading: null,
  }
}

const has = (list: Edge[], id: string) => list.some(({ node }) => node.id === id)
const without = <P extends Post>(list: Edge<P>[], id: string) => (has(list, id) ? list.filter(({ node }) => node.id !== id) : list)

/** Newest first, each post once, as the last of the lists has it. */
export function merge<P extends Post>(...lists: Edge<P>[][]): Edge<P>[] {
  const byPost = new Map(lists.flat().map((edge) => [edge.node.id, edge]))
  return [...byPost.values()].sort((a, b) => b.score - a.score)
}

/** Whether an entry is of somebody else. */
export const foreign = (s: Held, { node }: Edge) => node.author?.id !== s.viewer

/** Whether a score lies below what was not read: how many entries are above it is not known. */
const below = (s: Held, score: number) => s.gap !== null && score < s.gap.end

/** How many entries of others are newer, of those that are held. */
const newer = <P extends Post>(s: Held<P>, score: number) =>
  below(s, score) ? Infinity : [...s.entries, ...s.waiting].filter((e) => e.score > score && foreign(s, e)).length

/** What is held from the newest entry down to the first that was not read. */
const newest = <P extends Post>(s: Held<P>) => merge(s.entries, s.waiting).filter(({ score }) => !below(s, score))

/**
 * The score down to which entries have been read: entries above it are new, if they are not the viewer's own.
 * Undefined: the line is further down than what is held.
 */
export function readLine<P extends Post>(s: Held<P>, unread = s.unread): number | undefined {
  const all = newest(s)
  if (unread === 0) return all[0]?.score ?? -Infinity
  for (const [i, entry] of all.entries()) if (foreign(s, entry) && --unread === 0) return all[i + 1]?.score ?? (s.gap || s.next ? undefined : -Infinity)
  return undefined
}

/** The timeline after the step. */
export function step<P extends Post>(s: Held<P>, a: Step<P>): Held<P> {
  switch (a.type) {
    case 'read':
      return { ...s, reading: { ...a, show: a.show ?? false, added: new Map(), gone: new Set(), changed: new Map(), untold: new Set(), position: null, void: false } }
    case 'failed':
      return s.reading?.id === a.id ? { ...s, reading: null } : s
    case 'page': {
      const { reading } = s
      if (reading?.id !== a.id) return s
      return reading.what === 'top' ? landTop(s, reading, a.page) : landOlder(s, reading, a.page)
    }
    case 'event':
      return happen(s, a.event)
    case 'restart':
      return { ...s, position: null, stale: true, reading: s.reading && { ...s.reading, void: true } }
    case 'order':
      return a.order === s.order ? s : { ...s, order: a.order, entries: [], next: null, gap: null, loaded: false, stale: true, reading: null }
    case 'show':
      return show(s)
    case 'changed':
      return change(s, a.node)
    case 'gone':
      return remove(s, a.postId)
    case 'unread':
      return { ...s, unread: a.count }
    case 'compose':
      return { ...s, sending: { ...s.sending, [a.post.key]: s.landed }, pending: [a.post, ...s.pending.filter(({ key }) => key !== a.post.key)] }
    case 'posted':
      return posted(s, a.key, a.edge)
    case 'refused':
      return { ...answered(s, a.key), pending: s.pending.map((p) => (p.key === a.key ? { ...p, error: a.error } : p)) }
    case 'discard':
      return { ...s, pending: s.pending.filter(({ key }) => key !== a.key) }
  }
}

/** Shows what waits. Entries below what was not read leave; they come again with their page. */
function show<P extends Post>(s: Held<P>): Held<P> {
  if (s.order === 'RANKED') return { ...s, waiting: [], entries: [...s.waiting, ...s.entries] }
  const shown = { ...s, waiting: [], entries: newest(s) }
  // The next page that is on its way is of the entries that leave.
  return s.gap ? { ...shown, ...s.gap, gap: null, reading: s.reading?.what === 'older' ? null : s.reading } : shown
}

function happen<P extends Post>(s: Held<P>, event: TimelineEvent<P>): Held<P> {
  if (event.__typename === 'TimelineInvalidated')
    // The position stays, so that a client that is cut off now is told again.
    return { ...s, stale: true, reading: s.reading && { ...s.reading, void: true } }
  const next =
    event.__typename === 'TimelinePostAdded' ? add(s, event.edge, event.unreadCount)
    : event.__typename === 'TimelinePostUpdated' ? update(s, event.edge)
    : event.__typename === 'TimelinePostRemoved' ? remove(s, event.postId)
    : event.__typename === 'TimelineHeartbeat' ? { ...s, unread: event.unreadCount, lateBy: event.lateBy ?? 0 }
    : s // an event of a later server
  const { position } = event
  const { reading } = next
  return {
    ...next,
    // While it must be read again, what is told lies beyond what is held.
    position: s.stale ? s.position : position,
    reading: reading && !reading.void ? { ...reading, position } : reading,
  }
}

/** The read with an entry that came meanwhile. */
function meanwhile<P extends Post>(reading: Reading<P> | null, edge: Edge<P>, told: boolean): Reading<P> | null {
  if (!reading) return null
  const untold = new Set(reading.untold)
  if (told) untold.delete(edge.node.id)
  else untold.add(edge.node.id)
  const changed = new Map(reading.changed).set(edge.node.id, edge.node)
  return { ...reading, changed, untold, added: new Map(reading.added).set(edge.node.id, edge) }
}

function add<P extends Post>(s: Held<P>, edge: Edge<P>, unreadCount?: number): Held<P> {
  const { id, text } = edge.node
  // An own post may be told of before createPost is answered.
  const mine = !foreign(s, edge) && s.pending.find((p) => p.text.trim() === text && !p.error)
  if (mine) return own({ ...s, pending: s.pending.filter((p) => p !== mine) }, edge, true)
  const reading = meanwhile(s.reading, edge, true)
  const known = has(s.entries, id) || has(s.waiting, id)
  if (known) return { ...change(s, edge.node), reading, unread: unreadCount ?? s.unread }
  const unread = unreadCount ?? s.unread + (foreign(s, edge) && newer(s, edge.score) <= s.unread ? 1 : 0)
  // What is older than the oldest page comes with the next one, and so does what lies below the oldest that waits.
  if (s.order === 'LATEST' && ((s.next && edge.score < s.end) || below(s, edge.score))) return { ...s, reading, unread: unreadCount ?? s.unread }
  return s.hold || s.order === 'RANKED'
    ? { ...s, reading, unread, waiting: merge(s.waiting, [edge]) }
    : { ...s, reading, unread, entries: merge(s.entries, [edge]) }
}

/** A post that says something else: one that is not held, as it had a muted word before, takes its place, and is no news. */
function update<P extends Post>(s: Held<P>, edge: Edge<P>): Held<P> {
  const next = change(s, edge.node)
  const known = has(s.entries, edge.node.id) || has(s.waiting, edge.node.id)
  if (known || s.order === 'RANKED' || (s.next && edge.score < s.end) || below(s, edge.score)) return next
  return { ...next, reading: meanwhile(s.reading, edge, true), entries: merge(s.entries, [edge]) }
}

/** Without what was kept for an answer that has come. */
function answered<P extends Post>(s: Held<P>, key: string): Held<P> {
  const { [key]: _, ...sending } = s.sending
  return { ...s, sending, gone: Object.keys(sending).length ? s.gone : [] }
}

/** The answer to createPost: events may have told of the post already, and of its end. */
function posted<P extends Post>(s: Held<P>, key: string, edge: Edge<P>): Held<P> {
  const left = { ...answered(s, key), pending: s.pending.filter((p) => p.key !== key) }
  if (s.gone.includes(edge.node.id)) return left
  // A first page that was read meanwhile without it is newer than the post, or older: another one says which.
  const doubt = !has(s.entries, edge.node.id) && s.sending[key] !== s.landed
  return own({ ...left, stale: s.stale || doubt }, edge, false)
}

/** The viewer's post is shown at once: it is no news. */
function own<P extends Post>(s: Held<P>, edge: Edge<P>, told: boolean): Held<P> {
  const others = without(s.entries, edge.node.id)
  return {
    ...s,
    reading: meanwhile(s.reading, edge, told),
    waiting: without(s.waiting, edge.node.id),
    entries: s.order === 'LATEST' ? merge(others, [edge]) : [edge, ...others],
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
  const left = { ...s, reading, gone, entries: without(s.entries, id), waiting: without(s.waiting, id), unread: s.unread - (wasUnread ? 1 : 0) }
  return s.entries.length > 0 && left.entries.length === 0 ? show(left) : left
}

function change<P extends Post>(s: Held<P>, node: P): Held<P> {
  const changed = (list: Edge<P>[]) => (has(list, node.id) ? list.map((e) => (e.node.id === node.id ? { ...e, node } : e)) : list)
  const reading = s.reading && { ...s.reading, changed: new Map(s.reading.changed).set(node.id, node) }
  return { ...s, reading, entries: changed(s.entries), waiting: changed(s.waiting) }
}

/** An entry with what its post was last told to say during the read. */
const latest = <P extends Post>(reading: Reading<P>, edge: Edge<P>) => {
  const node = reading.changed.get(edge.node.id)
  return node ? { ...edge, node } : edge
}

/** What was read, with what happened meanwhile. */
const read = <P extends Post>(reading: Reading<P>, page: Page<P>) =>
  page.edges.filter(({ node }) => !reading.gone.has(node.id)).map((edge) => latest(reading, edge))

const endOf = (page: Page) => page.edges.at(-1)?.score ?? -Infinity
const within = <P extends Post>(reading: Reading<P>, page: Page<P>) =>
  [...reading.added.values()].filter(({ score }) => !page.next || score >= endOf(page)).map((edge) => latest(reading, edge))

/** The score of the newest entry shown, of somebody else if there is one: what is above it is new. */
export const shownTop = (s: Held): number => (s.entries.find((e) => foreign(s, e)) ?? s.entries[0])?.score ?? -Infinity

/** The first page takes the place of all that was held. With `hold`, what is shown stays shown, if it is still there. */
function landTop<P extends Post>(s: Held<P>, reading: Reading<P>, page: Page<P>): Held<P> {
  const edges = read(reading, page)
  const ranked = s.order === 'RANKED'
  const since = within(reading, page).filter(({ node }) => !has(edges, node.id))
  const shown = new Set(s.entries.map(({ node }) => node.id))
  const waited = new Set(s.waiting.map(({ node }) => node.id))
  const top = s.entries.find((e) => foreign(s, e))?.score ?? -Infinity
  const all = ranked ? [...since.filter(({ node }) => shown.has(node.id)), ...edges] : merge(edges, since)
  const holds = s.hold && !reading.show && s.loaded && !ranked && shown.size > 0
  const waits = ({ score, node }: Edge<P>) => holds && !shown.has(node.id) && (score > top || waited.has(node.id))
  const apart = holds && page.apart && page.next && shownTop(s) < endOf(page) ? { ...page, ...page.apart } : null
  const rest = apart ? read(reading, apart).filter((e) => !waits(e)) : []
  const landed: Held<P> = {
    ...s,
    reading: null,
    entries: all.filter((e) => !waits(e)),
    waiting: ranked ? since.filter(({ node }) => !shown.has(node.id)) : all.filter(waits),
    next: page.next,
    end: endOf(page),
    gap: null,
    // What was told since is beyond the page.
    position: reading.position ?? page.position,
    loaded: true,
    landed: s.landed + 1,
    // A post that the page lacks, and no event told of, is newer than the page, or gone already.
    stale: reading.void || since.some(({ node }) => reading.untold.has(node.id)),
    unread: page.unreadCount + (ranked ? 0 : since.filter((e) => foreign(s, e)).length),
  }
  if (apart && rest.length > 0) return { ...landed, entries: merge(landed.entries, rest), next: apart.next, end: endOf(apart), gap: { next: page.next!, end: endOf(page) } }
  return holds && landed.entries.length === 0 ? show(landed) : landed
}

/** The page after the oldest one is added. */
function landOlder<P extends Post>(s: Held<P>, reading: Reading<P>, page: Page<P>): Held<P> {
  const fresh = [...read(reading, page), ...(s.order === 'LATEST' ? within(reading, page) : [])]
    .filter(({ node }) => !has(s.entries, node.id) && !has(s.waiting, node.id))
  return {
    ...s,
    reading: null,
    entries: s.order === 'LATEST' ? merge(s.entries, fresh) : [...s.entries, ...fresh],
    next: page.next,
    end: Math.min(s.end, endOf(page)),
  }
}

/** What is worth keeping of a timeline: its newest entries, where to resume, and what was not posted. */
export type Saved<P extends Post = Post> = { version: 1; viewer: string } & Pick<Held<P>, 'entries' | 'next' | 'end' | 'position' | 'unread' | 'pending'>

/** What to keep, at most so many entries. Nothing that must be read again is kept, but what was not posted is. */
export function save<P extends Post>(s: Held<P>, most = 100): Saved<P> {
  const { viewer, unread, pending } = s
  // A ranked list is no place to resume from.
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

/** The timeline that was saved, if it is of this viewer. */
export function restore<P extends Post>(s: Held<P>, saved: Saved<P> | null | undefined): Held<P> {
  if (saved?.version !== 1 || saved.viewer !== s.viewer) return s
  // What was on its way when the program ended was perhaps posted: its key says so to the server.
  const pending = saved.pending.map((p) => (p.error ? p : { ...p, error: { code: '', message: '' } }))
  if (!saved.position) return { ...s, pending }
  const { entries, next, end, position, unread } = saved
  return { ...s, pending, entries, next, end, position, unread, loaded: true, stale: false }
}
