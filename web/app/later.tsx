// Loads the pages and dialogs for moderators when they are first needed, so that the first load of everybody else is small.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'

import { Failure, notify, Skeleton } from './parts'
import { t } from './preferences'

type Module = typeof import('./moderation')

let loaded: Module | undefined

type Props = {
  draw: (module: Module) => ComponentChildren
  /** A dialog is drawn: until the module is there, nothing is. Called if the module cannot be loaded. */
  onFailed?: () => void
}

export function Later({ draw, onFailed }: Props) {
  const [module, setModule] = useState(loaded)
  const [failed, setFailed] = useState(false)
  useEffect(() => {
    if (module) return
    import('./moderation').then(
      (found) => setModule((loaded = found)),
      () => {
        setFailed(true)
        if (onFailed) notify(t.unreachable)
        onFailed?.()
      },
    )
  }, [])
  if (module) return draw(module)
  if (onFailed) return null
  // A new version of the server has other modules, so only a reload finds them.
  return failed ? <Failure message={t.unreachable} onRetry={() => location.reload()} /> : <Skeleton />
}
