// The sections of the settings that list people, posts and words.
import { useEffect, useState } from 'preact/hooks'

import { useAction } from './action'
import { request } from './api'
import { useChanges } from './changes'
import { Blocked as BlockedQuery, LikedPosts, Muted as MutedQuery, MutedConversations, MutedWords, MuteWord, SentRequests, UnmuteWord, type Person } from './documents'
import { Field, Form } from './form'
import { usePages } from './pages'
import { Avatar, Empty, Failure, ListEnd, Skeleton, notify } from './parts'
import { useRelation, withPerson } from './people'
import { Folk, Posts } from './profile'
import { t } from './preferences'
import { usePerson } from './watch'

const kinds = {
  blocked: { query: BlockedQuery, undo: 'unblock', redo: 'block', holds: (person: Person) => person.relationship?.blocking },
  muted: { query: MutedQuery, undo: 'unmute', redo: 'mute', holds: (person: Person) => person.relationship?.muting },
} as const

/** The people that the viewer blocks or mutes. A row stays after its button was pressed, so that the viewer can undo it. */
export function Kept({ what }: { what: keyof typeof kinds }) {
  const { query } = kinds[what]
  const list = usePages<Person>(async (after) => (await request(query, { after })).viewer?.list ?? null, [what])
  // Another device may have added people.
  const add = async () => {
    const found = await request(query, { after: null }).catch(() => null)
    list.change((people) => [...(found?.viewer?.list?.nodes.filter(({ id }) => people.every((known) => known.id !== id)) ?? []), ...people])
  }
  useChanges((change) => {
    if (change.what === 'relation') list.change((people) => withPerson(people, change.person))
    else if (change.what === 'lists') void add()
  })
  return (
    <>
      {list.items.length > 0 && (
        <ul class="people" aria-label={t.sections[what]}>
          {list.items.map((person) => (
            <KeptRow person={person} what={what} key={person.id} />
          ))}
        </ul>
      )}
      <ListEnd list={list} empty={what === 'blocked' ? t.noBlocked : t.noMuted} />
    </>
  )
}

function KeptRow({ person, what }: { person: Person; what: keyof typeof kinds }) {
  usePerson(person)
  const { change, busy } = useRelation(person)
  const { holds, undo, redo } = kinds[what]
  const next = holds(person) ? undo : redo
  return (
    <li class="person">
      <Avatar person={person} />
      <a class="who grow" href={`/@${person.handle}`}>
        <b dir="auto">{person.name}</b> <span class="muted">@{person.handle}</span>
      </a>
      <button class={next === redo ? '' : 'quiet'} aria-label={`${t[next]} @${person.handle}`} aria-disabled={busy} onClick={() => change(next)}>
        {t[next]}
      </button>
    </li>
  )
}

/** The people that the viewer asked to follow. */
export const Requested = () => (
  <Folk fetch={async (after) => (await request(SentRequests, { after })).viewer?.list ?? null} keys={[]} label={t.sections.requests} none={t.noSentRequests} />
)

/** The posts that the viewer likes. A post stays after its like was taken back, until the list is loaded again. */
export const Liked = () => (
  <Posts fetch={async (after) => (await request(LikedPosts, { after })).viewer?.likedPosts ?? null} keys={[]} none={t.noLikes} takes={() => false} />
)

/** The posts whose conversations the viewer mutes. A post stays after its conversation is no longer muted, until the list is loaded again. */
export const Silenced = () => (
  <Posts fetch={async (after) => (await request(MutedConversations, { after })).viewer?.mutedConversations ?? null} keys={[]} none={t.noMutedConversations} takes={() => false} />
)

/** The muted words. A row stays after its button was pressed, so that the viewer can undo it. */
export function Muting() {
  const [words, setWords] = useState<{ word: string; muted: boolean }[]>()
  const [longest, setLongest] = useState<number>()
  const { run, error } = useAction()
  const load = () =>
    run(async () => {
      const { viewer, limits } = await request(MutedWords, {})
      setLongest(limits.mutedWordLength)
      setWords(viewer?.mutedWords?.map((word) => ({ word, muted: true })).reverse() ?? [])
    })
  useEffect(() => void load(), [])
  const set = (word: string, muted: boolean) => setWords((all = []) => (all.some((row) => row.word === word) ? all.map((row) => (row.word === word ? { word, muted } : row)) : [{ word, muted }, ...all]))
  const add = async (values: FormData) => set((await request(MuteWord, { input: { word: String(values.get('word')) } })).muteWord.word, true)
  if (!words) return error ? <Failure message={error} onRetry={load} /> : <Skeleton />
  return (
    <>
      <section class="panel">
        <Form
          label={t.muteWord}
          onSend={add}
          clears
          fieldOf={({ reason, field }) => (reason === 'TOO_MANY' ? 'word' : field)}
          submit={t.muteWord}
        >
          <Field name="word" label={t.wordOrPhrase} hint={t.mutedWordHint} required maxLength={longest} autocapitalize="none" autocomplete="off" />
        </Form>
      </section>
      {words.length === 0 && <Empty title={t.noMutedWords} />}
      {words.length > 0 && (
        <ul class="rows" aria-label={t.sections.words}>
          {words.map(({ word, muted }) => (
            <Word word={word} muted={muted} onChanged={(now) => set(word, now)} key={word} />
          ))}
        </ul>
      )}
    </>
  )
}

function Word({ word, muted, onChanged }: { word: string; muted: boolean; onChanged: (muted: boolean) => void }) {
  const { run, busy } = useAction(notify)
  const label = muted ? t.unmute : t.mute
  const toggle = () =>
    run(async () => {
      await request(muted ? UnmuteWord : MuteWord, { input: { word } })
      onChanged(!muted)
    })
  return (
    <li>
      {muted ? <b class="grow" dir="auto">{word}</b> : <s class="grow muted" dir="auto">{word}</s>}
      <button class={muted ? 'quiet' : ''} aria-disabled={busy} aria-label={`${label}: ${word}`} onClick={toggle}>
        {label}
      </button>
    </li>
  )
}
