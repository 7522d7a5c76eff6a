// The common part of the three apps: the timeline, the commands and the output. Each app has a different cache, and reads
// a user's profile into it beside the timeline.
import { createInterface } from 'node:readline'
import { TimelineStore } from '@tideline/client'
import WebSocket from 'ws'

export const url = new URL('/graphql', process.env.TIDELINE_URL ?? 'http://127.0.0.1:8080').href
export const headers = { Authorization: `Bearer ${process.env.TIDELINE_TOKEN}` }
export const handle = process.argv[2] ?? ''

/** The fields that the apps and the timeline select of a post. The caches identify objects by __typename and id. */
export const postFields = '__typename id text editedAt author { __typename id handle }'
export const profileFields = `__typename id handle relationship { __typename id following muting blocking } posts(first: 3) { nodes { ${postFields} } }`

export type Post = { __typename: 'Post'; id: string; text: string; editedAt: string | null; author: { __typename: 'User'; id: string; handle: string } }
export type Profile = {
  id: string
  handle: string
  relationship: { id: string; following: boolean; muting: boolean; blocking: boolean }
  posts: { nodes: (Post | null)[] }
}

/** An app, as the common part needs it. The kit writes the timeline's posts into the app's cache. */
export type App = {
  /** Returns the post from the cache, or null if it is not there. Sends no request. */
  post: (id: string) => Post | null
  /** Returns the profile from the cache, or null if it is not complete there. Sends no request. */
  profile: () => Profile | null
  /** Reads the profile from the server. */
  read: () => Promise<unknown>
  edit: (postId: string, text: string) => Promise<unknown>
  mute: (userId: string) => Promise<unknown>
  block: (userId: string) => Promise<unknown>
}

const answer = await fetch(url, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', ...headers },
  body: JSON.stringify({ query: '{ viewer { id } }' }),
})
const viewer: { id: string } | undefined = (await answer.json()).data?.viewer
if (!viewer) {
  console.error('Set TIDELINE_TOKEN to the token of a session, as signUp and logIn return it.')
  process.exit(1)
}
export const timeline = new TimelineStore<Post>({
  url,
  viewer: viewer.id,
  token: process.env.TIDELINE_TOKEN ?? '',
  fields: postFields,
  pageSize: 5,
  webSocketImpl: WebSocket,
})

const seen = new Set<string>()
let printed = ''
let due = false

/** Prints the content of the cache if it differs from the last output. Call it when the cache may have changed. */
export function show(app: App) {
  if (due) return
  due = true
  setImmediate(() => {
    due = false
    const profile = app.profile()
    const { entries } = timeline.getSnapshot()
    const posts = [...entries.map(({ node }) => node), ...(profile?.posts.nodes ?? [])]
    for (const post of posts) if (post) seen.add(post.id)
    const line = JSON.stringify({
      timeline: entries.map(({ node }) => app.post(node.id)),
      profile,
      // The posts still in the cache, of all that were ever shown.
      cached: [...seen].filter(app.post).sort(),
    })
    if (line !== printed) console.log(line)
    printed = line
  })
}

/** Runs the app until the standard input ends. */
export async function run(app: App) {
  // One request at a time, so that an older answer never overwrites a newer one in the cache.
  let last: Promise<unknown> = Promise.resolve()
  const inTurn = (what: () => Promise<unknown>) => {
    last = last
      .then(what)
      .catch((error: Error) => console.error(error.message))
      .then(() => show(app))
    return last
  }

  // The kit keeps the timeline and its posts up to date. The app's own list (the profile) is read again when the timeline
  // has changed, and after a lost connection.
  let before: unknown
  let waiting = false
  timeline.subscribe(() => {
    const { status, entries } = timeline.getSnapshot()
    const now = status === 'live' ? entries : null
    if (now && now !== before && !waiting) {
      waiting = true
      void inTurn(() => {
        waiting = false
        return app.read()
      })
    }
    before = now
    show(app)
  })
  await timeline.start()

  const userId = () => {
    const profile = app.profile()
    if (!profile) throw new Error(`There is no user @${handle} here: name one when you start.`)
    return profile.id
  }
  const commands: Record<string, (...words: string[]) => Promise<unknown>> = {
    more: () => timeline.more(),
    post: (...words) => timeline.post(words.join(' ')),
    edit: (id = '', ...words) => inTurn(() => app.edit(id, words.join(' '))),
    mute: () => inTurn(() => app.mute(userId())),
    block: () => inTurn(() => app.block(userId())),
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const [name = '', ...words] = line.split(' ')
    const command = commands[name]
    if (command) await command(...words)
    else console.error(`Say one of ${Object.keys(commands).join(', ')}.`)
  }
  process.exit()
}
