import { useState } from 'preact/hooks'

/** Runs one call at a time and keeps the message of its failure, or tells it; another call clears it. */
export function useAction(tell?: (message: string) => void) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState('')
  const run = async (action: () => Promise<void>) => {
    if (busy) return
    setBusy(true)
    setError('')
    try {
      await action()
    } catch (e) {
      const { message } = e as Error
      if (tell) tell(message)
      else setError(message)
    } finally {
      setBusy(false)
    }
  }
  return { run, busy, error }
}
