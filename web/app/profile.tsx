// The pages of a person, of a tag and of the newest public posts.
import { collapse } from '@tideline/client'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { request } from './api'
import { changed, useChanges } from './changes'
import { Followers, Following, Profile as ProfileQuery, Public, Quotes, Reposts, Tagged, type Person, type Post } from './documents'
import { Later } from './later'
import { usePages, type Page } from './pages'
import { Avatar, Empty, Icon, ListEnd } from './parts'
import { FollowButton, PersonList, RelationMenu, withPerson } from './people'
import { PostCard } from './post'
import { preferences, t } from './preferences'
import { back, type Tab } from './route'
import { moderates, session } from './session'
import { useStore } from './store'
import { usePerson } from './watch'
import { Words } from './words'

export function Profile({ handle, tab }: { handle: string; tab: Tab }) {
  const logged = useStore(session)
  const viewer = logged?.token
  const [person, setPerson] = useState<Person | null>()
  useEffect(() => setPerson(undefined), [handle, viewer])
  const found = <T,>(user: (Person & { list: Page<T> }) | null) => {
    setPerson(user)
    return user && user.list
  }
  useChanges((change) => {
    if (change.what === 'relation' && change.person.id === person?.id) setPerson({ ...person, ...change.person })
  })
  if (person === null) {
    const nobody = (
      <Empty title={t.nobody(handle)} whole>
        {viewer && (
          <a class="button" href="/people">
            {t.findPeople}
          </a>
        )}
      </Empty>
    )
    if (!moderates(logged?.user)) return nobody
    return (
      <Later
        draw={({ Suspended }) => (
          <Suspended handle={handle} onEnded={() => setPerson(undefined)}>
            {nobody}
          </Suspended>
        )}
      />
    )
  }
  const own = person !== undefined && person.id === logged?.user.id
  return (
    <>
      {person ? <Header person={person} tab={tab} /> : <Blank handle={handle} />}
      {tab === 'posts' ? (
        <Posts
          fetch={async (after) => {
            const { user } = await request(ProfileQuery, { handle, after })
            return found(user && { ...user, list: user.posts })
          }}
          keys={[handle, viewer]}
          takes={(post) => post.author.id === person?.id}
          onTaken={({ replyTo, repostOf }) => {
            // The count has neither replies nor reposts.
            if (!replyTo && !repostOf) setPerson((known) => known && { ...known, postCount: known.postCount + 1 })
          }}
          none={person?.relationship?.blocking ? '' : t.noPosts}
          live
          by={person?.id}
        />
      ) : (
        <Folk
          key={tab}
          fetch={async (after) => {
            const { user } = await request(tab === 'followers' ? Followers : Following, { handle, after })
            return found(user)
          }}
          keys={[handle, viewer]}
          label={tab === 'followers' ? t.followers : t.following}
          none={tab === 'followers' ? t.noFollowers : t.noFollowing}
          of={person?.id}
          onRemoved={own && tab === 'followers' ? () => setPerson((known) => known && { ...known, followerCount: known.followerCount - 1 }) : undefined}
        />
      )}
    </>
  )
}

/** A placeholder for the header while it loads. */
function Blank({ handle }: { handle: string }) {
  return (
    <header class="profile blank">
      <div class="cover" aria-hidden="true" />
      <h1>@{handle}</h1>
    </header>
  )
}

