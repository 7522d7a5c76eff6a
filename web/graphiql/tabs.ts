// The ready-made tabs of a new user. sessions.ts replaces placeholders like {{lin.token}}.
import accounts from './tabs/accounts.graphql?raw'
import follow from './tabs/follow.graphql?raw'
import live from './tabs/live.graphql?raw'
import post from './tabs/post.graphql?raw'
import timeline from './tabs/timeline.graphql?raw'

const json = (value: unknown) => JSON.stringify(value, null, 2)
const as = (name: string) => json({ Authorization: `Bearer {{${name}.token}}` })

export const defaultTabs = [
  // GraphiQL ignores the variables and headers of the first tab, so it has none.
  { query: accounts },
  { query: follow, variables: json({ lin: { userId: '{{lin.id}}' } }), headers: as('max') },
  { query: post, variables: json({ post: { text: 'The tide is coming in.', visibility: 'PUBLIC' } }), headers: as('lin') },
  { query: timeline, variables: json({ first: 20, after: null }), headers: as('max') },
  { query: live, variables: json({ after: null }), headers: as('max') },
]
