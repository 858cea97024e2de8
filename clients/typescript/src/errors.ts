/** Errors of the client: one class for each thing that a caller can do about it. */

export const SERVICE = "the pub/sub service";

/** Any error that this client throws on purpose. */
export class PubSubError extends Error {
  override readonly name: string = "PubSubError";
}

/** An argument or message that the client or the service cannot use: fix it. */
export class BadValue extends PubSubError {
  override readonly name = "BadValue";

  constructor(
    readonly field: string,
    readonly value: string,
    readonly remedy: string,
  ) {
    super(`${field}: ${value} cannot be used; ${remedy}`);
  }
}

/** The token is missing, invalid or expired: give another token. */
export class Unauthenticated extends PubSubError {
  override readonly name = "Unauthenticated";
}

/** The account or the token does not have this right. */
export class Forbidden extends PubSubError {
  override readonly name = "Forbidden";
}

/** A limit rejected the request: wait `retryAfterMs`, or drop the message. */
export class Refused extends PubSubError {
  override readonly name = "Refused";

  /** `reason` is the reason's name; `retryAfterMs` is null if the service does not know it. */
  constructor(
    readonly reason: string,
    message: string,
    readonly retryAfterMs: number | null,
  ) {
    super(message);
  }
}

/** No answer, or the connection broke: a sent publish may have been accepted. */
export class Unavailable extends PubSubError {
  override readonly name = "Unavailable";

  constructor(readonly detail: string) {
    super(`${SERVICE} is unavailable: ${detail}`);
  }
}

/** The problem of an `error` message, as the service sends it. */
export interface Problem {
  readonly status?: number;
  readonly detail?: string;
  readonly field?: string;
  readonly value?: unknown;
  readonly remedy?: string;
  readonly reason?: string;
  readonly retry_after?: number;
}

/** Return the error for a problem of the service. */
export function errorOf(problem: Problem): PubSubError {
  const { status, detail = "", reason } = problem;
  if (status === 400 || status === 413) {
    return new BadValue(String(problem.field), String(problem.value), problem.remedy ?? detail);
  }
  if (status === 401) return new Unauthenticated(detail);
  if (status === 403) return new Forbidden(detail);
  if (reason !== undefined) {
    const after = problem.retry_after;
    return new Refused(reason, detail, after === undefined ? null : Math.ceil(after * 1_000));
  }
  return new Unavailable(detail);
}

/** Return a caught value as an `Error`. */
export function asError(caught: unknown): Error {
  return caught instanceof Error ? caught : new Error(String(caught));
}
