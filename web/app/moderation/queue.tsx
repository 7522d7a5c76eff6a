// The reports: those that wait for a decision, and those that were decided.
import { useLayoutEffect, useRef } from 'preact/hooks'

import { request } from '../api'
import { countReports } from '../duties'
import { usePages, useRenewal } from '../pages'
import { ListEnd } from '../parts'
import { Reports, type Report } from './documents'
import { ReportCard } from './report'
import { m } from './texts'

const statuses = { open: 'OPEN', upheld: 'UPHELD', dismissed: 'DISMISSED' } as const

/** The interval at which the page is read again, in milliseconds. */
const every = 60_000

/** Whether two reports are about the same post or user. They are claimed and decided together. */
const alike = (a: Report, b: Report) => a.reportedId === b.reportedId && a.postId === b.postId

export function Queue({ status }: { status: keyof typeof statuses }) {
  const list = usePages<Report>(async (after) => (await request(Reports, { status: statuses[status], after })).reports, [status])
  const { items } = list
  const refresh = async () => {
    await list.refresh()
    void countReports()
  }
  // Other moderators work on the same reports. A dialog belongs to a report, and keeps what was typed. Closing it
  // reads the page again.
  useRenewal(true, every, async () => {
    if (!document.querySelector('dialog[open]')) await refresh()
  })

  const section = useRef<HTMLElement>(null)
  const focused = useRef({ id: '', index: 0 })
  const note = () => {
    const articles = [...section.current!.querySelectorAll('article')]
    const index = articles.findIndex((article) => article.contains(document.activeElement))
    focused.current = { id: articles[index]?.id ?? '', index }
  }
  useLayoutEffect(() => {
    // The report that had the focus is gone: the one in its place gets it, so that the keyboard goes on from there.
    const { id, index } = focused.current
    if (!id || items.some((report) => report.id === id) || document.activeElement !== document.body) return
    const articles = section.current!.querySelectorAll<HTMLElement>('article')
    ;(articles[Math.min(index, articles.length - 1)] ?? document.getElementById('content'))?.focus()
  }, [items])

  return (
    <>
      {status === 'open' && items.length > 0 && <p class="muted hint">{m().keys}</p>}
      <section aria-label={m().reports} ref={section} onFocusIn={note}>
        {items.map((report) => (
          <ReportCard
            report={report}
            key={report.id}
            onClaimed={(claimed) =>
              list.change((all) =>
                all.map((other) =>
                  alike(other, report) ? { ...other, claimedById: claimed.claimedById, claimedBy: claimed.claimedBy, claimedUntil: claimed.claimedUntil } : other,
                ),
              )
            }
            onDecided={() => list.change((all) => all.filter((other) => !alike(other, report)))}
            onChanged={() => void refresh()}
          />
        ))}
      </section>
      <ListEnd list={list} empty={status === 'open' ? m().noneOpen : m().noneDecided} />
    </>
  )
}
