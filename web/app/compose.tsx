// The box in which a post is written: a new one, a reply or a quote.
import { createContext } from 'preact'
import { useContext, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'

import { AudienceChoice, VisibilityChoice } from './audience'
import { useCompletion } from './completion'
import type { Original, Post } from './documents'
import { draftOf, write, type About } from './draft'
import { useLimits } from './limits'
import { Count, lengthOf } from './parts'
import { t } from './preferences'
import { openBox, post, type Outbox } from './outbox'
import { QuoteCard } from './quote'
import { go } from './route'
import { session } from './session'
import { Store, useStore } from './store'
import type { Timeline } from './timeline'

/** Whether the dialog for a new post is open, and the post that it quotes. */
export const composing = new Store<{ quoted?: Original } | null>(null)

/** The timeline of the member; null for a visitor. */
export const CurrentTimeline = createContext<Timeline | null>(null)

type Props = {
  /** The post that is answered. */
  parent?: Original
  /** The post that is quoted. */
  quoted?: Original
  focused?: boolean
  /** Where the post is sent and shown; by default the timeline. */
  outbox?: Outbox
  onPosted?: (post: Post) => void
  onCancel?: () => void
}

/**
 * The box for a post. With onPosted, the text stays in the box until the server accepts it. Otherwise the outbox shows it
 * at once.
 */
export function Compose({ parent, quoted, focused, outbox, onPosted, onCancel }: Props) {
  const timeline = useContext(CurrentTimeline)!
  const { handle, defaultVisibility } = (useStore(session) ?? timeline.session).user
  const about: About | undefined = parent ? { replyTo: parent.id } : quoted && { quoteOf: quoted.id }
  const box = draftOf(handle, about)
  const draft = useStore(box)
  const area = useRef<HTMLTextAreaElement>(null)
  const visibility = draft.visibility ?? defaultVisibility ?? 'PUBLIC'
  const length = lengthOf(draft.text)
  const most = useLimits()?.postLength
  const [busy, setBusy] = useState(false)
  const refusal = useId()
  const over = most !== undefined && length > most
  const wrong = length === 0 || over
  const label = parent ? t.reply : quoted ? t.quote : t.compose
  const completion = useCompletion(area, draft.text, (text) => write(box, { text }))

  useLayoutEffect(() => {
    if (focused) area.current!.focus()
    return openBox()
  }, [])

  // Makes the box as tall as its text, in browsers without field-sizing.
  useEffect(() => {
    const { style } = area.current!
    if (CSS.supports('field-sizing', 'content')) return
    style.height = 'auto'
    style.height = `${area.current!.scrollHeight}px`
  }, [draft.text])

  const submit = (event: Event) => {
    event.preventDefault()
    if (wrong || busy) return
    const open = () => (parent ? go(`/post/${parent.id}`) : composing.set({ quoted }))
    const posted = post(outbox ?? timeline.outbox, timeline.session, visibility, open, about, onPosted !== undefined)
    if (!onPosted) return
    setBusy(true)
    void posted.then((post) => {
      setBusy(false)
      if (post) onPosted(post)
    })
  }

  return (
    <form class="compose" onSubmit={submit} aria-label={label}>
      <div class="completes">
        <textarea
          ref={area}
          rows={2}
          autofocus={focused}
          aria-label={label}
          dir="auto"
          aria-invalid={draft.refusal || over ? true : undefined}
          aria-describedby={draft.refusal ? refusal : undefined}
          readOnly={busy}
          placeholder={parent ? t.replyPlaceholder(parent.author.handle) : quoted ? t.quotePlaceholder : t.writePlaceholder}
          value={draft.text}
          onInput={(event) => {
            write(box, { text: event.currentTarget.value })
            completion.look()
          }}
          onKeyDown={(event) => {
            if (completion.onKey(event)) return
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event)
            if (event.key === 'Escape' && onCancel) onCancel()
          }}
          onBlur={completion.close}
          {...completion.attributes}
        />
        {completion.list}
      </div>
      {quoted && <QuoteCard quote={{ state: 'SHOWN', post: quoted }} />}
      {draft.refusal && (
        <p class="wrong" id={refusal} role="alert">
          {draft.refusal}
        </p>
      )}
      <div class="row">
        <VisibilityChoice label={t.audience} value={visibility} onChoose={(choice) => write(box, { visibility: choice })} />
        {!parent && (
          <>
            <AudienceChoice to="reply" value={draft.audience} onChoose={(audience) => write(box, { audience })} />
            <AudienceChoice to="quote" value={draft.quoteAudience} onChoose={(quoteAudience) => write(box, { quoteAudience })} />
          </>
        )}
        <Count length={length} most={most} />
        {onCancel && (
          <button type="button" class="quiet" onClick={onCancel}>
            {t.cancel}
          </button>
        )}
        <button disabled={wrong || busy} title={t.sendShortcut}>
          {busy ? t.sending : parent ? t.reply : t.post}
        </button>
      </div>
    </form>
  )
}
