// Forms that show each fault beside its field.
import { createContext, type ComponentChildren } from 'preact'
import { useContext, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'

import { Count, lengthOf } from './parts'
import { t } from './preferences'
import { ApiError, type Refusal } from './refusal'

/** What is wrong in a form, by the names of its fields. The name '' stands for the form itself. */
type Faults = Record<string, string>

const Current = createContext<{ id: string; faults: Faults }>({ id: '', faults: {} })

type FormProps = {
  children: ComponentChildren
  class?: string
  label?: string
  labelledBy?: string
  /** Sends the values. A refusal that it throws is shown. */
  onSend: (values: FormData) => Promise<void>
  /** The field beside which to show a refusal. Defaults to the field that the refusal names. */
  fieldOf?: (refusal: Refusal) => string | undefined
  /** After the values have been sent, each field gets its first value again. */
  clears?: boolean
  /** The text of the button that sends, if there is one. A press while the form is busy has no effect. */
  submit?: string
  grave?: boolean
  /** The tooltip of the button. */
  title?: string
  /** The button is as wide as the form. */
  wide?: boolean
  /** Draws a button that cancels beside it. */
  onCancel?: () => void
}

/**
 * A form. Sending checks its fields as the browser would, but names each fault in the reader's language beside its field,
 * and focuses the first field at fault. The faults that the server finds are shown in the same way.
 */
export function Form({ children, class: kind = 'stack', label, labelledBy, onSend, fieldOf = ({ field }) => field, clears, submit, grave, title, wide, onCancel }: FormProps) {
  const id = useId()
  const element = useRef<HTMLFormElement>(null)
  const [faults, setFaults] = useState<Faults>({})
  const [busy, setBusy] = useState(false)
  // The number of failed attempts: each one moves the focus, and typing does not.
  const [attempts, setAttempts] = useState(0)
  useLayoutEffect(() => {
    const fields = [...(element.current?.elements ?? [])] as HTMLInputElement[]
    const named = fields.filter(({ name }) => name && faults[name] !== undefined)
    // Of several fields with one name, the browser knows which is at fault, and the server does not.
    const first = named.find(({ validity }) => !validity.valid) ?? named[0]
    first?.focus()
  }, [attempts])
  const fail = (found: Faults) => {
    setFaults(found)
    setAttempts((n) => n + 1)
  }

  const send = async (event: SubmitEvent) => {
    event.preventDefault()
    if (busy) return
    const form = element.current!
    const found = faultsIn(form)
    if (Object.keys(found).length > 0) return fail(found)
    setFaults({})
    setBusy(true)
    try {
      await onSend(new FormData(form))
      if (clears) {
        form.reset()
        for (const field of form.elements) field.dispatchEvent(new Event('input', { bubbles: true }))
      }
    } catch (e) {
      const { message } = e as Error
      const field = (e instanceof ApiError && fieldOf(e.refusal)) || ''
      fail({ [form.elements.namedItem(field) ? field : '']: message })
    } finally {
      setBusy(false)
    }
  }

  const forget = (event: Event) => {
    const { name } = event.target as HTMLInputElement
    if (faults[name]) setFaults(({ [name]: _, ...others }) => others)
  }

  return (
    <form ref={element} class={kind} aria-label={label} aria-labelledby={labelledBy} noValidate onSubmit={send} onInput={forget}>
      <Current.Provider value={{ id, faults }}>{children}</Current.Provider>
      {faults[''] && (
        <p class="wrong" role="alert">
          {faults['']}
        </p>
      )}
      {submit && (
        <div class={wide ? 'stack' : 'row end'}>
          {onCancel && (
            <button type="button" class="quiet" onClick={onCancel}>
              {t.cancel}
            </button>
          )}
          <button class={grave ? 'grave' : ''} aria-disabled={busy} title={title}>
            {submit}
          </button>
        </div>
      )}
    </form>
  )
}

/** The faults that the browser finds. */
function faultsIn(form: HTMLFormElement): Faults {
  const found: Faults = {}
  for (const field of form.elements) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) || field.validity.valid) continue
    const { valueMissing, typeMismatch } = field.validity
    found[field.name] ??= valueMissing ? (field.type === 'radio' ? t.chooseOne : t.refusal({ reason: 'EMPTY' }, '')) : typeMismatch ? t.refusal({ reason: 'NOT_A_URL' }, '') : field.validationMessage
  }
  return found
}

