// Lists that load page by page.
import { useEffect, useRef, useState } from 'preact/hooks'

import { useLatest } from './store'

export type Page<T> = { nodes: T[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } }

/** The part of a list that has been loaded. next is the cursor of its next page; null if there is none. */
export type Loaded<T> = { items: T[]; next: string | null }

type State<T> = Loaded<T> & {
  loaded: boolean
  busy: boolean
  error: string
  /** Tries again what failed. */
  again?: () => Promise<void>
  /** New items that wait until the reader asks for them. With next, so many that the list begins again with them. */
  waiting: { items: T[]; next?: string | null }
}

/** The interval at which a list without events is read again, in milliseconds. */
const renewEvery = 30_000

const nextOf = (page: Page<unknown> | null) => (page?.pageInfo.hasNextPage ? page.pageInfo.endCursor : null)

/** Appends the items of a page that the list lacks. */
export function extended<T extends { id: string }>({ items }: Pick<Loaded<T>, 'items'>, page: Page<T> | null): Loaded<T> {
  const known = new Set(items.map(({ id }) => id))
  return { items: [...items, ...(page?.nodes.filter(({ id }) => !known.has(id)) ?? [])], next: nextOf(page) }
}

/** Replaces the beginning of a list by its first page, read again. Later pages stay if nothing is missing between the two. */
export function renewed<T extends { id: string }>({ items, next }: Loaded<T>, page: Page<T>): Loaded<T> {
  const read = new Set(page.nodes.map(({ id }) => id))
  const later = items.slice(items.findLastIndex(({ id }) => read.has(id)) + 1)
  const reaches = page.pageInfo.hasNextPage && later.length > 0 && later.length < items.length
  return reaches ? { items: [...page.nodes, ...later], next } : { items: page.nodes, next: nextOf(page) }
}

const nothing: State<never> = { items: [], next: null, loaded: false, busy: true, error: '', waiting: { items: [] } }

/**
 * A list that loads its first page, and loads it again when a key changes. fetch returns null if there is no such list.
 * After reload the old items stay until the answer arrives.
 *
 * refresh loads all pages again that are shown, and resolves when they are there, or could not be loaded.
 *
 * live: the first page is read again every 30 seconds while the page is visible, and when the reader comes back to it. New
 * items wait for show, so that nothing moves.
 */
export function usePages<T extends { id: string }>(fetch: (after: string | null) => Promise<Page<T> | null>, keys: unknown[], live = false) {
  const [state, setState] = useState<State<T>>(nothing)
  const generation = useRef(0)
  const latest = useLatest(state)

  const load = async (after: string | null) => {
    const mine = after ? generation.current : ++generation.current
    setState((old) => ({ ...old, busy: true, error: '' }))
    try {
      const page = await fetch(after)
      if (mine !== generation.current) return
      setState((old) => ({ ...nothing, ...extended({ items: after ? old.items : [] }, page), loaded: true, busy: false, ...(after && { waiting: old.waiting }) }))
    } catch (e) {
      if (mine === generation.current) setState((old) => ({ ...old, busy: false, error: (e as Error).message, again: () => load(after) }))
    }
  }

  const refresh = async () => {
    const mine = ++generation.current
    const items: T[] = []
    let next: string | null = null
    try {
      do {
        const page = await fetch(next)
        if (mine !== generation.current) return
        items.push(...(page?.nodes ?? []))
        next = nextOf(page)
      } while (next && items.length < latest.current.items.length)
      setState({ ...nothing, items, next, loaded: true, busy: false })
    } catch (e) {
      if (mine === generation.current) setState((old) => ({ ...old, busy: false, error: (e as Error).message, again: refresh }))
    }
  }

  useEffect(() => {
    setState(nothing)
    void load(null)
    return () => {
      generation.current++
    }
  }, keys)

  const renew = async () => {
    const mine = generation.current
    // If it fails, the next renewal may succeed.
    const page = state.loaded && !state.busy ? await fetch(null).catch(() => null) : null
    if (page && mine === generation.current) setState((old) => (old.busy ? old : withNew(old, page)))
  }
  useRenewal(live, renewEvery, renew)

  return {
    ...state,
    more: () => void (state.next && !state.busy && load(state.next)),
    retry: () => void (state.again ?? (() => load(null)))(),
    reload: () => void load(null),
    renew,
    change: (edit: (items: T[]) => T[]) => setState((old) => ({ ...old, items: edit(old.items), waiting: { ...old.waiting, items: edit(old.waiting.items) } })),
    show: () => setState(({ waiting, ...old }) => ({ ...old, ...(waiting.next === undefined ? { items: [...waiting.items, ...old.items] } : waiting), waiting: { items: [] } })),
    refresh,
  }
}

/** Renews the list with its first page. New items wait, unless they would move nothing. */
function withNew<T extends { id: string }>(old: State<T>, page: Page<T>): State<T> {
  const shown = new Set(old.items.map(({ id }) => id))
  const count = page.nodes.findIndex(({ id }) => shown.has(id))
  // A page of items that the viewer may not see is empty, and says nothing.
  if (page.nodes.length === 0 && page.pageInfo.hasNextPage) return old
  if (shown.size === 0 || page.nodes.length === 0) return { ...old, ...renewed(old, page) }
  if (count < 0) return { ...old, waiting: { items: page.nodes, next: nextOf(page) } }
  const { items, next } = renewed(old, page)
  return { ...old, items: items.slice(count), next, waiting: { items: items.slice(0, count) } }
}

/** Calls renew every so many milliseconds while the page is visible, and when the reader comes back to it. */
export function useRenewal(live: boolean, every: number, renew: () => Promise<void>) {
  const latest = useLatest(renew)
  useEffect(() => {
    if (!live) return
    let busy = false
    const now = async () => {
      if (busy || document.visibilityState !== 'visible') return
      busy = true
      await latest.current()
      busy = false
    }
    const timer = setInterval(now, every)
    addEventListener('focus', now)
    document.addEventListener('visibilitychange', now)
    return () => {
      clearInterval(timer)
      removeEventListener('focus', now)
      document.removeEventListener('visibilitychange', now)
    }
  }, [live])
}
