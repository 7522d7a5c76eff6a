// The page of a post: the posts that it replies to, the post, and its replies, all of them live.
import { useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { Compose, CurrentTimeline } from './compose'
import { Talk, type State } from './conversation'
import type { Original } from './documents'
import { LiveSign } from './home'
import { asPost } from './outbox'
import { Empty, Failure, Icon, More, Skeleton } from './parts'
import { PostCard } from './post'
import { t } from './preferences'
import { Head } from './profile'
import { session } from './session'
import { Store, useStore } from './store'

const orders = ['OLDEST', 'NEWEST', 'TOP'] as const

export function Thread({ id }: { id: string }) {
  const viewer = useStore(session)
  const timeline = useContext(CurrentTimeline)
  const talk = useMemo(() => new Talk(timeline, id), [])
  const state = useStore(talk.store)
  const { post, ancestors, replies, waiting, order } = state
  const page = useRef<HTMLDivElement>(null)
  const subject = useRef<HTMLDivElement>(null)
  const list = useRef<HTMLElement>(null)
  const [deleted, setDeleted] = useState(false)
  useEffect(() => talk.start(), [])

  // The post is what the reader came for, so the ancestors above it do not move it.
  const shown = post?.id
  useEffect(() => {
    if (ancestors.length && scrollY === 0) subject.current?.scrollIntoView({ behavior: 'instant' })
  }, [shown])

  const show = async () => {
    const first = waiting[0]!.id
    await talk.show()
    // Once the replies are drawn, focuses the first new one, so that the keyboard goes on from there.
    requestAnimationFrame(() => (document.getElementById(first) ?? list.current?.querySelector('article'))?.focus())
  }

  if (post === null) {
    return (
      <>
        <Head title={t.onePost} />
        <Empty title={deleted ? t.deleted : t.postGone} />
      </>
    )
  }
  const pending = viewer ? state.pending.map((reply) => <PostCard post={asPost(reply, viewer)} pending place="reply" key={reply.key} />) : []
  const empty = replies.length + pending.length === 0
  return (
    <div ref={page}>
      <Head title={t.onePost} />
      {ancestors.map((ancestor) => (
        <PostCard post={ancestor} place="ancestor" key={ancestor.id} />
      ))}
      {post && (
        <div ref={subject} class="thread">
          <PostCard
            post={post}
            place="subject"
            onReply={() => page.current!.querySelector<HTMLElement>('.thread ~ .compose textarea')?.focus()}
            onDeleted={() => setDeleted(true)}
            key={post.id}
          />
        </div>
      )}
      {post && viewer && <Answer post={post} talk={talk} />}
      {post && post.replyCount > 0 && (
        <div class="head">
          <h2>{t.replies(post.replyCount)}</h2>
          <Away status={state.status} />
          {post.replyCount > 1 && (
            <div class="tabs" role="group" aria-label={t.replyOrder}>
              {orders.map((choice) => (
                <button key={choice} aria-pressed={order === choice} onClick={() => talk.setOrder(choice)}>
                  {t.replyOrders[choice]}
                </button>
              ))}
            </div>
          )}
        </div>
      )}
      <div aria-live="polite" class={order === 'OLDEST' ? 'arrived tight' : 'arrived'}>
        {waiting.length > 0 && (
          <button class="new-posts" disabled={state.busy} onClick={show}>
            <Icon name="up" />
            {t.newReplies(waiting.length)}
          </button>
        )}
      </div>
      <section class="posts" aria-label={t.posts} ref={list}>
        {order !== 'OLDEST' && pending}
        {replies.map((reply) => (
          <PostCard post={reply} place="reply" key={reply.id} />
        ))}
        {order === 'OLDEST' && pending}
      </section>
      {!state.loaded && !state.error && <Skeleton lines={post ? 3 : 1} />}
      {state.loaded && empty && !state.next && <p class="muted end-of-list">{post?.replyCount ? t.noRepliesShown : t.noReplies}</p>}
      {state.error && <Failure message={state.error.message} onRetry={talk.retry} />}
      {state.next && !state.error && <More busy={state.busy} onMore={talk.more} />}
    </div>
  )
}

const noTimeline = new Store({ status: 'live' as const })

/** Says that replies do not arrive, if the frame of the page does not say so already. */
function Away({ status }: Pick<State, 'status'>) {
  const frame = useStore<{ status: string }>(useContext(CurrentTimeline)?.store ?? noTimeline)
  const away = status === 'reconnecting' || status === 'offline' || status === 'stopped'
  return away && frame.status === 'live' ? <LiveSign status={status} lateBy={0} /> : null
}

/** The box for a reply, or the reason why there is none. */
function Answer({ post, talk }: { post: Original; talk: Talk }) {
  if (!post.viewerCanReply) return <p class="note closed">{t.mayNotReply[post.replyAudience]}</p>
  return <Compose parent={post} outbox={talk.outbox} />
}
