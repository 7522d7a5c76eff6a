// The frame of the page. It draws the view that the address names, for a member or for a visitor.
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'

import { Compose, composing, CurrentTimeline } from './compose'
import type { Session } from './documents'
import { openReports } from './duties'
import { Home, LiveSign, placeBefore } from './home'
import { Later } from './later'
import { Dialog, Empty, Icon, notify, Notices } from './parts'
import { Others, People, useRequests } from './people'
import { PostList, Profile, PublicPage, TagPage } from './profile'
import { preferences, t } from './preferences'
import { leaveLogin, useRoute, type Route } from './route'
import { ended, moderates, session as sessions } from './session'
import { Settings } from './settings'
import { Shortcuts } from './shortcuts'
import { useStore } from './store'
import { Thread } from './thread'
import { Timeline } from './timeline'
import { Welcome, WhyEnded } from './welcome'

export function App() {
  // Draws every text again after a change of language.
  useStore(preferences)
  const session = useStore(sessions)
  const before = useRef(session?.token)
  useLayoutEffect(() => {
    // Logging in or out replaces the whole page, and with it the element that had the focus.
    if (before.current !== session?.token) {
      scrollTo({ top: 0, behavior: 'instant' })
      document.getElementById('content')?.focus({ preventScroll: true })
    }
    before.current = session?.token
  }, [session?.token])
  return (
    <>
      <a class="skip" href="#content">
        {t.skip}
      </a>
      {session ? <Member session={session} key={session.token} /> : <Visitor />}
      <Notices />
    </>
  )
}

/** The title that the server wrote for the address that was loaded, if it shows a post or a profile. */
const served = document.title.endsWith(' · Tideline') ? { address: location.pathname, title: document.title.replace(/ · Tideline$/, '') } : null

function Visitor() {
  const route = useRoute()
  const open = ['profile', 'post', 'tag', 'public', 'lost'].includes(route.name)
  const why = useStore(ended)
  const joins = route.name !== 'login' && !why
  useTitle(served?.address === location.pathname ? served.title : open || route.name === 'login' ? titleOf(route) : t.tagline)
  return (
    <div class="frame visitor">
      <header class="bar">
        <Brand />
        {open && (
          <a class="button" href="/login">
            {t.logIn}
          </a>
        )}
      </header>
      <main id="content" tabIndex={-1} class={open ? '' : 'wide'}>
        {open && why && <WhyEnded why={why} />}
        {open ? <View route={route} /> : <Welcome joins={joins} key={String(joins)} />}
      </main>
    </div>
  )
}

function Member({ session }: { session: Session }) {
  const route = useRoute()
  const timeline = useMemo(() => new Timeline(session), [])
  useEffect(() => {
    void timeline.start(placeBefore(session)?.entries)
    return () => {
      composing.set(null)
      timeline.dispose()
    }
  }, [])
  const { waiting, status, lateBy } = useStore(timeline.store)
  const asking = useRequests(session.user.id)
  const reports = useStore(openReports)
  const writing = useStore(composing)
  const { handle } = session.user
  useLayoutEffect(() => {
    if (route.name === 'login') leaveLogin()
  }, [route.name])
  useTitle(`${waiting.length ? `(${waiting.length}) ` : ''}${titleOf(route)}`)

  const links = [
    ['home', '/', t.home, waiting.length, t.newPosts],
    ['people', '/people', t.people, asking, t.requestCount],
    ['profile', `/@${handle}`, t.profile, 0, String],
    ['settings', '/settings', t.settings, 0, String],
    ...(moderates(session.user) ? ([['moderation', '/moderation', t.moderation, reports.count, t.openReports, reports.more]] as const) : []),
  ] as const
  const current = route.name === 'profile' && route.handle !== handle ? undefined : route.name === 'search' ? 'people' : route.name

  return (
    <CurrentTimeline.Provider value={timeline}>
      <div class="frame">
        <header class="bar">
          <Brand />
          <nav aria-label={t.main}>
            {links.map(([name, address, label, count, say, more]) => (
              <a href={address} aria-current={name === current ? 'page' : undefined} key={name}>
                <Icon name={name} />
                <span class="label">{label}</span>
                {count > 0 && (
                  <span class="badge">
                    <span aria-hidden="true">{count > 99 || more ? `${Math.min(count, 99)}+` : count}</span>
                    <span class="hidden">{say(count, more)}</span>
                  </span>
                )}
              </a>
            ))}
          </nav>
          <button class="write" onClick={() => composing.set({})}>
            <Icon name="write" />
            <span class="label">{t.compose}</span>
          </button>
          <LiveSign status={status} lateBy={lateBy} />
        </header>
        <main id="content" tabIndex={-1}>
          {route.name === 'home' ? (
            <Home session={session} timeline={timeline} />
          ) : route.name === 'settings' ? (
            <Settings session={session} section={route.section} />
          ) : route.name === 'moderation' ? (
            <Later draw={({ Moderation }) => <Moderation page={route.page} />} />
          ) : (
            <View route={route} />
          )}
        </main>
        <aside aria-label={t.people}>
          {current !== 'people' && <Others brief />}
        </aside>
        {writing && (
          <Dialog label={writing.quoted ? t.quote : t.compose} onClose={() => composing.set(null)}>
            <div class="row">
              <h2>{writing.quoted ? t.quote : t.compose}</h2>
              <button class="quiet" onClick={() => composing.set(null)}>
                {t.close}
              </button>
            </div>
            <Compose
              quoted={writing.quoted}
              focused
              onPosted={() => {
                composing.set(null)
                notify(t.posted)
              }}
            />
          </Dialog>
        )}
        <Shortcuts onCompose={() => composing.set({})} />
      </div>
    </CurrentTimeline.Provider>
  )
}

/** The views that take neither the session nor the timeline. */
function View({ route }: { route: Route }) {
  switch (route.name) {
    case 'profile':
      return <Profile handle={route.handle} tab={route.tab} />
    case 'post':
      return route.list ? <PostList id={route.id} list={route.list} key={route.list} /> : <Thread id={route.id} key={route.id} />
    case 'tag':
      return <TagPage tag={route.tag} />
    case 'public':
      return <PublicPage />
    case 'people':
      return <People query="" />
    case 'search':
      return <People query={route.query} />
    case 'login': // a member leaves it at once
      return null
    default:
      return (
        <Empty title={t.lost} whole>
          <a class="button" href={sessions.state ? '/' : '/public'}>
            {sessions.state ? t.toHome : t.readPublic}
          </a>
        </Empty>
      )
  }
}

function Brand() {
  return (
    <a class="brand" href="/">
      <span class="mark" aria-hidden="true" />
      Tideline
    </a>
  )
}

function titleOf(route: Route): string {
  switch (route.name) {
    case 'profile':
      return `@${route.handle}`
    case 'post':
      return t.onePost
    case 'tag':
      return `#${route.tag}`
    case 'search':
      return route.query ? t.searchFor(route.query) : t.search
    case 'public':
      return t.publicPosts
    case 'lost':
      return ''
    case 'login':
      return t.logIn
    case 'settings':
      return route.section ? t.sections[route.section] : t.settings
    default:
      return t[route.name]
  }
}

function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Tideline` : 'Tideline'
  }, [title])
}
