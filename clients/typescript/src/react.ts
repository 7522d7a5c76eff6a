// A timeline in React.
import { useSyncExternalStore } from 'react'

import type { Post } from './core.js'
import type { Snapshot, TimelineStore } from './store.js'

/** What the store holds; the component is drawn again after each change. */
export function useTimeline<P extends Post>(store: TimelineStore<P>): Snapshot<P> {
  return useSyncExternalStore(store.subscribe, store.getSnapshot, store.getSnapshot)
}
