// Small components that every view uses.
import { Component, type ComponentChildren, type FunctionComponent } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

import { useChanges } from './changes'
import { languages, preferences, t, type Preferences } from './preferences'
import { Store, useLatest, useStore } from './store'

const icons = {
  home: 'M3 9c3-2.6 6-2.6 9 0s6 2.6 9 0M3 15c3-2.6 6-2.6 9 0s6 2.6 9 0',
  people: 'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20c.4-3.6 2.9-5.5 6.5-5.5s6.1 1.9 6.5 5.5M16 4.3a3.5 3.5 0 0 1 0 6.4M18.5 15c1.8.8 2.8 2.4 3 5',
  profile: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4.5 20.5c.5-4 3.3-6 7.5-6s7 2 7.5 6',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.8v4.4M9 14.8v4.4',
  moderation: 'M12 21c5-2.3 7.5-5.8 7.5-10.3V6L12 3 4.5 6v4.7C4.5 15.2 7 18.7 12 21ZM8.8 12l2.3 2.3 4.2-4.5',
  write: 'M4 20l1-4L16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1ZM14.5 6.5l3 3',
  heart: 'M12 20S3.5 15 3.5 8.9C3.5 6 5.6 4.2 8 4.2c1.7 0 3.2 1 4 2.5.8-1.5 2.3-2.5 4-2.5 2.4 0 4.5 1.8 4.5 4.7C20.5 15 12 20 12 20Z',
  reply: 'M20 11.5c0 4.1-3.6 7-8 7-1.2 0-2.4-.2-3.4-.6L4 19.5l1.3-3.7C4.5 14.6 4 13.1 4 11.5c0-4.1 3.6-7 8-7s8 2.9 8 7Z',
  repost: 'M4 12V9.5A3 3 0 0 1 7 6.5h11M15 3l3.5 3.5L15 10M20 12v2.5a3 3 0 0 1-3 3H6M9 21l-3.5-3.5L9 14',
  quote: 'M10 7H5v5h5V7Zm0 5c0 2.7-1.4 4.4-4 5M19 7h-5v5h5V7Zm0 5c0 2.7-1.4 4.4-4 5',
  pen: 'M4 20l1-4.5L16.5 4 20 7.5 8.5 19zM14 6.5l3.5 3.5',
  trash: 'M4.5 6.5h15M9 6.5V4h6v2.5M6.5 6.5l.8 13.5h9.4l.8-13.5M10 10.5v6M14 10.5v6',
  flag: 'M5.5 21V4M5.5 5c4-2.5 7 2.5 13 0v9c-6 2.5-9-2.5-13 0',
  more: 'M5.5 12h.01M12 12h.01M18.5 12h.01',
  up: 'M12 19V5M6 11l6-6 6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  back: 'M19 12H5M11 6l-6 6 6 6',
  next: 'M9 6l6 6-6 6',
  done: 'M4.5 12.5l5 5L19.5 7',
  PUBLIC: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM3 12h18M12 3c2.5 2.5 3.6 5.5 3.6 9s-1.1 6.5-3.6 9c-2.5-2.5-3.6-5.5-3.6-9S9.5 5.5 12 3Z',
  FOLLOWERS: 'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20c.4-3.6 2.9-5.5 6.5-5.5s6.1 1.9 6.5 5.5M16 4.3a3.5 3.5 0 0 1 0 6.4M18.5 15c1.8.8 2.8 2.4 3 5',
  MUTUALS: 'M4 9h14l-4-4M20 15H6l4 4',
  PRIVATE: 'M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3',
} as const

export function Icon({ name }: { name: keyof typeof icons }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={icons[name]} />
    </svg>
  )
}

export function LanguageChoice() {
  const { language } = useStore(preferences)
  return (
    <select
      aria-label={t.languageLabel}
      value={language}
      onChange={(event) => preferences.patch({ language: event.currentTarget.value as Preferences['language'] })}
    >
      {Object.entries(languages).map(([code, texts]) => (
        <option value={code} key={code} lang={code}>
          {texts.language}
        </option>
      ))}
    </select>
  )
}

