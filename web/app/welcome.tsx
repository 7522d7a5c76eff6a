// The sign-up and log-in forms.
import { useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { LogIn, SignUp } from './documents'
import { draftOf } from './draft'
import { t } from './preferences'
import { begin, ended } from './session'
import { LanguageChoice } from './settings'
import { useStore } from './store'

export function Welcome() {
  const handle = useStore(ended)
  const [joining, setJoining] = useState(handle === null)
  const { run, busy, error } = useAction()

  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    const field = (name: string) => String(form.get(name) ?? '')
    const who = { handle: field('handle').trim(), password: field('password') }
    run(async () => {
      begin(
        joining
          ? (await request(SignUp, { input: { ...who, name: field('name').trim() || null } })).signUp
          : (await request(LogIn, { input: who })).logIn,
      )
    })
  }

  return (
    <div class="welcome">
      <div class="pitch">
        <p class="wordmark" aria-hidden="true">
          Tideline
        </p>
        <p class="title">{t.tagline}</p>
        <p>{t.pitch}</p>
        <ul>
          <li>{t.pitchLive}</li>
          <li>{t.pitchPlace}</li>
          <li>{t.pitchAudience}</li>
        </ul>
      </div>
      <form class="panel stack" onSubmit={submit} aria-labelledby="welcome">
        <h1 id="welcome">{joining ? t.signUp : t.logIn}</h1>
        {handle !== null && (
          <p class="note" role="alert">
            {t.sessionEnded} {draftOf(handle).state.text && t.draftKept}
          </p>
        )}
        <label>
          {t.handle}
          <input
            name="handle"
            required
            maxLength={31}
            autocomplete="username"
            autocapitalize="none"
            spellcheck={false}
            defaultValue={handle ?? ''}
            aria-describedby={joining ? 'handle-hint' : undefined}
          />
        </label>
        {joining && (
          <small class="muted" id="handle-hint">
            {t.handleHint}
          </small>
        )}
        {joining && (
          <label>
            {t.displayName}
            <input name="name" maxLength={50} autocomplete="name" />
          </label>
        )}
        <label>
          {t.password}
          <input
            name="password"
            type="password"
            required
            autocomplete={joining ? 'new-password' : 'current-password'}
            aria-describedby={joining ? 'password-hint' : undefined}
          />
        </label>
        {joining && (
          <small class="muted" id="password-hint">
            {t.passwordHint}
          </small>
        )}
        {error && (
          <p class="wrong" role="alert">
            {error}
          </p>
        )}
        <button disabled={busy}>{joining ? t.signUp : t.logIn}</button>
        <div class="row">
          <button type="button" class="link" onClick={() => setJoining(!joining)}>
            {joining ? t.haveAccount : t.amNew}
          </button>
          <LanguageChoice />
        </div>
      </form>
    </div>
  )
}
