// Suspended users: the list, and what a moderator sees in place of the profile of one.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'

import { useAction } from '../action'
import { request } from '../api'
import { useChanges } from '../changes'
import { usePages } from '../pages'
import { Failure, ListEnd, Skeleton, exact } from '../parts'
import { Suspend } from './acts'
import { SuspensionOf, Suspensions as AllSuspensions, type Suspension } from './documents'
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
  return <Card suspension={found} heading onActed={() => void renew()} />
}

type CardProps = {
  suspension: Suspension
  /** The card is a page of its own. */
  heading?: boolean
  /** The moderator has ended the suspension, or changed their mind. */
  onActed: () => void
}

function Card({ suspension: { id, handle, name, reason, until }, heading, onActed }: CardProps) {
  const [asking, setAsking] = useState(false)
  const Name = heading ? 'h1' : 'h2'
  const close = () => {
    setAsking(false)
    onActed()
  }
  return (
    <section class="panel">
      <Name>
        <bdi>{name}</bdi>
      </Name>
      <p class="muted">
        {heading ? `@${handle}` : <a href={`/@${handle}`}>@{handle}</a>}{' '}
        <span class="tag">{until ? m().suspendedUntil(exact(until)) : m().suspended}</span>
      </p>
      {reason && <p dir="auto">{m().toldWhy(reason)}</p>}
      <div class="buttons">
        <button class="quiet" onClick={() => setAsking(true)}>
          {m().unsuspend}
        </button>
      </div>
      {asking && <Suspend user={{ id, handle }} suspended inPlace onClose={close} />}
    </section>
  )
}

/** The list of all suspended users. */
export function Suspensions() {
  const list = usePages<Suspension>(async (after) => (await request(AllSuspensions, { after })).suspensions, [])
  return (
    <>
      {list.items.map((suspension) => (
        <Card suspension={suspension} onActed={() => void list.refresh()} key={suspension.id} />
      ))}
      <ListEnd list={list} empty={m().noneSuspended} />
    </>
  )
}
