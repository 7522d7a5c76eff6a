// The card of a quoted post.
import type { Original } from './documents'
import { Avatar, Time } from './parts'
import { t } from './preferences'

type Quoted = Pick<Original, 'id' | 'text' | 'createdAt' | 'author'>

/** A quoted post, or why it is not shown. */
export function QuoteCard({ quote: { state, post } }: { quote: { state: NonNullable<Original['quote']>['state']; post: Quoted | null } }) {
  if (!post) return <p class="quoted muted">{state === 'WITHDRAWN' ? t.withdrawn : t.notAvailable}</p>
  return (
    <blockquote class="quoted">
      <p class="by">
        <Avatar person={post.author} />
        <span class="who">
          <b dir="auto">{post.author.name}</b> <span class="muted">@{post.author.handle}</span>
        </span>
        <a class="muted when" href={`/post/${post.id}`}>
          <span class="hidden">{t.quotedPost(post.author.handle)}</span>
          <Time at={post.createdAt} />
        </a>
      </p>
      <p class="excerpt" dir="auto">
        {post.text}
      </p>
    </blockquote>
  )
}
