// Binds a timeline or a conversation to React.
import { useSyncExternalStore } from 'react'

import type { Conversation, ConversationStore } from './conversation.js'
import type { Post } from './core.js'
import type { Snapshot, TimelineStore } from './store.js'

/** Returns the store's state, and renders the component again after each change. */
export function useTimeline<P extends Post>(store: TimelineStore<P>): Snapshot<P> {
  return useSyncExternalStore(store.subscribe, store.getSnapshot, store.getSnapshot)
}

/** Returns the store's state, and renders the component again after each change. */
export function useConversation<P extends Post>(store: ConversationStore<P>): Conversation<P> {
  return useSyncExternalStore(store.subscribe, store.getSnapshot, store.getSnapshot)
}
