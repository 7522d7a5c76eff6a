// What a moderator has to do: the role of the viewer, and the number of open reports.
import { request } from './api'
import { OpenReports, type Role } from './documents'
import { begin, moderates, session } from './session'
import { Store } from './store'

/** The number of open reports. more: there are more than that. */
export const openReports = new Store({ count: 0, more: false })

/** Stores the viewer's role in the session. For a moderator, also counts the open reports. */
export async function learnRole(role: Role | null) {
  const now = session.state
  if (now && now.user.role !== role) begin({ ...now, user: { ...now.user, role } })
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
