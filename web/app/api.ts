// The way to the server: requests over HTTP. What is told live comes by the timeline.
import { print } from '@0no-co/graphql.web'
import type { ResultOf, TadaDocumentNode, VariablesOf } from 'gql.tada'

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

/** What the server says of a refusal for programs, see docs/errors.md. */
export type Refusal = { code?: string; reason?: string; field?: string; allowed?: number; given?: number }

/** How long the server may take to answer a request, in milliseconds: longer than its own limit. */
const patience = 15_000

/** Runs a query or mutation; throws ApiError. A session that the server no longer knows is over. */
export const request = <D extends TadaDocumentNode<any, any>>(document: D, variables: VariablesOf<D>): Promise<ResultOf<D>> => send(print(document), variables as Variables)

type Variables = Record<string, unknown>

/** Runs the text of a query or mutation, as request does. */
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
    throw new ApiError('', t.unreachable)
  }
  const error = answer.errors?.[0]
  if (error) {
    const refusal = error.extensions ?? {}
    const { code = '' } = refusal
    if (code === 'UNAUTHENTICATED' && token) expire(token)
    throw new ApiError(code, t.refusal(refusal, error.message))
  }
  return answer.data
}

/** Where the API is. */
export const address = new URL('/graphql', location.href).href

/** The document as its text. */
export { print }
