// A report, with everything that a moderator does about it.
import { useEffect, useState } from 'preact/hooks'

import { useAction } from '../action'
import { request } from '../api'
import { usePages } from '../pages'
import { Avatar, exact, Failure, More, notify, Skeleton, Time } from '../parts'
import { preferences, t } from '../preferences'
import { ApiError } from '../refusal'
import { session } from '../session'
import { typing } from '../shortcuts'
import { useStore } from '../store'
import { Act, HidePost, Suspend } from './acts'
import { ClaimReport, DecideReport, ReportedConversation, ReportedVersions, type Report, type Said } from './documents'
import { m } from './texts'

type Props = {
  report: Report
  onClaimed: (report: Report) => void
  /** The report and those like it are decided. */
  onDecided: () => void
  /** Something may have changed, perhaps by another moderator. */
  onChanged: () => void
}

type Dialogs = 'hide' | 'suspend' | 'UPHELD' | 'DISMISSED'

export function ReportCard({ report, onClaimed, onDecided, onChanged }: Props) {
  const { id, post, postId, suspension, status } = report
  const viewer = useStore(session)?.user.id
  const [dialog, setDialog] = useState<Dialogs>()
  const [shown, setShown] = useState(false)
  const { run, busy, error } = useAction()
  const open = status === 'OPEN'
  const claimed = open && report.claimedUntil !== null && Date.parse(report.claimedUntil) > Date.now()
  const reported = report.reported ?? suspension

  const claim = () =>
    run(async () => {
      try {
        onClaimed((await request(ClaimReport, { input: { reportId: id } })).claimReport.report)
      } catch (e) {
        // Another moderator was faster. The page then shows who, or the report is gone and only a notice can say why.
        const { code, reason } = (e as ApiError).refusal ?? {}
        if (reason !== 'REPORT_CLAIMED' && (code === 'CONFLICT' || code === 'NOT_FOUND')) notify((e as Error).message)
        if (code) onChanged()
        throw e
      }
    })
  const decide = (decision: 'UPHELD' | 'DISMISSED') => async (note: string) => {
    const { decided } = (await request(DecideReport, { input: { reportId: id, decision, note } })).decideReport
    notify(decided ? m().decided[decision](decided) : m().doneAlready)
    onDecided()
  }
  const close = () => {
    setDialog(undefined)
    onChanged()
  }

  const acts: [key: string, label: string, kind: string, act: (() => void) | false | null][] = [
    ['c', claimed && report.claimedById === viewer ? m().claimAgain : m().claim, 'quiet', open && claim],
    ['x', post?.hiddenByModerators ? m().unhidePost : m().hidePost, 'quiet', post && (() => setDialog('hide'))],
    ['s', suspension ? m().unsuspend : m().suspend, 'quiet', reported && (() => setDialog('suspend'))],
    ['u', m().uphold, '', open && (() => setDialog('UPHELD'))],
    ['d', m().dismiss, 'quiet', open && (() => setDialog('DISMISSED'))],
    ['o', m().conversation, 'quiet', postId !== null && (() => setShown(!shown))],
  ]
  const onKey = (event: KeyboardEvent) => {
    const act = acts.find(([key]) => key === event.key)?.[3]
    if (!act || !preferences.state.shortcuts || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return
    event.preventDefault()
    act()
  }

  return (
    <article class="report" id={id} tabIndex={-1} aria-labelledby={`about-${id}`} onKeyDown={onKey}>
      <p class="by" id={`about-${id}`}>
        <b>
          {t.reportReasons[report.reason]} · {postId === null ? m().onPerson : m().onPost}
        </b>
        <span class="muted when">
          {report.reporter ? m().reportedBy(report.reporter.handle) : m().reportedByNobody} · <Time at={report.createdAt} />
        </span>
      </p>
      {report.comment && (
        <p class="text comment" dir="auto">
          {report.comment}
        </p>
      )}
      <Subject report={report} />
      {claimed && (
        <p class="note">
          {report.claimedById === viewer
            ? m().claimedByYou(exact(report.claimedUntil!))
            : m().claimedBy(report.claimedBy ? `@${report.claimedBy.handle}` : m().somebody, exact(report.claimedUntil!))}
        </p>
      )}
      {report.decidedAt && (
        <div class="note">
          <p>{m().decidedAt[status](exact(report.decidedAt), report.decidedBy ? `@${report.decidedBy.handle}` : m().aModerator)}</p>
          {report.note && (
            <p class="text" dir="auto">
              {report.note}
            </p>
          )}
        </div>
      )}
      {error && (
        <p class="wrong" role="alert">
          {error}
        </p>
      )}
      <div class="buttons">
        {acts.map(
          ([key, label, kind, act]) =>
            act && (
              <button class={kind} aria-disabled={key === 'c' && busy} aria-keyshortcuts={key} aria-expanded={key === 'o' ? shown : undefined} onClick={act} key={key}>
                {label}
              </button>
            ),
        )}
      </div>
      {shown && <Conversation report={report} />}
      {dialog === 'hide' && <HidePost postId={postId!} hidden={post?.hiddenByModerators} inPlace onClose={close} />}
      {dialog === 'suspend' && (
        <Suspend user={{ id: report.reportedId, handle: reported!.handle }} suspended={suspension !== null} inPlace onClose={close} />
      )}
      {(dialog === 'UPHELD' || dialog === 'DISMISSED') && (
        <Act
          title={dialog === 'UPHELD' ? m().upholdThis : m().dismissThis}
          hint={dialog === 'UPHELD' ? m().upholdHint : m().dismissHint}
          action={dialog === 'UPHELD' ? m().uphold : m().dismiss}
          note={{ label: m().decisionNote, hint: m().decisionNoteHint }}
          onSend={decide(dialog)}
          onClose={close}
        />
      )}
    </article>
  )
}

/** The reported post as it was reported, or the reported person. */
function Subject({ report: { reported, suspension, postId, post, text } }: { report: Report }) {
  const { language } = useStore(preferences)
  const person = reported ?? suspension
  return (
    <div class="quoted">
      <p class="by">
        {person && <Avatar person={person} />}
        <span class="who">
          {person ? (
            <>
              <b dir="auto">{person.name}</b> {reported ? <a href={`/@${reported.handle}`}>@{reported.handle}</a> : <span class="muted">@{person.handle}</span>}
            </>
          ) : (
            m().hiddenAccount
          )}
        </span>
        {suspension && <span class="tag">{suspension.until ? m().suspendedUntil(exact(suspension.until)) : m().suspended}</span>}
        {post?.hiddenByModerators && <span class="tag">{m().hidden}</span>}
      </p>
      {suspension?.reason && (
        <p class="muted" dir="auto">
          {m().toldWhy(suspension.reason)}
        </p>
      )}
      {postId === null && reported && (
        <>
          {reported.bio && (
            <p class="text" dir="auto">
              {reported.bio}
            </p>
          )}
          <p class="muted">{t.joined(new Date(reported.createdAt).toLocaleDateString(language, { year: 'numeric', month: 'long' }))}</p>
        </>
      )}
      {postId !== null && !post && <p class="muted">{m().postDeleted}</p>}
      {text && (
        <p class="text" dir="auto">
          {text}
        </p>
      )}
      {text === '' && <p class="muted">{m().repost}</p>}
      {post && post.text !== text && (
        <>
          <p class="muted">{m().changedSince}</p>
          <p class="text" dir="auto">
            {post.text}
          </p>
        </>
      )}
      {post && reported && post.visibility === 'PUBLIC' && !post.hiddenByModerators && (
        <a class="muted" href={`/post/${postId}`}>
          {m().openPost}
        </a>
      )}
    </div>
  )
}

/** What a reported post answered, what was answered to it, and its earlier versions. */
function Conversation({ report }: { report: Report }) {
  const [found, setFound] = useState<{ ancestors: Said[]; replies: Said[] } | null>()
  const { run, error } = useAction()
  const load = () => run(async () => setFound((await request(ReportedConversation, { id: report.id })).report))
  useEffect(() => void load(), [])
  const versions = usePages(async (after) => (await request(ReportedVersions, { id: report.id, after })).report?.versions ?? null, [])
  if (error || (versions.error && !versions.loaded)) {
    return (
      <Failure
        message={error || versions.error}
        onRetry={() => {
          if (error) void load()
          if (versions.error) versions.retry()
        }}
      />
    )
  }
  if (found === undefined || !versions.loaded) return <Skeleton lines={1} />
  const { ancestors, replies } = found ?? { ancestors: [], replies: [] }
  return (
    <div class="conversation">
      {ancestors.length > 0 && (
        <section aria-label={m().before}>
          <h2>{m().before}</h2>
          {ancestors.map((post) => (
            <Post post={post} key={post.id} />
          ))}
        </section>
      )}
      {report.text && (
        <section aria-label={m().asReported}>
          <h2>{m().asReported}</h2>
          <p class="text reported" dir="auto">
            {report.text}
          </p>
        </section>
      )}
      {versions.items.length > 0 && (
        <section aria-label={m().earlier}>
          <h2>{m().earlier}</h2>
          {versions.items.map(({ id, text, createdAt }) => (
            <div class="said" key={id}>
              <p class="muted">
                <Time at={createdAt} />
              </p>
              <p class="text" dir="auto">
                {text}
              </p>
            </div>
          ))}
          {versions.error ? <Failure message={versions.error} onRetry={versions.retry} /> : versions.next && <More busy={versions.busy} onMore={versions.more} />}
        </section>
      )}
      {replies.length > 0 && (
        <section aria-label={m().answers}>
          <h2>{m().answers}</h2>
          {replies.map((post) => (
            <Post post={post} key={post.id} />
          ))}
        </section>
      )}
      {ancestors.length + replies.length === 0 && <p class="muted">{m().alone}</p>}
    </div>
  )
}

function Post({ post: { author, text, createdAt, editedAt, visibility, hiddenByModerators } }: { post: Said }) {
  return (
    <div class="said">
      <p class="by">
        {author ? <a href={`/@${author.handle}`}>@{author.handle}</a> : <span class="muted">{m().hiddenAccount}</span>}
        <span class="muted when">
          {hiddenByModerators && `${m().hidden} · `}
          {visibility !== 'PUBLIC' && `${t.visibility[visibility]} · `}
          {editedAt && `${t.edited} · `}
          <Time at={createdAt} />
        </span>
      </p>
      <p class="text" dir="auto">
        {text}
      </p>
    </div>
  )
}
