// What one part of the page changed and others may be showing.
import { useEffect, useRef } from 'preact/hooks'

import type { Person, Post } from './documents'

export type Change =
  | { what: 'post'; post: Post }
  /** Deleted: it was the viewer's own, so that the viewer's counts are others now. */
  | { what: 'gone'; postId: string; deleted?: boolean }
  /** The viewer's own post that was made just now, here or on another device. */
  | { what: 'posted'; post: Post }
  /** Those who ask to follow the viewer may be others now. */
  | { what: 'requests' }
  /** The viewer's relation to a person is another now. */
  | { what: 'relation'; person: Person }
  /** The server said that more changed than can be told one by one. */
  | { what: 'much' }

const watchers = new Set<(change: Change) => void>()

export function tell(change: Change) {
  watchers.forEach((watcher) => watcher(change))
}

/** Calls watcher after each change; returns the way to stop. */
export function watchChanges(watcher: (change: Change) => void): () => void {
  watchers.add(watcher)
  return () => {
    watchers.delete(watcher)
  }
}

export function useChanges(watcher: (change: Change) => void) {
  const latest = useRef(watcher)
  latest.current = watcher
  useEffect(() => watchChanges((change) => latest.current(change)), [])
}

/** The posts after the change. */
export function changed(posts: Post[], change: Change): Post[] {
  if (change.what === 'gone') return posts.filter(({ id }) => id !== change.postId)
  if (change.what === 'post') return posts.map((post) => (post.id === change.post.id ? change.post : post))
  return posts
}
