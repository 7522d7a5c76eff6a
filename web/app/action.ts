import { useState } from 'preact/hooks'

/**
 * Runs one action at a time. If it fails, passes the message to tell or, without tell, keeps it as error until the next
 * run.
 */
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
