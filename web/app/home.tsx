// The home view: the box for a new post, and the live timeline.
import { Fragment, type RefObject } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

import { Compose } from './compose'
import type { Entry, Session } from './documents'
import { useLimits } from './limits'
import { Empty, Failure, Icon, More, notify, Skeleton } from './parts'
import { Suggestions } from './people'
import { PostCard } from './post'
import { preferences, t } from './preferences'
import { Store, useStore } from './store'
import type { Order, Status, Timeline } from './timeline'

/** The delay from which posts count as late, in seconds. A post to millions of followers takes some seconds. */
const lateFrom = 10

/** Says whether the timeline is live, late or offline. */
export function LiveSign({ status, lateBy }: { status: Status; lateBy: number }) {
  const late = status === 'live' && lateBy >= lateFrom
  return (
    <span class="live" data-status={late ? 'late' : status} role="status">
      <svg viewBox="0 0 24 12" aria-hidden="true">
        <path d="M-8 6c2.7-3.5 5.3-3.5 8 0s5.3 3.5 8 0 5.3-3.5 8 0 5.3 3.5 8 0 5.3-3.5 8 0" />
      </svg>
      {late ? t.late(lateBy) : t[status]}
    </span>
  )
}

export function Home({ session, timeline }: { session: Session; timeline: Timeline }) {
  const state = useStore(timeline.store)
  const { entries, waiting, pending, order, read } = state
  const list = useRef<HTMLDivElement>(null)
  const foreign = ({ node }: Entry) => node.author.id !== session.user.id

  usePlace(timeline, list)
  const glance = useReadMarker(timeline, list)
  useLayoutEffect(() => timeline.look(), [])

  const show = () => {
    glance()
    timeline.showWaiting()
    scrollTo({ top: 0 })
    // Once the new posts are drawn, focuses the first one, so that the keyboard goes on from there.
    requestAnimationFrame(() => list.current?.querySelector<HTMLElement>('article')?.focus({ preventScroll: true }))
  }

  const [seeking, setSeeking] = useState(false)
  const toLine = async () => {
    setSeeking(true)
    await timeline.toLine()
    setSeeking(false)
    requestAnimationFrame(() => {
      const mark = list.current?.querySelector('.tideline')
      // From the oldest new post the reader goes on upwards.
      const oldest = (mark?.previousElementSibling ?? list.current?.lastElementChild) as HTMLElement | null | undefined
      oldest?.focus({ preventScroll: true })
      ;(mark ?? oldest)?.scrollIntoView({ block: 'center', behavior: 'instant' })
    })
  }
  const markAllRead = async () => {
    if (!(await timeline.markAllRead())) notify(t.unreachable)
  }

  // The line goes above the first entry that is not new, if somebody else's new post is above it.
  const line = order === 'LATEST' && read !== undefined ? entries.findIndex(({ score }) => score <= read) : -1
  const fresh = line > 0 && entries.slice(0, line).some(foreign) ? line : 0
  const lonely = state.loaded && !state.next && !entries.some(foreign)
  // A newcomer follows several people in a row: the suggestions stay where they are, above the first posts by others.
  const newcomer = useRef(false)
  newcomer.current ||= lonely
  const cards = entries.map(({ post, reposts }, i) => (
    <Fragment key={post.id}>
      {i === fresh && i > 0 && <Tideline />}
      <PostCard post={post} reposts={reposts} fresh={i < fresh} />
    </Fragment>
  ))
  const others = entries.findIndex(foreign)
  if (newcomer.current) cards.splice(others < 0 ? cards.length : others, 0, <Suggestions key="suggestions" />)

  return (
    <>
      <div class="head">
        <h1>{t.home}</h1>
        <div class="tabs" role="group" aria-label={t.order}>
          {(['LATEST', 'RANKED'] satisfies Order[]).map((choice) => (
            <button key={choice} aria-pressed={order === choice} onClick={() => timeline.setOrder(choice)}>
              {choice === 'LATEST' ? t.latest : t.ranked}
            </button>
          ))}
        </div>
        {order === 'RANKED' && <RankingChoice timeline={timeline} />}
      </div>
      <Compose />
      <div class="since" aria-live="polite">
        {state.unread > 0 && order === 'LATEST' && line !== 0 && entries.some(foreign) && (
          <>
            <button class="quiet unread" title={t.toLine} aria-disabled={seeking} onClick={() => !seeking && toLine()}>
              <Icon name="down" />
              <span class="words">{seeking ? t.loading : t.unread(state.unread)}</span>
            </button>
            <button class="quiet all-read" title={t.markAllRead} aria-label={t.markAllRead} onClick={markAllRead}>
              <Icon name="done" />
            </button>
          </>
        )}
      </div>
      <div class="shore" aria-live="polite">
        {waiting.length > 0 && (
          <button class="new-posts" onClick={show}>
            <Icon name="up" />
            {t.newPosts(waiting.length)}
          </button>
        )}
      </div>
      <section aria-label={t.posts} class="posts" ref={list}>
        {pending.map((post) => (
          <PostCard key={post.id} post={post} pending />
        ))}
        {cards}
      </section>
      {!state.loaded && !state.error && <Skeleton />}
      {state.error && !seeking && <Failure message={state.error} onRetry={timeline.retry} />}
      {state.loaded && entries.length + pending.length === 0 && (
        <Empty title={t.emptyTimeline}>
          <p class="muted">{t.emptyTimelineHint}</p>
          <a class="link" href="/public">
            {t.readPublic}
          </a>
        </Empty>
      )}
      {state.next && !state.error && <More busy={state.busy} onMore={timeline.more} />}
      {state.loaded && !state.next && !lonely && <p class="muted end-of-list">{t.end}</p>}
    </>
  )
}