/** Wraps a component so that only a changed property or a store redraws it. Long lists need this. */
export function steady<P extends object>(Draw: FunctionComponent<P>) {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P) {
      return ([...Object.keys(next), ...Object.keys(this.props)] as (keyof P)[]).some((key) => next[key] !== this.props[key])
    }

    render() {
      return <Draw {...this.props} />
    }
  }
}

/** The data that an avatar needs. */
type Face = { handle: string; name: string; avatarUrl?: string | null }

/** A person's picture. Without one, or if it does not load, the first letter on a colour derived from the handle. */
export function Avatar({ person, large }: { person: Face; large?: boolean }) {
  const [broken, setBroken] = useState<string>()
  const { avatarUrl } = person
  let hash = 0
  for (const letter of person.handle) hash = Math.imul(hash ^ letter.charCodeAt(0), 0x01000193)
  return (
    <span class={large ? 'avatar large' : 'avatar'} data-hue={(hash >>> 8) & 7} aria-hidden="true">
      {avatarUrl && avatarUrl !== broken ? (
        <img src={avatarUrl} alt="" loading="lazy" decoding="async" referrerpolicy="no-referrer" onError={() => setBroken(avatarUrl)} />
      ) : (
        [...(person.name || person.handle)][0]!.toUpperCase()
      )}
    </span>
  )
}

const clock = new Store(Date.now())
setInterval(() => clock.set(Date.now()), 30_000)

// The formats by language. Creating a format takes longer than drawing a post.
const formats = new Map<string, Record<'relative', Intl.RelativeTimeFormat> & Record<'day' | 'year' | 'full', Intl.DateTimeFormat>>()

function formatsOf(language: string) {
  let found = formats.get(language)
  if (!found) {
    found = {
      relative: new Intl.RelativeTimeFormat(language, { numeric: 'always', style: 'narrow' }),
      day: new Intl.DateTimeFormat(language, { month: 'short', day: 'numeric' }),
      year: new Intl.DateTimeFormat(language, { year: 'numeric', month: 'short', day: 'numeric' }),
      full: new Intl.DateTimeFormat(language, { dateStyle: 'long', timeStyle: 'short' }),
    }
    formats.set(language, found)
  }
  return found
}

/** A short or relative time. Its title is the exact time. */
export function Time({ at }: { at: string }) {
  const { relative, day, year, full } = formatsOf(useStore(preferences).language)
  const now = useStore(clock)
  const date = new Date(at)
  const minutes = Math.floor((now - date.getTime()) / 60_000)
  const text =
    minutes < 1
      ? t.now
      : minutes < 60
        ? relative.format(-minutes, 'minute')
        : minutes < 24 * 60
          ? relative.format(-Math.floor(minutes / 60), 'hour')
          : (date.getFullYear() === new Date(now).getFullYear() ? day : year).format(date)
  return (
    <time dateTime={at} title={full.format(date)}>
      {text}
    </time>
  )
}

/** A time to the minute. */
export const exact = (at: string) => new Date(at).toLocaleString(preferences.state.language, { dateStyle: 'medium', timeStyle: 'short' })

type ChoiceProps<V extends string> = {
  icon: keyof typeof icons
  label: string
  value: V
  options: readonly V[]
  texts: Record<V, string>
  hints?: Record<V, string>
  disabled?: boolean
  onChoose: (value: V) => void
}

/** A choice of one of several values, with an icon. The list of options has the hints, which are too long for the control. */
export function Choice<V extends string>({ icon, label, value, options, texts, hints, disabled, onChoose }: ChoiceProps<V>) {
  return (
    <span class="choice">
      <Icon name={icon} />
      <span aria-hidden="true">{texts[value]}</span>
      <select aria-label={label} value={value} disabled={disabled} onChange={(event) => onChoose(event.currentTarget.value as V)}>
        {options.map((option) => (
          <option value={option} key={option}>
            {hints ? `${texts[option]} – ${hints[option]}` : texts[option]}
          </option>
        ))}
      </select>
    </span>
  )
}

type CountProps = { length: number; most: number | undefined }

