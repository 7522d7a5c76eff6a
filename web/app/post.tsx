// A post, as every list shows it.
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { tell } from './changes'
import { changing, useCounts } from './counts'
import { DeletePost, LikePost, SetVisibility, UnlikePost, UpdatePost, Versions, type Post, type Visibility } from './documents'
import { editOf, keepEdit } from './draft'
import { useLimits } from './limits'
import { usePages } from './pages'
import { Avatar, Confirm, Count, Dialog, Icon, lengthOf, notify, steady, Time } from './parts'
import { preferences, t } from './preferences'
import { useReceipt } from './receipts'
import { Report } from './report'
import { session } from './session'
import { useStore } from './store'
import { Words } from './words'

export const visibilities = ['PUBLIC', 'FOLLOWERS', 'MUTUALS', 'PRIVATE'] as const satisfies Visibility[]

type Props = { post: Post; pending?: boolean; fresh?: boolean }

/** A post. pending: the server has not answered yet. fresh: it is new to the reader. */
export const PostCard = steady(({ post, pending, fresh }: Props) => {
  const { author } = post
  useStore(preferences)
  useCounts(post, pending ?? false)
  const viewer = useStore(session)?.user
  const own = viewer?.id === author.id
  // 'begun': the viewer pressed the edit button. 'kept': an unsaved edit was restored.
  const [editing, setEditing] = useState<'begun' | 'kept' | false>(() => own && !pending && editOf(post.id) !== undefined && 'kept')
  const article = useRef<HTMLElement>(null)
  const edited = useRef(editing)
  useLayoutEffect(() => {
    // The form had the focus and is gone, so the edit button gets it.
    if (edited.current && !editing) article.current?.querySelector<HTMLElement>('.edits')?.focus()
    edited.current = editing
  }, [editing])
  return (
    <article ref={article} class={pending ? 'post pending' : fresh ? 'post fresh' : 'post'} id={post.id} tabIndex={-1} aria-labelledby={`by-${post.id}`}>
      <a class="face" href={`/@${author.handle}`} tabIndex={-1} aria-hidden="true">
        <Avatar person={author} />
      </a>
      <div class="body">
        <p class="by" id={`by-${post.id}`}>
          <a class="who" href={`/@${author.handle}`}>
            <b dir="auto">{author.name}</b> <span class="muted">@{author.handle}</span>
          </a>
          {pending ? (
            <span class="muted when">{t.sending}</span>
          ) : (
            <a class="muted when" href={`/post/${post.id}`}>
              <Time at={post.createdAt} />
            </a>
          )}
          {post.editedAt && <Edited post={post} at={post.editedAt} own={own} />}
        </p>
        {editing ? (
          <Edit post={post} focused={editing === 'begun'} onDone={() => setEditing(false)} />
        ) : (
          <p class="text">
            <Words text={post.text} />
          </p>
        )}
        {post.hiddenByModerators && <p class="note">{t.hiddenByModerators}</p>}
        <div class="acts">
          {pending ? <Audience of={post.visibility} /> : viewer ? <Like post={post} /> : post.likeCount > 0 && <span class="muted">{t.likes(post.likeCount)}</span>}
          {!pending && own ? <Own post={post} editing={editing !== false} onEdit={() => setEditing('begun')} /> : !pending && <Audience of={post.visibility} />}
          {!pending && own && <Delivery id={post.id} />}
          {!pending && !own && viewer && <Complain post={post} />}
        </div>
      </div>
    </article>
  )
})

/** The visibility of a post that is not public. */
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
  // The viewer may press the button again before the answer arrives. The last choice counts.
  const wanted = useRef(liked)
  const busy = useRef(false)
  const toggle = async () => {
    wanted.current = !liked
    tell({ what: 'post', post: { ...post, viewerHasLiked: !liked, likeCount: likeCount + (liked ? -1 : 1) } })
    if (busy.current) return
    busy.current = true
    changing(post.id, 'busy')
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
    changing(post.id, 'done')
    tell({ what: 'post', post: known })
  }
  return (
    <button class="act like" aria-pressed={liked} aria-label={`${t.like}, ${t.likes(likeCount)}`} onClick={toggle}>
      <Icon name="heart" />
      <span class="count">{likeCount || ''}</span>
    </button>
  )
}

