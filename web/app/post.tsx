// A post, as every list shows it.
import type { Shown } from '@tideline/client'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { AudienceChoice, VisibilityChoice } from './audience'
import { tell, useChanges } from './changes'
import { Compose, composing } from './compose'
import { changing, useCounts } from './watch'
import {
  DeletePost, LikePost, MuteConversation, MutesAuthor, Repost as RepostPost, SetAudience, SetVisibility, UndoRepost, UnlikePost, UnmuteConversation, UpdatePost, Versions,
  WithdrawQuote,
  type Audience as Who, type Original, type Post, type Visibility,
} from './documents'
import { editOf, keepEdit } from './draft'
import { Later } from './later'
import { useLimits } from './limits'
import { usePages } from './pages'
import { Avatar, Confirm, Count, Dialog, Icon, Menu, Time, leave, lengthOf, notify, steady } from './parts'
import { useRelation } from './people'
import { preferences, t } from './preferences'
import { QuoteCard } from './quote'
import { useReceipt } from './receipts'
import { Report } from './report'
import { moderates, session } from './session'
import { useLatest, useStore } from './store'
import { Words } from './words'

/** The lengths from which a list shows only the beginning of a text, in characters and in lines. */
const long = { characters: 700, lines: 12 }

const isLong = (text: string) => lengthOf(text) > long.characters || text.split('\n').length > long.lines

type Props = {
  post: Original
  /** The reposts because of which the list shows the post, newest first. */
  reposts?: Shown<Post>['reposts']
  /** The server has not answered yet. */
  pending?: boolean
  /** The post is new to the reader. */
  fresh?: boolean
  /** The place of the post in the page of a thread. */
  place?: 'ancestor' | 'subject' | 'reply'
  /** Replies somewhere else than below the post. */
  onReply?: () => void
  /** The viewer has deleted the post here. */
  onDeleted?: () => void
}

/** A post. */
export const PostCard = steady(({ post, reposts, pending, fresh, place, onReply, onDeleted }: Props) => {
  const { author, replyTo } = post
  useStore(preferences)
  useCounts(post, pending ?? false, place === 'subject')
  const viewer = useStore(session)?.user
  const own = viewer?.id === author.id
  // 'begun': the viewer pressed the edit button. 'kept': an unsaved edit was restored.
  const [editing, setEditing] = useState<'begun' | 'kept' | false>(() => own && !pending && editOf(post.id) !== undefined && 'kept')
  const [replying, setReplying] = useState(false)
  const article = useRef<HTMLElement>(null)
  const edited = useRef(editing)
  const answered = useRef(replying)
  useLayoutEffect(() => {
    // The form had the focus and is gone, so the button that opened it gets it.
    const closed = edited.current && !editing ? '.edits' : answered.current && !replying ? '.reply' : ''
    if (closed) article.current?.querySelector<HTMLElement>(closed)?.focus()
    edited.current = editing
    answered.current = replying
  }, [editing, replying])
  const kind = ['post', pending && 'pending', fresh && 'fresh', place].filter(Boolean).join(' ')
  return (
    <article ref={article} class={kind} id={post.id} tabIndex={-1} aria-labelledby={`by-${post.id}`}>
      <a class="face" href={`/@${author.handle}`} tabIndex={-1} aria-hidden="true">
        <Avatar person={author} />
      </a>
      <div class="body">
        {reposts && reposts.length > 0 && <RepostedBy reposts={reposts} viewer={viewer?.id} />}
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
        {replyTo && !place && (
          <p class="muted replying">
            {t.replyingTo[0]}
            <a href={`/post/${replyTo.id}`}>@{replyTo.author.handle}</a>
            {t.replyingTo[1]}
          </p>
        )}
        {editing ? (
          <Edit post={post} focused={editing === 'begun'} onDone={() => setEditing(false)} />
        ) : (
          <Text post={post} folds={place !== 'subject'} onOpen={() => article.current!.focus({ preventScroll: true })} />
        )}
        {post.quote && <Quote post={post} viewer={viewer?.id} />}
        {post.hiddenByModerators && <p class="note">{t.hiddenByModerators}</p>}
        {place === 'subject' && <Lists post={post} />}
        <div class="acts">
          {pending ? (
            <Audience of={post.visibility} />
          ) : viewer ? (
            <>
              <Reply post={post} open={replying} onReply={onReply ?? (() => setReplying(!replying))} />
              <Repost post={post} />
              <Like post={post} />
            </>
          ) : (
            <Counts post={place === 'subject' ? { ...post, repostCount: 0, quoteCount: 0 } : post} />
          )}
          {!pending && own ? <Own post={post} editing={editing !== false} onEdit={() => setEditing('begun')} onDeleted={onDeleted} /> : !pending && <Audience of={post.visibility} />}
          {!pending && own && <Delivery id={post.id} />}
          {!pending && !own && viewer && <Complain post={post} />}
          {!pending && viewer && <Further post={post} own={own} hides={!own && moderates(viewer)} />}
          {!pending && own && place === 'subject' && !replyTo && <Audiences post={post} />}
        </div>
        {replying && (
          <Compose
            parent={post}
            focused
            onCancel={() => setReplying(false)}
            onPosted={({ replyTo }) => {
              setReplying(false)
              notify(t.replied)
              if (replyTo) tell({ what: 'post', post: { ...post, replyCount: replyTo.replyCount } })
            }}
          />
        )}
      </div>
    </article>
  )
})

