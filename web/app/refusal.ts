// Why the server refused a call.

/** The machine-readable part of a refusal, as docs/errors.md describes it. */
export type Refusal = { code?: string; reason?: string; field?: string; limit?: string; allowed?: number; given?: number; retryAfter?: number; explanation?: string; until?: string }

/** A request that failed. code is the extensions.code of the first error, or '' if there was no answer. */
export class ApiError extends Error {
  readonly code: string

  /** message is in the reader's language. It is '' if the session has ended, because the page says so. */
  constructor(
    message: string,
    readonly refusal: Refusal = {},
  ) {
    super(message)
    this.code = refusal.code ?? ''
  }
}
