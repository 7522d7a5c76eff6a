// The session of this browser.
import type { Session } from './documents'
import { Store } from './store'

const storageKey = 'tideline:session'
const read = (): Session | null => JSON.parse(localStorage.getItem(storageKey) ?? 'null')

/** The session, the same in every tab. It survives a reload. */
export const session = new Store<Session | null>(read())

type User = Session['user'] | undefined

/** Whether the viewer may hide posts, suspend users and decide reports. */
export const moderates = (user: User) => user?.role === 'MODERATOR' || administers(user)

/** Whether the viewer may also give roles and read the audit log. */
export const administers = (user: User) => user?.role === 'ADMIN'

/** How a session ended without a log-out in this tab. */
export type Ended = {
  handle: string
  /** The user deleted the account. A log-in restores it until this time; null if the deletion has begun. */
  deleted?: { until: string | null }
}

/** null while a session lasts, and after a log-out. */
export const ended = new Store<Ended | null>(null)

addEventListener('storage', (event) => {
  if (event.key !== storageKey) return
  const now = read()
  ended.set(now || !session.state ? null : { handle: session.state.user.handle })
  session.set(now)
})

export function begin(value: Session) {
  localStorage.setItem(storageKey, JSON.stringify(value))
  ended.set(null)
  session.set(value)
}

/** Ends the session. how: for the page that the user sees next. */
export function end(how: Ended | null = null) {
  localStorage.removeItem(storageKey)
  ended.set(how)
  session.set(null)
}

/** Ends the session of this token, because the server no longer accepts it. */
export function expire(token: string) {
  if (session.state?.token === token) end({ handle: session.state.user.handle })
}
