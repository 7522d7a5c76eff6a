// Delivery receipts: how many followers the viewer's own posts have reached. Each drawn post watches its receipt. One
// request asks for the receipts of many posts.
import { useEffect, useState } from 'preact/hooks'

import { request } from './api'
import { Receipts, type Receipt } from './documents'

/** The base of the delay before a receipt is asked for again, in milliseconds. Each attempt doubles it, up to rarely. */
const soon = 400
const rarely = 30_000
/** The number of attempts after which a missing receipt counts as nonexistent. */
const patience = 8
/** The maximum number of receipts in one request. */
const most = 50

type Watch = { id: string; due: number; tries: number; show: (receipt: Receipt) => void }

const complete = new Map<string, Receipt>()
const watches = new Set<Watch>()
let timer: number | undefined
let asking = false

function schedule() {
  clearTimeout(timer)
  if (asking || watches.size === 0) return
  const due = Math.min(...[...watches].map((watch) => watch.due))
  timer = setTimeout(ask, Math.max(due - Date.now(), 0))
}

async function ask() {
  const ids = [...new Set([...watches].filter(({ due }) => due <= Date.now()).map(({ id }) => id))].slice(0, most)
  asking = true
  // A failed request leads to another attempt, like a missing receipt.
  const answer = document.visibilityState === 'visible' ? await request(Receipts, { ids }).catch(() => null) : null
  asking = false
  const found = new Map(answer?.nodes.map((node) => [node?.id, node && 'delivery' in node ? node.delivery : null]))
  for (const watch of watches) {
    if (!ids.includes(watch.id)) continue
    const receipt = found.get(watch.id)
    if (receipt) watch.show(receipt)
    if (receipt?.done) complete.set(watch.id, receipt)
    watch.tries++
    watch.due = Date.now() + Math.min(soon * 2 ** watch.tries, rarely)
    if (receipt?.done || (answer && !receipt && watch.tries >= patience)) watches.delete(watch)
  }
  schedule()
}

/** The receipt of the viewer's own post, kept up to date until it is complete; null while none is known. */
export function useReceipt(id: string): Receipt | null {
  const [receipt, show] = useState(complete.get(id) ?? null)
  useEffect(() => {
    const known = complete.get(id)
    show(known ?? null)
    if (known) return
    const watch: Watch = { id, due: Date.now(), tries: 0, show }
    watches.add(watch)
    schedule()
    return () => {
      watches.delete(watch)
      schedule()
    }
  }, [id])
  return receipt
}
