// The panels that show the latest snapshot.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

import { useAction } from '../app/action'
import { Confirm, notify, Time } from '../app/parts'
import { call, type Job, type Process, type Snapshot } from './api'
import { bytes, count, duration } from './forms'
import { w } from './texts'

type Now = { now: Snapshot }

/** A table that scrolls sideways, also with the keyboard, if it is wider than the page. */
export function Table({ label, head, children }: { label: string; head: string[]; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((name, i) => (
              <th scope="col" key={i}>
                {name || <span class="hidden">{w().actions}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

function Tile({ name, value, alarm }: { name: string; value: string; alarm?: boolean }) {
  return (
    <div class="tile" data-alarm={alarm}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  )
}

/** The wait of a job that raises an alarm, in seconds. The metric tideline_jobs_lagging has the same limit. */
const lag = 30

export function Glance({ now }: Now) {
  const depth = now.pools.reduce((sum, pool) => sum + pool.depth, 0)
  const oldest = Math.max(0, ...now.pools.map((pool) => pool.oldest))
  const bad = Object.entries(now.checks).filter(([, state]) => state !== 'ok')
  const canary = now.metrics['tideline_canary_seconds.subscriber']
  const up = now.processes.filter((p) => p.state !== 'gone')
  return (
    <section class="panel" aria-label={w().glance}>
      <h2>{w().glance}</h2>
      <dl class="tiles">
        <Tile name={w().checks} value={bad.length ? bad.map(([name, state]) => `${name}: ${state}`).join(', ') : w().healthy} alarm={bad.length > 0} />
        <Tile name={w().processes} value={count(up.length)} alarm={up.length < now.processes.length} />
        <Tile name={w().outstanding} value={count(depth)} />
        <Tile name={w().oldest} value={duration(oldest)} alarm={oldest > lag} />
        <Tile name={w().givenUp} value={count(now.dead)} alarm={now.dead > 0} />
        <Tile name={w().connections} value={count(up.reduce((sum, p) => sum + p.subscriptions, 0))} />
        {canary !== undefined && <Tile name={w().canary} value={duration(canary)} alarm={canary > lag} />}
        {now.webhooks && <Tile name={w().webhooks} value={count(now.webhooks.pending)} alarm={now.webhooks.dead > 0} />}
        <Tile name={w().version} value={now.version} />
      </dl>
    </section>
  )
}

export function Processes({ now }: Now) {
  const [asked, ask] = useState<Process | null>(null)
  const { run, busy } = useAction(notify)
  const want = (p: Process, wanted: 'pause' | 'run') =>
    run(async () => {
      await call('POST', '/api/workers', { id: p.id, wanted })
      notify(w().told)
    })
  const held = (p: Process) => p.state === 'paused' || p.state === 'draining' || p.state === 'pausing'
  return (
    <section class="panel" aria-label={w().processes}>
      <h2>{w().processes}</h2>
      <Table label={w().processes} head={['ID', w().host, w().roles, w().version, w().started, w().seen, w().subscriptions, w().jobs, w().state, '']}>
        {now.processes.map((p) => (
          <tr key={p.id} data-process={p.id}>
            <th scope="row">
              {p.id}
              {p.id === now.process && <span class="tag">{w().thisOne}</span>}
            </th>
            <td>
              {p.host} <small>{p.pid}</small>
            </td>
            <td>{p.roles.replace(',', ', ')}</td>
            <td>{p.version}</td>
            <td>
              <Time at={p.startedAt} />
            </td>
            <td>
              <Time at={p.seenAt} />
            </td>
            <td class="number">{count(p.subscriptions)}</td>
            <td class="number">{count(p.jobs)}</td>
            <td>
              <span class="state" data-state={p.state}>
                {w().states[p.state]}
              </span>
            </td>
            <td>
              {p.workers && p.state !== 'gone' && (
                <button class="quiet small" disabled={busy} onClick={() => (held(p) ? want(p, 'run') : ask(p))} aria-label={`${held(p) ? w().resume : w().pause} ${p.id}`}>
                  {held(p) ? w().resume : w().pause}
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {asked && (
        <Confirm
          title={w().pauseTitle(asked.host)}
          hint={w().pauseHint}
          action={w().pause}
          onNo={() => ask(null)}
          onYes={() => {
            ask(null)
            want(asked, 'pause')
          }}
        />
      )}
    </section>
  )
}

export function Queue({ now }: Now) {
  return (
    <section class="panel" aria-label={w().queue}>
      <h2>{w().queue}</h2>
      <div class="pair">
        <Table label={w().pool} head={[w().pool, w().depth, w().oldest]}>
          {now.pools.map((of) => (
            <tr key={of.pool}>
              <th scope="row">{of.pool}</th>
              <td class="number">{count(of.depth)}</td>
              <td class="number">{of.depth ? duration(of.oldest) : '–'}</td>
            </tr>
          ))}
        </Table>
        {now.kinds.length ? (
          <Table label={w().kind} head={[w().kind, w().pool, w().depth, w().tried, w().dead]}>
            {now.kinds.map((of) => (
              <tr key={of.kind + of.pool} data-kind={of.kind}>
                <th scope="row">{of.kind}</th>
                <td>{of.pool}</td>
                <td class="number">{count(of.depth)}</td>
                <td class="number">{count(of.tried)}</td>
                <td class="number">{count(of.dead)}</td>
              </tr>
            ))}
          </Table>
        ) : (
          <p class="muted">{w().noJobs}</p>
        )}
      </div>
    </section>
  )
}

export function GivenUp({ now }: Now) {
  const [asking, ask] = useState(false)
  const { run, busy } = useAction(notify)
  const retry = (body: { ids: number[] } | { all: true }) =>
    run(async () => {
      const { retried } = await call<{ retried: number }>('POST', '/api/jobs/retry', body)
      notify(w().retried(retried))
    })
  const [unwanted, discard] = useState<Job | null>(null)
  const discardJob = (job: Job) =>
    run(async () => {
      const { feedsStale } = await call<{ feedsStale: boolean }>('POST', '/api/jobs/discard', { ids: [job.id] })
      notify(feedsStale ? w().discardedStale : w().discarded)
    })
  return (
    <section class="panel" aria-label={w().givenUp}>
      <div class="row">
        <h2>{w().givenUp}</h2>
        {now.dead > 1 && (
          <button class="quiet small" disabled={busy} onClick={() => ask(true)}>
            {w().retryAll}
          </button>
        )}
      </div>
      {now.deadJobs.length ? (
        <Jobs list={now.deadJobs} label={w().givenUp}>
          {(job) => (
            <>
              <button class="quiet small" disabled={busy} onClick={() => retry({ ids: [job.id] })} aria-label={`${w().retry}: ${job.id}`}>
                {w().retry}
              </button>{' '}
              <button class="quiet small" disabled={busy} onClick={() => discard(job)} aria-label={`${w().discard}: ${job.id}`}>
                {w().discard}
              </button>
            </>
          )}
        </Jobs>
      ) : (
        <p class="muted">{w().noneGivenUp}</p>
      )}
      {now.dead > now.deadJobs.length && <p class="muted">{w().more(now.dead - now.deadJobs.length)}</p>}
      {asking && (
        <Confirm
          title={w().retryAllTitle(now.dead)}
          hint={w().retryAllHint}
          action={w().retryAll}
          onNo={() => ask(false)}
          onYes={() => {
            ask(false)
            retry({ all: true })
          }}
        />
      )}
      {unwanted && (
        <Confirm
          title={w().discardTitle(`${unwanted.kind} ${unwanted.id}`)}
          hint={w().discardHint}
          action={w().discard}
          onNo={() => discard(null)}
          onYes={() => {
            discard(null)
            discardJob(unwanted)
          }}
        />
      )}
    </section>
  )
}

/** A table of jobs. children returns the actions for a job. */
export function Jobs({ list, label, children }: { list: Job[]; label: string; children?: (job: Job) => ComponentChildren }) {
  return (
    <Table label={label} head={[w().job, w().kind, w().pool, w().attempts, w().created, w().error, ...(children ? [''] : [])]}>
      {list.map((job) => (
        <tr key={job.id} data-job={job.id}>
          <th scope="row">{job.id}</th>
          <td>
            {job.kind} <small class="payload">{JSON.stringify(job.payload)}</small>
          </td>
          <td>{job.pool}</td>
          <td class="number">{count(job.attempts)}</td>
          <td>
            <Time at={job.createdAt} />
          </td>
          <td class="error">{job.error || '–'}</td>
          {children && <td>{children(job)}</td>}
        </tr>
      ))}
    </Table>
  )
}

function Reach({ up }: { up: boolean }) {
  return (
    <span class="state" data-state={up ? 'running' : 'gone'}>
      {up ? w().reachable : w().away}
    </span>
  )
}

export function Stores({ now }: Now) {
  const { sql, redis } = now.stores
  return (
    <section class="panel" aria-label={w().stores}>
      <h2>{w().stores}</h2>
      <div class="pair">
        <div>
          <h3>
            {sql.dialect === 'postgres' ? 'PostgreSQL' : 'SQLite'} {sql.version} <Reach up={sql.up} />
          </h3>
          <dl class="facts">
            <Fact name={w().took}>{duration(sql.took)}</Fact>
            <Fact name={w().size}>{bytes(sql.bytes)}</Fact>
            <Fact name={w().pooled}>{w().inUse(sql.inUse, sql.open, sql.most)}</Fact>
            <Fact name={w().waited}>{count(sql.waited)}</Fact>
          </dl>
        </div>
        <div>
          <h3>
            Redis {redis.embedded && w().embedded} <Reach up={redis.up} />
          </h3>
          <dl class="facts">
            <Fact name={w().pooled}>{w().idle(redis.idle, redis.open)}</Fact>
            <Fact name={w().timeouts}>{count(redis.timeouts)}</Fact>
          </dl>
        </div>
      </div>
      {redis.masters.length > 0 && (
        <>
          <Table label="Redis" head={[w().master, w().version, w().up, w().memory, w().clients, w().replicas, w().commands, w().incarnation]}>
            {redis.masters.map((m) => (
              <tr key={m.addr}>
                <th scope="row">{m.addr}</th>
                <td>{m.version}</td>
                <td class="number">{duration(m.up)}</td>
                <td class="number">
                  {bytes(m.used)}
                  {m.most > 0 && ` / ${bytes(m.most)}`} <small>{m.eviction}</small>
                </td>
                <td class="number">{count(m.clients)}</td>
                <td class="number">{count(m.replicas)}</td>
                <td class="number">{count(m.commands)}</td>
                <td>
                  <code>{m.incarnation.slice(0, 12) || '–'}</code>
                </td>
              </tr>
            ))}
          </Table>
          <p class="muted">{w().incarnationHint}</p>
        </>
      )}
    </section>
  )
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

export function Live({ now: { metrics } }: Now) {
  const facts: [string, number | undefined, (n: number) => string][] = [
    [w().sockets, metrics.tideline_sockets, count],
    [w().subscriptions, metrics.tideline_live_subscriptions, count],
    [w().events, metrics.tideline_live_events_total, count],
    [w().lagged, metrics.tideline_live_lagged_total, count],
    [w().resyncs, metrics.tideline_live_resyncs_total, count],
    [w().connects, metrics.tideline_live_connects_total, count],
    [w().resident, metrics.process_resident_memory_bytes, bytes],
    [w().goroutines, metrics.go_goroutines, count],
  ]
  return (
    <section class="panel" aria-label={w().here}>
      <h2>{w().here}</h2>
      <dl class="facts">
        {facts.map(
          ([name, value, form]) =>
            value !== undefined && (
              <Fact name={name} key={name}>
                {form(value)}
              </Fact>
            ),
        )}
      </dl>
    </section>
  )
}
