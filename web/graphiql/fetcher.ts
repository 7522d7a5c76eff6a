// Sends the operations that GraphiQL runs to /graphql of the page's origin: queries and mutations over HTTP,
// subscriptions over graphql-transport-ws. The values in the headers editor become headers of the HTTP request,
// or the payload of connection_init.
import type { Fetcher, FetcherParams } from '@graphiql/toolkit'
import { getOperationAST, parse, type ExecutionResult } from 'graphql'
import { createClient } from 'graphql-ws'

import { fill, remember } from './sessions'

type Headers = Record<string, string>

export const fetcher: Fetcher = (params, options) => {
  // GraphiQL reads the schema before anyone has signed up, and an expired token must not hide it.
  if (params.operationName === 'IntrospectionQuery') return post(params, {})

  let headers: Headers
  try {
    headers = fill(options?.headers ?? {})
    params = { ...params, variables: fill(params.variables) }
  } catch (error) {
    return Promise.resolve({ errors: [{ message: (error as Error).message }] } as unknown as ExecutionResult)
  }
  const operation = operationOf(params)
  if (operation) params = { ...params, operationName: operation.name?.value }
  return operation?.operation === 'subscription' ? subscribe(params, headers) : post(params, headers).then(remember)
}

/** Returns the operation to run. Right after a change of tabs, operationName is still from the previous tab. */
function operationOf({ query, operationName }: FetcherParams) {
  try {
    const document = parse(query)
    return getOperationAST(document) ?? getOperationAST(document, operationName)
  } catch {
    return null // the server reports the syntax error
  }
}

async function post(params: FetcherParams, headers: Headers): Promise<ExecutionResult> {
  const response = await fetch('/graphql', {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/graphql-response+json, application/json;q=0.9',
      ...headers,
    },
    body: JSON.stringify(params),
  })
  const text = await response.text()
  try {
    return JSON.parse(text)
  } catch {
    throw new Error(`${response.status} ${response.statusText}: ${text.slice(0, 200)}`)
  }
}

// Each run has its own connection, which carries the headers of its tab and closes with the subscription.
async function* subscribe(params: FetcherParams, headers: Headers) {
  const client = createClient({ url: new URL('/graphql', location.href).href.replace(/^http/, 'ws'), connectionParams: headers })
  try {
    yield* client.iterate(params) as AsyncIterable<ExecutionResult>
  } catch (error) {
    throw error instanceof CloseEvent ? new Error(`The server closed the connection: ${error.code} ${error.reason}`) : error
  } finally {
    await client.dispose()
  }
}
