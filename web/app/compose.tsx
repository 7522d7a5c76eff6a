// Writing a post.
import { useEffect, useRef } from 'preact/hooks'

import type { Session } from './documents'
import { draftOf, write } from './draft'
import { t } from './preferences'
import { VisibilityChoice } from './post'
import { useStore } from './store'
import type { Timeline } from './timeline'

type Props = { session: Session; timeline: Timeline; focused?: boolean; onPosted?: () => void }

export function Compose({ session, timeline, focused, onPosted }: Props) {
  const box = draftOf(session.user.handle)
  const draft = useStore(box)
  const area = useRef<HTMLTextAreaElement>(null)
  const visibility = draft.visibility ?? session.user.defaultVisibility ?? 'PUBLIC'
  // Counted as the server counts: by code points. How many there may be, the server says when it refuses the post.
  const length = [...draft.text.trim()].length

  // As tall as the text, where the browser does not do it by itself.
  useEffect(() => {
    const { style } = area.current!
    if (CSS.supports('field-sizing', 'content')) return
    style.height = 'auto'
    style.height = `${area.current!.scrollHeight}px`
  }, [draft.text])

  const submit = (event: Event) => {
    event.preventDefault()
    if (length === 0) return
    void timeline.post(visibility)
    onPosted?.()
  }

  return (
    <form class="compose" onSubmit={submit} aria-label={t.compose}>
      <textarea
        ref={area}
        rows={2}
        autofocus={focused}
        aria-label={t.compose}
        aria-describedby={draft.refusal ? 'refusal' : undefined}
        placeholder={t.writePlaceholder}
        value={draft.text}
        onInput={(event) => write(box, { text: event.currentTarget.value })}
        onKeyDown={(event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && submit(event)}
      />
      {draft.refusal && (
        <p class="wrong" id="refusal" role="alert">
          {draft.refusal}
        </p>
      )}
      <div class="row">
        <VisibilityChoice label={t.audience} value={visibility} onChoose={(choice) => write(box, { visibility: choice })} />
        <span class="muted count" title={t.characters(length)}>
          {length > 0 && length}
        </span>
        <button disabled={length === 0} title={t.sendShortcut}>
          {t.post}
        </button>
      </div>
    </form>
  )
}
