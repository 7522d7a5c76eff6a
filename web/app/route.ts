// Maps addresses to views, and changes the view without a reload.
import { useLayoutEffect, useRef } from 'preact/hooks'

import { Store, useStore } from './store'

export type Tab = 'posts' | 'followers' | 'following'

/** The sections of the settings. */
export const sections = ['profile', 'account', 'sessions', 'words', 'muted', 'conversations', 'blocked', 'requests', 'likes'] as const
export type Section = (typeof sections)[number]

/** The pages for moderators: reports and, for admins, roles and the audit log. */
export const moderationPages = ['open', 'upheld', 'dismissed', 'suspended', 'roles', 'log'] as const
export type ModerationPage = (typeof moderationPages)[number]

export type Route =
  | { name: 'home' | 'people' | 'public' | 'login' | 'lost' }
  /** Without a section: the list of the sections. */
  | { name: 'settings'; section?: Section }
  | { name: 'moderation'; page: ModerationPage }
  | { name: 'profile'; handle: string; tab: Tab }
  | { name: 'post'; id: string; list?: 'reposts' | 'quotes' }
  | { name: 'tag'; tag: string }
  | { name: 'search'; query: string }

// The server must answer these addresses with the app: isPage in web.go lists them.
function parse(address: string): Route {
  if (address === '/') return { name: 'home' }
  if (['/people', '/public', '/login'].includes(address)) return { name: address.slice(1) as 'people' | 'public' | 'login' }
  if (address === '/settings') return { name: 'settings' }
  const search = address.match(/^\/search(?:\?(.*))?$/)
  if (search) return { name: 'search', query: new URLSearchParams(search[1]).get('q')?.trim() ?? '' }
  const section = sections.find((name) => address === `/settings/${name}`)
  if (section) return { name: 'settings', section }
  const page = moderationPages.find((name) => address === (name === 'open' ? '/moderation' : `/moderation/${name}`))
  if (page) return { name: 'moderation', page }
  const profile = address.match(/^\/@(\w+)(?:\/(followers|following))?$/)
  if (profile) return { name: 'profile', handle: profile[1]!.toLowerCase(), tab: (profile[2] as Tab | undefined) ?? 'posts' }
  const post = address.match(/^\/post\/([\w-]+)(?:\/(reposts|quotes))?$/)
  if (post) return { name: 'post', id: post[1]!, list: post[2] as 'reposts' | 'quotes' | undefined }
  const tag = address.match(/^\/tag\/([^/]+)$/)
  return tag ? { name: 'tag', tag: decoded(tag[1]!) } : { name: 'lost' }
}

/** Decodes a part of an address. An invalid part, which somebody may have typed, stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** The part of an address that the app knows: its path and, for a search, the query. */
const addressOf = ({ pathname, search }: Pick<Location, 'pathname' | 'search'>) => (pathname === '/search' ? pathname + search : pathname)

/** top: where to scroll; undefined: the reader stays where they are. */
type Place = { route: Route; address: string; top: number | undefined }

const place = new Store<Place>({ route: parse(addressOf(location)), address: addressOf(location), top: 0 })
// The scroll position of the home view, restored however the reader returns to it.
let homeTop = 0

function arrive(top: number) {
  const from = place.state.address
  const address = addressOf(location)
  if (from === '/') homeTop = scrollY
  // The server wrote it for the address that was loaded. Browsers share the canonical address.
  if (address !== from) document.querySelector('link[rel=canonical]')?.remove()
  place.set({ route: parse(address), address, top: address === '/' && from !== '/' ? homeTop : top })
}

// The browser's own restoration would scroll before the view is drawn.
history.scrollRestoration = 'manual'

export function go(address: string) {
  if (address !== addressOf(location)) {
    history.replaceState({ ...history.state, top: scrollY }, '')
    // The log-in page leads back to the page from which it was opened.
    history.pushState({ inside: true, ...(address === '/login' && { from: addressOf(location) }) }, '', address)
  }
  arrive(0)
}

/** Replaces the address, and keeps the focus and the scroll position. */
export function replace(address: string) {
  history.replaceState(history.state, '', address)
  place.set({ route: parse(address), address, top: undefined })
}

/** Leaves the log-in page for the page from which it was opened. */
export function leaveLogin() {
  history.replaceState(null, '', history.state?.from ?? '/')
  arrive(0)
}

/** Handles a click on a back link: goes to the previous view, if the app showed one. Otherwise the link is followed. */
export function back(event: MouseEvent) {
  if (history.state?.inside) {
    event.preventDefault()
    history.back()
  }
}

addEventListener('popstate', (event) => arrive(event.state?.top ?? 0))

// Links are ordinary links, so opening a new tab and copying the address work as usual.
document.addEventListener('click', (event) => {
  const link = (event.target as Element).closest?.('a')
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
  if (link.origin !== location.origin || link.hash || link.target || parse(addressOf(link)).name === 'lost') return
  event.preventDefault()
  go(addressOf(link))
})

/** Returns the view to draw. After each change of view, focuses its content and restores its scroll position. */
export function useRoute(): Route {
  const { route, address, top } = useStore(place)
  const drawn = useRef<string | undefined>(undefined)
  useLayoutEffect(() => {
    // After a load, the browser has set the focus itself.
    if (drawn.current !== undefined && top !== undefined) {
      scrollTo({ top, behavior: 'instant' })
      document.getElementById('content')?.focus({ preventScroll: true })
    }
    drawn.current = address
  }, [place.state])
  return route
}
