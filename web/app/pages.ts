// Lists that load page by page.
import { useEffect, useRef, useState } from 'preact/hooks'

export type Page<T> = { nodes: T[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } }

type State<T> = { items: T[]; next: string | null; loaded: boolean; busy: boolean; error: string }

const nextOf = (page: Page<unknown> | null) => (page?.pageInfo.hasNextPage ? page.pageInfo.endCursor : null)

const nothing = { items: [], next: null, loaded: false, busy: true, error: '' }

/**
 * A list that begins with first or, without it, loads the first page, and loads it again when a key changes. fetch returns
 * null if there is no such list. After reload the old items stay until the answer arrives. refresh loads all pages again that
 * are shown, and resolves when they are there, or could not be loaded.
 */
export function usePages<T extends { id: string }>(fetch: (after: string | null) => Promise<Page<T> | null>, keys: unknown[], first?: Page<T>) {
  const [state, setState] = useState<State<T>>(first ? { items: first.nodes, next: nextOf(first), loaded: true, busy: false, error: '' } : nothing)
  const generation = useRef(0)
  const latest = useRef(state)
  latest.current = state

  const load = async (after: string | null) => {
    const mine = after ? generation.current : ++generation.current
    setState((old) => ({ ...old, busy: true, error: '' }))
    try {
      const page = await fetch(after)
      if (mine !== generation.current) return
      setState((old) => {
        const before = after ? old.items : []
        const known = new Set(before.map(({ id }) => id))
        return {
          items: [...before, ...(page?.nodes.filter(({ id }) => !known.has(id)) ?? [])],
          next: nextOf(page),
          loaded: true,
          busy: false,
          error: '',
        }
      })
    } catch (e) {
      if (mine === generation.current) setState((old) => ({ ...old, busy: false, error: (e as Error).message }))
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
      setState({ items, next, loaded: true, busy: false, error: '' })
    } catch {
      // The old items are the best there is.
      if (mine === generation.current) setState((old) => ({ ...old, busy: false }))
    }
  }

  useEffect(() => {
    if (!first) {
      setState(nothing)
      void load(null)
    }
    return () => {
      generation.current++
    }
  }, keys)

  return {
    ...state,
    more: () => void (state.next && !state.busy && load(state.next)),
    retry: () => void load(state.loaded ? state.next : null),
    reload: () => void load(null),
    refresh,
    change: (edit: (items: T[]) => T[]) => setState((old) => ({ ...old, items: edit(old.items) })),
  }
}
