// Reports a post or a person to the moderators.
import { request } from './api'
import { ReportPost, ReportUser } from './documents'
import { Area, Form, Group } from './form'
import { Dialog, notify } from './parts'
import { t } from './preferences'

const reasons = ['SPAM', 'HARASSMENT', 'VIOLENCE', 'SEXUAL', 'ILLEGAL', 'IMPERSONATION', 'OTHER'] as const

/** The server's maximum length of a comment, in characters. */
const maxComment = 1000

type Props = { title: string; onClose: () => void } & ({ postId: string } | { userId: string })

export function Report({ title, onClose, ...of }: Props) {
  const send = async (values: FormData) => {
    const said = { reason: values.get('reason') as (typeof reasons)[number], comment: String(values.get('comment')) }
    if ('postId' in of) await request(ReportPost, { input: { postId: of.postId, ...said } })
    else await request(ReportUser, { input: { userId: of.userId, ...said } })
    notify(t.reportSent)
    onClose()
  }
  return (
    <Dialog label={title} onClose={onClose}>
      <Form
        onSend={send}
        label={title}
        submit={t.report}
        onCancel={onClose}
      >
        <h2>{title}</h2>
        <Group name="reason" label={t.reportReason} choice>
          {reasons.map((reason) => (
            <label class="option" key={reason}>
              <input type="radio" name="reason" value={reason} required />
              <span>{t.reportReasons[reason]}</span>
            </label>
          ))}
        </Group>
        <Area name="comment" label={t.reportComment} rows={3} maxLength={maxComment} />
        <p class="muted">{t.reportHint}</p>
      </Form>
    </Dialog>
  )
}
