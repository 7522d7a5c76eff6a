// Who is signed in, in this browser.
import type { Session } from './documents'
import { Store } from './store'

const storageKey = 'tideline:session'
const read = (): Session | null => JSON.parse(localStorage.getItem(storageKey) ?? 'null')

/** The session of this browser, the same in every tab; it survives a reload. */
export const session = new Store<Session | null>(read())

/** Whose session ended without their doing, until the next one begins. */
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

/** The server no longer knows this token. */
export function expire(token: string) {
  if (session.state?.token !== token) return
  ended.set(session.state.user.handle)
  end()
}