function Header({ person, tab }: { person: Person; tab: Tab }) {
  usePerson(person)
  const { language } = useStore(preferences)
  const { handle, relationship } = person
  const own = useStore(session)?.user.id === person.id
  const counts = [
    ['posts', `/@${handle}`, t.postCount(person.postCount)],
    ['followers', `/@${handle}/followers`, t.followerCount(person.followerCount)],
    ['following', `/@${handle}/following`, t.followingCount(person.followingCount)],
  ] as const
  return (
    <header class="profile">
      <div class="cover" aria-hidden="true" />
      <div class="row face">
        <Avatar person={person} large />
        <span class="row">
          {own ? (
            <a class="button" href="/settings/profile">
              {t.editProfile}
            </a>
          ) : (
            <>
              <FollowButton person={person} />
              <RelationMenu person={person} />
            </>
          )}
        </span>
      </div>
      <h1>
        <bdi>{person.name}</bdi>
      </h1>
      <p class="muted">
        @{handle} {relationship?.followedBy && <span class="tag">{relationship.mutual ? t.friends : t.followsYou}</span>}
        {person.approvesFollowers && <span class="tag">{t.approves}</span>}
      </p>
      {person.bio && (
        <p class="text" dir="auto">
          <Words text={person.bio} />
        </p>
      )}
      {person.links.length > 0 && (
        <ul class="links" aria-label={t.links}>
          {person.links.map((link) => (
            <li key={link}>
              <a href={link} target="_blank" rel="nofollow ugc noopener noreferrer">
                {link.replace(/^https?:\/\/(www\.)?|\/$/g, '')}
              </a>
            </li>
          ))}
        </ul>
      )}
      <p class="muted">{t.joined(new Date(person.createdAt).toLocaleDateString(language, { year: 'numeric', month: 'long' }))}</p>
      {relationship?.blocking && <p class="note">{t.blocked(handle)}</p>}
      {relationship?.muting && <p class="note">{t.muted(handle)}</p>}
      <nav class="counts" aria-label={t.profile}>
        {counts.map(([name, address, [count, what]]) => (
          <a href={address} aria-current={tab === name ? 'page' : undefined} key={name}>
            <b>{count}</b> {what}
          </a>
        ))}
      </nav>
    </header>
  )
}

type PostsProps = {
  fetch: (after: string | null) => Promise<Page<Post> | null>
  keys: unknown[]
  none: string
  /** Whether the viewer's new post belongs on top of the list. 'perhaps': only the server knows. */
  takes: (post: Post) => boolean | 'perhaps'
  onTaken?: (post: Post) => void
  /** Announces new posts by others, which no event reports. */
  live?: boolean
  /** The id of the author, if there is one. A change of the author's count of posts announces them at once. */
  by?: string
}

export function Posts({ fetch, keys, none, takes, onTaken, live, by }: PostsProps) {
  const list = usePages<Post>(fetch, keys, live)
  const section = useRef<HTMLElement>(null)
  useChanges((change) => {
    // A changed relation changes which posts are visible. A deleted post changes the count in the header.
    if (change.what === 'relation' && change.shown) {
      if (change.person.id === by) void list.renew()
      return
    }
    if (change.what === 'relation' || change.what === 'much' || (change.what === 'gone' && change.deleted)) void (list.loaded ? list.refresh() : list.reload())
    else if (change.what === 'posted') {
      const takesIt = takes(change.post)
      if (!takesIt || list.items.some(({ id }) => id === change.post.id)) return
      // An answer that is still to come may be from before the post.
      if (!list.loaded || list.busy || takesIt === 'perhaps') return list.reload()
      list.change((posts) => [change.post, ...posts])
      onTaken?.(change.post)
    } else list.change((posts) => changed(posts, change))
  })
  // An original with reposts in the list appears once, as in the timeline.
  const shown = useMemo(() => collapse(list.items.map((node) => ({ cursor: '', score: 0, node }))), [list.items])
  const show = () => {
    list.show()
    scrollTo({ top: 0 })
    // Once the new posts are drawn, focuses the first one, so that the keyboard goes on from there.
    requestAnimationFrame(() => section.current?.querySelector('article')?.focus({ preventScroll: true }))
  }
  return (
    <>
      {live && (
        <div class="arrived tight" aria-live="polite">
          {list.waiting.items.length > 0 && (
            <button class="new-posts" onClick={show}>
              <Icon name="up" />
              {t.newPosts(list.waiting.items.length)}
            </button>
          )}
        </div>
      )}
      <section class="posts" aria-label={t.posts} ref={section}>
        {shown.map(({ post, reposts }) => (
          <PostCard post={post} reposts={reposts} key={post.id} />
        ))}
      </section>
      <ListEnd list={list} empty={none} />
    </>
  )
}

