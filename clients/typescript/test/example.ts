// The example in the README; readme.test.ts compares the two.
import { collapse, indexedDBStorage, TimelineStore } from '../src/index.js'

const url = 'http://127.0.0.1:8080/graphql'
const logIn = `mutation ($input: LogInInput!) { logIn(input: $input) { token user { id } } }`
const answer = await fetch(url, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ query: logIn, variables: { input: { handle: 'lin', password: 'tide and time' } } }),
})
const { token, user } = (await answer.json()).data.logIn

const timeline = new TimelineStore({ url, viewer: user.id, token, storage: indexedDBStorage(user.id) })
timeline.subscribe(() => {
  const { status, unread, pending, entries } = timeline.getSnapshot()
  document.body.innerText = [
    `${status}, ${unread} unread`,
    ...pending.map(({ text, error }) => `… ${text} ${error?.message ?? ''}`),
    ...collapse(entries).map(({ post }) => `@${post.author.handle}: ${post.text}`),
  ].join('\n')
})
await timeline.start()
await timeline.post('Hello, tide!')
