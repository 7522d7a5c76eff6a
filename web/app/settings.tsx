// The settings: a list of sections, the preferences of this browser, and the section for the profile.
import { useEffect, useRef, useState } from 'preact/hooks'

import { Account } from './account'
import { useAction } from './action'
import { request } from './api'
import { visibilities } from './audience'
import { Settings as SettingsQuery, UpdateProfile, type HomeReplies, type Session, type Visibility } from './documents'
import { Area, Field, Form, Group, Item } from './form'
import { Kept, Liked, Muting, Requested, Silenced } from './lists'
import { Failure, Icon, LanguageChoice, notify, Skeleton } from './parts'
import { preferences, t, themes, type Preferences } from './preferences'
import { Head } from './profile'
import { sections, type Section } from './route'
import { begin } from './session'
import { logOut, Sessions } from './sessions'
import { useStore } from './store'

export function Settings({ session, section }: { session: Session; section?: Section }) {
  if (section) {
    return (
      <>
        <Head title={t.sections[section]} up="/settings" />
        <SectionOf session={session} section={section} />
      </>
    )
  }
  return (
    <>
      <div class="head">
        <h1>{t.settings}</h1>
      </div>
      <nav aria-label={t.settings}>
        <ul class="rows">
          {sections.map((name) => (
            <li key={name}>
              <a class="grow" href={`/settings/${name}`}>
                <b>{t.sections[name]}</b> <span class="muted">{t.sectionHints[name]}</span>
              </a>
              <Icon name="next" />
            </li>
          ))}
        </ul>
      </nav>
      <Device />
      <section class="panel">
        <p class="muted">@{session.user.handle}</p>
        <button class="quiet" onClick={() => logOut(session)}>
          {t.logOut}
        </button>
      </section>
    </>
  )
}

function SectionOf({ session, section }: { session: Session; section: Section }) {
  switch (section) {
    case 'profile':
      return <Profile session={session} />
    case 'account':
      return <Account session={session} />
    case 'sessions':
      return <Sessions session={session} />
    case 'words':
      return <Muting />
    case 'conversations':
      return <Silenced />
    case 'requests':
      return <Requested />
    case 'likes':
      return <Liked />
    default:
      return <Kept what={section} key={section} />
  }
}

type Profile = {
  name: string
  bio: string
  avatarUrl: string | null
  links: string[]
  defaultVisibility: Visibility | null
  approvesFollowers: boolean
  homeReplies: HomeReplies | null
}

type Limits = {
  nameLength: number
  bioLength: number
  avatarUrlLength: number
  avatarHosts: string[]
  links: number
  linkLength: number
}

function Profile({ session }: { session: Session }) {
  const [profile, setProfile] = useState<Profile | null>(null)
  const [limits, setLimits] = useState<Limits>()
  const { run, error } = useAction()
  const load = () =>
    run(async () => {
      const found = await request(SettingsQuery, {})
      setLimits(found.limits)
      setProfile(found.viewer)
    })
  useEffect(() => void load(), [])
  return profile && limits ? <ProfileForm profile={profile} limits={limits} session={session} /> : error ? <Failure message={error} onRetry={load} /> : <Skeleton />
}

const repliesAtHome = ['FOLLOWED', 'ALL', 'NONE'] as const satisfies HomeReplies[]

/** The values of the form's fields with this name, without empty ones. */
const written = (form: FormData, name: string) => form.getAll(name).map((value) => String(value).trim()).filter(Boolean)

/** The names of the fields that differ from those of the API. */
const names: Record<string, string> = { avatarUrl: 'avatar', links: 'link' }

function ProfileForm({ profile, limits, session }: { profile: Profile; limits: Limits; session: Session }) {
  const [fields, setFields] = useState(profile.links.length + 1) // the number of link fields: the last one is empty
  const stored = useRef<Record<string, unknown>>({ ...profile, avatarUrl: profile.avatarUrl ?? '', defaultVisibility: profile.defaultVisibility ?? 'PUBLIC' })
  const save = async (form: FormData) => {
    const all = {
      name: String(form.get('name')).trim(),
      bio: String(form.get('bio')),
      // Without the field, the stored avatar stays: its host may be one that is no longer shown.
      ...(form.has('avatar') && { avatarUrl: String(form.get('avatar')).trim() }),
      links: written(form, 'link'),
      defaultVisibility: form.get('visibility') as Visibility,
      approvesFollowers: form.has('approves'),
      homeReplies: form.get('replies') as HomeReplies,
    }
    // What the viewer did not change here may have been changed on another device.
    const input: Partial<typeof all> = Object.fromEntries(Object.entries(all).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(stored.current[name])))
    const { updateProfile } = await request(UpdateProfile, { input })
    stored.current = { ...stored.current, ...input }
    begin({ ...session, user: updateProfile.user })
    notify(t.saved)
  }
  return (
    <Form
      class="panel stack"
      label={t.sections.profile}
      onSend={save}
      fieldOf={({ field = '' }) => names[field] ?? field}
      submit={t.save}
    >
      <Field name="name" label={t.displayName} required maxLength={limits.nameLength} autocomplete="name" defaultValue={profile.name} />
      <Area name="bio" label={t.bio} rows={3} maxLength={limits.bioLength} defaultValue={profile.bio} />
      {limits.avatarHosts.length > 0 && (
        <Field
          name="avatar"
          label={t.picture}
          hint={!limits.avatarHosts.includes('*') && t.pictureHosts(limits.avatarHosts.join(', '))}
          type="url"
          placeholder="https://"
          maxLength={limits.avatarUrlLength}
          defaultValue={profile.avatarUrl ?? ''}
        />
      )}
      <Group name="link" label={t.links} class="stack">
        {Array.from({ length: Math.min(fields, limits.links) }, (_, i) => (
          <Item
            key={i}
            name="link"
            label={t.link(i + 1)}
            type="url"
            placeholder="https://"
            maxLength={limits.linkLength}
            defaultValue={profile.links[i] ?? ''}
            onInput={() => setFields(Math.max(fields, i + 2))}
          />
        ))}
      </Group>
      <Group name="visibility" label={t.defaultVisibility} choice>
        {visibilities.map((visibility) => (
          <label class="option" key={visibility}>
            <input type="radio" name="visibility" value={visibility} defaultChecked={visibility === (profile.defaultVisibility ?? 'PUBLIC')} />
            <span>
              {t.visibility[visibility]} <span class="muted">{t.visibilityHint[visibility]}</span>
            </span>
          </label>
        ))}
      </Group>
      <Group name="replies" label={t.homeReplies} choice>
        {repliesAtHome.map((choice) => (
          <label class="option" key={choice}>
            <input type="radio" name="replies" value={choice} defaultChecked={choice === (profile.homeReplies ?? 'FOLLOWED')} />
            <span>
              {t.homeRepliesOf[choice]} <span class="muted">{t.homeRepliesHint[choice]}</span>
            </span>
          </label>
        ))}
      </Group>
      <label class="option">
        <input type="checkbox" name="approves" defaultChecked={profile.approvesFollowers} />
        <span>
          {t.approveFollowers} <span class="muted">{t.approveFollowersHint}</span>
        </span>
      </label>
    </Form>
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
