// Formats numbers in the chosen language.
import { preferences } from '../app/preferences'

/** A number with at most ten significant digits. */
export const figure = (n: number) => String(Number(n.toPrecision(10)))

export const count = (n: number) => n.toLocaleString(preferences.state.language)

const unit = (value: number, name: string, digits = 0) =>
  value.toLocaleString(preferences.state.language, { style: 'unit', unit: name, unitDisplay: 'narrow', maximumFractionDigits: digits })

/** A duration in seconds, in the unit that suits its size. */
export function duration(seconds: number): string {
  if (seconds < 1) return unit(seconds * 1000, 'millisecond', seconds < 0.01 ? 1 : 0)
  if (seconds < 120) return unit(seconds, 'second', seconds < 10 ? 1 : 0)
  if (seconds < 2 * 3600) return unit(seconds / 60, 'minute')
  if (seconds < 48 * 3600) return unit(seconds / 3600, 'hour')
  return unit(seconds / 86_400, 'day')
}

export function bytes(n: number): string {
  const names = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte']
  let i = 0
  for (; n >= 1000 && i < names.length - 1; i++) n /= 1000
  return n.toLocaleString(preferences.state.language, { style: 'unit', unit: names[i]!, maximumFractionDigits: n < 10 && i ? 1 : 0 })
}

/** The exact date and time. */
export const moment = (at: string) => new Date(at).toLocaleString(preferences.state.language, { dateStyle: 'medium', timeStyle: 'medium' })