/** The attributes that connect a field with its hint and its fault, and the elements that show the two. */
function useFault(name: string, hint?: ComponentChildren) {
  const form = useContext(Current)
  const id = `${form.id}-${name}`
  const fault = form.faults[name]
  const described = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(' ')
  return {
    id,
    attributes: { 'aria-invalid': fault ? true : undefined, 'aria-describedby': described || undefined } as const,
    notes: (
      <>
        {hint && (
          <small class="muted" id={`${id}-hint`}>
            {hint}
          </small>
        )}
        {fault && (
          <p class="wrong" id={`${id}-fault`}>
            {fault}
          </p>
        )}
      </>
    ),
  }
}

/** What is left of the limit of a field, and the listener that counts. A text that is too long stays, and is a fault. */
function useCount({ type, maxLength: most, bare = String, defaultValue = '' }: Pick<InputProps, 'type' | 'maxLength' | 'bare' | 'defaultValue'>) {
  const [length, setLength] = useState(lengthOf(bare(defaultValue)))
  const listen = ({ currentTarget: field }: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) => {
    const given = lengthOf(bare(field.value))
    field.setCustomValidity(most !== undefined && given > most ? t.refusal({ reason: 'TOO_LONG', given, allowed: most }, '') : '')
    setLength(given)
  }
  // Nobody types a long address, so its limit matters only when it is near.
  const matters = type !== 'url' || (most !== undefined && most - length < 50)
  return { count: matters && <Count length={length} most={most} />, listen }
}

type AreaProps = { name: string; label: string; hint?: ComponentChildren; required?: boolean; maxLength?: number; rows?: number; defaultValue?: string }
type InputProps = Omit<AreaProps, 'rows'> & {
  type?: 'url'
  /** Returns the part of the text that the limit is for. */
  bare?: (text: string) => string
  autocomplete?: string
  autocapitalize?: 'none'
  spellcheck?: boolean
  placeholder?: string
  onInput?: () => void
}

/** A line of text with its label. */
export function Field({ label, hint, type, maxLength, bare, ...input }: Omit<InputProps, 'onInput'>) {
  const { id, attributes, notes } = useFault(input.name, hint)
  const { count, listen } = useCount({ type, maxLength, bare, defaultValue: input.defaultValue })
  return (
    <div class="field">
      <div class="row">
        <label for={id}>{label}</label>
        {count}
      </div>
      <input id={id} dir="auto" {...input} type={type as 'url'} onInput={listen} {...attributes} />
      {notes}
    </div>
  )
}

/** A field for a longer text. */
export function Area({ label, hint, maxLength, ...area }: AreaProps) {
  const { id, attributes, notes } = useFault(area.name, hint)
  const { count, listen } = useCount({ maxLength, defaultValue: area.defaultValue })
  return (
    <div class="field">
      <div class="row">
        <label for={id}>{label}</label>
        {count}
      </div>
      <textarea id={id} dir="auto" {...area} onInput={listen} {...attributes} />
      {notes}
    </div>
  )
}

/** A field for a password, which the reader can show. */
export function Password({ label, hint, ...input }: Omit<InputProps, 'type'>) {
  const { id, attributes, notes } = useFault(input.name, hint)
  const [shown, setShown] = useState(false)
  const toggle = shown ? t.hidePassword : t.showPassword
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="password">
        <input id={id} required autocapitalize="none" spellcheck={false} {...input} type={(shown ? 'text' : 'password') as 'password'} {...attributes} />
        <button type="button" class="link" aria-label={`${toggle}: ${label}`} onClick={() => setShown(!shown)}>
          {toggle}
        </button>
      </div>
      {notes}
    </div>
  )
}

type GroupProps = {
  name: string
  label: string
  class?: string
  /** The fields are the options of one choice. */
  choice?: boolean
  children: ComponentChildren
}

/** Several fields with the same name. */
export function Group({ name, label, class: kind, choice, children }: GroupProps) {
  const { attributes, notes } = useFault(name)
  return (
    <fieldset class={kind} {...(choice && { role: 'radiogroup', ...attributes })}>
      <legend>{label}</legend>
      {children}
      {notes}
    </fieldset>
  )
}

/** A field of a group, with a label that only screen readers read. */
export function Item({ label, type, maxLength, bare, onInput, ...input }: InputProps) {
  const { attributes } = useFault(input.name)
  const { count, listen } = useCount({ type, maxLength, bare, defaultValue: input.defaultValue })
  return (
    <div class="item">
      <input
        aria-label={label}
        {...input}
        type={type as 'url'}
        onInput={(event) => {
          listen(event)
          onInput?.()
        }}
        {...attributes}
      />
      {count}
    </div>
  )
}
