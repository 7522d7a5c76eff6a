// What the server says of the viewer, and what a moderator has to do: the number of open reports.
import { request } from './api'
import { OpenReports, type Session } from './documents'
import { move } from './draft'
import { begin, moderates, session } from './session'
import { Store } from './store'

/** The number of open reports. more: there are more than that. */
export const openReports = new Store({ count: 0, more: false })

/** Stores in the session what changed of the viewer on another device. For a moderator, also counts the open reports. */
export async function learnViewer(viewer: Session['user']) {
  const now = session.state
  const changed = (name: keyof Session['user']) => now?.user[name] !== viewer[name]
  if (now && !changed('id') && (['handle', 'name', 'avatarUrl', 'defaultVisibility', 'role'] as const).some(changed)) {
    move(now.user.handle, viewer.handle)
    begin({ ...now, user: { ...now.user, ...viewer } })
  }
  await countReports()
}

export async function countReports() {
  if (!moderates(session.state?.user)) return openReports.set({ count: 0, more: false })
  try {
    const { reports } = await request(OpenReports, {})
    openReports.set({ count: reports.nodes.length, more: reports.pageInfo.hasNextPage })
  } catch {
    // The next attempt may succeed. Until then the old number stays.
  }
}
