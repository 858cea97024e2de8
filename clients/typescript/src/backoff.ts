/** Back-off with full jitter: each wait is drawn between 0 and a ceiling that doubles. */

export interface BackoffOptions {
  /** First ceiling [250]. */
  readonly baseMs?: number;
  /** Highest ceiling [10,000]. */
  readonly maxMs?: number;
  /** A connection that lasted this long resets the ceiling [5,000]. */
  readonly stableMs?: number;
  /** Draws from [0, 1) [Math.random]. */
  readonly random?: () => number;
}

export class Backoff {
  readonly stableMs: number;
  readonly random: () => number;
  private readonly baseMs: number;
  private readonly maxMs: number;
  private attempt = 0;

  constructor(options: BackoffOptions = {}) {
    this.baseMs = options.baseMs ?? 250;
    this.maxMs = options.maxMs ?? 10_000;
    this.stableMs = options.stableMs ?? 5_000;
    this.random = options.random ?? Math.random;
  }

  /** Return the wait before the next attempt, in milliseconds. */
  next(): number {
    const ceiling = Math.min(this.maxMs, this.baseMs * 2 ** this.attempt);
    this.attempt += 1;
    return this.random() * ceiling;
  }

  /** Start again at the first ceiling: a connection has been stable. */
  reset(): void {
    this.attempt = 0;
  }
}
