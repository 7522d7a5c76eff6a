// Completes the mention that is being typed into a box.
import type { ComponentChildren, RefObject } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'

import { request } from './api'
import { Mentionable } from './documents'
import { Avatar } from './parts'
import { t } from './preferences'

type Person = { id: string; handle: string; name: string; avatarUrl: string | null }

/** The pause in typing after which the search starts, in milliseconds. */
const pause = 150
/** The number of people to choose from. */
const most = 5

/** The beginning of a mention before the caret. A letter, a digit or a slash before the sign makes it part of an address. */
const begun = /(?<![\w/@＠.])[@＠]([A-Za-z0-9_]{1,30})$/u

type Completion = {
  /** The attributes of the box, by which screen readers find the list. */
  attributes: Partial<Record<string, string>>
  list: ComponentChildren
  /** Looks for a mention before the caret. */
  look: () => void
  /** Handles a key, and reports whether the key was for the list. */
  onKey: (event: KeyboardEvent) => boolean
  close: () => void
}

/** Offers people for the mention before the caret of a box with this text. */
export function useCompletion(area: RefObject<HTMLTextAreaElement | null>, text: string, onText: (text: string) => void): Completion {
  const [query, setQuery] = useState('')
  const [people, setPeople] = useState<Person[]>([])
  const [at, setAt] = useState(0)
  const id = useId()
  // Where the caret goes once the new text is drawn.
  const caret = useRef<number | undefined>(undefined)

  useEffect(() => {
    setPeople((before) => (query ? before : []))
    if (!query) return
    let current = true
    const timer = setTimeout(async () => {
      // A completion is a help: without an answer there is none.
      const found = await request(Mentionable, { query, first: most }).catch(() => null)
      if (!current) return
      setPeople(found?.users.nodes ?? [])
      setAt(0)
    }, pause)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [query])

  useEffect(() => {
    if (caret.current === undefined) return
    area.current!.focus()
    area.current!.setSelectionRange(caret.current, caret.current)
    caret.current = undefined
  }, [text])

  const look = () => {
    const { value, selectionStart, selectionEnd } = area.current!
    setQuery(selectionStart === selectionEnd ? (begun.exec(value.slice(0, selectionStart))?.[1] ?? '') : '')
  }
  const close = () => setQuery('')
  const choose = ({ handle }: Person) => {
    const { value, selectionStart } = area.current!
    const start = value.slice(0, selectionStart).search(begun)
    close()
    if (start < 0) return
    const rest = value.slice(selectionStart)
    caret.current = start + handle.length + 2
    onText(`${value.slice(0, start)}@${handle}${rest.startsWith(' ') ? '' : ' '}${rest}`)
  }

  const open = query !== '' && people.length > 0
  const onKey = (event: KeyboardEvent): boolean => {
    if (!open || event.isComposing) return false
    const { key } = event
    if (key === 'ArrowDown' || key === 'ArrowUp') setAt((at + (key === 'ArrowDown' ? 1 : people.length - 1)) % people.length)
    else if ((key === 'Enter' && !event.ctrlKey && !event.metaKey) || key === 'Tab') choose(people[at]!)
    else if (key === 'Escape') close()
    else return false
    event.preventDefault()
    event.stopPropagation()
    return true
  }

  const list = (
    <>
      {open && (
        <ul class="completion" role="listbox" id={id} aria-label={t.people}>
          {people.map((person, i) => (
            // The pointer must not take the focus from the box.
            <li key={person.id} id={`${id}-${i}`} role="option" aria-selected={i === at} onMouseDown={(event) => event.preventDefault()} onClick={() => choose(person)}>
              <Avatar person={person} />
              <span class="who">
                <b dir="auto">{person.name}</b> <span class="muted">@{person.handle}</span>
              </span>
            </li>
          ))}
        </ul>
      )}
      <span class="hidden" role="status">
        {open && t.found(people.length)}
      </span>
    </>
  )
  // The box stays a text box, because HTML does not let a field of several lines be a combobox.
  const attributes: Completion['attributes'] = open ? { 'aria-autocomplete': 'list', 'aria-haspopup': 'listbox', 'aria-controls': id, 'aria-activedescendant': `${id}-${at}` } : {}
  return { attributes, list, look, onKey, close }
}
