// The settings view: the settings that the server stores, and the preferences of this browser.
import { useEffect, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { LogOut, Settings as SettingsQuery, UpdateProfile, type HomeReplies, type Person, type Session, type Visibility } from './documents'
import { discard } from './draft'
import type { Page } from './pages'
import { Failure, notify, Skeleton } from './parts'
import { Kept } from './people'
import { visibilities } from './post'
import { languages, preferences, t, themes, type Preferences } from './preferences'
import { begin, end } from './session'
import { useStore } from './store'

type Account = {
  name: string
  bio: string
  avatarUrl: string | null
  links: string[]
  defaultVisibility: Visibility | null
  approvesFollowers: boolean
  homeReplies: HomeReplies | null
  blocked: Page<Person> | null
  muted: Page<Person> | null
}

type Limits = {
  nameLength: number
  bioLength: number
  avatarUrlLength: number
  avatarHosts: string[]
  links: number
  linkLength: number
}

export function Settings({ session }: { session: Session }) {
  const [account, setAccount] = useState<Account | null>(null)
  const [limits, setLimits] = useState<Limits>()
  const { run, error } = useAction()
  const load = () =>
    run(async () => {
      const found = await request(SettingsQuery, {})
      setLimits(found.limits)
      setAccount(found.viewer)
    })
  useEffect(() => void load(), [])
  return (
    <>
      <div class="head">
        <h1>{t.settings}</h1>
      </div>
      {account && limits ? <AccountForm account={account} limits={limits} session={session} /> : error ? <Failure message={error} onRetry={load} /> : <Skeleton />}
      {/* Drawn once the part above has its final height, so that nothing moves. */}
      {(account || error) && (
        <>
          <Device />
          {account?.blocked && <Kept what="blocked" first={account.blocked} label={t.blockedPeople} />}
          {account?.muted && <Kept what="muted" first={account.muted} label={t.mutedPeople} />}
          <section class="panel">
            <p class="muted">@{session.user.handle}</p>
            <button class="quiet" onClick={() => logOut(session)}>
              {t.logOut}
            </button>
          </section>
        </>
      )}
    </>
  )
}

/** Ends the session, in this browser even if the server cannot be reached. */
export async function logOut(session: Session) {
  const told = request(LogOut, {}).catch(() => null)
  discard(session.user.handle)
  // Does not wait: the answers to other requests would say that the session has expired.
  end()
  await told
}

const repliesAtHome = ['FOLLOWED', 'ALL', 'NONE'] as const satisfies HomeReplies[]

/** The values of the form's fields with this name, without empty ones. */
const written = (form: FormData, name: string) => form.getAll(name).map((value) => String(value).trim()).filter(Boolean)

function AccountForm({ account, limits, session }: { account: Account; limits: Limits; session: Session }) {
  const { run, busy, error } = useAction()
  const [fields, setFields] = useState(account.links.length + 1) // the number of link fields: the last one is empty
  const save = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    run(async () => {
      const { updateProfile } = await request(UpdateProfile, {
        input: {
          name: String(form.get('name')).trim(),
          bio: String(form.get('bio')),
          // Without the field, the stored avatar stays: its host may be one that is no longer shown.
          ...(form.has('avatar') && { avatarUrl: String(form.get('avatar')).trim() }),
          links: written(form, 'link'),
          defaultVisibility: form.get('visibility') as Visibility,
          approvesFollowers: form.has('approves'),
          homeReplies: form.get('replies') as HomeReplies,
        },
      })
      begin({ ...session, user: updateProfile.user })
      notify(t.saved)
    })
  }
  return (
    <form class="panel stack" onSubmit={save} aria-label={t.account}>
      <h2>{t.account}</h2>
      <label>
        {t.displayName}
        <input name="name" required maxLength={limits.nameLength} autocomplete="name" defaultValue={account.name} />
      </label>
      <label>
        {t.bio}
        <textarea name="bio" rows={3} maxLength={limits.bioLength} defaultValue={account.bio} />
      </label>
      {limits.avatarHosts.length > 0 && (
        <label>
          {t.picture}
          <input
            name="avatar"
            type="url"
            placeholder="https://"
            maxLength={limits.avatarUrlLength}
            defaultValue={account.avatarUrl ?? ''}
            aria-describedby={limits.avatarHosts.includes('*') ? undefined : 'picture-hosts'}
          />
          {!limits.avatarHosts.includes('*') && (
            <span class="muted" id="picture-hosts">
              {t.pictureHosts(limits.avatarHosts.join(', '))}
            </span>
          )}
        </label>
      )}
      <fieldset class="stack">
        <legend>{t.links}</legend>
        {Array.from({ length: Math.min(fields, limits.links) }, (_, i) => (
          <input
            key={i}
            name="link"
            type="url"
            placeholder="https://"
            aria-label={t.link(i + 1)}
            maxLength={limits.linkLength}
            defaultValue={account.links[i] ?? ''}
            onInput={() => setFields(Math.max(fields, i + 2))}
          />
        ))}
      </fieldset>
      <fieldset>
        <legend>{t.defaultVisibility}</legend>
        {visibilities.map((visibility) => (
          <label class="option" key={visibility}>
            <input type="radio" name="visibility" value={visibility} defaultChecked={visibility === (account.defaultVisibility ?? 'PUBLIC')} />
            <span>
              {t.visibility[visibility]} <span class="muted">{t.visibilityHint[visibility]}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <fieldset>
        <legend>{t.homeReplies}</legend>
        {repliesAtHome.map((choice) => (
          <label class="option" key={choice}>
            <input type="radio" name="replies" value={choice} defaultChecked={choice === (account.homeReplies ?? 'FOLLOWED')} />
            <span>
              {t.homeRepliesOf[choice]} <span class="muted">{t.homeRepliesHint[choice]}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <label class="option">
        <input type="checkbox" name="approves" defaultChecked={account.approvesFollowers} />
        <span>
          {t.approveFollowers} <span class="muted">{t.approveFollowersHint}</span>
        </span>
      </label>
      {error && (
        <p class="wrong" role="alert">
          {error}
        </p>
      )}
      <div class="row end">
        <button disabled={busy}>{t.save}</button>
      </div>
    </form>
  )
}

export function LanguageChoice() {
  const { language } = useStore(preferences)
  return (
    <select
      aria-label={t.languageLabel}
      value={language}
      onChange={(event) => preferences.patch({ language: event.currentTarget.value as Preferences['language'] })}
    >
      {Object.entries(languages).map(([code, texts]) => (
        <option value={code} key={code} lang={code}>
          {texts.language}
        </option>
      ))}
    </select>
  )
}

function Device() {
  const { theme, shortcuts } = useStore(preferences)
  return (
    <section class="panel stack" aria-label={t.device}>
      <h2>{t.device}</h2>
      <label class="line">
        {t.theme}
        <select value={theme} onChange={(event) => preferences.patch({ theme: event.currentTarget.value as Preferences['theme'] })}>
          {themes.map((name) => (
            <option value={name} key={name}>
              {t.themes[name]}
            </option>
          ))}
        </select>
      </label>
      <div class="line">
        <span aria-hidden="true">{t.languageLabel}</span>
        <LanguageChoice />
      </div>
      <label class="option">
        <input type="checkbox" checked={shortcuts} onChange={(event) => preferences.patch({ shortcuts: event.currentTarget.checked })} />
        <span>
          {t.shortcuts} <span class="muted">{t.shortcutsHint}</span>
        </span>
      </label>
    </section>
  )
}
