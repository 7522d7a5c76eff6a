// Shows a timeline and a user's profile whose posts share urql's Graphcache.
//
//   TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… npm run urql -- lin
import { Client, fetchExchange, subscriptionExchange, type OperationResult } from '@urql/core'
import { cacheExchange } from '@urql/exchange-graphcache'
import { mirrorToUrql } from '@tideline/client/urql'

import { handle, headers, postFields, profileFields, run, show, timeline, url, type App, type Post, type Profile } from './app.js'

const posts = mirrorToUrql(timeline, postFields)
const client = new Client({
  url,
  preferGetMethod: false,
  fetchOptions: { headers },
  // urql aborts each request when it is done with it, even after the answer. Node may then reject a promise that nothing
  // awaits, which ends the program. So do not pass the signal on.
  fetch: (input, init) => fetch(input, { ...init, signal: undefined }),
  exchanges: [
    cacheExchange({
      keys: { ...posts.keys, PostConnection: () => null },
      resolvers: { Query: { post: (_, { id }) => ({ __typename: 'Post', id: String(id) }) } },
      updates: { Subscription: posts.updates },
    }),
    fetchExchange,
    subscriptionExchange({ forwardSubscription: posts.forward() }),
  ],
})

const PostQuery = `query Post($id: ID!) { post(id: $id) { ${postFields} } }`
const ProfileQuery = `query Profile($handle: String!) { user(handle: $handle) { ${profileFields} } }`
const Edit = `mutation Edit($input: UpdatePostInput!) { updatePost(input: $input) { post { ${postFields} } } }`
// Each mutation selects what it changes, so its answer updates the cache.
const Mute = `mutation Mute($input: UserInput!) { mute(input: $input) { user { ${profileFields} } } }`
const Block = `mutation Block($input: UserInput!) { block(input: $input) { user { ${profileFields} } } }`

const fromCache = <T>(query: string, variables: object) => client.readQuery<T>(query, variables, { requestPolicy: 'cache-only' })?.data
const good = ({ error }: OperationResult) => {
  if (error) throw error
}

const app: App = {
  post: (id) => fromCache<{ post: Post | null }>(PostQuery, { id })?.post ?? null,
  profile: () => fromCache<{ user: Profile | null }>(ProfileQuery, { handle })?.user ?? null,
  read: () => client.query(ProfileQuery, { handle }, { requestPolicy: 'network-only' }).toPromise().then(good),
  edit: (postId, text) => client.mutation(Edit, { input: { postId, text } }).toPromise().then(good),
  mute: (userId) => client.mutation(Mute, { input: { userId } }).toPromise().then(good),
  block: (userId) => client.mutation(Block, { input: { userId } }).toPromise().then(good),
}

posts.start(client)
client.query(ProfileQuery, { handle }).subscribe(() => show(app))
await run(app)
