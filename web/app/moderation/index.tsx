// The pages for moderators and admins, and the dialogs with which they act. This is a module of its own, which loads when it is needed.
import { Empty } from '../parts'
import { preferences } from '../preferences'
import { moderationPages, type ModerationPage } from '../route'
import { administers, moderates, session } from '../session'
import { useStore } from '../store'
import { Log } from './log'
import './moderation.css'
import { Queue } from './queue'
import { Roles } from './roles'
import { Suspensions } from './suspended'
import { m } from './texts'

export { HidePost, Suspend } from './acts'
export { GiveRole } from './roles'
export { Suspended } from './suspended'

export function Moderation({ page }: { page: ModerationPage }) {
  useStore(preferences)
  const user = useStore(session)?.user
  const open = moderationPages.filter((name) => (name === 'roles' || name === 'log' ? administers(user) : moderates(user)))
  if (!open.includes(page)) return <Empty title={moderates(user) ? m().forAdmins : m().forModerators} whole />
  return (
    <>
      <div class="head">
        <h1>{m().pages[page]}</h1>
      </div>
      <nav class="counts" aria-label={m().moderation}>
        {open.map((name) => (
          <a href={name === 'open' ? '/moderation' : `/moderation/${name}`} aria-current={name === page ? 'page' : undefined} key={name}>
            {m().tabs[name]}
          </a>
        ))}
      </nav>
      {page === 'suspended' ? <Suspensions /> : page === 'roles' ? <Roles /> : page === 'log' ? <Log /> : <Queue status={page} key={page} />}
    </>
  )
}
