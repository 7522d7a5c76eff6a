// The way to the server: requests over HTTP and the subscription over graphql-transport-ws.
import { print } from '@0no-co/graphql.web'
import type { ResultOf, TadaDocumentNode, VariablesOf } from 'gql.tada'
import { createClient, type Client, type EventClosedListener } from 'graphql-ws'

import { t } from './preferences'
import { expire, session } from './session'

/** A refusal by the server; code is the extensions.code of its first error, '' when there was no answer. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

/** How long the server may take to answer a request, in milliseconds: longer than its own limit. */
const patience = 15_000

/** Runs a query or mutation; throws ApiError. A session that the server no longer knows is over. */
export async function request<D extends TadaDocumentNode<any, any>>(document: D, variables: VariablesOf<D>): Promise<ResultOf<D>> {
  const token = session.state?.token
  let answer: { data?: ResultOf<D>; errors?: { message: string; extensions?: { code?: string } }[] }
  try {
    const response = await fetch('/graphql', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ query: print(document), variables }),
      signal: AbortSignal.timeout(patience),
    })
    answer = await response.json()
  } catch {
    throw new ApiError('', t.unreachable)
  }
  const error = answer.errors?.[0]
  if (error) {
    const code = error.extensions?.code ?? ''
    if (code === 'UNAUTHENTICATED' && token) expire(token)
    throw new ApiError(code, t.refusal(code, error.message))
  }
  return answer.data!
}

/** How long the server may leave a ping unanswered before the connection is taken for dead, in milliseconds. */
const pongWait = 5_000

/** The close code that refuses a token; the client itself knows the others that are not worth another try. */
const forbidden = 4403

/**
 * A connection that comes back whenever it is lost, until disposed of.
 * A close code that says it would be in vain ends its subscriptions with an error instead.
 */
export function connect(token: string, on: { connected: () => void; closed: EventClosedListener }): Client {
  let timer: number | undefined
  const client = createClient({
    url: new URL('/graphql', location.href).href.replace(/^http/, 'ws'),
    connectionParams: { Authorization: `Bearer ${token}` },
    keepAlive: 20_000,
    retryAttempts: Infinity,
    shouldRetry: (cause) => !(cause instanceof CloseEvent && cause.code === forbidden),
    // Spread out, so that a restarted server does not meet every client at once; not a moment longer than the
    // network is away.
    retryWait: (n) =>
      new Promise((done) => {
        setTimeout(done, Math.min(500 * 2 ** n, 15_000) * (0.5 + Math.random()))
        addEventListener('online', () => done(), { once: true })
      }),
    on: {
      connected: on.connected,
      closed: (event) => {
        clearTimeout(timer)
        on.closed(event)
      },
      ping: (received) => {
        if (!received) timer = setTimeout(() => client.terminate(), pongWait)
      },
      pong: (received) => {
        if (received) clearTimeout(timer)
      },
    },
  })
  return client
}

/** The document as the text that goes over a connection. */
export { print }
