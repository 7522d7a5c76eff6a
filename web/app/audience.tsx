// The choices of who sees a post, and of who may reply to it or quote it.
import type { Audience, Visibility } from './documents'
import { Choice } from './parts'
import { t } from './preferences'

export const visibilities = ['PUBLIC', 'FOLLOWERS', 'MUTUALS', 'PRIVATE'] as const satisfies Visibility[]
const audiences = ['EVERYONE', 'FOLLOWERS', 'MUTUALS', 'MENTIONED', 'NOBODY'] as const satisfies Audience[]

type Props<V> = { value: V; disabled?: boolean; onChoose: (value: V) => void }

export function VisibilityChoice(props: Props<Visibility> & { label: string }) {
  return <Choice icon={props.value} options={visibilities} texts={t.visibility} hints={t.visibilityHint} {...props} />
}

/** to: for replies or for quotes. */
export function AudienceChoice({ to, ...props }: Props<Audience> & { to: 'reply' | 'quote' }) {
  return <Choice icon={to} label={to === 'reply' ? t.replyAudience : t.quoteAudience} options={audiences} texts={to === 'reply' ? t.mayReply : t.mayQuote} {...props} />
}