/** How much longer a text may become, or by how much it is too long. */
export function Count({ length, most }: CountProps) {
  const over = most !== undefined && length > most
  return (
    <span class={over ? 'wrong count' : 'muted count'} role={over ? 'status' : undefined} title={t.characters(length, most)}>
      {length > 0 && most !== undefined && t.left(most - length)}
    </span>
  )
}

/** The length of a text in code points, as the server counts it. */
export const lengthOf = (text: string) => [...text.trim()].length

type DialogProps = { label: string; onClose: () => void; children: ComponentChildren }

/** A modal dialog that is open while it is drawn. It holds the focus, and gives it back when it closes. */
export function Dialog({ label, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const dialog = element.current!
    const before = document.activeElement as HTMLElement | null
    dialog.showModal()
    return () => {
      dialog.close()
      before?.focus({ preventScroll: true })
    }
  }, [])
  return (
    <dialog
      ref={element}
      aria-label={label}
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
      onClick={(event) => event.target === event.currentTarget && onClose()}
    >
      <div class="sheet">{children}</div>
    </dialog>
  )
}

type ConfirmProps = { title: string; hint: string; action: string; onYes: () => void; onNo: () => void }

export function Confirm({ title, hint, action, onYes, onNo }: ConfirmProps) {
  return (
    <Dialog label={title} onClose={onNo}>
      <h2>{title}</h2>
      <p class="muted">{hint}</p>
      <div class="row end">
        <button class="quiet" onClick={onNo}>
          {t.cancel}
        </button>
        <button class="grave" onClick={onYes}>
          {action}
        </button>
      </div>
    </Dialog>
  )
}

type MenuProps = {
  label: string
  /** What the button shows, instead of three dots. */
  button?: ComponentChildren
  class?: string
  onOpen?: () => void
  children: ComponentChildren
}

/** A button that opens a list of further buttons. Escape or a click elsewhere closes it. */
export function Menu({ label, button = <Icon name="more" />, class: kind = '', onOpen, children }: MenuProps) {
  const element = useRef<HTMLDetailsElement>(null)
  const [open, setOpen] = useState(false)
  useLayoutEffect(() => {
    if (!open) return
    const close = (event: Event) => {
      const menu = element.current!
      if (event instanceof KeyboardEvent) {
        if (event.key !== 'Escape') return
        menu.querySelector('summary')!.focus()
      } else if (menu.contains(event.target as Node)) return
      menu.open = false
    }
    document.addEventListener('click', close)
    document.addEventListener('keydown', close)
    return () => {
      document.removeEventListener('click', close)
      document.removeEventListener('keydown', close)
    }
  }, [open])
  // After an item the focus returns to the button, unless the item opens a dialog.
  const choose = () => {
    element.current!.open = false
    if (!document.querySelector('dialog[open]')) element.current!.querySelector('summary')!.focus()
  }
  return (
    <details
      class={`menu ${kind}`}
      ref={element}
      onToggle={(event) => {
        setOpen(event.currentTarget.open)
        if (event.currentTarget.open) onOpen?.()
      }}
    >
      <summary aria-label={label}>{button}</summary>
      <div class="menu-items" onClick={(event) => (event.target as Element).closest('button') && choose()}>
        {children}
      </div>
    </details>
  )
}

type Action = { label: string; run: () => void }

const notices = new Store<{ id: number; text: string; action?: Action }[]>([])
let lastNotice = 0

/**
 * Shows a notice for five seconds or, with an action, until the action is taken. Returns a function that removes it. Shows
 * nothing without a text: the error of an ended session has none.
 */
export function notify(text: string, action?: Action): () => void {
  if (!text) return () => {}
  const id = ++lastNotice
  const close = () => notices.set(notices.state.filter((notice) => notice.id !== id))
  notices.set([...notices.state, { id, text, ...(action && { action: { ...action, run: () => (close(), action.run()) } }) }])
  if (!action) setTimeout(close, 5_000)
  return close
}

const overlap = (a: DOMRect, b: DOMRect) => a.top < b.bottom && b.top < a.bottom && a.left < b.right && b.left < a.right

/** Moves the notices from the bottom of the window to its top while they would cover a field. */
function avoidFields(element: HTMLElement) {
  element.classList.remove('top')
  const place = element.getBoundingClientRect()
  const covers = [...document.querySelectorAll('input, textarea, select')].some((field) => field.checkVisibility() && overlap(field.getBoundingClientRect(), place))
  element.classList.toggle('top', covers)
}

