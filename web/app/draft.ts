// Drafts of posts and unsaved edits. They survive a change of view, a reload and an expired session.
import type { Audience, Visibility } from './documents'
import { Store } from './store'

export type Draft = {
  text: string
  /** null means the default from the author's settings. */
  visibility: Visibility | null
  /** Who may reply, and who may quote. */
  audience: Audience
  quoteAudience: Audience
  /** The idempotency key: a retry after a lost answer does not post the text twice. */
  key: string
  /** Why the server refused the draft, or ''. */
  refusal: string
}

// crypto.randomUUID is missing if the page came over plain HTTP from another machine.
const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join('-')
const blank = (): Draft => ({ text: '', visibility: null, audience: 'EVERYONE', quoteAudience: 'EVERYONE', key: newKey(), refusal: '' })

const prefix = 'tideline:draft:'
const drafts = new Map<string, Store<Draft>>()

/** What a draft is about: a post that it replies to or quotes. */
export type About = { replyTo: string } | { quoteOf: string }

/** The draft of the person with this handle: of a new post, or about another one. */
export function draftOf(handle: string, about?: About): Store<Draft> {
  return draftAt(about ? `${handle}:${Object.entries(about)[0]!.join(':')}` : handle)
}

function draftAt(name: string): Store<Draft> {
  let draft = drafts.get(name)
  if (!draft) {
    const storageKey = prefix + name
    const store = (draft = new Store<Draft>({ ...blank(), ...JSON.parse(localStorage.getItem(storageKey) ?? '{}') }))
    store.watch(() => {
      if (store.state.text) localStorage.setItem(storageKey, JSON.stringify(store.state))
      else localStorage.removeItem(storageKey)
    })
    drafts.set(name, draft)
  }
  return draft
}

/** Changes the draft. The changed draft is another post, so it gets a new key. */
export function write(draft: Store<Draft>, part: Partial<Pick<Draft, 'text' | 'visibility' | 'audience' | 'quoteAudience'>>) {
  draft.patch({ ...part, key: newKey() })
}

/** Empties the box and returns the draft. */
export function take(draft: Store<Draft>): Draft {
  const taken = draft.state
  draft.set(blank())
  return taken
}

/** Puts a refused draft back. A text written meanwhile stays below it. */
export function putBack(draft: Store<Draft>, refused: Draft, refusal: string) {
  const { text, key } = draft.state
  if (key === refused.key) return draft.patch({ refusal })
  draft.set(text.trim() ? { ...refused, text: `${refused.text}\n\n${text}`, key: newKey(), refusal } : { ...refused, refusal })
}

/** The names of the drafts that this browser stores for the person with this handle. */
const namesOf = (handle: string) =>
  Object.keys(localStorage).flatMap((key) => (key.startsWith(prefix) && key.slice(prefix.length).split(':')[0] === handle ? [key.slice(prefix.length)] : []))

/** Keeps the drafts of a person whose handle has changed. */
export function move(from: string, to: string) {
  if (from === to) return
  for (const name of namesOf(from)) {
    const old = draftAt(name)
    draftAt(to + name.slice(from.length)).set(old.state)
    old.set(blank())
  }
}

/** Deletes the drafts of a person, and all unsaved edits in this browser. */
export function discard(handle: string) {
  for (const name of namesOf(handle)) draftAt(name).set(blank())
  draftOf(handle).set(blank())
  localStorage.removeItem(editsKey)
}

/** An unsaved edit: the new text, and the time of the version on which it is based. */
export type Edit = { text: string; of: string }

const editsKey = 'tideline:edits'
const edits = (): Record<string, Edit> => JSON.parse(localStorage.getItem(editsKey) ?? '{}')

/** The unsaved edit of a post. */
export const editOf = (postId: string): Edit | undefined => edits()[postId]

/** Stores the unsaved edit of a post. Without an edit, deletes the stored one. */
export function keepEdit(postId: string, edit?: Edit) {
  const { [postId]: _, ...others } = edits()
  const left = edit ? { ...others, [postId]: edit } : others
  if (Object.keys(left).length > 0) localStorage.setItem(editsKey, JSON.stringify(left))
  else localStorage.removeItem(editsKey)
}
