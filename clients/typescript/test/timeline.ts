// A timeline store with a list in place of a server, for the tests of mirrors.
import { TimelineStore, type Edge } from '../src/index.js'

export type Shown = { __typename: 'Post'; id: string; text: string; author: { __typename: 'User'; id: string; handle: string } }

export const edge = (n: number, text = `text ${n}`): Edge<Shown> => ({
  cursor: `c${n}`, score: n, node: { __typename: 'Post', id: `p${n}`, text, author: { __typename: 'User', id: 'u', handle: 'ada' } },
})

/** Returns a store and its server: the edges of the first page, and whether more pages follow. */
export function timelineOf(edges: Edge<Shown>[]) {
  const server = { edges, more: true }
  const store = new TimelineStore<Shown>({
    url: 'http://127.0.0.1:9/graphql', viewer: 'me', token: 'good', webSocketImpl: class { static OPEN = 1; static CLOSED = 3; static CLOSING = 2; static CONNECTING = 0; close() {} },
    request: async () => ({
      timeline: { edges: server.edges, position: 'x', unreadCount: 0, pageInfo: { hasNextPage: server.more, endCursor: server.edges.at(-1)?.cursor } },
    }),
  })
  return { store, server }
}

/**
 * Takes posts through every kind of change. After each it compares the ids of the posts in the cache, or the text of one
 * post, with the expected ones.
 */
export async function everyChange(
  { store, server }: ReturnType<typeof timelineOf>, ids: () => string, textOf: (id: string) => string | undefined, equal: (a: unknown, b: unknown) => void,
) {
  await store.start()
  equal(ids(), 'p1 p2 p3')
  store.change(edge(2, 'edited').node)
  equal(textOf('p2'), 'edited')
  store.remove('p3')
  equal(ids(), 'p1 p2')

  // p1 is only too old for the page, so it stays in the cache; p2 is gone.
  server.edges = [edge(5), edge(4), edge(1.5)]
  await store.refresh()
  equal(ids(), 'p1 p1.5 p4 p5')

  // A post that is gone may come back.
  server.edges = [edge(5), edge(4), edge(2, 'back'), edge(1.5)]
  await store.refresh()
  equal(ids(), 'p1 p1.5 p2 p4 p5')
  equal(textOf('p2'), 'back')
  server.more = false
  server.edges = []
  await store.refresh()
  equal(ids(), 'p1')
}