/** The text of a post. folds: a long one shows its beginning, until the reader opens it. */
function Text({ post: { text, mentions }, folds, onOpen }: { post: Original; folds: boolean; onOpen: () => void }) {
  const [open, setOpen] = useState(false)
  const folded = folds && !open && isLong(text)
  return (
    <>
      {/* A link in the part that is not shown opens it, when it gets the focus. */}
      <p class={folded ? 'text folded' : 'text'} dir="auto" onFocusIn={folded ? () => setOpen(true) : undefined}>
        <Words text={text} recorded={mentions} />
      </p>
      {folded && (
        <button
          class="link unfold"
          onClick={() => {
            setOpen(true)
            // The button had the focus and is gone.
            onOpen()
          }}
        >
          {t.showMore}
        </button>
      )}
    </>
  )
}

/** Says who reposted a post: the newest by name, and how many others. */
function RepostedBy({ reposts, viewer }: { reposts: Shown<Post>['reposts']; viewer: string | undefined }) {
  const { author } = reposts[0]!.node
  const [before, after] = t.repostedBy(reposts.length - 1)
  return (
    <p class="muted reposted">
      <Icon name="repost" />
      <span>
        {before}
        <a href={`/@${author.handle}`} dir="auto">
          {author.id === viewer ? t.you : author.name}
        </a>
        {after}
      </span>
    </p>
  )
}

/** The counts of a post, for a visitor. */
function Counts({ post: { likeCount, replyCount, repostCount, quoteCount } }: { post: Original }) {
  const counts = [replyCount && t.replies(replyCount), repostCount && t.reposts(repostCount), quoteCount && t.quotes(quoteCount), likeCount && t.likes(likeCount)]
  const shown = counts.filter(Boolean)
  return shown.length > 0 ? <span class="muted">{shown.join(' · ')}</span> : null
}

/** Links to the reposts and the quotes of a post. */
function Lists({ post: { id, repostCount, quoteCount } }: { post: Original }) {
  if (repostCount + quoteCount === 0) return null
  return (
    <p class="lists">
      {repostCount > 0 && <a href={`/post/${id}/reposts`}>{t.reposts(repostCount)}</a>}
      {quoteCount > 0 && <a href={`/post/${id}/quotes`}>{t.quotes(quoteCount)}</a>}
    </p>
  )
}

