// Reports a post or a person to the moderators.
import { useAction } from './action'
import { request } from './api'
import { ReportPost, ReportUser } from './documents'
import { Dialog, notify } from './parts'
import { t } from './preferences'

const reasons = ['SPAM', 'HARASSMENT', 'VIOLENCE', 'SEXUAL', 'ILLEGAL', 'IMPERSONATION', 'OTHER'] as const

/** The server's maximum length of a comment, in characters. */
const maxComment = 1000

type Props = { title: string; onClose: () => void } & ({ postId: string } | { userId: string })

export function Report({ title, onClose, ...of }: Props) {
  const { run, busy, error } = useAction()
  const send = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    const said = { reason: form.get('reason') as (typeof reasons)[number], comment: String(form.get('comment')) }
    run(async () => {
      if ('postId' in of) await request(ReportPost, { input: { postId: of.postId, ...said } })
      else await request(ReportUser, { input: { userId: of.userId, ...said } })
      notify(t.reportSent)
      onClose()
    })
  }
  return (
    <Dialog label={title} onClose={onClose}>
      <form class="stack" onSubmit={send}>
        <h2>{title}</h2>
        <fieldset>
          <legend>{t.reportReason}</legend>
          {reasons.map((reason) => (
            <label class="option" key={reason}>
              <input type="radio" name="reason" value={reason} required />
              <span>{t.reportReasons[reason]}</span>
            </label>
          ))}
        </fieldset>
        <label>
          {t.reportComment}
          <textarea name="comment" rows={3} maxLength={maxComment} />
        </label>
        <p class="muted">{t.reportHint}</p>
        {error && (
          <p class="wrong" role="alert">
            {error}
          </p>
        )}
        <div class="row end">
          <button type="button" class="quiet" onClick={onClose}>
            {t.cancel}
          </button>
          <button disabled={busy}>{t.report}</button>
        </div>
      </form>
    </Dialog>
  )
}
