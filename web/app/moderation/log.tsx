// The audit log.
import { useState } from 'preact/hooks'

import { request } from '../api'
import { usePages } from '../pages'
import { ListEnd, Time, exact } from '../parts'
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
      <ListEnd list={list} empty={m().noEntries} />
    </>
  )
}

const at = (handle: string) => <a href={`/@${handle}`}>@{handle}</a>

/** What the entry says of the action itself, in the reader's language. */
function detailsOf({ roleBefore, roleAfter, decision, reason, until, imported }: AuditEntry): string[] {
  const parts: string[] = []
  if (roleBefore && roleAfter) parts.push(`${m().roles[roleBefore]} → ${m().roles[roleAfter]}`)
  if (decision) parts.push(m().decisions[decision])
  if (until) parts.push(m().until(exact(until)))
  if (reason) parts.push(m().toldUser(reason))
  if (imported) parts.push(m().imported)
  return parts
}

function Entry({ entry, onChanged }: { entry: AuditEntry; onChanged: () => void }) {
  const { action, actorId, actorHandle, apiKeyId, subjectId, subjectHandle, processId, jobCount, jobIds, note, createdAt } = entry
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
          {subjectHandle ? at(subjectHandle) : processId ? m().process(processId) : jobIds ? m().jobs(jobCount!, jobIds.join(' ') + (jobCount! > jobIds.length ? ' …' : '')) : m().noLonger}
          {apiKeyId && <span class="muted"> {m().withKey(apiKeyId)}</span>}
        </span>
        <span class="muted when">
          <Time at={createdAt} />
        </span>
      </p>
      {detailsOf(entry).map((text) => (
        <p class="text" dir="auto" key={text}>
          {text}
        </p>
      ))}
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
