// Sends drafts through a store of the client kit, which shows them while they wait for the server's answer.
import type { Draft as Options, Pending } from '@tideline/client'

import { tell } from './changes'
import type { Original, Post, Session, Visibility } from './documents'
import { draftOf, putBack, take, type About } from './draft'
import { notify } from './parts'
import { t } from './preferences'
import { session as current } from './session'

/** The part of a store that sends posts. send returns the post, or null if it was not created. */
export type Outbox = {
  send: (text: string, options: Options) => Promise<Post | null>
  pending: () => Pending[]
  discard: (key: string) => void
}

// boxes counts the boxes on the page. close removes the notice that sayRefused shows.
let boxes = 0
let close = () => {}

/** Says that a box is on the page, where a refusal is shown. Returns a function that ends this. */
export function openBox(): () => void {
  boxes++
  close()
  return () => {
    boxes--
  }
}

/** Shows a notice that a post was refused, unless a box on the page shows it. open shows the box. */
function sayRefused(refusal: string, open: () => void) {
  if (boxes > 0) return
  close()
  close = notify(refusal, { label: t.openDraft, run: open })
}

/**
 * Posts the draft. A refused draft goes back into its box, which open shows. With keep, the draft stays in the box until
 * the server accepts it. Returns the post, or null if the server refused it.
 */
export async function post(outbox: Outbox, session: Session, visibility: Visibility, open: () => void, about?: About, keep = false): Promise<Post | null> {
  const box = draftOf(session.user.handle, about)
  const draft = keep ? box.state : take(box)
  const { key, audience, quoteAudience } = draft
  const input = about && 'replyTo' in about ? about : { ...about, replyAudience: audience, quoteAudience }
  const posted = await outbox.send(draft.text, { visibility, key, input })
  if (posted) {
    if (box.state.key === key) take(box)
    tell({ what: 'posted', post: posted })
    return posted
  }
  const why = t.notPosted(outbox.pending().find((post) => post.key === key)?.error?.message ?? '')
  outbox.discard(key)
  putBack(box, draft, why)
  if (current.state?.token === session.token) sayRefused(why, open)
  return null
}

/** Returns a post that the server has not confirmed, as it is shown. */
export function asPost({ key, text, visibility, createdAt }: Pending, session: Session): Original {
  const { id, handle, name, avatarUrl = null } = (current.state ?? session).user
  return {
    id: `pending:${key}`,
    text: text.trim(),
    visibility: visibility as Visibility,
    hiddenByModerators: false,
    createdAt,
    editedAt: null,
    likeCount: 0,
    viewerHasLiked: false,
    replyCount: 0,
    repostCount: 0,
    quoteCount: 0,
    replyAudience: 'EVERYONE',
    quoteAudience: 'EVERYONE',
    viewerCanReply: false,
    viewerCanQuote: false,
    viewerRepost: null,
    viewerHasMutedConversation: false,
    mentions: [],
    replyTo: null,
    quote: null,
    author: { id, handle, name, avatarUrl },
  }
}
