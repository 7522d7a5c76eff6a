// The account section of the settings: handle, password, export and deletion.
import { useRef, useState } from 'preact/hooks'

import { request } from './api'
import { tell } from './changes'
import { ChangeHandle, ChangePassword, DeleteAccount, ExportAccount, type Session } from './documents'
import { discard, move } from './draft'
import { Field, Form, Password } from './form'
import { Dialog, notify } from './parts'
import { t } from './preferences'
import { ApiError } from './refusal'
import { begin, end } from './session'

/** The maximum length of a handle. */
export const maxHandle = 30

/** A handle as typed, without the @ before it. */
export const bareHandle = (text: string) => text.trim().replace(/^[@＠]/, '')

export const handleIn = (values: FormData) => bareHandle(String(values.get('handle')))

const passwordIn = (values: FormData, name = 'password') => String(values.get(name))

export function Account({ session }: { session: Session }) {
  return (
    <>
      <Handle session={session} />
      <NewPassword handle={session.user.handle} />
      <Export handle={session.user.handle} />
      <Deletion session={session} />
    </>
  )
}

function Handle({ session }: { session: Session }) {
  const { handle } = session.user
  const send = async (values: FormData) => {
    const { user } = (await request(ChangeHandle, { input: { handle: handleIn(values) } })).changeHandle
    move(handle, user.handle)
    begin({ ...session, user: { ...session.user, handle: user.handle } })
    tell({ what: 'relation', person: user })
    notify(t.handleChanged(user.handle))
  }
  return (
    <section class="panel">
      <h2 id="handle">{t.changeHandle}</h2>
      <Form labelledBy="handle" onSend={send} clears submit={t.changeHandle}>
        <p class="muted">{t.changeHandleHint}</p>
        <Field name="handle" label={t.handle} hint={t.handleHint} required maxLength={maxHandle} bare={bareHandle} autocomplete="username" autocapitalize="none" spellcheck={false} defaultValue={handle} />
      </Form>
    </section>
  )
}

function NewPassword({ handle }: { handle: string }) {
  const send = async (values: FormData) => {
    const input = { currentPassword: passwordIn(values, 'currentPassword'), newPassword: passwordIn(values, 'newPassword') }
    notify(t.passwordChanged((await request(ChangePassword, { input })).changePassword.endedSessions))
  }
  return (
    <section class="panel">
      <h2 id="password">{t.changePassword}</h2>
      <Form labelledBy="password" onSend={send} clears submit={t.changePassword}>
        <p class="muted">{t.changePasswordHint}</p>
        <Username handle={handle} />
        <Password name="currentPassword" label={t.currentPassword} autocomplete="current-password" />
        <Password name="newPassword" label={t.newPassword} hint={t.passwordHint} autocomplete="new-password" />
      </Form>
    </section>
  )
}

/** Tells password managers whose password it is. */
const Username = ({ handle }: { handle: string }) => (
  <span class="hidden" aria-hidden="true">
    <input type="text" autocomplete="username" value={handle} readOnly tabIndex={-1} />
  </span>
)

/** A download. why: what went wrong. path: where to try again, unless the server refused the path. */
type Download = { state: 'running' | 'done'; bytes: number } | { state: 'failed'; why: string; path?: string }

/** Downloads a file, and tells how many bytes have arrived. */
async function download(path: string, signal: AbortSignal, arrived: (bytes: number) => void): Promise<Blob> {
  const response = await fetch(path, { signal })
  if (!response.ok) throw new ApiError(t.refusal((await response.json()).errors[0].extensions, t.exportFailed))
  let bytes = 0
  const counted = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(part, next) {
      arrived((bytes += part.length))
      next.enqueue(part)
    },
  })
  // A Response of its own, because the browser may move a large blob to disk.
  return new Response(response.body!.pipeThrough(counted)).blob()
}

/** Passes a file to the downloads of the browser. */
function save(file: Blob, name: string) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(file)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}

function Export({ handle }: { handle: string }) {
  const [current, setCurrent] = useState<Download | null>(null)
  const stop = useRef<AbortController>(undefined)
  const fetchFrom = async (path: string) => {
    const { signal } = (stop.current = new AbortController())
    setCurrent({ state: 'running', bytes: 0 })
    try {
      const file = await download(path, signal, (bytes) => setCurrent({ state: 'running', bytes }))
      save(file, `${handle}.ndjson`)
      setCurrent({ state: 'done', bytes: file.size })
    } catch (e) {
      setCurrent(e instanceof ApiError ? { state: 'failed', why: e.message } : { state: 'failed', why: signal.aborted ? t.exportStopped : t.exportFailed, path })
    }
  }
  const send = async (values: FormData) => {
    const { path } = (await request(ExportAccount, { input: { password: passwordIn(values) } })).exportAccount
    void fetchFrom(path)
  }
  return (
    <section class="panel">
      <h2 id="export">{t.exportAccount}</h2>
      <Form labelledBy="export" onSend={send} clears submit={current?.state === 'running' ? undefined : t.exportBegin}>
        <p class="muted">{t.exportHint}</p>
        <Username handle={handle} />
        <Password name="password" label={t.confirmPassword} autocomplete="current-password" />
      </Form>
      {current?.state === 'running' && (
        <div class="row download">
          <span>{t.exporting(current.bytes)}</span>
          <progress aria-label={t.exportAccount} />
          <button type="button" class="quiet" onClick={() => stop.current?.abort()}>
            {t.cancel}
          </button>
        </div>
      )}
      {/* Apart from the progress, which screen readers would read again and again. */}
      <div class="row download" role="status">
        {current?.state === 'done' && <span>{t.exported(current.bytes)}</span>}
        {current?.state === 'failed' && (
          <>
            <span class="wrong">{current.why}</span>
            {current.path && (
              <button type="button" class="quiet" onClick={() => fetchFrom(current.path!)}>
                {t.tryAgain}
              </button>
            )}
          </>
        )}
      </div>
    </section>
  )
}

function Deletion({ session }: { session: Session }) {
  const [asking, setAsking] = useState(false)
  const { handle } = session.user
  const send = async (values: FormData) => {
    const { restorableUntil } = (await request(DeleteAccount, { input: { password: passwordIn(values) } })).deleteAccount
    discard(handle)
    end({ handle, deleted: { until: restorableUntil } })
  }
  return (
    <section class="panel">
      <h2>{t.deleteAccount}</h2>
      <p class="muted">{t.deleteHint}</p>
      <div class="row end">
        <button class="grave" onClick={() => setAsking(true)}>
          {t.deleteAccount}
        </button>
      </div>
      {asking && (
        <Dialog label={t.deleteThis(handle)} onClose={() => setAsking(false)}>
          <Form
            onSend={send}
            label={t.deleteThis(handle)}
            submit={t.deleteAccount}
            grave
            onCancel={() => setAsking(false)}
          >
            <h2>{t.deleteThis(handle)}</h2>
            <p class="muted">{t.deleteHint}</p>
            <Username handle={handle} />
            <Password name="password" label={t.confirmPassword} autocomplete="current-password" />
          </Form>
        </Dialog>
      )}
    </section>
  )
}
