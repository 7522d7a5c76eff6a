// The frame of the admin page: the log-in form and, with a session, all panels.
import { useEffect, useState } from 'preact/hooks'

import { useAction } from '../app/action'
import { LanguageChoice, Notices } from '../app/parts'
import { preferences } from '../app/preferences'
import { useStore } from '../app/store'
import { begin, call, end, ended, follow, session, snapshot, status, type Session } from './api'
import { Glance, GivenUp, Live, Processes, Queue, Stores } from './panels'
import { PostLook, TimelineLook } from './looks'
import { w } from './texts'

export function Admin() {
  useStore(preferences)
  const who = useStore(session)
  useEffect(() => {
    document.title = `${w().title} · Tideline`
  })
  return (
    <>
      {who ? <Desk session={who} key={who.token} /> : <LogIn />}
      <Notices />
    </>
  )
}

function LogIn() {
  const why = useStore(ended)
  const [byToken, setByToken] = useState(false)
  const { run, busy, error } = useAction()
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    const field = (name: string) => String(form.get(name) ?? '').trim()
    run(async () => {
      if (byToken) {
        const token = field('token')
        const { handle } = await call<{ handle: string }>('GET', '/api/session', undefined, token)
        begin({ token, handle })
      } else begin(await call<Session>('POST', '/api/session', { handle: field('handle'), password: String(form.get('password')) }, undefined))
    })
  }
  return (
    <main class="gate">
      <form class="panel stack" onSubmit={submit} aria-labelledby="gate">
        <p class="brand" aria-hidden="true">
          <span class="mark" />
          Tideline
        </p>
        <h1 id="gate">{w().title}</h1>
        <p class="muted">
          {w().pitch} {w().onlyAdmins}
        </p>
        {byToken ? (
          <label>
            {w().token}
            <input name="token" type="password" required autocomplete="off" key="token" />
          </label>
        ) : (
          <>
            <label>
              {w().handle}
              <input name="handle" required maxLength={31} autocomplete="username" autocapitalize="none" spellcheck={false} />
            </label>
            <label>
              {w().password}
              <input name="password" type="password" required autocomplete="current-password" key="password" />
            </label>
          </>
        )}
        {(error || why) && (
          <p class="wrong" role="alert">
            {error || why}
          </p>
        )}
        <button disabled={busy}>{w().logIn}</button>
        <div class="row">
          <button type="button" class="link" onClick={() => setByToken(!byToken)}>
            {byToken ? w().usePassword : w().useToken}
          </button>
          <LanguageChoice />
        </div>
      </form>
    </main>
  )
}

async function logOut() {
  const told = call('DELETE', '/api/session').catch(() => null)
  // Ends the session in this browser even if the server cannot be reached.
  end()
  await told
}

function Desk({ session: { token, handle } }: { session: Session }) {
  useEffect(() => follow(token), [token])
  const now = useStore(snapshot)
  const state = useStore(status)
  return (
    <>
      <header class="bar">
        <p class="brand">
          <span class="mark" aria-hidden="true" />
          Tideline
          <span class="tag">{w().title}</span>
        </p>
        <span class="sign" data-status={state} role="status">
          {w()[state]}
        </span>
        <div class="row">
          <span class="muted">@{handle}</span>
          <LanguageChoice />
          <button class="quiet" onClick={logOut}>
            {w().logOut}
          </button>
        </div>
      </header>
      <main class="desk" tabIndex={-1}>
        <h1 class="hidden">{w().title}</h1>
        {now ? (
          <>
            {now.failed.length > 0 && (
              <p class="note" role="alert">
                {w().lacks(now.failed.join(', '))}
              </p>
            )}
            <Glance now={now} />
            <Processes now={now} />
            <Queue now={now} />
            <GivenUp now={now} />
            <Stores now={now} />
            <Live now={now} />
          </>
        ) : (
          <p class="panel" aria-busy="true">
            {w().loading}
          </p>
        )}
        <PostLook />
        <TimelineLook />
      </main>
    </>
  )
}
