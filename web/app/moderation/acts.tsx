// The dialogs with which moderators act. They keep what was typed until the server has accepted it.
import { useId } from 'preact/hooks'

import { request } from '../api'
import { tell } from '../changes'
import { Area, Form } from '../form'
import { Dialog, notify } from '../parts'
import { HidePost as Hide, SuspendUser, UnhidePost, UnsuspendUser } from './documents'
import { m } from './texts'

/** The server's maximum length of a note and of a reason, in characters. */
export const maxNote = 1000

type ActProps = {
  title: string
  hint: string
  /** The text of the button. */
  action: string
  grave?: boolean
  /** The user is told a reason and an end. */
  reasoned?: boolean
  note?: { label: string; hint: string }
  /** days: after how many days the action ends by itself; 0: only a moderator ends it. */
  onSend: (note: string, reason: string, days: number) => Promise<void>
  onClose: () => void
}

/** A dialog that asks for a note before an action. */
export function Act({ title, hint, action, grave, reasoned, note = { label: m().note, hint: m().noteHint }, onSend, onClose }: ActProps) {
  const send = async (values: FormData) => {
    await onSend(String(values.get('note')), String(values.get('reason') ?? ''), Number(values.get('days')))
    onClose()
  }
  return (
    <Dialog label={title} onClose={onClose}>
      <div
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) event.currentTarget.querySelector('form')!.requestSubmit()
        }}
      >
        <Form
          label={title}
          onSend={send}
          submit={action}
          grave={grave}
          title={m().sendKey}
          onCancel={onClose}
        >
          <h2>{title}</h2>
          <p class="muted">{hint}</p>
          {reasoned && <Area name="reason" label={m().reason} hint={m().reasonHint} rows={2} maxLength={maxNote} />}
          {reasoned && <Ends />}
          <Area name="note" label={note.label} hint={note.hint} rows={2} maxLength={maxNote} />
        </Form>
      </div>
    </Dialog>
  )
}

/** The choice of when a suspension ends. */
function Ends() {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{m().ends}</label>
      <select id={id} name="days">
        <option value="0">{m().endsByModerator}</option>
        {[1, 3, 7, 30, 90].map((days) => (
          <option key={days} value={days}>
            {m().endsAfter(days)}
          </option>
        ))}
      </select>
    </div>
  )
}

type PostProps = {
  postId: string
  /** The post is hidden, and is shown again. */
  hidden?: boolean
  /** The page shows the change. Otherwise the post leaves the page, and a notice offers to undo that. */
  inPlace?: boolean
  onClose: () => void
}

/** Hides a post, or shows it again. */
export function HidePost({ postId, hidden, inPlace, onClose }: PostProps) {
  const undo = () =>
    request(UnhidePost, { input: { postId } }).then(
      () => (tell({ what: 'much' }), notify(m().postShown)),
      (e: Error) => notify(e.message),
    )
  const send = async (note: string) => {
    const input = { postId, note }
    const { changed } = hidden ? (await request(UnhidePost, { input })).unhidePost : (await request(Hide, { input })).hidePost
    if (!inPlace) tell({ what: 'gone', postId })
    if (!changed) notify(m().doneAlready)
    else if (!inPlace) notify(m().postHidden, { label: m().undo, run: undo })
  }
  return hidden ? (
    <Act title={m().unhideThis} hint={m().unhideHint} action={m().unhidePost} onSend={send} onClose={onClose} />
  ) : (
    <Act title={m().hideThis} hint={m().hideHint} action={m().hidePost} grave onSend={send} onClose={onClose} />
  )
}

type UserProps = {
  user: { id: string; handle: string }
  /** The user is suspended, and no longer will be. */
  suspended?: boolean
  /** The page shows the change. Otherwise a notice offers to undo it. */
  inPlace?: boolean
  onClose: () => void
}

/** Suspends a user, or ends the suspension. */
export function Suspend({ user: { id, handle }, suspended, inPlace, onClose }: UserProps) {
  const undo = () =>
    request(UnsuspendUser, { input: { userId: id } }).then(
      () => (tell({ what: 'much' }), notify(m().userShown(handle))),
      (e: Error) => notify(e.message),
    )
  const send = async (note: string, reason: string, days: number) => {
    const until = days ? new Date(Date.now() + days * 24 * 60 * 60 * 1000).toISOString() : null
    const { changed } = suspended
      ? (await request(UnsuspendUser, { input: { userId: id, note } })).unsuspendUser
      : (await request(SuspendUser, { input: { userId: id, note, reason, until } })).suspendUser
    if (!inPlace) tell({ what: 'much' })
    if (!changed) notify(m().doneAlready)
    else if (!inPlace) notify(m().userSuspended(handle), { label: m().undo, run: undo })
  }
  return suspended ? (
    <Act title={m().unsuspendThis(handle)} hint={m().unsuspendHint} action={m().unsuspend} onSend={send} onClose={onClose} />
  ) : (
    <Act title={m().suspendThis(handle)} hint={m().suspendHint} action={m().suspend} grave reasoned onSend={send} onClose={onClose} />
  )
}
