// Maps addresses to views, and changes the view without a reload.
import { useLayoutEffect, useRef } from 'preact/hooks'

import { Store, useStore } from './store'

export type Tab = 'posts' | 'followers' | 'following'

/** The sections of the settings. */
export const sections = ['profile', 'account', 'sessions', 'words', 'muted', 'blocked', 'requests', 'likes'] as const
export type Section = (typeof sections)[number]

/** The pages for moderators: reports and, for admins, roles and the audit log. */
export const moderationPages = ['open', 'upheld', 'dismissed', 'roles', 'log'] as const
export type ModerationPage = (typeof moderationPages)[number]

export type Route =
  | { name: 'home' | 'people' | 'login' | 'lost' }
  /** Without a section: the list of the sections. */
  | { name: 'settings'; section?: Section }
  | { name: 'moderation'; page: ModerationPage }
  | { name: 'profile'; handle: string; tab: Tab }
  | { name: 'post'; id: string; list?: 'reposts' | 'quotes' }
  | { name: 'tag'; tag: string }

// The server must answer these addresses with the app: isPage in web.go lists them.
function parse(address: string): Route {
  if (address === '/') return { name: 'home' }
  if (address === '/people' || address === '/login') return { name: address.slice(1) as 'people' | 'login' }
  if (address === '/settings') return { name: 'settings' }
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

type Place = { route: Route; address: string; top: number }

const place = new Store<Place>({ route: parse(location.pathname), address: location.pathname, top: 0 })
// The scroll position of the home view, restored however the reader returns to it.
let homeTop = 0

function arrive(top: number) {
  const from = place.state.address
  const address = location.pathname
  if (from === '/') homeTop = scrollY
  place.set({ route: parse(address), address, top: address === '/' && from !== '/' ? homeTop : top })
}

// The browser's own restoration would scroll before the view is drawn.
history.scrollRestoration = 'manual'

export function go(address: string) {
  if (address !== location.pathname) {
    history.replaceState({ ...history.state, top: scrollY }, '')
    // The log-in page leads back to the page from which it was opened.
    history.pushState({ inside: true, ...(address === '/login' && { from: location.pathname }) }, '', address)
  }
  arrive(0)
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
  if (link.origin !== location.origin || link.hash || link.target || parse(link.pathname).name === 'lost') return
  event.preventDefault()
  go(link.pathname)
})

/** Returns the view to draw. After each change of view, focuses its content and restores its scroll position. */
export function useRoute(): Route {
  const { route, address, top } = useStore(place)
  const drawn = useRef<string | undefined>(undefined)
  useLayoutEffect(() => {
    // After a load, the browser has set the focus itself.
    if (drawn.current !== undefined) {
      scrollTo({ top, behavior: 'instant' })
      document.getElementById('content')?.focus({ preventScroll: true })
    }
    drawn.current = address
  }, [place.state])
  return route
}
