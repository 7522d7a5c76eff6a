// Shows a timeline and a user's profile whose posts share Relay's store.
//
//   TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… npm run relay -- lin
import relay, { type MutationParameters } from 'relay-runtime'
import { mirrorToRelay } from '@tideline/client/relay'

import { handle, headers, run, show, timeline, url, type App, type Post, type Profile } from './app.js'

const { commitMutation, createOperationDescriptor, createReaderSelector, Environment, fetchQuery, Network, RecordSource, Store } = relay

/** Loads the artifact that relay-compiler generated for a document. In a bundle, a plugin does this. */
const graphql = async ([document]: TemplateStringsArray) => {
  const [, name] = /(?:query|mutation|fragment) (\w+)/.exec(document!)!
  return (await import(`./__generated__/${name}.graphql.js`)).default
}

const PostFragment = await graphql`
  fragment relay_post on Post { __typename id text editedAt author { __typename id handle } }
`
await graphql`
  fragment relay_profile on User {
    id handle relationship { id following muting blocking } posts(first: 3) { nodes { ...relay_post @relay(mask: false) } }
  }
`
const PostQuery = await graphql`
  query relayPostQuery($id: ID!) { node(id: $id) { ... on Post { __typename id text editedAt author { __typename id handle } } } }
`
const ProfileQuery = await graphql`
  query relayProfileQuery($handle: String!) { user(handle: $handle) { ...relay_profile @relay(mask: false) } }
`
const Edit = await graphql`
  mutation relayEditMutation($input: UpdatePostInput!) { updatePost(input: $input) { post { ...relay_post @relay(mask: false) } } }
`
// Each mutation selects what it changes, so its answer updates the cache.
const Mute = await graphql`
  mutation relayMuteMutation($input: UserInput!) { mute(input: $input) { user { ...relay_profile @relay(mask: false) } } }
`
const Block = await graphql`
  mutation relayBlockMutation($input: UserInput!) { block(input: $input) { user { ...relay_profile @relay(mask: false) } } }
`

// No buffer of released queries: records that nothing retains are collected at once.
const store = new Store(new RecordSource(), { gcReleaseBufferSize: 0 })
const environment = new Environment({
  network: Network.create(async ({ text }, variables) => {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...headers },
      body: JSON.stringify({ query: text, variables }),
    })
    return answer.json()
  }),
  store,
})
const profile = createOperationDescriptor(ProfileQuery, { handle })
environment.retain(profile)

const mutate = (mutation: typeof Edit, input: object) =>
  new Promise<void>((done, failed) =>
    commitMutation<MutationParameters>(environment, {
      mutation,
      variables: { input },
      onCompleted: (_, errors) => (errors ? failed(new Error(errors[0]?.message)) : done()),
      onError: failed,
    }),
  ).then(() => store.scheduleGC())

const app: App = {
  post: (id) => (environment.lookup(createReaderSelector(PostFragment, id, {}, profile.request)).data as Post | undefined) ?? null,
  profile: () => (environment.lookup(profile.fragment).data as { user?: Profile | null }).user ?? null,
  read: () => fetchQuery(environment, ProfileQuery, { handle }).toPromise().then(() => store.scheduleGC()),
  edit: (postId, text) => mutate(Edit, { postId, text }),
  mute: (userId) => mutate(Mute, { userId }),
  block: (userId) => mutate(Block, { userId }),
}

mirrorToRelay(timeline, environment, (id) => createOperationDescriptor(PostQuery, { id }))
environment.subscribe(environment.lookup(profile.fragment), () => show(app))
await run(app)
