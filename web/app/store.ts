// State that lives longer than the component that shows it.
import { useLayoutEffect, useReducer, useRef } from 'preact/hooks'

/** A value with watchers, which are called when it is replaced. */
export class Store<S> {
  readonly #watchers = new Set<() => void>()

  constructor(public state: S) {}

  set(state: S) {
    this.state = state
    this.#watchers.forEach((watcher) => watcher())
  }

  patch(part: Partial<S>) {
    this.set({ ...this.state, ...part })
  }

  /** Calls watcher after each change. Returns a function that stops it. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher)
    return () => {
      this.#watchers.delete(watcher)
    }
  }
}

/** Returns the store's value, and redraws the component when it is replaced. */
export function useStore<S>(store: Store<S>): S {
  const [, draw] = useReducer((n: number, _: void) => n + 1, 0)
  useLayoutEffect(() => {
    const seen = store.state
    const stop = store.watch(() => draw())
    // The value may have changed between drawing and watching.
    if (seen !== store.state) draw()
    return stop
  }, [store])
  return store.state
}

/** Returns a reference to the value of the last drawing, for callbacks that outlive the one that made them. */
export function useLatest<T>(value: T): { readonly current: T } {
  const latest = useRef(value)
  latest.current = value
  return latest
}
