// Names the browser and the system in a User-Agent header.

// In this order, because browsers name the ones that they imitate, too.
const browsers = [
  [/MicroMessenger\//, 'WeChat'],
  [/Edg(?:e|A|iOS)?\//, 'Edge'],
  [/OPR\/|Opera/, 'Opera'],
  [/SamsungBrowser\//, 'Samsung Internet'],
  [/Firefox\/|FxiOS\//, 'Firefox'],
  [/Chrome\/|CriOS\/|Chromium\//, 'Chrome'],
  [/Safari\//, 'Safari'],
] as const

const systems = [
  [/Android/, 'Android'],
  [/iPhone/, 'iPhone'],
  [/iPad/, 'iPad'],
  [/Windows/, 'Windows'],
  [/CrOS/, 'ChromeOS'],
  [/Mac OS X|Macintosh/, 'macOS'],
  [/Linux|X11/, 'Linux'],
] as const

const first = (list: readonly (readonly [RegExp, string])[], agent: string) => list.find(([mark]) => mark.test(agent))?.[1] ?? ''

/** Returns '' for what the header does not name. */
export const deviceIn = (agent: string) => ({ browser: first(browsers, agent), system: first(systems, agent) })