function Reply({ post, open, onReply }: { post: Original; open: boolean; onReply: () => void }) {
  const { replyCount, viewerCanReply, replyAudience } = post
  // Not disabled, so that the keyboard and screen readers reach the reason.
  const why = viewerCanReply ? '' : t.mayNotReply[replyAudience]
  return (
    <button
      class="act counted reply"
      aria-label={[t.reply, t.replies(replyCount), why].filter(Boolean).join(', ')}
      aria-disabled={why ? true : undefined}
      aria-expanded={open || undefined}
      title={why || undefined}
      onClick={() => (why ? notify(why) : onReply())}
    >
      <Icon name="reply" />
      <span class="count">{replyCount || ''}</span>
    </button>
  )
}

/** The menu with which the viewer reposts or quotes a post. */
function Repost({ post }: { post: Original }) {
  const { viewerRepost, repostCount, quoteCount, viewerCanQuote } = post
  const shown = useLatest(post)
  const { run, busy } = useAction(notify)
  const repost = () =>
    run(async () => {
      changing(post.id, 'busy')
      if (!viewerRepost) tell({ what: 'repost', postId: post.id })
      const by = viewerRepost ? -1 : 1
      tell({ what: 'post', post: { ...post, repostCount: repostCount + by, viewerRepost: viewerRepost ? null : { id: '' } } })
      const input = { postId: post.id }
      try {
        const known = viewerRepost ? (await request(UndoRepost, { input })).undoRepost.post : (await request(RepostPost, { input })).repost.post.repostOf
        if (viewerRepost) tell({ what: 'gone', postId: viewerRepost.id })
        tell(known ? { what: 'post', post: known } : { what: 'gone', postId: post.id })
      } catch (e) {
        tell({ what: 'post', post: { ...shown.current, repostCount: shown.current.repostCount - by, viewerRepost } })
        throw e
      } finally {
        changing(post.id, 'done')
      }
    })
  const count = repostCount + quoteCount
  const label = `${t.repost}, ${quoteCount > 0 ? `${count} (${t.reposts(repostCount)}, ${t.quotes(quoteCount)})` : t.reposts(repostCount)}`
  return (
    <Menu
      class={viewerRepost ? 'act counted repost done' : 'act counted repost'}
      label={label}
      button={
        <>
          <Icon name="repost" />
          <span class="count">{count || ''}</span>
        </>
      }
    >
      <button disabled={busy} onClick={repost}>
        {viewerRepost ? t.undoRepost : t.repost}
      </button>
      <button disabled={!viewerCanQuote} title={viewerCanQuote ? undefined : t.mayNotQuote} onClick={() => composing.set({ quoted: post })}>
        {t.quote}
      </button>
    </Menu>
  )
}

/** The quote of a post, and for the quoted author a button that withdraws it. */
function Quote({ post, viewer }: { post: Original; viewer: string | undefined }) {
  const [asking, setAsking] = useState(false)
  const { run, busy } = useAction(notify)
  const quote = post.quote!
  const withdraw = () => {
    setAsking(false)
    return run(async () => {
      const answer = await request(WithdrawQuote, { input: { postId: post.id } })
      notify(t.quoteWithdrawn)
      tell(answer.withdrawQuote.post ? { what: 'post', post: answer.withdrawQuote.post } : { what: 'gone', postId: post.id })
    })
  }
  return (
    <>
      <QuoteCard quote={quote} />
      {quote.post && quote.post.author.id === viewer && post.author.id !== viewer && (
        <button class="link withdraw" disabled={busy} onClick={() => setAsking(true)}>
          {t.withdrawQuote}
        </button>
      )}
      {asking && <Confirm title={t.withdrawThis} hint={t.withdrawHint} action={t.withdrawQuote} onYes={withdraw} onNo={() => setAsking(false)} />}
    </>
  )
}

/** The visibility of a post that is not public. */
function Audience({ of }: { of: Visibility }) {
  if (of === 'PUBLIC') return null
  return (
    <span class="audience muted">
      <Icon name={of} />
      {t.visibility[of]}
    </span>
  )
}

