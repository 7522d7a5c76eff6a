// The texts of the pages for moderators, which nobody else loads.
import { preferences } from '../preferences'
import { en } from './en'
import { zh } from './zh'

const languages = { en, zh }

/** Returns the texts in the chosen language. */
export const m = () => languages[preferences.state.language]
