// The conversation at a post: the client kit's store and this app's additions, which are drafts and broadcast changes.
import { ConversationStore, type Conversation, type ConversationEvent, type ReplyOrder } from '@tideline/client'

import { address, send } from './api'
import { tell, watchChanges } from './changes'
import { conversationFields, type Original } from './documents'
import { readSize } from './limits'
import type { Outbox } from './outbox'
import { expire } from './session'
import { Store } from './store'
import type { Timeline } from './timeline'

export type State = Conversation<Original>

/**
 * Loads and follows the replies to a post. A new reply that would move what is being read waits until the reader asks for
 * it. Replies that the viewer may no longer see disappear at once.
 */
export class Talk {
  readonly store: Store<State>
  readonly #kit: ConversationStore<Original>

  /** timeline: null for a visitor. */
  constructor(
    readonly timeline: Timeline | null,
    postId: string,
  ) {
    const session = timeline && timeline.session
    this.#kit = new ConversationStore<Original>({
      url: address,
      postId,
      ...(session && { viewer: session.user.id }),
      // A refused token has no replacement.
      token: session && ((refused) => (refused === undefined ? session.token : null)),
      ...conversationFields,
      request: send,
      hold: true,
      readSize,
      // Events do not report likes.
      reread: true,
      onEvent: (event) => this.#onEvent(event),
      onSessionEnded: () => session && expire(session.token),
    })
    this.store = new Store(this.#kit.getSnapshot())
  }

  /** Starts. Returns a function that stops it. */
  start(): () => void {
    const stops = [
      this.#kit.subscribe(() => this.store.set(this.#kit.getSnapshot())),
      watchChanges((change) => {
        if (change.what === 'relation' && !change.shown) void this.#kit.refresh(true)
        else if (change.what === 'much') void this.#kit.refresh()
        else if (change.what === 'post') this.#kit.change(change.post)
        else if (change.what === 'gone') this.#kit.remove(change.postId)
        else if (change.what === 'posted') this.#count(change.post)
      }),
      () => this.#kit.stop(),
    ]
    void this.#kit.start()
    return () => stops.forEach((stop) => stop())
  }

  #onEvent(event: ConversationEvent<Original>) {
    if (event.__typename === 'ConversationPostAdded') this.#count(event.post)
    else if (event.__typename === 'ConversationPostUpdated') tell({ what: 'post', post: event.post })
    else if (event.__typename === 'ConversationPostRemoved') tell({ what: 'gone', postId: event.postId })
  }

  /** Shows how many replies the post has to which a new one replies. */
  #count({ replyTo }: Pick<Original, 'replyTo'>) {
    const { post, ancestors, replies } = this.store.state
    const parent = [...ancestors, ...(post ? [post] : []), ...replies].find(({ id }) => id === replyTo?.id)
    if (parent && parent.replyCount < replyTo!.replyCount) tell({ what: 'post', post: { ...parent, replyCount: replyTo!.replyCount } })
  }

  /** Sends the viewer's replies to the post. */
  readonly outbox: Outbox = {
    send: async (text, options) => {
      const entry = await this.#kit.reply(text, options)
      if (!entry) return null
      const node = { ...entry.node, repostOf: null }
      this.timeline?.created({ ...entry, node })
      return node
    },
    pending: () => this.#kit.getSnapshot().pending,
    discard: (key) => this.#kit.discard(key),
  }

  more = () => void this.#kit.more()

  retry = () => void this.#kit.retry()

  /** Shows the waiting replies. Resolves when they are there. */
  show = () => this.#kit.show()

  setOrder = (order: ReplyOrder) => void this.#kit.setOrder(order)
}