/** The mark of an edited post. For the author it opens the earlier versions. */
function Edited({ post, at, own }: { post: Post; at: string; own: boolean }) {
  const [open, setOpen] = useState(false)
  const title = t.editedAt(new Date(at).toLocaleString(preferences.state.language))
  if (!own)
    return (
      <span class="muted edited" title={title}>
        {t.edited}
      </span>
    )
  return (
    <>
      <button class="link muted edited" title={title} aria-haspopup="dialog" aria-label={`${t.edited}, ${t.versions}`} onClick={() => setOpen(true)}>
        {t.edited}
      </button>
      {open && <Earlier post={post} onClose={() => setOpen(false)} />}
    </>
  )
}

/** The earlier versions of the viewer's own post. */
function Earlier({ post, onClose }: { post: Post; onClose: () => void }) {
  const fetch = async (after: string | null) => (await request(Versions, { id: post.id, first: 20, after })).post?.versions ?? null
  const { items, loaded, next, busy, error, more, retry } = usePages(fetch, [post.id, post.editedAt])
  return (
    <Dialog label={t.versions} onClose={onClose}>
      <h2>{t.versions}</h2>
      {!loaded && busy && <p class="muted">{t.loading}</p>}
      <ol class="versions">
        {items.map(({ id, text, createdAt }) => (
          <li key={id}>
            <p class="muted">
              <Time at={createdAt} />
            </p>
            <p class="text">{text}</p>
          </li>
        ))}
      </ol>
      {error && (
        <p class="wrong" role="alert">
          {error}
        </p>
      )}
      <div class="row end">
        {error ? <button class="quiet" onClick={retry}>{t.tryAgain}</button> : next && <button class="quiet" disabled={busy} onClick={more}>{t.loadMore}</button>}
        <button onClick={onClose}>{t.close}</button>
      </div>
    </Dialog>
  )
}

/** The form for editing a post. The browser stores an unsaved edit until it is saved or cancelled. */
function Edit({ post, focused, onDone }: { post: Post; focused: boolean; onDone: () => void }) {
  const kept = useRef(editOf(post.id)).current
  const [text, setText] = useState(kept?.text ?? post.text)
  // The version on which the edit is based, even if another device edits the post meanwhile.
  const [of] = useState(kept?.of ?? post.editedAt ?? post.createdAt)
  const { run, busy, error } = useAction()
  const area = useRef<HTMLTextAreaElement>(null)
  const length = lengthOf(text)
  const most = useLimits()?.postLength
  const wrong = length === 0 || (most !== undefined && length > most)
  useLayoutEffect(() => {
    if (!focused) return
    area.current!.focus({ preventScroll: true })
    area.current!.setSelectionRange(text.length, text.length)
  }, [])
  const write = (text: string) => {
    setText(text)
    keepEdit(post.id, text === post.text ? undefined : { text, of })
  }
  const done = () => {
    keepEdit(post.id)
    onDone()
  }
  const save = (event: Event) => {
    event.preventDefault()
    if (wrong) return
    return run(async () => {
      const { updatePost } = await request(UpdatePost, { input: { postId: post.id, text, ifUnchangedSince: of } })
      tell({ what: 'post', post: updatePost.post })
      done()
    })
  }
  return (
    <form class="compose edit" onSubmit={save} aria-label={t.editPost}>
      <textarea
        ref={area}
        rows={3}
        aria-label={t.editPost}
        aria-invalid={error ? true : undefined}
        value={text}
        onInput={(event) => write(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') done()
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void save(event)
        }}
      />
      {error && (
        <p class="wrong" role="alert">
          {error}
        </p>
      )}
      <div class="row end">
        <Count length={length} most={most} />
        <button type="button" class="quiet" onClick={done}>
          {t.cancel}
        </button>
        <button disabled={busy || wrong}>{t.save}</button>
      </div>
    </form>
  )
}

function Own({ post, editing, onEdit }: { post: Post; editing: boolean; onEdit: () => void }) {
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
      <button class="act edits" aria-label={t.editPost} disabled={editing || post.hiddenByModerators} onClick={onEdit}>
        <Icon name="pen" />
      </button>
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

/** The delivery receipt of the viewer's own post. Draws nothing if the post was for no follower. */
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
