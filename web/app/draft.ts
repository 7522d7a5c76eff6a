// What someone is writing. It outlives the view, the page and the session, until it is posted.
import type { Visibility } from './documents'
import { Store } from './store'

export type Draft = {
  text: string
  /** null: the default of the author's settings. */
  visibility: Visibility | null
  /** Names this text to the server, so that trying again after a lost answer does not post it twice. */
  key: string
  /** Why it was not posted. */
  refusal: string
}

// crypto.randomUUID would not do: it is missing where the page came over plain HTTP from another machine.
const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join('-')
const blank = (): Draft => ({ text: '', visibility: null, key: newKey(), refusal: '' })

const drafts = new Map<string, Store<Draft>>()

/** The draft of the person with this handle. */
export function draftOf(handle: string): Store<Draft> {
  let draft = drafts.get(handle)
  if (!draft) {
    const storageKey = `tideline:draft:${handle}`
    const store = (draft = new Store<Draft>(JSON.parse(localStorage.getItem(storageKey) ?? 'null') ?? blank()))
    store.watch(() => {
      if (store.state.text) localStorage.setItem(storageKey, JSON.stringify(store.state))
      else localStorage.removeItem(storageKey)
    })
    drafts.set(handle, draft)
  }
  return draft
}

/** Another text is another post, so it gets a key of its own. */
export function write(draft: Store<Draft>, part: { text: string } | { visibility: Visibility }) {
  draft.patch({ ...part, key: newKey() })
}

/** Takes the draft out of the box. */
export function take(draft: Store<Draft>): Draft {
  const taken = draft.state
  draft.set(blank())
  return taken
}

/** Puts a draft back that was refused; what has been written meanwhile stays below it. */
export function putBack(draft: Store<Draft>, refused: Draft, refusal: string) {
  const { text, key } = draft.state
  if (key === refused.key) return draft.patch({ refusal })
  draft.set(text.trim() ? { ...refused, text: `${refused.text}\n\n${text}`, key: newKey(), refusal } : { ...refused, refusal })
}

/** Forgets what a person was writing: the draft, and what edits of posts were to say. */
export function discard(handle: string) {
  draftOf(handle).set(blank())
  localStorage.removeItem(editsKey)
}

/** What an own post is to say, and when it said what was edited. */
export type Edit = { text: string; of: string }

const editsKey = 'tideline:edits'
const edits = (): Record<string, Edit> => JSON.parse(localStorage.getItem(editsKey) ?? '{}')

/** The unsaved edit of a post. */
export const editOf = (postId: string): Edit | undefined => edits()[postId]

/** Keeps the unsaved edit of a post; without one it is over. */
export function keepEdit(postId: string, edit?: Edit) {
  const { [postId]: _, ...others } = edits()
  const left = edit ? { ...others, [postId]: edit } : others
  if (Object.keys(left).length > 0) localStorage.setItem(editsKey, JSON.stringify(left))
  else localStorage.removeItem(editsKey)
}
