// The audit log.
import { useState } from 'preact/hooks'

import { request } from '../api'
import type { Role } from '../documents'
import { usePages } from '../pages'
import { Empty, exact, Failure, More, Skeleton, Time } from '../parts'
import { HidePost, Suspend } from './acts'
import { AuditLog, type AuditEntry } from './documents'
import { m } from './texts'

export function Log() {
  const list = usePages<AuditEntry>(async (after) => (await request(AuditLog, { after })).auditLog, [])
  return (
    <>
      <ol class="log" aria-label={m().pages.log}>
        {list.items.map((entry) => (
          <Entry entry={entry} onChanged={() => void list.refresh()} key={entry.id} />
        ))}
      </ol>
      {!list.loaded && !list.error && <Skeleton />}
      {list.loaded && list.items.length === 0 && <Empty title={m().noEntries} />}
      {list.error && <Failure message={list.error} onRetry={list.retry} />}
      {list.next && !list.error && <More busy={list.busy} onMore={list.more} />}
    </>
  )
}

const ofUsers = ['SET_ROLE', 'SUSPEND_USER', 'UNSUSPEND_USER', 'HIDE_POST', 'UNHIDE_POST', 'DECIDE_REPORT']

const at = (handle: string) => <a href={`/@${handle}`}>@{handle}</a>

/** The note, with the words that the server adds to it in the reader's language. */
function noteOf({ action, note }: AuditEntry): string {
  switch (action) {
    case 'DECIDE_REPORT':
      return note.replace(/^(UPHELD|DISMISSED)(?=$|:)/, (decision) => m().decisions[decision as 'UPHELD' | 'DISMISSED'])
    case 'SET_ROLE':
      return note.replace(/^([A-Z]+) -> ([A-Z]+)/, (_, from: Role, to: Role) => `${m().roles[from]} → ${m().roles[to]}`)
    case 'SUSPEND_USER':
      return note.replace(/^Until: (\S+Z)$/m, (_, end: string) => m().until(exact(end))).replace(/^Told the user: /m, m().toldUser)
    default:
      return note
  }
}

function Entry({ entry, onChanged }: { entry: AuditEntry; onChanged: () => void }) {
  const { action, actorId, actorHandle, apiKeyId, subjectId, subjectHandle, createdAt } = entry
  const note = noteOf(entry)
  const [asking, setAsking] = useState(false)
  const close = () => {
    setAsking(false)
    onChanged()
  }
  const undoes = action === 'HIDE_POST' ? m().unhidePost : action === 'SUSPEND_USER' && subjectHandle ? m().unsuspend : ''
  return (
    <li>
      <p class="by">
        <span>
          <b>{actorHandle ? at(actorHandle) : actorId ? m().noLonger : m().commandLine}</b> {m().actions[action]}{' '}
          {subjectHandle ? at(subjectHandle) : ofUsers.includes(action) ? m().noLonger : subjectId}
          {apiKeyId && <span class="muted"> {m().withKey(apiKeyId)}</span>}
        </span>
        <span class="muted when">
          <Time at={createdAt} />
        </span>
      </p>
      {note && (
        <p class="text" dir="auto">
          {note}
        </p>
      )}
      {undoes && (
        <button class="link" onClick={() => setAsking(true)}>
          {undoes}
        </button>
      )}
      {asking && action === 'HIDE_POST' && <HidePost postId={subjectId} hidden inPlace onClose={close} />}
      {asking && action === 'SUSPEND_USER' && <Suspend user={{ id: subjectId, handle: subjectHandle! }} suspended inPlace onClose={close} />}
    </li>
  )
}
