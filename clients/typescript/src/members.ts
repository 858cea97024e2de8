/** Members that this client has entered. They enter again on each new connection. */

import type { Connection } from "./connection.js";
import { Refused } from "./errors.js";
import { fieldsOf, type Incoming } from "./messages.js";

/** Wait before a refused member enters again, if the service does not give one. */
const RETRY_MS = 1_000;

interface Entered {
  readonly channel: string;
  readonly member: string;
  /** Fields of its request without `held`, whose size the service bounds. */
  readonly fields: string;
  position: number;
}

export class Members {
  private readonly entered = new Map<string, Entered>();
  private readonly timers = new Set<ReturnType<typeof setTimeout>>();

  constructor(
    private readonly connection: () => Connection | null,
    private readonly random: () => number,
  ) {}

  /** Record that a member has entered. */
  add(channel: string, member: string, data: unknown, position: number): void {
    const fields = fieldsOf({ channel, member, data });
    this.entered.set(keyOf(channel, member), { channel, member, fields, position });
  }

  /** Do not enter this member again. */
  remove(channel: string, member: string): void {
    this.entered.delete(keyOf(channel, member));
  }

  /** Enter all members on a new connection. */
  enterAll(): void {
    this.stop();
    for (const one of this.entered.values()) this.enterAgain(one);
  }

  /** Cancel what waits to be entered again. */
  stop(): void {
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
  }

  private enterAgain(one: Entered): void {
    const connection = this.connection();
    if (connection === null || this.entered.get(keyOf(one.channel, one.member)) !== one) return;
    // With `held`, a client that has entered the name since then keeps it.
    connection.ask("enter", `${one.fields},"held":${one.position}`, (result) => this.note(one, result));
  }

  private note(one: Entered, result: Incoming | Error): void {
    if (!(result instanceof Error)) {
      one.position = result.position;
    } else if (result instanceof Refused) {
      const waitMs = (result.retryAfterMs ?? RETRY_MS) * (1 + this.random());
      const timer = setTimeout(() => {
        this.timers.delete(timer);
        this.enterAgain(one);
      }, waitMs);
      this.timers.add(timer);
    }
  }
}

function keyOf(channel: string, member: string): string {
  return JSON.stringify([channel, member]);
}
