// What a moderator sees in place of the profile of a suspended user.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'

import { useAction } from '../action'
import { request } from '../api'
import { useChanges } from '../changes'
import { exact, Failure, Skeleton } from '../parts'
import { Suspend } from './acts'
import { SuspensionOf, type Suspension } from './documents'
import { m } from './texts'

type Props = {
  handle: string
  /** Drawn if no user with the handle is suspended. */
  children: ComponentChildren
  /** The suspension has ended. */
  onEnded: () => void
}

export function Suspended({ handle, children, onEnded }: Props) {
  const [found, setFound] = useState<Suspension | null>()
  const [asking, setAsking] = useState(false)
  const { run, error } = useAction()
  const load = () => run(async () => setFound((await request(SuspensionOf, { handle })).suspension))
  useEffect(() => void load(), [handle])
  // Until the page knows better, the user is as before.
  const renew = async () => {
    const answer = await request(SuspensionOf, { handle }).catch(() => null)
    if (answer && !answer.suspension) onEnded()
  }
  useChanges((change) => {
    if (change.what === 'much') void renew()
  })
  if (found === undefined) return error ? <Failure message={error} onRetry={load} /> : <Skeleton />
  if (found === null) return <>{children}</>
  const close = () => {
    setAsking(false)
    void renew()
  }
  return (
    <section class="panel">
      <h1>
        <bdi>{found.name}</bdi>
      </h1>
      <p class="muted">
        @{found.handle} <span class="tag">{found.until ? m().suspendedUntil(exact(found.until)) : m().suspended}</span>
      </p>
      {found.reason && <p dir="auto">{m().toldWhy(found.reason)}</p>}
      <div class="buttons">
        <button class="quiet" onClick={() => setAsking(true)}>
          {m().unsuspend}
        </button>
      </div>
      {asking && <Suspend user={{ id: found.userId, handle: found.handle }} suspended inPlace onClose={close} />}
    </section>
  )
}
