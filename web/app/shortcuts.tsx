// Keyboard shortcuts of a single key.
import { useEffect, useRef, useState } from 'preact/hooks'

import { Dialog } from './parts'
import { preferences, t } from './preferences'
import { go } from './route'
import { moderates, session } from './session'
import { useStore } from './store'

// Fields and dialogs use these keys themselves.
export const typing = (target: EventTarget | null) => (target as Element).closest?.('input, textarea, select, dialog') != null

/** Moves the focus by posts up or down. If no post has the focus, moves it to the first one in view. */
function step(by: 1 | -1) {
  const posts = [...document.querySelectorAll<HTMLElement>('#content article')]
  const at = posts.findIndex((post) => post.contains(document.activeElement))
  const inView = posts.findIndex((post) => post.getBoundingClientRect().top > 0)
  const next = posts[at < 0 ? inView : at + by]
  next?.focus({ preventScroll: true })
  next?.scrollIntoView({ block: 'nearest' })
}

const press = (selector: string) => document.querySelector<HTMLElement>(selector)?.click()

const focused = (what: string) => `article:focus ${what}, article:focus-within ${what}`

function Keys({ keys }: { keys: Record<string, string> }) {
  return (
    <dl class="keys">
      {Object.entries(keys).map(([key, what]) => (
        <div key={key}>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  )
}

/** Listens for the keys while it is drawn. Draws nothing except the list of keys, on request. */
export function Shortcuts({ onCompose }: { onCompose: () => void }) {
  const { shortcuts } = useStore(preferences)
  const viewer = useStore(session)?.user
  const [shown, setShown] = useState(false)
  const compose = useRef(onCompose)
  compose.current = onCompose
  useEffect(() => {
    if (!shortcuts) return
    const actions: Record<string, () => void> = {
      n: () => compose.current(),
      '.': () => press('.new-posts'),
      j: () => step(1),
      k: () => step(-1),
      Enter: () => go(`/post/${document.activeElement!.id}`),
      p: () => press(focused('.face')),
      l: () => press(focused('.like')),
      r: () => press(focused('.reply')),
      e: () => press(focused('.edits')),
      h: () => go('/'),
      '/': () => {
        if (!document.getElementById('search')) go('/people')
        requestAnimationFrame(() => document.getElementById('search')?.focus())
      },
      '?': () => setShown(true),
    }
    const onKey = (event: KeyboardEvent) => {
      const action = actions[event.key]
      // On a control of a post, Enter presses that control.
      if (event.key === 'Enter' && !(event.target as Element).matches('article.post:not(.pending)')) return
      if (!action || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector('dialog[open]')) return
      event.preventDefault()
      action()
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  }, [shortcuts])
  if (!shown) return null
  return (
    <Dialog label={t.shortcuts} onClose={() => setShown(false)}>
      <h2>{t.shortcuts}</h2>
      <Keys keys={t.keys} />
      {moderates(viewer) && (
        <>
          <h3>{t.moderation}</h3>
          <Keys keys={t.moderationKeys} />
        </>
      )}
      <div class="row end">
        <button class="quiet" onClick={() => setShown(false)}>
          {t.close}
        </button>
      </div>
    </Dialog>
  )
}
