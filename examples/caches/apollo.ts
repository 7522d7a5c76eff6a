// Shows a timeline and a user's profile whose posts share the cache of Apollo Client.
//
//   TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… npm run apollo -- lin
import { ApolloClient, gql, HttpLink, InMemoryCache } from '@apollo/client'
import { mirrorToApollo } from '@tideline/client/apollo'

import { handle, headers, postFields, profileFields, run, show, timeline, url, type App, type Post, type Profile } from './app.js'

const client = new ApolloClient({ link: new HttpLink({ uri: url, headers }), cache: new InMemoryCache() })

const PostFragment = gql`fragment Shown on Post { ${postFields} }`
const ProfileQuery = gql`query Profile($handle: String!) { user(handle: $handle) { ${profileFields} } }`
const Edit = gql`mutation Edit($input: UpdatePostInput!) { updatePost(input: $input) { post { ${postFields} } } }`
// Each mutation selects what it changes, so its answer updates the cache.
const Mute = gql`mutation Mute($input: UserInput!) { mute(input: $input) { user { ${profileFields} } } }`
const Block = gql`mutation Block($input: UserInput!) { block(input: $input) { user { ${profileFields} } } }`

// Removes posts that no query contains any more, such as a blocked user's.
const collect = <T>(answer: T) => {
  client.cache.gc()
  return answer
}

const profile = client.watchQuery<{ user: Profile | null }>({ query: ProfileQuery, variables: { handle } })
const app: App = {
  post: (id) => client.cache.readFragment<Post>({ id: `Post:${id}`, fragment: PostFragment }),
  profile: () => client.readQuery<{ user: Profile | null }>({ query: ProfileQuery, variables: { handle } })?.user ?? null,
  read: () => profile.refetch().then(collect),
  edit: (postId, text) => client.mutate({ mutation: Edit, variables: { input: { postId, text } } }),
  mute: (userId) => client.mutate({ mutation: Mute, variables: { input: { userId } } }),
  block: (userId) => client.mutate({ mutation: Block, variables: { input: { userId } } }).then(collect),
}

mirrorToApollo(timeline, client.cache, PostFragment)
profile.subscribe(() => show(app))
await run(app)
