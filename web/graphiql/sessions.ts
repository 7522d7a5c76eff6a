// Passes tokens and ids between tabs. After `lin: signUp(…)` or `lin: logIn(…)`, the headers and variables of every tab
// can use {{lin.token}} and {{lin.id}}. The next session with the same name replaces them.
import type { ExecutionResult } from 'graphql'

type Session = { token: string; id: string }

const storageKey = 'tideline:graphiql:sessions'

function load(): Record<string, Session> {
  return JSON.parse(localStorage.getItem(storageKey) ?? '{}')
}

/** Stores every session in the answer under the name of its field or alias. Returns the answer. */
export function remember(result: ExecutionResult): ExecutionResult {
  const found: Record<string, Session> = {}
  for (const [name, value] of Object.entries(result.data ?? {})) {
    const { token, user } = (value ?? {}) as { token?: string; user?: { id?: string } }
    if (token) found[name] = { token, id: user?.id ?? '' }
  }
  if (Object.keys(found).length > 0) localStorage.setItem(storageKey, JSON.stringify({ ...load(), ...found }))
  return result
}

/** Returns a copy of value with the placeholders in its strings replaced. Throws if one is unknown. */
export function fill<T>(value: T): T {
  const sessions = load()
  const visit = (v: unknown): unknown => {
    if (typeof v === 'string') {
      return v.replace(/\{\{(\w+)\.(token|id)\}\}/g, (placeholder, name: string, part: keyof Session) => {
        const text = sessions[name]?.[part]
        if (!text) throw new Error(`${placeholder} is not known yet: run SignUp or LogIn in the first tab.`)
        return text
      })
    }
    if (Array.isArray(v)) return v.map(visit)
    if (v && typeof v === 'object') return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, visit(x)]))
    return v
  }
  return visit(value) as T
}
