// Lists of people, the search for people, and the viewer's relations to them.
import { useEffect, useRef, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { tell, useChanges, watchChanges } from './changes'
import { AcceptFollower, Block, Follow, Mute, People as PeopleQuery, RejectFollower, RemoveFollower, Requests as RequestsQuery, Suggested, Unblock, Unfollow, Unmute, type Person } from './documents'
import { learnViewer } from './duties'
import { Later } from './later'
import { extended, renewed, usePages, type Loaded, type Page } from './pages'
import { Avatar, Confirm, Count, Empty, Failure, Icon, ListEnd, Menu, Skeleton, leave, notify } from './parts'
import { t } from './preferences'
import { Report } from './report'
import { go, replace } from './route'
import { administers, moderates, session } from './session'
import { Store, useStore } from './store'
import { tagFor } from './tag'
import { usePerson } from './watch'

/** The people with the changed person replaced. */
export function withPerson<P extends Person>(people: P[], person: Pick<Person, 'id'> & Partial<Person>): P[] {
  return people.map((other) => (other.id === person.id ? { ...other, ...person } : other))
}

const changes = { follow: Follow, unfollow: Unfollow, block: Block, unblock: Unblock, mute: Mute, unmute: Unmute, accept: AcceptFollower, reject: RejectFollower, remove: RemoveFollower }

/** Changes the viewer's relation to a person, and broadcasts the change. change reports whether it was made. */
export function useRelation(person: Pick<Person, 'id' | 'handle'> & Partial<Person>) {
  const { run, busy } = useAction(notify)
  const change = async (how: keyof typeof changes) => {
    let done = false
    await run(async () => {
      const answer = await request(changes[how], { input: { userId: person.id } })
      const { user } = answer.change
      // If the person is no longer visible, the answer has only the id and the relationship.
      tell({ what: 'relation', person: user.handle ? user : { ...person, relationship: user.relationship } })
      if (how === 'remove') notify(t.followerRemoved(person.handle))
      done = true
    })
    return done
  }
  return { change, busy }
}

export function FollowButton({ person }: { person: Person }) {
  const { change, busy } = useRelation(person)
  const [asking, setAsking] = useState(false)
  const { relationship, handle } = person
  if (!relationship || relationship.blocking || person.id === session.state?.user.id) return null
  const { following, requested } = relationship
  const label = following ? t.following : requested ? t.requested : t.follow
  const undo = following ? t.unfollow : requested ? t.takeBack : undefined
  return (
    <>
      <button
        class={undo ? 'quiet' : ''}
        aria-disabled={busy}
        aria-label={`${label} @${handle}${undo ? `, ${undo}` : ''}`}
        data-hover={undo}
        onClick={() => (following && person.approvesFollowers ? setAsking(true) : change(undo ? 'unfollow' : 'follow'))}
      >
        <span>{label}</span>
      </button>
      {asking && (
        <Confirm
          title={t.unfollowPerson(handle)}
          hint={t.unfollowHint}
          action={t.unfollow}
          onYes={() => {
            setAsking(false)
            void change('unfollow')
          }}
          onNo={() => setAsking(false)}
        />
      )}
    </>
  )
}

/** The menu with the less common actions: remove a follower, mute, block, report. */
export function RelationMenu({ person }: { person: Person }) {
  const { change, busy } = useRelation(person)
  const [asking, setAsking] = useState<'block' | 'remove'>()
  const [reporting, setReporting] = useState(false)
  const [moderating, setModerating] = useState<'suspend' | 'role'>()
  const viewer = useStore(session)?.user
  const { relationship, handle } = person
  if (!relationship || person.id === viewer?.id) return null
  const done = () => setModerating(undefined)
  return (
    <>
      <Menu label={`${t.more}: @${handle}`}>
        {relationship.followedBy && (
          <button disabled={busy} onClick={() => setAsking('remove')}>
            {t.removeFollower}
          </button>
        )}
        <button disabled={busy} onClick={() => change(relationship.muting ? 'unmute' : 'mute')}>
          {relationship.muting ? t.unmute : t.mute}
        </button>
        <button disabled={busy} onClick={() => (relationship.blocking ? change('unblock') : setAsking('block'))}>
          {relationship.blocking ? t.unblock : t.block}
        </button>
        <button onClick={() => setReporting(true)}>{t.report}</button>
        {moderates(viewer) && <button onClick={() => setModerating('suspend')}>{t.suspend}</button>}
        {administers(viewer) && <button onClick={() => setModerating('role')}>{t.giveRole}</button>}
      </Menu>
      {moderating && (
        <Later
          onFailed={done}
          draw={({ Suspend, GiveRole }) => (moderating === 'suspend' ? <Suspend user={person} onClose={done} /> : <GiveRole handle={handle} onClose={done} />)}
        />
      )}
      {reporting && <Report title={t.reportPerson(handle)} userId={person.id} onClose={() => setReporting(false)} />}
      {asking && (
        <Confirm
          title={asking === 'block' ? t.blockPerson(handle) : t.removePerson(handle)}
          hint={asking === 'block' ? t.blockHint : t.removeHint}
          action={asking === 'block' ? t.block : t.removeFollower}
          onYes={() => {
            setAsking(undefined)
            void change(asking)
          }}
          onNo={() => setAsking(undefined)}
        />
      )}
    </>
  )
}

type ListProps = { label: string; brief?: boolean; /** Each row has the menu of a person. */ menus?: boolean }

function PersonRow({ person, brief, menus }: { person: Person } & Omit<ListProps, 'label'>) {
  usePerson(person)
  const { relationship } = person
  return (
    <li class="person">
      <Avatar person={person} />
      <div class="grow">
        <a class="who" href={`/@${person.handle}`}>
          <b dir="auto">{person.name}</b> <span class="muted">@{person.handle}</span>
        </a>{' '}
        {relationship?.followedBy && <span class="tag">{relationship.mutual ? t.friends : t.followsYou}</span>}
        {!brief && person.bio && <p class="muted bio" dir="auto">{person.bio}</p>}
      </div>
      <span class="row">
        <FollowButton person={person} />
        {menus && <RelationMenu person={person} />}
      </span>
    </li>
  )
}

export function PersonList({ people, label, brief, menus }: { people: Person[] } & ListProps) {
  return (
    <ul class="people" aria-label={label}>
      {people.map((person) => (
        <PersonRow person={person} brief={brief} menus={menus} key={person.id} />
      ))}
    </ul>
  )
}

/** The number of suggestions beside or above posts, and on the page for people. */
const suggested = { few: 5, many: 20 }

/** Suggests people to follow. */
export function Suggestions({ brief, most = suggested.few }: { brief?: boolean; most?: number }) {
  const viewer = useStore(session)?.user.id
  const { items, loaded, error, retry, change } = usePages(
    async () => {
      const { suggestedUsers } = await request(Suggested, { first: most })
      return { nodes: suggestedUsers, pageInfo: { hasNextPage: false, endCursor: null } }
    },
    [viewer],
  )
  useChanges((change_) => change_.what === 'relation' && change((people) => withPerson(people, change_.person)))
  if (brief && loaded && items.length === 0) return null
  return (
    <section class="panel suggestions">
      <h2>{t.suggestions}</h2>
      {error ? <Failure message={error} onRetry={retry} /> : !loaded && <Skeleton lines={2} />}
      {loaded && items.length === 0 && <p class="muted">{t.noSuggestions}</p>}
      {items.length > 0 && <PersonList people={items} label={t.suggestions} brief={brief} />}
    </section>
  )
}

/** The follow requests to the viewer, newest first; null until they are known. */
const requests = new Store<Loaded<Person> | null>(null)

/** The number of requests that the side column shows. */
const fewRequests = 3

/** The interval for polling follow requests, in milliseconds, in case no event announces them. */
const requestsEvery = 60_000

const none: Loaded<Person> = { items: [], next: null }
const nobody: Page<Person> = { nodes: [], pageInfo: { hasNextPage: false, endCursor: null } }

/** Keeps the follow requests to the viewer and the viewer's role up to date. Returns how many requests are known. */
export function useRequests(viewer: string | undefined): number {
  useEffect(() => {
    requests.set(null)
    if (!viewer) return
    let current = true
    const load = () =>
      document.visibilityState === 'visible' &&
      request(RequestsQuery, { after: null }).then(
        ({ viewer }) => {
          if (!current) return
          requests.set(renewed(requests.state ?? none, viewer?.list ?? nobody))
          if (!viewer) return
          const { list: _, ...user } = viewer
          void learnViewer(user)
        },
        // The next attempt may succeed. Until then the old list stays.
        () => current && requests.set(requests.state ?? none),
      )
    void load()
    const timer = setInterval(load, requestsEvery)
    const stop = watchChanges((change) => (change.what === 'requests' || change.what === 'lists') && void load())
    document.addEventListener('visibilitychange', load)
    return () => {
      current = false
      clearInterval(timer)
      stop()
      document.removeEventListener('visibilitychange', load)
    }
  }, [viewer])
  return useStore(requests)?.items.length ?? 0
}

/** The follow requests and, below them, suggestions. Both wait until the requests are known, so that nothing moves. */
export function Others({ brief }: { brief?: boolean }) {
  if (useStore(requests) === null) return brief ? null : <Skeleton lines={2} />
  return (
    <>
      <Requests brief={brief} />
      <Suggestions brief={brief} most={brief ? suggested.few : suggested.many} />
    </>
  )
}

function Requests({ brief }: { brief?: boolean }) {
  const { items, next } = useStore(requests)!
  const { run, busy, error } = useAction()
  const more = () =>
    run(async () => {
      const { viewer } = await request(RequestsQuery, { after: next })
      // The list may have begun again meanwhile.
      if (requests.state!.next === next) requests.set(extended(requests.state!, viewer?.list ?? nobody))
    })
  if (items.length === 0) return null
  const people = brief ? items.slice(0, fewRequests) : items
  return (
    <section class="panel">
      <h2>{t.requests}</h2>
      <ul class="people" aria-label={t.requests}>
        {people.map((person) => (
          <RequestRow person={person} key={person.id} />
        ))}
      </ul>
      {brief && items.length > fewRequests && <a href="/people">{t.allRequests}</a>}
      {!brief && error && <Failure message={error} onRetry={more} />}
      {!brief && next && !error && (
        <button class="quiet more" aria-disabled={busy} onClick={more}>
          {busy ? t.loading : t.loadMore}
        </button>
      )}
    </section>
  )
}

function RequestRow({ person }: { person: Person }) {
  const { change, busy } = useRelation(person)
  const row = useRef<HTMLLIElement>(null)
  const answer = async (how: 'accept' | 'reject') => {
    if (!(await change(how))) return
    leave(row.current)
    const { items, next } = requests.state!
    const left = items.filter(({ id }) => id !== person.id)
    requests.set({ items: left, next })
    // More requests take the place of the ones that are answered.
    if (next && left.length <= fewRequests) tell({ what: 'requests' })
  }
  return (
    <li class="person asks" ref={row}>
      <Avatar person={person} />
      <a class="who grow" href={`/@${person.handle}`}>
        <b dir="auto">{person.name}</b> <span class="muted">@{person.handle}</span>
      </a>
      <span class="row">
        <button aria-label={`${t.accept} @${person.handle}`} disabled={busy} onClick={() => answer('accept')}>
          {t.accept}
        </button>
        <button class="quiet" aria-label={`${t.reject} @${person.handle}`} disabled={busy} onClick={() => answer('reject')}>
          {t.reject}
        </button>
      </span>
    </li>
  )
}

/** The pause in typing after which the search starts, in milliseconds. */
const pause = 200

/** The maximum length of a query, in characters. */
const maxQuery = 100

const tagPage = (tag: string) => `/tag/${encodeURIComponent(tag)}`

/** The search, and who asks or might be followed while nothing is searched. query is the one in the address. */
export function People({ query }: { query: string }) {
  const [text, setText] = useState(query)
  const sent = useRef(query)
  useEffect(() => {
    // Another query than the one sent: the reader went back or forward to it.
    if (query !== sent.current) setText((sent.current = query))
  }, [query])
  const search = () => {
    if (text.trim() === sent.current) return
    sent.current = text.trim()
    replace(sent.current ? `/search?q=${encodeURIComponent(sent.current)}` : '/people')
  }
  useEffect(() => {
    const timer = setTimeout(search, pause)
    return () => clearTimeout(timer)
  }, [text])
  const submit = (event: Event) => {
    event.preventDefault()
    search()
    if (isSigned(sent.current) && tagFor(sent.current)) go(tagPage(tagFor(sent.current)))
  }
  return (
    <>
      <div class="head">
        <h1>{t.people}</h1>
        <a class="link" href="/public">
          {t.publicPosts}
        </a>
      </div>
      <search class="search">
        <form onSubmit={submit}>
          <label>
            <span class="hidden">{t.search}</span>
            <Icon name="people" />
            <input id="search" type="search" dir="auto" placeholder={t.searchPlaceholder} value={text} maxLength={maxQuery} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
          {text.length > maxQuery - 20 && <Count length={text.length} most={maxQuery} />}
        </form>
      </search>
      {query ? <Found query={query} /> : <Others />}
    </>
  )
}

const isSigned = (query: string) => /^[#＃]/.test(query)

function Found({ query }: { query: string }) {
  const tag = tagFor(query)
  return (
    <>
      {tag && (
        <ul class="rows">
          <li>
            <a class="grow" href={tagPage(tag)}>
              <b dir="auto">#{tag}</b> <span class="muted">{t.postsWithTag}</span>
            </a>
            <Icon name="next" />
          </li>
        </ul>
      )}
      {!isSigned(query) ? <FoundPeople query={query} /> : !tag && <Empty title={t.refusal({ reason: 'NOT_A_TAG' }, '')} />}
    </>
  )
}

function FoundPeople({ query }: { query: string }) {
  const list = usePages<Person>(async (after) => (await request(PeopleQuery, { query, first: 20, after })).users, [query])
  useChanges((change) => change.what === 'relation' && list.change((people) => withPerson(people, change.person)))
  const { items, loaded } = list
  return (
    <>
      <p class="hidden" role="status">
        {loaded && t.found(items.length, list.next !== null)}
      </p>
      {items.length > 0 && <PersonList people={items} label={t.people} />}
      <ListEnd list={list} empty={t.nobodyFound} />
    </>
  )
}