type FolkProps = {
  fetch: (after: string | null) => Promise<Page<Person> | null>
  keys: unknown[]
  label: string
  none: string
  /** The people follow the viewer, who can remove them. Called after one was removed. */
  onRemoved?: () => void
  /** The id of the person whose followers or followees these are. */
  of?: string
}

export function Folk({ fetch, keys, label, none, onRemoved, of }: FolkProps) {
  const list = usePages(fetch, keys)
  useChanges((change) => {
    if (change.what !== 'relation') return
    const before = list.items.find(({ id }) => id === change.person.id)
    if (before?.relationship?.followedBy && !change.person.relationship?.followedBy) onRemoved?.()
    list.change((people) => withPerson(people, change.person))
    // The counts of that person changed. A longer list would lose the reader's place.
    if (change.shown && change.person.id === of && !list.next) list.reload()
  })
  return (
    <>
      {list.items.length > 0 && <PersonList people={list.items} label={label} menus={onRemoved !== undefined} />}
      <ListEnd list={list} empty={none} />
    </>
  )
}

/** The posts with a tag. */
export function TagPage({ tag }: { tag: string }) {
  const viewer = useStore(session)?.token
  return (
    <>
      <Head title={`#${tag}`} />
      <Posts fetch={async (after) => (await request(Tagged, { tag, after })).taggedPosts} keys={[tag, viewer]} takes={(post) => (/[#＃]/.test(post.text) ? 'perhaps' : false)} none={t.nothingTagged(tag)} live />
    </>
  )
}

/** The newest public posts, without replies and reposts. */
export function PublicPage() {
  const viewer = useStore(session)?.token
  return (
    <>
      <Head title={t.publicPosts} />
      <Posts
        fetch={async (after) => (await request(Public, { after })).publicPosts}
        keys={[viewer]}
        takes={(post) => post.visibility === 'PUBLIC' && !post.replyTo && !post.repostOf}
        none={t.noPublicPosts}
        live
      />
    </>
  )
}

/** Who reposted a post, or the posts that quote it. */
export function PostList({ id, list }: { id: string; list: 'reposts' | 'quotes' }) {
  const viewer = useStore(session)?.token
  const [gone, setGone] = useState(false)
  const found = <T,>(page: T | undefined) => {
    setGone(!page)
    return page ?? null
  }
  return (
    <>
      <Head title={t.onePost} up={`/post/${id}`} />
      <nav class="counts" aria-label={t.onePost}>
        {(['reposts', 'quotes'] as const).map((name) => (
          <a href={`/post/${id}/${name}`} aria-current={list === name ? 'page' : undefined} key={name}>
            {t.lists[name]}
          </a>
        ))}
      </nav>
      {gone ? (
        <Empty title={t.postGone} />
      ) : list === 'reposts' ? (
        <Folk
          fetch={async (after) => {
            const page = found((await request(Reposts, { id, after })).post?.reposts)
            return page && { ...page, nodes: page.nodes.map(({ author }) => author) }
          }}
          keys={[id, viewer]}
          label={t.lists.reposts}
          none={t.noReposts}
        />
      ) : (
        <Posts
          fetch={async (after) => found((await request(Quotes, { id, after })).post?.quotes)}
          keys={[id, viewer]}
          takes={(post) => post.quote?.post?.id === id}
          none={t.noQuotes}
        />
      )}
    </>
  )
}

/** The heading of a page, with a link back. up: where the link leads if the app showed no page before. */
export function Head({ title, up = '/' }: { title: string; up?: string }) {
  return (
    <div class="head">
      <a class="back" href={up} aria-label={t.back} title={t.back} onClick={back}>
        <Icon name="back" />
      </a>
      <h1>
        <bdi>{title}</bdi>
      </h1>
    </div>
  )
}
