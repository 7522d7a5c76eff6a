// One post, as every list shows it.
import { useRef, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { tell } from './changes'
import { DeletePost, LikePost, SetVisibility, UnlikePost, type Post, type Visibility } from './documents'
import { Avatar, Confirm, Icon, notify, steady, Time } from './parts'
import { preferences, t } from './preferences'
import { useReceipt } from './receipts'
import { Report } from './report'
import { session } from './session'
import { useStore } from './store'
import { Words } from './words'

export const visibilities = ['PUBLIC', 'FOLLOWERS', 'MUTUALS', 'PRIVATE'] as const satisfies Visibility[]

type Props = { post: Post; pending?: boolean; fresh?: boolean }

/** A post; pending while the server has not answered yet, fresh when it is new to the reader. */
export const PostCard = steady(({ post, pending, fresh }: Props) => {
  const { author } = post
  useStore(preferences)
  const viewer = useStore(session)?.user
  const own = viewer?.id === author.id
  return (
    <article class={pending ? 'post pending' : fresh ? 'post fresh' : 'post'} id={post.id} tabIndex={-1} aria-labelledby={`by-${post.id}`}>
      <a class="face" href={`/@${author.handle}`} tabIndex={-1} aria-hidden="true">
        <Avatar person={author} />
      </a>
      <div class="body">
        <p class="by" id={`by-${post.id}`}>
          <a class="who" href={`/@${author.handle}`}>
            <b>{author.name}</b> <span class="muted">@{author.handle}</span>
          </a>
          {pending ? (
            <span class="muted when">{t.sending}</span>
          ) : (
            <a class="muted when" href={`/post/${post.id}`}>
              <Time at={post.createdAt} />
            </a>
          )}
        </p>
        <p class="text">
            <Words text={post.text} />
          </p>
        <div class="acts">
          {pending ? <Audience of={post.visibility} /> : viewer ? <Like post={post} /> : post.likeCount > 0 && <span class="muted">{t.likes(post.likeCount)}</span>}
          {!pending && own ? <Own post={post} /> : !pending && <Audience of={post.visibility} />}
          {!pending && own && <Delivery id={post.id} />}
          {!pending && !own && viewer && <Complain post={post} />}
        </div>
      </div>
    </article>
  )
})

/** Who sees a post, where that is not everybody. */
function Audience({ of }: { of: Visibility }) {
  if (of === 'PUBLIC') return null
  return (
    <span class="audience muted" title={t.visibilityHint[of]}>
      <Icon name={of} />
      {t.visibility[of]}
    </span>
  )
}

function Like({ post }: { post: Post }) {
  const { viewerHasLiked: liked, likeCount } = post
  // Someone may change their mind before the answer is there: the last word counts.
  const wanted = useRef(liked)
  const busy = useRef(false)
  const toggle = async () => {
    wanted.current = !liked
    tell({ what: 'post', post: { ...post, viewerHasLiked: !liked, likeCount: likeCount + (liked ? -1 : 1) } })
    if (busy.current) return
    busy.current = true
    const input = { postId: post.id }
    let known = post
    try {
      while (known.viewerHasLiked !== wanted.current) {
        known = known.viewerHasLiked ? (await request(UnlikePost, { input })).unlikePost.post : (await request(LikePost, { input })).likePost.post
      }
    } catch (e) {
      notify((e as Error).message)
    }
    busy.current = false
    tell({ what: 'post', post: known })
  }
  return (
    <button class="act like" aria-pressed={liked} aria-label={`${t.like}, ${t.likes(likeCount)}`} onClick={toggle}>
      <Icon name="heart" />
      <span class="count">{likeCount || ''}</span>
    </button>
  )
}

function Own({ post }: { post: Post }) {
  const [asking, setAsking] = useState(false)
  const { run, busy } = useAction(notify)
  const setVisibility = (visibility: Visibility) =>
    run(async () => {
      const { setPostVisibility } = await request(SetVisibility, { input: { postId: post.id, visibility } })
      tell({ what: 'post', post: setPostVisibility.post })
      notify(t.visibilityChanged(t.visibility[visibility]))
    })
  const remove = () => {
    setAsking(false)
    return run(async () => {
      await request(DeletePost, { input: { postId: post.id } })
      notify(t.deleted)
      tell({ what: 'gone', postId: post.id })
    })
  }
  return (
    <>
      <VisibilityChoice label={t.changeVisibility} value={post.visibility} disabled={busy} onChoose={setVisibility} />
      <button class="act" aria-label={t.delete} disabled={busy} onClick={() => setAsking(true)}>
        <Icon name="trash" />
      </button>
      {asking && (
        <Confirm title={t.deletePost} hint={t.deletePostHint} action={t.delete} onYes={remove} onNo={() => setAsking(false)} />
      )}
    </>
  )
}

function Complain({ post }: { post: Post }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <button class="act complain" aria-label={t.reportPost} title={t.reportPost} onClick={() => setOpen(true)}>
        <Icon name="flag" />
      </button>
      {open && <Report title={t.reportPost} postId={post.id} onClose={() => setOpen(false)} />}
    </>
  )
}

/** How far an own post has come; nothing where there was nobody for it to come to. */
function Delivery({ id }: { id: string }) {
  const receipt = useReceipt(id)
  if (!receipt) return null
  const { pushed, pulled, skipped, lastLagMs, done } = receipt
  const reached = pushed + pulled
  if (done && reached === 0) return null
  return (
    <span class="delivery muted" title={t.deliveryHint(pushed, pulled, skipped, lastLagMs)}>
      <Icon name={done ? 'done' : 'home'} />
      <span class="words">{done ? t.delivered(reached) : t.onItsWay(reached)}</span>
      <span class="number" aria-hidden="true">
        {reached.toLocaleString(preferences.state.language)}
      </span>
    </span>
  )
}

type ChoiceProps = { label: string; value: Visibility; disabled?: boolean; onChoose: (visibility: Visibility) => void }

export function VisibilityChoice({ label, value, disabled, onChoose }: ChoiceProps) {
  return (
    <span class="choice">
      <Icon name={value} />
      <select aria-label={label} value={value} disabled={disabled} onChange={(event) => onChoose(event.currentTarget.value as Visibility)}>
        {visibilities.map((visibility) => (
          <option value={visibility} key={visibility} title={t.visibilityHint[visibility]}>
            {t.visibility[visibility]}
          </option>
        ))}
      </select>
    </span>
  )
}