function Like({ post }: { post: Original }) {
  const { viewerHasLiked: liked, likeCount } = post
  // The viewer may press the button again before the answer arrives. The last choice counts.
  const wanted = useRef(liked)
  const busy = useRef(false)
  const shown = useLatest(post)
  const toggle = async () => {
    wanted.current = !liked
    tell({ what: 'post', post: { ...post, viewerHasLiked: !liked, likeCount: likeCount + (liked ? -1 : 1) } })
    if (busy.current) return
    busy.current = true
    changing(post.id, 'busy')
    const input = { postId: post.id }
    let known: Original = post
    try {
      while (known.viewerHasLiked !== wanted.current) {
        known = known.viewerHasLiked ? (await request(UnlikePost, { input })).unlikePost.post : (await request(LikePost, { input })).likePost.post
      }
    } catch (e) {
      notify((e as Error).message)
      const now = shown.current // what else changed meanwhile stays
      const { viewerHasLiked } = known
      known = { ...now, viewerHasLiked, likeCount: now.likeCount + Number(viewerHasLiked) - Number(now.viewerHasLiked) }
    }
    busy.current = false
    changing(post.id, 'done')
    tell({ what: 'post', post: known })
  }
  return (
    <button class="act counted like" aria-pressed={liked} aria-label={`${t.like}, ${t.likes(likeCount)}`} onClick={toggle}>
      <Icon name="heart" />
      <span class="count">{likeCount || ''}</span>
    </button>
  )
}

