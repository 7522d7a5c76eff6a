// The forms with which an admin looks up the journey of a post and the state of a timeline.
import { useState } from 'preact/hooks'

import { useAction } from '../app/action'
import { Confirm, notify } from '../app/parts'
import { call, type Journey, type Timeline } from './api'
import { count, duration, figure, moment } from './forms'
import { Fact, Jobs, Table } from './panels'
import { w } from './texts'

const fieldsOf = (event: SubmitEvent) => {
  event.preventDefault()
  const form = new FormData(event.currentTarget as HTMLFormElement)
  return (name: string) => encodeURIComponent(String(form.get(name) ?? '').trim())
}

function Wrong({ error }: { error: string }) {
  if (!error) return null
  return (
    <p class="wrong" role="alert">
      {error}
    </p>
  )
}

export function PostLook() {
  const [found, setFound] = useState<Journey | null>(null)
  const { run, busy, error } = useAction()
  const look = (event: SubmitEvent) => {
    const field = fieldsOf(event)
    setFound(null)
    run(async () => setFound(await call<Journey>('GET', `/api/post?id=${field('id')}&viewer=${field('viewer')}`)))
  }
  return (
    <section class="panel stack look" aria-label={w().journey}>
      <h2>{w().journey}</h2>
      <form class="search-line" onSubmit={look}>
        <label>
          {w().postId}
          <input name="id" required maxLength={200} autocomplete="off" spellcheck={false} aria-describedby="post-hint" />
        </label>
        <label>
          {w().viewer}
          <input name="viewer" maxLength={200} autocomplete="off" autocapitalize="none" spellcheck={false} aria-describedby="viewer-hint" />
        </label>
        <button disabled={busy}>{w().trace}</button>
        <small id="post-hint">{w().postHint}</small>
        <small id="viewer-hint">{w().viewerHint}</small>
      </form>
      <Wrong error={error} />
      {found && (
        <div role="status" class="stack">
          {found.why && (
            <p class="note">
              <b>{w().explained(found.viewer!)}</b> {found.why}
            </p>
          )}
          <dl class="facts">
            <Fact name={w().postId}>{found.post}</Fact>
            {found.createdAt === undefined ? (
              <Fact name={w().visibility}>{w().gone}</Fact>
            ) : (
              <>
                <Fact name={w().author}>{found.author ? `@${found.author}` : '–'}</Fact>
                <Fact name={w().written}>{moment(found.createdAt)}</Fact>
                <Fact name={w().visibility}>{found.visibility}</Fact>
                <Fact name={w().receipt}>
                  {found.receipt ? (
                    <>
                      {found.receipt.done ? w().done : w().underWay}: {w().reached(found.receipt.pushed, found.receipt.pulled, found.receipt.skipped)}
                    </>
                  ) : (
                    w().noReceipt
                  )}
                </Fact>
                {found.receipt?.done && found.receipt.pushed > 0 && (
                  <Fact name={w().lags}>{[found.receipt.firstLag, found.receipt.medianLag, found.receipt.lastLag].map(duration).join(' · ')}</Fact>
                )}
              </>
            )}
            {!found.jobs.length && <Fact name={w().jobsOfPost}>{w().none}</Fact>}
          </dl>
          {!!found.scores?.length && (
            <Table label={w().scores} head={[w().ranking, w().score, w().signals]}>
              {found.scores.map((s) => (
                <tr key={s.ranking}>
                  <td>{s.ranking}</td>
                  <td>{figure(s.score)}</td>
                  <td>
                    <code>{s.expression}</code>
                    <br />
                    {s.signals.map(({ name, value }) => `${name}: ${figure(value)}`).join(' · ')}
                  </td>
                </tr>
              ))}
            </Table>
          )}
          {found.jobs.length > 0 && <Jobs list={found.jobs} label={w().jobsOfPost} />}
        </div>
      )}
    </section>
  )
}

export function TimelineLook() {
  const [found, setFound] = useState<Timeline | null>(null)
  const [asking, ask] = useState(false)
  const { run, busy, error } = useAction()
  const inspect = async (user: string | number, verify = '') => setFound(await call<Timeline>('GET', `/api/timeline?user=${user}${verify}`))
  const look = (event: SubmitEvent) => {
    const field = fieldsOf(event)
    setFound(null)
    run(() => inspect(field('user')))
  }
  return (
    <section class="panel stack look" aria-label={w().timeline}>
      <h2>{w().timeline}</h2>
      <form class="search-line one" onSubmit={look}>
        <label>
          {w().user}
          <input name="user" required maxLength={200} autocomplete="off" autocapitalize="none" spellcheck={false} aria-describedby="user-hint" />
        </label>
        <button disabled={busy}>{w().inspect}</button>
        <small id="user-hint">{w().userHint}</small>
      </form>
      <Wrong error={error} />
      {found && (
        <div role="status" class="stack">
          <dl class="facts">
            <Fact name={w().user}>
              @{found.handle} ({found.user})
            </Fact>
            <Fact name={w().active}>{found.active ? w().yes : w().no}</Fact>
            <Fact name={w().inbox}>{w().inboxStates[found.state]}</Fact>
            <Fact name={w().entries}>{count(found.entries)}</Fact>
            {found.newest && (
              <Fact name={w().newest}>
                {found.newest.post} ({moment(found.newest.at)})
              </Fact>
            )}
            {!found.allMerged && (
              <Fact name={w().floor}>{!found.ready ? w().nothing : found.floor ? `${found.floor.post} (${moment(found.floor.at)})` : w().beginning}</Fact>
            )}
            <Fact name={w().epoch}>{found.epoch}</Fact>
            <Fact name={w().follows}>
              {count(found.followees)}, {found.allMerged ? w().allMerged : w().merged(found.merged)}
            </Fact>
          </dl>
          {found.verified && <p class="note">{w().verified(found.verified.checked, found.verified.missing, found.verified.extra)}</p>}
          <div class="row end">
            <button class="quiet" disabled={busy} onClick={() => run(() => inspect(found.user, '&verify=1'))}>
              {w().verify}
            </button>
            <button class="quiet" disabled={busy} onClick={() => ask(true)}>
              {w().rebuild}
            </button>
          </div>
        </div>
      )}
      {asking && found && (
        <Confirm
          title={w().rebuildTitle(found.handle)}
          hint={w().rebuildHint}
          action={w().rebuild}
          onNo={() => ask(false)}
          onYes={() => {
            ask(false)
            run(async () => {
              const { built } = await call<{ built: boolean }>('POST', '/api/timelines/rebuild', { user: String(found.user) })
              await inspect(found.user).finally(() => notify(built ? w().rebuilt : w().dropped))
            })
          }}
        />
      )}
    </section>
  )
}
