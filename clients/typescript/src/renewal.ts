/** Renewal: replaces the token of an open connection before the token expires. */

import { Backoff } from "./backoff.js";
import type { Connection } from "./connection.js";
import { asError, BadValue } from "./errors.js";
import { fieldsOf, type Incoming } from "./messages.js";
import { isFinal, type TokenSource } from "./token.js";

/** The rest of the lifetime is for attempts that fail. */
const LIFETIME_SHARE = 0.75;
const WAIT_MIN_MS = 1_000;
/** A longer timer would fire at once. */
const WAIT_MAX_MS = 2 ** 31 - 1;

export class Renewal {
  private readonly backoff: Backoff;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isOver = false;

  constructor(
    private readonly connection: Connection,
    private readonly tokens: TokenSource,
    random: () => number,
    private readonly fail: (error: Error) => void,
  ) {
    this.backoff = new Backoff({ baseMs: WAIT_MIN_MS, random });
  }

  /** Send a token. The reply confirms it and says when it expires, whatever the local clock says. */
  send(token: string): void {
    this.connection.ask("auth", fieldsOf({ token }), (result) => this.note(token, result));
  }

  stop(): void {
    this.isOver = true;
    clearTimeout(this.timer);
  }

  private note(token: string, result: Incoming | Error): void {
    if (this.isOver) return;
    if (result instanceof BadValue) {
      this.fail(result); // a token of another client
    } else if (result instanceof Error) {
      this.later(this.backoff.next()); // until then the old token is valid
    } else {
      this.tokens.accept(token);
      this.backoff.reset();
      const lifetime = result.expires_in;
      if (lifetime !== null) this.later(Math.max(WAIT_MIN_MS, lifetime * 1_000 * LIFETIME_SHARE));
    }
  }

  private later(waitMs: number): void {
    this.timer = setTimeout(() => void this.renew(), Math.min(waitMs, WAIT_MAX_MS));
  }

  private async renew(): Promise<void> {
    try {
      const token = await this.tokens.fetch();
      if (!this.isOver) this.send(token);
    } catch (error) {
      if (this.isOver) return;
      if (isFinal(error)) this.fail(asError(error));
      else this.later(this.backoff.next());
    }
  }
}
