// Requests to the server over HTTP. Live events come through the timeline.
import { print } from '@0no-co/graphql.web'
import type { ResultOf, TadaDocumentNode, VariablesOf } from 'gql.tada'

import { tell } from './changes'
import { Viewer } from './documents'
import { t } from './preferences'
import { ApiError, type Refusal } from './refusal'
import { expire, session } from './session'

/** The time limit of a request, in milliseconds. It is longer than the server's own limit. */
const patience = 15_000

/** Runs a query or mutation. Throws ApiError. Ends the session if the server no longer accepts it. */
export const request = <D extends TadaDocumentNode<any, any>>(document: D, variables: VariablesOf<D>): Promise<ResultOf<D>> => send(print(document), variables as Variables)

type Variables = Record<string, unknown>

/** Does the same as request, for a document given as text. */
export async function send(query: string, variables: Variables): Promise<any> {
  const token = session.state?.token
  let answer: { data?: unknown; errors?: { message: string; extensions?: Refusal }[] }
  try {
    const response = await fetch('/graphql', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ query, variables }),
      signal: AbortSignal.timeout(patience),
    })
    answer = await response.json()
  } catch {
    void comeBack()
    throw new ApiError(t.unreachable)
  }
  const error = answer.errors?.[0]
  if (error) {
    const refusal = error.extensions ?? {}
    const ended = refusal.code === 'UNAUTHENTICATED' && token !== undefined
    if (ended) expire(token)
    throw new ApiError(ended ? '' : t.refusal(refusal, error.message), refusal)
  }
  return answer.data
}

let away = false

/** Asks again and again until the server answers, at once when the browser is back online. Then tells the page. */
async function comeBack() {
  if (away) return
  away = true
  for (let wait = 1000; away; wait = Math.min(2 * wait, 30_000)) {
    await new Promise((done) => {
      setTimeout(done, wait)
      addEventListener('online', done, { once: true })
    })
    // A refusal is an answer, too.
    away = await request(Viewer, {}).then(() => false, (error: Error) => error.message === t.unreachable)
  }
  tell({ what: 'back' })
}

/** The URL of the API. */
export const address = new URL('/graphql', location.href).href

/** Converts a document to text. */
export { print }