export function Notices() {
  const list = useStore(notices)
  const element = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (list.length === 0) return
    const avoid = () => avoidFields(element.current!)
    avoid()
    const moments = ['scroll', 'resize', 'focusin'] as const
    moments.forEach((moment) => addEventListener(moment, avoid))
    return () => moments.forEach((moment) => removeEventListener(moment, avoid))
  }, [list])
  return (
    <div class="notices" role="status" ref={element}>
      {list.map(({ id, text, action }) => (
        <p key={id}>
          {text}
          {action && (
            <button class="link" onClick={action.run}>
              {action.label}
            </button>
          )}
        </p>
      ))}
    </div>
  )
}

/** A placeholder of about the size of the list that is loading. */
export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div aria-busy="true">
      <p class="hidden" role="status">
        {t.loading}
      </p>
      {Array.from({ length: lines }, (_, i) => (
        <div class="skeleton" key={i} aria-hidden="true">
          <span class="avatar" />
          <div>
            <i />
            <i />
            <i />
          </div>
        </div>
      ))}
    </div>
  )
}

/** Says why something failed, with a button for another attempt. The attempt is made by itself when the server answers again. */
export function Failure({ message, onRetry }: { message: string; onRetry: () => void }) {
  useChanges(({ what }) => what === 'back' && onRetry())
  return (
    <div class="failure" role="alert">
      <p>{message}</p>
      <button class="quiet" onClick={onRetry}>
        {t.tryAgain}
      </button>
    </div>
  )
}

type EmptyProps = { title: string; whole?: boolean; children?: ComponentChildren }

/** Says why a list is empty. whole: the page shows nothing else, so the title is its heading. */
export function Empty({ title, whole, children }: EmptyProps) {
  return (
    <div class="empty">
      <span class="swell" aria-hidden="true" />
      {whole ? <h1>{title}</h1> : <p class="title">{title}</p>}
      {children}
    </div>
  )
}

/** Loads the next page shortly before the reader scrolls to the end. It is also a button, for readers who do not scroll. */
export function More({ busy, onMore }: { busy: boolean; onMore: () => void }) {
  const element = useRef<HTMLButtonElement>(null)
  const latest = useLatest(onMore)
  useEffect(() => {
    // Observes again after each page: if the button is still in view, the next page must load.
    if (busy) return
    // A busy browser reports several moments in one call. The last one is the current state.
    const observer = new IntersectionObserver((entries) => entries.at(-1)!.isIntersecting && latest.current(), { rootMargin: '1200px' })
    observer.observe(element.current!)
    return () => observer.disconnect()
  }, [busy])
  return (
    <button class="quiet more" ref={element} aria-disabled={busy} onClick={() => !busy && onMore()}>
      {busy ? t.loading : t.loadMore}
    </button>
  )
}

type ListEndProps = {
  list: { items: unknown[]; loaded: boolean; busy: boolean; error: string; next: string | null; more: () => unknown; retry: () => unknown }
  /** What is said of an empty list. */
  empty?: string
  /** The lines of the skeleton. */
  lines?: number
}

/** The end of a list that loads page by page: what is loading, that it is empty, an error, or the button for more. */
export function ListEnd({ list: { items, loaded, busy, error, next, more, retry }, empty, lines }: ListEndProps) {
  return (
    <>
      {!loaded && !error && <Skeleton lines={lines} />}
      {loaded && items.length === 0 && !next && empty && <Empty title={empty} />}
      {error && <Failure message={error} onRetry={retry} />}
      {next && !error && <More busy={busy} onMore={more} />}
    </>
  )
}

/** Moves the focus from an element that is about to go to the one beside it, or else to the content of the page. */
export function leave(element: Element | null) {
  if (!element?.contains(document.activeElement)) return
  const beside = element.nextElementSibling ?? element.previousElementSibling
  const target = beside?.matches('article') ? beside : beside?.querySelector('button')
  ;((target ?? document.getElementById('content')) as HTMLElement | null)?.focus({ preventScroll: true })
}
