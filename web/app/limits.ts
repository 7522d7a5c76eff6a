// The limits of the server that boxes for text and lists use.
import { request } from './api'
import { Limits as LimitsQuery } from './documents'
import { Store, useStore } from './store'

export type Limits = { postLength: number; pageSize: number; rankings: string[] }

/** null until they are known. */
export const limits = new Store<Limits | null>(null)

/** The maximum number of posts that one request asks for. More of them may cost more than a server allows. */
export const largestPage = 30

/** The number of posts to ask for in a read of several pages, if it is known. */
export const readSize = () => Math.min(limits.state?.pageSize ?? 0, largestPage)

let asking: Promise<void> | undefined

/** Asks for the limits unless they are known. If the request fails, the next call asks again. */
export function askLimits(): Promise<void> {
  if (limits.state) return Promise.resolve()
  return (asking ??= request(LimitsQuery, {})
    .then((answer) => limits.set(answer.limits), () => {})
    .finally(() => (asking = undefined)))
}

/** The limits; null until they are known. */
export function useLimits(): Limits | null {
  if (!limits.state) void askLimits()
  return useStore(limits)
}
