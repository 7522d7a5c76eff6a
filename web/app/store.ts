// State that outlives the component that shows it.
import { useLayoutEffect, useReducer } from 'preact/hooks'

/** A value and those who want to know when it is replaced. */
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

  /** Calls watcher after each change; returns the way to stop. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher)
    return () => {
      this.#watchers.delete(watcher)
    }
  }
}

/** The store's value; the component is drawn again when it is replaced. */
export function useStore<S>(store: Store<S>): S {
  const [, draw] = useReducer((n: number, _: void) => n + 1, 0)
  useLayoutEffect(() => {
    const seen = store.state
    const stop = store.watch(() => draw())
    // It may have changed between drawing and watching.
    if (seen !== store.state) draw()
    return stop
  }, [store])
  return store.state
}