/** The choice of a ranking, if the server has more than one. */
function RankingChoice({ timeline }: { timeline: Timeline }) {
  const rankings = useLimits()?.rankings ?? []
  const { ranking } = useStore(preferences)
  if (rankings.length < 2) return null
  return (
    <label class="ranking">
      <span class="muted">{t.ranking}</span>
      <select value={rankings.includes(ranking) ? ranking : rankings[0]} onChange={(event) => timeline.setRanking(event.currentTarget.value)}>
        {rankings.map((name) => (
          <option value={name} key={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  )
}

function Tideline() {
  return (
    <div class="tideline" role="separator" aria-label={t.tideline}>
      <span>{t.tideline}</span>
    </div>
  )
}

const storageKey = 'tideline:place'

type Place = { token: string; entries: number; id: string; score: number; top: number }

/** The number of entries and the scroll position before the page was reloaded. */
export function placeBefore(session: Session): Place | null {
  const place: Place | null = JSON.parse(sessionStorage.getItem(storageKey) ?? 'null')
  return place?.token === session.token && location.pathname === '/' ? place : null
}

const restored = new Store(false)

/** Stores the scroll position for a reload, and restores it once the entries are drawn. */
function usePlace(timeline: Timeline, list: RefObject<HTMLElement | null>) {
  const { loaded } = timeline.store.state
  useLayoutEffect(() => {
    if (!loaded || restored.state) return
    restored.set(true)
    const place = placeBefore(timeline.session)
    // If the post is gone, the next one takes its place.
    const next = place && timeline.store.state.entries.find(({ score }) => score <= place.score)?.post.id
    const element = place && (document.getElementById(place.id) ?? (next ? document.getElementById(next) : null))
    if (element) scrollTo({ top: scrollY + element.getBoundingClientRect().top - place.top, behavior: 'instant' })
  }, [loaded])
  useEffect(() => {
    const keep = () => {
      const first = [...(list.current?.querySelectorAll('article') ?? [])].find((post) => post.getBoundingClientRect().bottom > 0)
      const { entries } = timeline.store.state
      sessionStorage.removeItem(storageKey)
      if (!first || scrollY === 0) return
      const score = entries.find(({ post }) => post.id === first.id)?.score ?? Infinity
      const place: Place = { token: timeline.session.token, entries: entries.length, id: first.id, score, top: first.getBoundingClientRect().top }
      sessionStorage.setItem(storageKey, JSON.stringify(place))
    }
    addEventListener('pagehide', keep)
    return () => removeEventListener('pagehide', keep)
  }, [])
}

/**
 * The time that the end of a post must be in view before the post counts as seen, in milliseconds. A post that is scrolled
 * past counts at once.
 */
const readAfter = 1000

/** Tells the timeline which posts the reader has seen. The returned function marks the posts in view as seen now. */
function useReadMarker(timeline: Timeline, list: RefObject<HTMLElement | null>): () => void {
  const { entries } = timeline.store.state
  const marker = useRef<{ watch: () => void; glance: () => void } | undefined>(undefined)
  useEffect(() => {
    const watched = new WeakSet<Element>()
    const inView = new Set<Element>()
    let timer: ReturnType<typeof setTimeout> | undefined
    const saw = (end: Element) => timeline.saw(end.closest('article')!.id)
    const visible = () => document.visibilityState === 'visible'
    const glance = () => visible() && inView.forEach(saw)
    const later = () => {
      clearTimeout(timer)
      if (!visible()) return
      timer = setTimeout(() => {
        glance()
        void timeline.markRead()
      }, readAfter)
    }
    const observer = new IntersectionObserver((sights) => {
      for (const { target, isIntersecting } of sights) {
        if (isIntersecting) inView.add(target)
        else if (inView.delete(target) && visible() && target.isConnected) saw(target)
      }
      later()
    })
    const watch = () =>
      list.current?.querySelectorAll('article:not(.pending) .acts').forEach((end) => {
        if (!watched.has(end)) observer.observe(end)
        watched.add(end)
      })
    document.addEventListener('visibilitychange', later)
    marker.current = { watch, glance }
    watch()
    return () => {
      clearTimeout(timer)
      observer.disconnect()
      document.removeEventListener('visibilitychange', later)
    }
  }, [])
  useEffect(() => marker.current?.watch(), [entries])
  return () => marker.current?.glance()
}
