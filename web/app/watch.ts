// Keeps the posts and people on the page up to date while the page is visible: their counts, and the viewer's relations, also when
// another device changes them.
import { reconnectDelay } from '@tideline/client'
import type { TadaDocumentNode } from 'gql.tada'
import { createClient, type Client } from 'graphql-ws'
import { useEffect, useRef } from 'preact/hooks'

import { address, print } from './api'
import { tell } from './changes'
import { PostCounts, UserStates, type Original, type Person } from './documents'
import { limits } from './limits'
import { session } from './session'

/** The maximum number of watched posts, and of people, if the server allows so many. */
const most = 50
/** The number that every server allows. */
const always = 20
/** The time that the page must stay the same before what it shows is watched, in milliseconds. */
const settled = 1000
/** The maximum delay before the next attempt to connect, in milliseconds. */
const rarely = 30_000

/** One subscription to the state of things on the page. */
class Watched<A> {
  #ids = ''
  #stop = () => {}

  constructor(
    private readonly query: TadaDocumentNode<A, { ids: string[] }>,
    /** The ids of the things on the page, the most important first. */
    private readonly shown: () => string[],
    /** first: the subscription has just begun, so the answer need not be news. */
    private readonly show: (answer: A, first: boolean) => void,
  ) {}

  /** Watches what is on the page now. again: even if that is the same as before. */
  follow(client: Client | undefined, again: boolean) {
    const ids = client && document.visibilityState === 'visible' ? this.shown().slice(0, Math.min(most, limits.state?.pageSize ?? always)) : []
    if (ids.join() === this.#ids && !again) return
    const before = this.#stop
    this.#ids = ids.join()
    this.#stop = client && ids.length > 0 ? this.#subscribe(client, ids) : () => {}
    before()
  }

  #subscribe(client: Client, ids: string[]): () => void {
    let over = false
    let first = true
    const end = client.subscribe<A>(
      { query: print(this.query), variables: { ids } },
      {
        next: ({ data }) => {
          if (!over && data) this.show(data, first)
          first = false
        },
        // The page works without it. The next change of what is on it subscribes again.
        error: () => {
          if (!over) this.#ids = ''
        },
        complete: () => {},
      },
    )
    return () => {
      over = true
      end()
    }
  }

  /** Forgets the subscription of a client that is disposed of. */
  forget() {
    this.#stop()
    this.#ids = ''
    this.#stop = () => {}
  }
}

/** first: the page is about this post. */
type Card = { post: Original; first: boolean }
type Counts = Pick<Original, 'id' | 'likeCount' | 'replyCount' | 'repostCount' | 'quoteCount'>

const cards = new Set<Card>()
const people = new Set<{ person: Person }>()
/**
 * The posts that the viewer likes, reposts, or stops doing so. An entry stays until the next subscription begins, because the current one
 * may still send a count from before the change.
 */
const own = new Map<string, 'busy' | 'done'>()
let timer: ReturnType<typeof setTimeout> | undefined
let client: Client | undefined
let token: string | undefined

const posts = new Watched(
  PostCounts,
  () => {
    const newest = [...cards].sort((a, b) => Number(b.first) - Number(a.first) || b.post.createdAt.localeCompare(a.post.createdAt))
    return [...new Set(newest.map(({ post }) => post.id))]
  },
  ({ postCounts }) => postCounts.forEach(showCounts),
)

const users = new Watched(
  UserStates,
  () => [...new Set([...(session.state ? [session.state.user.id] : []), ...[...people].map(({ person }) => person.id)])],
  ({ userStates }, first) => userStates.forEach((person) => showPerson(person, first)),
)

function schedule() {
  clearTimeout(timer)
  timer = setTimeout(watch, settled)
}

function watch() {
  if (session.state?.token !== token) {
    posts.forget()
    users.forget()
    // dispose fails if the connection has already failed.
    if (client) Promise.resolve(client.dispose()).catch(() => null)
    token = session.state?.token
    client = token === undefined ? undefined : connect(token)
  }
  const again = [...own.values()].includes('done')
  own.forEach((state, id) => state === 'done' && own.delete(id))
  posts.follow(client, again)
  users.follow(client, false)
}

function showCounts({ id, likeCount, replyCount, repostCount, quoteCount }: Counts) {
  const post = [...cards].find(({ post }) => post.id === id)?.post
  if (!post || own.has(id)) return
  const same = post.likeCount === likeCount && post.replyCount === replyCount && post.repostCount === repostCount && post.quoteCount === quoteCount
  if (!same) tell({ what: 'post', post: { ...post, likeCount, replyCount, repostCount, quoteCount } })
}

function showPerson(person: Person, first: boolean) {
  // The viewer's own state also stands for the viewer's lists.
  if (!first && person.id === session.state?.user.id) tell({ what: 'lists' })
  const known = [...people].find((card) => card.person.id === person.id)?.person
  if (!known) return
  const now = { ...known, ...person } // a row may have more fields than were sent
  const shown = JSON.stringify(now.relationship) === JSON.stringify(known.relationship)
  if (!shown || JSON.stringify(now) !== JSON.stringify(known)) tell({ what: 'relation', person: now, shown })
}

function connect(token: string): Client {
  let delay: number | undefined
  return createClient({
    url: address.replace(/^http/, 'ws'),
    connectionParams: { Authorization: `Bearer ${token}` },
    lazyCloseTimeout: 5_000,
    keepAlive: 20_000,
    retryAttempts: Infinity,
    on: {
      closed: (event) => (delay = reconnectDelay((event as CloseEvent).reason)),
    },
    retryWait: (n) => {
      const wait = n === 0 && delay !== undefined ? delay : Math.min(1000 * 2 ** n, rarely) * (0.5 + Math.random() / 2)
      return new Promise((done) => setTimeout(done, wait))
    },
  })
}

document.addEventListener('visibilitychange', schedule)
session.watch(schedule)

/** Keeps the counts of a drawn post up to date. A pending post has none on the server yet. */
export function useCounts(post: Original, pending: boolean, first: boolean) {
  const card = useRef<Card>({ post, first }).current
  card.post = post
  useEffect(() => {
    if (pending) return
    cards.add(card)
    schedule()
    return () => {
      cards.delete(card)
      schedule()
    }
  }, [post.id, pending])
}

/** Keeps a drawn person up to date: profile, counts and the viewer's relation. */
export function usePerson(person: Person) {
  const card = useRef({ person }).current
  card.person = person
  useEffect(() => {
    people.add(card)
    schedule()
    return () => {
      people.delete(card)
      schedule()
    }
  }, [person.id])
}

/** The viewer likes or reposts a post, or stops doing so. While that is busy, counts from the server are ignored. */
export function changing(id: string, state: 'busy' | 'done') {
  own.set(id, state)
  if (state === 'done') schedule()
}
