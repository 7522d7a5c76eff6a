// Access to the server: calls below /api/, and the stream of snapshots. The Go package server/admin answers them.
import { Store } from '../app/store'
import { w } from './texts'

export type Session = { token: string; handle: string }

const storageKey = 'tideline:admin'

/** The session of this tab. It ends with the tab, because an admin session has great power. */
export const session = new Store<Session | null>(JSON.parse(sessionStorage.getItem(storageKey) ?? 'null'))

/** Why the server ended the last session, or ''. */
export const ended = new Store('')

export function begin(value: Session) {
  sessionStorage.setItem(storageKey, JSON.stringify(value))
  ended.set('')
  session.set(value)
}

export function end(why = '') {
  sessionStorage.removeItem(storageKey)
  ended.set(why)
  session.set(null)
  snapshot.set(null)
}

const patience = 30_000

async function ask(path: string, token: string | undefined, init: RequestInit = {}): Promise<Response> {
  let response: Response
  try {
    response = await fetch(path, { ...init, headers: { ...init.headers, ...(token && { Authorization: `Bearer ${token}` }) } })
  } catch (e) {
    if ((e as Error).name === 'AbortError') throw e
    throw new Error(w().unreachable)
  }
  if (response.ok) return response
  const { error } = await response.json().catch(() => ({ error: undefined }))
  const message: string = error?.message ?? w().unreachable
  // The session has ended, or the user is no longer an admin.
  if (token && token === session.state?.token && (response.status === 401 || response.status === 403)) end(message)
  throw new Error(message)
}

/** Makes a call. Throws an Error with the message of the server. */
export async function call<T>(method: string, path: string, body?: object, token = session.state?.token): Promise<T> {
  const signal = AbortSignal.timeout(patience)
  return (await ask(path, token, { method, signal, ...(body && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }) })).json()
}

export type Process = {
  id: number
  host: string
  pid: number
  version: string
  roles: string
  startedAt: string
  seenAt: string
  subscriptions: number
  jobs: number
  state: 'running' | 'pausing' | 'draining' | 'paused' | 'resuming' | 'gone'
  workers: boolean
}

export type Job = { id: number; kind: string; pool: string; dead: boolean; attempts: number; error: string; payload: unknown; createdAt: string }

export type Master = {
  addr: string
  version: string
  incarnation: string
  up: number
  used: number
  most: number
  eviction: string
  clients: number
  replicas: number
  commands: number
  evicted: number
}

export type Snapshot = {
  at: string
  version: string
  process: number
  failed: string[]
  checks: Record<string, string>
  processes: Process[]
  pools: { pool: string; depth: number; oldest: number }[]
  kinds: { kind: string; pool: string; depth: number; tried: number; dead: number }[]
  dead: number
  deadJobs: Job[]
  webhooks: { pending: number; dead: number; oldest: number } | null
  stores: {
    sql: { dialect: string; up: boolean; version: string; took: number; bytes: number; open: number; inUse: number; most: number; waited: number }
    redis: { embedded: boolean; up: boolean; open: number; idle: number; timeouts: number; masters: Master[] }
  }
  metrics: Record<string, number>
}

export type Journey = {
  post: number
  author?: string
  createdAt?: string
  visibility?: string
  viewer?: string
  why?: string
  scores?: { ranking: string; expression: string; score: number; signals: { name: string; value: number }[] }[]
  jobs: Job[]
  receipt?: { pushed: number; pulled: number; skipped: number; done: boolean; firstLag: number; medianLag: number; lastLag: number }
}

type Moment = { post: number; at: string } | null

export type Timeline = {
  user: number
  handle: string
  active: boolean
  state: string
  ready: boolean
  epoch: number
  entries: number
  newest: Moment
  floor: Moment
  followees: number
  merged: number
  allMerged: boolean
  verified?: { checked: number; missing: number; extra: number }
}

/** The latest snapshot; null before the first one. */
export const snapshot = new Store<Snapshot | null>(null)

/** The state of the stream. */
export const status = new Store<'connecting' | 'live' | 'reconnecting'>('connecting')

/** The delay before the page opens the stream again, in milliseconds. */
const pauseBetween = 2_000

/** The page drops a stream that sends nothing for this long, in milliseconds. */
const silence = 15_000

/** Receives snapshots while the page is visible. Returns a function that stops it. */
export function follow(token: string): () => void {
  let stop = new AbortController()
  let over = false
  const run = async () => {
    while (!over && session.state?.token === token) {
      if (document.hidden) {
        await new Promise((seen) => document.addEventListener('visibilitychange', seen, { once: true }))
        continue
      }
      stop = new AbortController()
      await read(token, stop).catch(() => null)
      if (over) return
      status.set('reconnecting')
      await new Promise((later) => setTimeout(later, document.hidden ? 0 : pauseBetween))
    }
  }
  const look = () => document.hidden && stop.abort()
  document.addEventListener('visibilitychange', look)
  void run()
  return () => {
    over = true
    document.removeEventListener('visibilitychange', look)
    stop.abort()
  }
}

async function read(token: string, stop: AbortController) {
  const response = await ask('/api/stream', token, { signal: stop.signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let buffer = ''
  for (;;) {
    const quiet = setTimeout(() => stop.abort(), silence)
    const { done, value } = await reader.read().finally(() => clearTimeout(quiet))
    if (done) return
    buffer += value
    for (let cut; (cut = buffer.indexOf('\n\n')) >= 0; buffer = buffer.slice(cut + 2)) {
      const [head, data] = buffer.slice(0, cut).split('\n')
      if (head !== 'event: snapshot') continue
      snapshot.set(JSON.parse(data!.slice('data: '.length)))
      status.set('live')
    }
  }
}
