// The preferences that this browser stores: language, theme, single-key shortcuts, ranking of the timeline.
import { Store } from './store'
import { en, type Texts } from './texts/en'
import { zh } from './texts/zh'

export const languages = { en, zh }
export const themes = ['auto', 'light', 'dark'] as const

export type Preferences = {
  language: keyof typeof languages
  theme: (typeof themes)[number]
  shortcuts: boolean
  /** The name of one of the server's rankings; '' for its default. */
  ranking: string
}

const storageKey = 'tideline:preferences'

const stored: Partial<Preferences> = JSON.parse(localStorage.getItem(storageKey) ?? '{}')

export const preferences = new Store<Preferences>({
  language: navigator.language.startsWith('zh') ? 'zh' : 'en',
  theme: 'auto',
  shortcuts: true,
  ranking: '',
  ...stored,
})

/** The texts in the chosen language. */
export let t: Texts = en

function apply() {
  const { language, theme } = preferences.state
  t = languages[language]
  document.documentElement.lang = language
  document.documentElement.dataset.theme = theme
}
apply()

// This is the first watcher, so components that redraw after a change find the new texts.
preferences.watch(() => {
  localStorage.setItem(storageKey, JSON.stringify(preferences.state))
  apply()
})
