// The session of this browser.
import type { Session } from './documents'
import { Store } from './store'

const storageKey = 'tideline:session'
const read = (): Session | null => JSON.parse(localStorage.getItem(storageKey) ?? 'null')

/** The session, the same in every tab. It survives a reload. */
export const session = new Store<Session | null>(read())

/** The handle of the user whose session the server ended, until the next session begins. */
export const ended = new Store<string | null>(null)

addEventListener('storage', (event) => {
  if (event.key === storageKey) session.set(read())
})

export function begin(value: Session) {
  localStorage.setItem(storageKey, JSON.stringify(value))
  ended.set(null)
  session.set(value)
}

export function end() {
  localStorage.removeItem(storageKey)
  session.set(null)
}

/** Ends the session of this token, because the server no longer accepts it. */
export function expire(token: string) {
  if (session.state?.token !== token) return
  ended.set(session.state.user.handle)
  end()
}
