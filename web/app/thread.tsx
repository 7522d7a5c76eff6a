// The page of a post: the posts that it replies to, the post, and its replies.
import { useEffect, useRef, useState } from 'preact/hooks'

import { request } from './api'
import { changed, useChanges } from './changes'
import { Compose } from './compose'
import { Replies, Thread as ThreadQuery, type Original, type Post } from './documents'
import { usePages } from './pages'
import { Empty, Failure, Icon, More, Skeleton } from './parts'
import { PostCard } from './post'
import { t } from './preferences'
import { Head } from './profile'
import { session } from './session'
import { useStore } from './store'

const orders = ['OLDEST', 'NEWEST', 'TOP'] as const
type Order = (typeof orders)[number]

/** The post of a page and the posts that lead to it. known: the number of replies when the list was read. */
type Conversation = { post: Post; ancestors: Post[]; known: number }

export function Thread({ id }: { id: string }) {
  const viewer = useStore(session)?.token
  const [order, setOrder] = useState<Order>('OLDEST')
  const [conversation, setConversation] = useState<Conversation | null>()
  const page = useRef<HTMLDivElement>(null)
  const subject = useRef<HTMLDivElement>(null)

  const begin = async (id: string) => {
    const { post } = await request(ThreadQuery, { id, order })
    // A repost has no conversation of its own.
    if (post?.repostOf) return (await request(ThreadQuery, { id: post.repostOf.id, order })).post
    return post
  }
  const list = usePages<Post>(
    async (after) => {
      const of = conversation?.post.id ?? id
      if (after) return (await request(Replies, { id: of, order, after })).post?.replies ?? null
      const post = await begin(of)
      setConversation(post && { post, ancestors: post.ancestors.map((ancestor) => ({ ...ancestor, repostOf: null })), known: post.replyCount })
      return post && post.replies
    },
    [id, viewer, order],
  )

  useChanges((change) => {
    if (change.what === 'relation' || change.what === 'much') return list.reload()
    if (change.what === 'gone' && change.postId === conversation?.post.id) return setConversation(null)
    if (change.what === 'posted') {
      const { post } = change
      if (!conversation || post.replyTo?.id !== conversation.post.id || list.items.some(({ id }) => id === post.id)) return
      setConversation({ ...conversation, known: conversation.known + 1, post: { ...conversation.post, replyCount: Math.max(conversation.post.replyCount, post.replyTo.replyCount) } })
      return list.change((posts) => (order === 'OLDEST' ? [...posts, post] : [post, ...posts]))
    }
    setConversation((known) => known && { ...known, post: changed([known.post], change)[0] ?? known.post, ancestors: changed(known.ancestors, change) })
    list.change((posts) => changed(posts, change))
  })

  // The post is what the reader came for, so the ancestors above it do not move it.
  const shown = conversation?.post.id
  useEffect(() => {
    if (conversation?.ancestors.length && scrollY === 0) subject.current?.scrollIntoView({ behavior: 'instant' })
  }, [shown])

  if (conversation === null) {
    return (
      <>
        <Head title={t.onePost} />
        <Empty title={t.postGone} />
      </>
    )
  }
  const post = conversation?.post
  const fresh = conversation ? conversation.post.replyCount - conversation.known : 0
  return (
    <div ref={page}>
      <Head title={t.onePost} />
      {conversation?.ancestors.map((ancestor) => (
        <PostCard post={ancestor} place="ancestor" key={ancestor.id} />
      ))}
      {post && (
        <div ref={subject} class="thread">
          <PostCard post={post} place="subject" onReply={() => page.current!.querySelector<HTMLElement>('.thread ~ .compose textarea')?.focus()} key={post.id} />
        </div>
      )}
      {post && viewer && <Answer post={post} />}
      {post && post.replyCount > 0 && (
        <div class="head">
          <h2>{t.replies(post.replyCount)}</h2>
          {post.replyCount > 1 && (
            <div class="tabs" role="group" aria-label={t.replyOrder}>
              {orders.map((choice) => (
                <button key={choice} aria-pressed={order === choice} onClick={() => setOrder(choice)}>
                  {t.replyOrders[choice]}
                </button>
              ))}
            </div>
          )}
        </div>
      )}
      <div aria-live="polite" class="arrived">
        {fresh > 0 && list.loaded && (
          <button class="quiet" disabled={list.busy} onClick={list.reload}>
            <Icon name="up" />
            {t.newReplies(fresh)}
          </button>
        )}
      </div>
      <section class="posts" aria-label={t.posts}>
        {list.items.map((reply) => (
          <PostCard post={reply} place="reply" key={reply.id} />
        ))}
      </section>
      {!list.loaded && !list.error && <Skeleton lines={post ? 3 : 1} />}
      {list.loaded && list.items.length === 0 && !list.next && <p class="muted end-of-list">{post?.replyCount ? t.noRepliesShown : t.noReplies}</p>}
      {list.error && <Failure message={list.error} onRetry={list.retry} />}
      {list.next && !list.error && <More busy={list.busy} onMore={list.more} />}
    </div>
  )
}

/** The box for a reply, or the reason why there is none. */
function Answer({ post }: { post: Original }) {
  if (!post.viewerCanReply) return <p class="note closed">{t.mayNotReply[post.replyAudience]}</p>
  // With onPosted, a refused reply stays in the box.
  return <Compose parent={post} onPosted={() => {}} />
}
