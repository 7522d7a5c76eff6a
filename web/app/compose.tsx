// The box in which a post is written.
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'

import type { Session } from './documents'
import { draftOf, write } from './draft'
import { useLimits } from './limits'
import { Count, lengthOf, notify } from './parts'
import { t } from './preferences'
import { VisibilityChoice } from './post'
import { Store, useStore } from './store'
import type { Timeline } from './timeline'

/** Whether the dialog for a new post is open. */
export const composing = new Store(false)

// boxes counts the boxes on the page. close removes the notice that sayRefused shows.
let boxes = 0
let close = () => {}

/** Shows a notice that a post was refused, unless a box on the page shows it. */
export function sayRefused(refusal: string) {
  if (boxes > 0) return
  close()
  close = notify(refusal, { label: t.openDraft, run: () => composing.set(true) })
}

type Props = { session: Session; timeline: Timeline; focused?: boolean; onPosted?: () => void }

/**
 * The box for a new post. With onPosted, the text stays in the box until the server accepts it. Otherwise the timeline
 * shows it at once.
 */
export function Compose({ session, timeline, focused, onPosted }: Props) {
  const box = draftOf(session.user.handle)
  const draft = useStore(box)
  const area = useRef<HTMLTextAreaElement>(null)
  const visibility = draft.visibility ?? session.user.defaultVisibility ?? 'PUBLIC'
  const length = lengthOf(draft.text)
  const most = useLimits()?.postLength
  const [busy, setBusy] = useState(false)
  const refusal = useId()
  const wrong = length === 0 || (most !== undefined && length > most)

  useLayoutEffect(() => {
    boxes++
    close()
    return () => {
      boxes--
    }
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
    const posted = timeline.post(visibility, onPosted !== undefined)
    if (!onPosted) return
    setBusy(true)
    void posted.then((done) => {
      setBusy(false)
      if (done) onPosted()
    })
  }

  return (
    <form class="compose" onSubmit={submit} aria-label={t.compose}>
      <textarea
        ref={area}
        rows={2}
        autofocus={focused}
        aria-label={t.compose}
        aria-describedby={draft.refusal ? refusal : undefined}
        readOnly={busy}
        placeholder={t.writePlaceholder}
        value={draft.text}
        onInput={(event) => write(box, { text: event.currentTarget.value })}
        onKeyDown={(event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && submit(event)}
      />
      {draft.refusal && (
        <p class="wrong" id={refusal} role="alert">
          {draft.refusal}
        </p>
      )}
      <div class="row">
        <VisibilityChoice label={t.audience} value={visibility} onChoose={(choice) => write(box, { visibility: choice })} />
        <Count length={length} most={most} />
        <button disabled={wrong || busy} title={t.sendShortcut}>
          {busy ? t.sending : t.post}
        </button>
      </div>
    </form>
  )
}
