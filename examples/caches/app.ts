// What the three apps have in common: the timeline, the commands, and what is printed. Each app has its own cache, and
// reads a user's profile into it beside the timeline.
import { createInterface } from 'node:readline'
import { TimelineStore } from '@tideline/client'
import WebSocket from 'ws'

export const url = new URL('/graphql', process.env.TIDELINE_URL ?? 'http://127.0.0.1:8080').href
export const headers = { Authorization: `Bearer ${process.env.TIDELINE_TOKEN}` }
export const handle = process.argv[2] ?? ''

/** What the apps select of a post, the timeline included: the caches tell objects by their type and id. */
export const postFields = '__typename id text editedAt author { __typename id handle }'
export const profileFields = `__typename id handle relationship { __typename id following muting blocking } posts(first: 3) { nodes { ${postFields} } }`

export type Post = { __typename: 'Post'; id: string; text: string; editedAt: string | null; author: { __typename: 'User'; id: string; handle: string } }
export type Profile = {
  id: string
  handle: string
  relationship: { id: string; following: boolean; muting: boolean; blocking: boolean }
  posts: { nodes: (Post | null)[] }
}

/** An app whose cache the kit tells of posts. */
export type App = {
  /** The post as the cache has it, without asking the server. Null: the cache does not have it. */
  post: (id: string) => Post | null
  /** The profile as the cache has it, without asking the server. Null: the cache does not have all of it. */
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

/** Prints what the cache has, if that is not what was printed last; called when it may have changed. */
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
      // Of all posts that were ever shown, those that the cache still has.
      cached: [...seen].filter(app.post).sort(),
    })
    if (line !== printed) console.log(line)
    printed = line
  })
}

/** Runs the app, for as long as there are commands. */
export async function run(app: App) {
  // One after the other, so that an older answer never follows a newer one into the cache.
  let last: Promise<unknown> = Promise.resolve()
  const inTurn = (what: () => Promise<unknown>) => {
    last = last
      .then(what)
      .catch((error: Error) => console.error(error.message))
      .then(() => show(app))
    return last
  }

  // The kit keeps the timeline and its posts right. A list of the app's own is read again when the timeline has changed,
  // and after a lost connection.
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
