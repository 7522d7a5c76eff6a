// The sign-up and log-in forms.
import { useState } from 'preact/hooks'

import { bareHandle, handleIn, maxHandle } from './account'
import { request } from './api'
import { LogIn, SignUp } from './documents'
import { draftOf } from './draft'
import { Field, Form, Password } from './form'
import { LanguageChoice, notify } from './parts'
import { preferences, t } from './preferences'
import { begin, ended, type Ended } from './session'
import { useStore } from './store'

/** Says that the session has ended, or what becomes of a deleted account. */
export function WhyEnded({ why: { handle, deleted } }: { why: Ended }) {
  const { language } = useStore(preferences)
  const when = deleted?.until && new Date(deleted.until).toLocaleString(language, { dateStyle: 'long', timeStyle: 'short' })
  const lines = deleted ? [t.accountDeleted, when && t.restorableUntil(when)] : [t.sessionEnded, draftOf(handle).state.text && t.draftKept]
  return (
    <p class="note" role="status">
      {lines.filter(Boolean).join(t.space)}
    </p>
  )
}

/** joins: begins with the sign-up form. */
export function Welcome({ joins }: { joins: boolean }) {
  const why = useStore(ended)
  const [joining, setJoining] = useState(joins)

  const send = async (values: FormData) => {
    const who = { handle: handleIn(values), password: String(values.get('password')) }
    if (joining) return begin((await request(SignUp, { input: { ...who, name: String(values.get('name')).trim() || null } })).signUp)
    const { restored, ...session } = (await request(LogIn, { input: who })).logIn
    begin(session)
    if (restored) notify(t.restored, { label: t.close, run: () => {} })
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
        <p>
          <a class="link" href="/public">
            {t.readPublic}
          </a>
        </p>
      </div>
      <div class="panel stack">
        <h1 id="welcome">{joining ? t.signUp : t.logIn}</h1>
        {why && <WhyEnded why={why} />}
        <Form
          labelledBy="welcome"
          key={String(joining)}
          onSend={send}
          // Only the password can be wrong: the server does not tell which handles exist.
          fieldOf={({ reason, field }) => (reason === 'WRONG_CREDENTIALS' ? 'password' : field)}
          submit={joining ? t.signUp : t.logIn}
          wide
        >
          <Field
            name="handle"
            label={t.handle}
            hint={joining && t.handleHint}
            required
            maxLength={joining ? maxHandle : undefined}
            bare={bareHandle}
            autocomplete="username"
            autocapitalize="none"
            spellcheck={false}
            defaultValue={why?.handle ?? ''}
          />
          {joining && <Field name="name" label={t.displayName} maxLength={50} autocomplete="name" />}
          <Password name="password" label={t.password} hint={joining && t.passwordHint} autocomplete={joining ? 'new-password' : 'current-password'} />
        </Form>
        <div class="row">
          <button type="button" class="link" onClick={() => setJoining(!joining)}>
            {joining ? t.haveAccount : t.amNew}
          </button>
          <LanguageChoice />
        </div>
      </div>
    </div>
  )
}
