// Gives and takes roles.
import { useEffect, useState } from 'preact/hooks'

import { handleIn, maxHandle } from '../account'
import { useAction } from '../action'
import { request } from '../api'
import type { Role } from '../documents'
import { learnViewer } from '../duties'
import { Area, Field, Form, Group } from '../form'
import { Avatar, Dialog, Failure, notify, Skeleton } from '../parts'
import { t } from '../preferences'
import { ApiError } from '../refusal'
import { session } from '../session'
import { maxNote } from './acts'
import { RoleOf, SetRole } from './documents'
import { m } from './texts'

type User = { id: string; handle: string; name: string; avatarUrl: string | null; role: Role | null }

const roles = ['USER', 'MODERATOR', 'ADMIN'] as const satisfies Role[]

async function find(handle: string): Promise<User> {
  const { user } = await request(RoleOf, { handle })
  if (!user) throw new ApiError(t.nobody(handle), { field: 'handle' })
  return user
}

export function Roles() {
  const [user, setUser] = useState<User>()
  return (
    <>
      <section class="panel">
        <Form
          label={m().find}
          onSend={async (values) => setUser(await find(handleIn(values)))}
          submit={m().find}
        >
          <p class="muted">{m().rolesHint}</p>
          <Field name="handle" label={t.handle} required maxLength={maxHandle} autocapitalize="none" autocomplete="off" spellcheck={false} />
        </Form>
      </section>
      {user && (
        <section class="panel" key={user.id}>
          <RoleForm user={user} />
        </section>
      )}
    </>
  )
}

/** The dialog for the role of one person. */
export function GiveRole({ handle, onClose }: { handle: string; onClose: () => void }) {
  const [user, setUser] = useState<User>()
  const { run, error } = useAction()
  const load = () => run(async () => setUser(await find(handle)))
  useEffect(() => void load(), [])
  return (
    <Dialog label={m().roleOf(handle)} onClose={onClose}>
      {user ? <RoleForm user={user} onClose={onClose} /> : error ? <Failure message={error} onRetry={load} /> : <Skeleton lines={1} />}
    </Dialog>
  )
}

function RoleForm({ user, onClose }: { user: User; onClose?: () => void }) {
  const send = async (values: FormData) => {
    const input = { userId: user.id, role: values.get('role') as Role, note: String(values.get('note')) }
    const { role } = (await request(SetRole, { input })).setRole
    notify(m().roleGiven(user.handle, m().roles[role]))
    const viewer = session.state?.user
    if (user.id === viewer?.id) void learnViewer({ ...viewer, role })
    onClose?.()
  }
  return (
    <Form
      label={m().roleOf(user.handle)}
      onSend={send}
      submit={t.save}
      onCancel={onClose}
    >
      <h2 class="person-of-role">
        <Avatar person={user} />
        <span>{m().roleOf(user.handle)}</span>
      </h2>
      {user.id === session.state?.user.id && <p class="note">{m().ownRole}</p>}
      <Group name="role" label={m().role} choice>
        {roles.map((role) => (
          <label class="option" key={role}>
            <input type="radio" name="role" value={role} required defaultChecked={role === user.role} />
            <span>
              {m().roles[role]} <span class="muted">{m().roleHints[role]}</span>
            </span>
          </label>
        ))}
      </Group>
      <Area name="note" label={m().note} hint={m().noteHint} rows={2} maxLength={maxNote} />
    </Form>
  )
}
