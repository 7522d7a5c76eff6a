// The sessions section of the settings: where the user is logged in.
import { useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { EndSession, LogOut, LogOutEverywhere, Sessions as SessionsQuery, type OpenSession, type Session } from './documents'
import { deviceIn } from './device'
import { discard } from './draft'
import { usePages } from './pages'
import { Confirm, ListEnd, notify } from './parts'
import { preferences, t } from './preferences'
import type { ApiError } from './refusal'
import { end } from './session'
import { useStore } from './store'

/** What the server stores as the user agent of an export. */
const exportAgent = 'export of the account'

function nameOf({ userAgent }: OpenSession): string {
  if (!userAgent) return t.unknownDevice
  if (userAgent === exportAgent) return t.exportSession
  const { browser, system } = deviceIn(userAgent)
  // Programs name themselves at the beginning.
  return browser || system ? t.deviceOf(browser, system) : userAgent.split(' ')[0]!
}

/** Ends the session, in this browser even if the server cannot be reached. */
export async function logOut(session: Session) {
  const told = request(LogOut, {}).catch(() => null)
  discard(session.user.handle)
  // Does not wait: the answers to other requests would say that the session has expired.
  end()
  await told
}

/** Ends a session of the viewer. It may have ended already. */
const endSession = ({ id }: OpenSession) =>
  request(EndSession, { input: { sessionId: id } }).catch((error: ApiError) => {
    if (error.refusal.reason !== 'NO_SUCH_SESSION') throw error
  })

export function Sessions({ session }: { session: Session }) {
  const list = usePages<OpenSession>(async (after) => (await request(SessionsQuery, { after })).viewer?.sessions ?? null, [])
  const [asking, setAsking] = useState<'elsewhere' | 'everywhere'>()
  const { run, busy } = useAction(notify)
  const ended = (session: OpenSession) => list.change((all) => all.filter(({ id }) => id !== session.id))
  const others = list.items.some(({ current }) => current) ? list.items.filter(({ current }) => !current) : []
  const elsewhere = () => {
    setAsking(undefined)
    return run(async () => {
      for (const other of others) {
        await endSession(other)
        ended(other)
      }
      notify(t.loggedOutElsewhere)
    })
  }
  const everywhere = () => {
    setAsking(undefined)
    return run(async () => {
      await request(LogOutEverywhere, {})
      discard(session.user.handle)
      end()
    })
  }
  return (
    <>
      {list.items.length > 0 && (
        <ul class="rows" aria-label={t.sections.sessions}>
          {list.items.map((open) => (
            <Row open={open} session={session} onEnded={() => ended(open)} key={open.id} />
          ))}
        </ul>
      )}
      <ListEnd list={list} lines={2} />
      {list.loaded && !list.next && others.length > 0 && (
        <section class="panel row">
          <p class="grow muted">{t.logOutElsewhereHint}</p>
          <button class="quiet" aria-disabled={busy} onClick={() => !busy && setAsking('elsewhere')}>
            {t.logOutElsewhere}
          </button>
        </section>
      )}
      {list.loaded && !list.next && (
        <section class="panel row">
          <p class="grow muted">{t.logOutEverywhereHint}</p>
          <button class="quiet" aria-disabled={busy} onClick={() => !busy && setAsking('everywhere')}>
            {t.logOutEverywhere}
          </button>
        </section>
      )}
      {asking === 'elsewhere' && (
        <Confirm title={`${t.logOutElsewhere}?`} hint={t.logOutElsewhereHint} action={t.logOutElsewhere} onYes={elsewhere} onNo={() => setAsking(undefined)} />
      )}
      {asking === 'everywhere' && (
        <Confirm title={`${t.logOutEverywhere}?`} hint={t.logOutEverywhereHint} action={t.logOutEverywhere} onYes={everywhere} onNo={() => setAsking(undefined)} />
      )}
    </>
  )
}

function Row({ open, session, onEnded }: { open: OpenSession; session: Session; onEnded: () => void }) {
  const { language } = useStore(preferences)
  const { run, busy } = useAction(notify)
  const device = nameOf(open)
  const when = (at: string) => new Date(at).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'short' })
  const finish = () =>
    open.current
      ? logOut(session)
      : run(async () => {
          await endSession(open)
          notify(t.loggedOutThere(device))
          onEnded()
          // The row had the focus and is gone.
          document.getElementById('content')?.focus({ preventScroll: true })
        })
  return (
    <li>
      <div class="grow">
        <b title={open.userAgent ?? undefined}>{device}</b> {open.current && <span class="tag">{t.thisSession}</span>}
        <p class="muted">{t.loggedInAt(when(open.createdAt))}</p>
        <p class="muted">{t.sessionEnds(new Date(open.expiresAt).toLocaleDateString(language, { dateStyle: 'medium' }))}</p>
      </div>
      <button class="quiet" aria-disabled={busy} aria-label={t.logOutOn(device, when(open.createdAt))} onClick={finish}>
        {t.logOutThere}
      </button>
    </li>
  )
}
