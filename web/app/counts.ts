// Keeps the counts of likes, replies, reposts and quotes of the posts on the page up to date while the page is visible.
import { reconnectDelay } from '@tideline/client'
import { createClient, type Client } from 'graphql-ws'
import { useEffect, useRef } from 'preact/hooks'

import { address, print } from './api'
import { tell } from './changes'
import { PostCounts, type Original } from './documents'
import { limits } from './limits'
import { session } from './session'

/** The maximum number of watched posts, if the server allows so many. The newest posts on the page are watched. */
const most = 50
/** The number that every server allows. */
const always = 20
/** The time that the posts on the page must stay the same before they are watched, in milliseconds. */
const settled = 1000
/** The maximum delay before the next attempt to connect, in milliseconds. */
const rarely = 30_000

/** first: the page is about this post. */
type Card = { post: Original; first: boolean }
type Counts = Pick<Original, 'id' | 'likeCount' | 'replyCount' | 'repostCount' | 'quoteCount'>

const cards = new Set<Card>()
/**
 * The posts that the viewer likes, reposts, or stops doing so. An entry stays until the next subscription begins, because the current one
 * may still send a count from before the change.
 */
const own = new Map<string, 'busy' | 'done'>()
let timer: ReturnType<typeof setTimeout> | undefined
let client: Client | undefined
let token: string | undefined
let watched = ''
let stop = () => {}

function schedule() {
  clearTimeout(timer)
  timer = setTimeout(watch, settled)
}

/** Subscribes to the counts of the newest posts on the page. */
function watch() {
  if (session.state?.token !== token) {
    stop()
    // dispose fails if the connection has already failed.
    if (client) Promise.resolve(client.dispose()).catch(() => null)
    token = session.state?.token
    client = token === undefined ? undefined : connect(token)
    watched = ''
    stop = () => {}
  }
  const newest = [...cards].sort((a, b) => Number(b.first) - Number(a.first) || b.post.createdAt.localeCompare(a.post.createdAt))
  const shown = [...new Set(newest.map(({ post }) => post.id))]
  const ids = client && document.visibilityState === 'visible' ? shown.slice(0, Math.min(most, limits.state?.pageSize ?? always)) : []
  const again = [...own.values()].includes('done')
  if (ids.join() === watched && !again) return
  const before = stop
  watched = ids.join()
  own.forEach((state, id) => state === 'done' && own.delete(id))
  stop = client && ids.length > 0 ? subscribe(client, ids) : () => {}
  before()
}

function subscribe(client: Client, ids: string[]): () => void {
  let over = false
  const end = client.subscribe<{ postCounts: Counts[] }>(
    { query: print(PostCounts), variables: { ids } },
    {
      next: ({ data }) => !over && data?.postCounts.forEach(show),
      // The page works without live counts. The next change of the posts on it subscribes again.
      error: () => {
        if (!over) watched = ''
      },
      complete: () => {},
    },
  )
  return () => {
    over = true
    end()
  }
}

function show({ id, likeCount, replyCount, repostCount, quoteCount }: Counts) {
  const post = [...cards].find(({ post }) => post.id === id)?.post
  if (!post || own.has(id)) return
  const same = post.likeCount === likeCount && post.replyCount === replyCount && post.repostCount === repostCount && post.quoteCount === quoteCount
  if (!same) tell({ what: 'post', post: { ...post, likeCount, replyCount, repostCount, quoteCount } })
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

/** The viewer likes or reposts a post, or stops doing so. While that is busy, counts from the server are ignored. */
export function changing(id: string, state: 'busy' | 'done') {
  own.set(id, state)
  if (state === 'done') schedule()
}
