// Broadcasts changes: one part of the page makes a change, and other parts may show the changed data.
import { useEffect } from 'preact/hooks'

import type { Original, Person, Post } from './documents'
import { useLatest } from './store'

export type Change =
  | { what: 'post'; post: Original }
  /** A post left the page. deleted: it was the viewer's own, so the viewer's counts changed, too. */
  | { what: 'gone'; postId: string; deleted?: boolean }
  /** The viewer created a post, here or on another device. */
  | { what: 'posted'; post: Post }
  /** The viewer reposts a post on this page. */
  | { what: 'repost'; postId: string }
  /** The follow requests to the viewer may have changed. */
  | { what: 'requests' }
  /** The viewer's lists of follow requests, blocks and mutes may have changed on another device. */
  | { what: 'lists' }
  /** The viewer's relation to a person changed. shown: only what is shown of the person did, such as a count. */
  | { what: 'relation'; person: Pick<Person, 'id' | 'relationship'> & Partial<Person>; shown?: boolean }
  /** The server answers again, after a request that it did not answer. */
  | { what: 'back' }
  /** More changed than the server sends one by one. */
  | { what: 'much' }

const watchers = new Set<(change: Change) => void>()

export function tell(change: Change) {
  watchers.forEach((watcher) => watcher(change))
}

/** Calls watcher for each change. Returns a function that stops it. */
export function watchChanges(watcher: (change: Change) => void): () => void {
  watchers.add(watcher)
  return () => {
    watchers.delete(watcher)
  }
}

export function useChanges(watcher: (change: Change) => void) {
  const latest = useLatest(watcher)
  useEffect(() => watchChanges((change) => latest.current(change)), [])
}

/** Applies a change to a list of posts, and to the originals of those that are reposts. */
export function changed(posts: Post[], change: Change): Post[] {
  if (change.what === 'gone') return posts.filter(({ id, repostOf }) => id !== change.postId && repostOf?.id !== change.postId)
  if (change.what !== 'post') return posts
  const { post } = change
  return posts.map((old) => (old.id === post.id ? { ...old, ...post } : old.repostOf?.id === post.id ? { ...old, repostOf: post } : old))
}