/** The mark of an edited post. For the author it opens the earlier versions. */
function Edited({ post, at, own }: { post: Original; at: string; own: boolean }) {
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
function Earlier({ post, onClose }: { post: Original; onClose: () => void }) {
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
            <p class="text" dir="auto">
              {text}
            </p>
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
function Edit({ post, focused, onDone }: { post: Original; focused: boolean; onDone: () => void }) {
  const kept = useRef(editOf(post.id)).current
  const [text, setText] = useState(kept?.text ?? post.text)
  // The version on which the edit is based, even if another device edits the post meanwhile.
  const [of] = useState(kept?.of ?? post.editedAt ?? post.createdAt)
  const { run, busy, error } = useAction()
  const area = useRef<HTMLTextAreaElement>(null)
  const refusal = useId()
  const length = lengthOf(text)
  const most = useLimits()?.postLength
  const over = most !== undefined && length > most
  const wrong = length === 0 || over
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
        dir="auto"
        aria-invalid={error || over ? true : undefined}
        aria-describedby={error ? refusal : undefined}
        value={text}
        onInput={(event) => write(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') done()
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void save(event)
        }}
      />
      {error && (
        <p class="wrong" id={refusal} role="alert">
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

function Own({ post, editing, onEdit, onDeleted }: { post: Original; editing: boolean; onEdit: () => void; onDeleted?: () => void }) {
  const [asking, setAsking] = useState(false)
  const [publishing, setPublishing] = useState(false)
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
      leave(document.getElementById(post.id))
      onDeleted?.()
      tell({ what: 'gone', postId: post.id })
    })
  }
  return (
    <>
      <VisibilityChoice label={t.changeVisibility} value={post.visibility} disabled={busy} onChoose={(to) => (to === 'PUBLIC' ? setPublishing(true) : setVisibility(to))} />
      <button class="act edits" aria-label={t.editPost} disabled={editing || post.hiddenByModerators} onClick={onEdit}>
        <Icon name="pen" />
      </button>
      <button class="act" aria-label={t.delete} disabled={busy} onClick={() => setAsking(true)}>
        <Icon name="trash" />
      </button>
      {publishing && (
        <Confirm
          title={t.makePublic}
          hint={t.makePublicHint}
          action={t.visibility.PUBLIC}
          onYes={() => {
            setPublishing(false)
            void setVisibility('PUBLIC')
          }}
          onNo={() => setPublishing(false)}
        />
      )}
      {asking && (
        <Confirm title={t.deletePost} hint={t.deletePostHint} action={t.delete} onYes={remove} onNo={() => setAsking(false)} />
      )}
    </>
  )
}

/** Changes who may reply to the viewer's own post, and who may quote it. */
function Audiences({ post }: { post: Original }) {
  const { run, busy } = useAction(notify)
  const set = (audience: { replyAudience: Who } | { quoteAudience: Who }, said: string) =>
    run(async () => {
      const { post: known } = (await request(SetAudience, { input: { postId: post.id, ...audience } })).setAudience
      if (known) tell({ what: 'post', post: known })
      notify(said)
    })
  const { replyAudience, quoteAudience } = post
  return (
    <span class="audiences">
      <AudienceChoice to="reply" value={replyAudience} disabled={busy} onChoose={(replyAudience) => set({ replyAudience }, t.mayReply[replyAudience])} />
      <AudienceChoice to="quote" value={quoteAudience} disabled={busy} onChoose={(quoteAudience) => set({ quoteAudience }, t.mayQuote[quoteAudience])} />
    </span>
  )
}

function Complain({ post }: { post: Original }) {
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

/**
 * The menu with which the viewer mutes the conversation of a post, and mutes or blocks its author. hides: the viewer may
 * hide the post from everybody.
 */
function Further({ post, own, hides }: { post: Original; own: boolean; hides: boolean }) {
  const { handle } = post.author
  const [hiding, setHiding] = useState(false)
  const [blocking, setBlocking] = useState(false)
  const relation = useRelation(post.author)
  const [muting, setMuting] = useState(false)
  useChanges((change) => {
    if (change.what === 'relation' && change.person.id === post.author.id) setMuting(change.person.relationship?.muting ?? false)
  })
  // The relation is not part of the posts. Until the answer comes, the menu offers to mute, which does no harm twice.
  const ask = () => {
    if (own) return
    request(MutesAuthor, { id: post.author.id }).then(
      ({ node }) => setMuting((node && 'relationship' in node && node.relationship?.muting) || false),
      () => {},
    )
  }
  const relate = async (how: 'mute' | 'unmute' | 'block') => {
    setBlocking(false)
    if (await relation.change(how)) notify({ mute: t.muted, unmute: t.unmuted, block: t.blocked }[how](handle))
  }
  const muted = post.viewerHasMutedConversation
  const { run, busy } = useAction(notify)
  const toggle = () =>
    run(async () => {
      const input = { postId: post.id }
      const { post: known } = muted ? (await request(UnmuteConversation, { input })).unmuteConversation : (await request(MuteConversation, { input })).muteConversation
      if (!known) return tell({ what: 'gone', postId: post.id })
      tell({ what: 'post', post: known })
      notify(muted ? t.conversationUnmuted : t.conversationMuted)
    })
  return (
    <>
      <Menu class="act further" label={t.more} onOpen={ask}>
        <button disabled={busy} onClick={toggle}>
          {muted ? t.unmuteConversation : t.muteConversation}
        </button>
        {!own && (
          <>
            <button disabled={relation.busy} onClick={() => relate(muting ? 'unmute' : 'mute')}>{`${muting ? t.unmute : t.mute} @${handle}`}</button>
            <button disabled={relation.busy} onClick={() => setBlocking(true)}>{`${t.block} @${handle}`}</button>
          </>
        )}
        {hides && <button onClick={() => setHiding(true)}>{t.hidePost}</button>}
      </Menu>
      {blocking && <Confirm title={t.blockPerson(handle)} hint={t.blockHint} action={t.block} onYes={() => void relate('block')} onNo={() => setBlocking(false)} />}
      {hiding && <Later onFailed={() => setHiding(false)} draw={({ HidePost }) => <HidePost postId={post.id} onClose={() => setHiding(false)} />} />}
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
    <span class="delivery muted" title={t.deliveryHint(pushed, pulled, done ? skipped : 0, lastLagMs)}>
      <Icon name={done ? 'done' : 'home'} />
      <span class="words">{done ? t.delivered(reached) : t.onItsWay(reached)}</span>
      <span class="number" aria-hidden="true">
        {reached.toLocaleString(preferences.state.language)}
      </span>
    </span>
  )
}
