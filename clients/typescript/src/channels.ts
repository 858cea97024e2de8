/** Channels: the subscriptions of a client, requested again on each new connection. */

import type { Connection } from "./connection.js";
import { BadValue, errorOf, Refused, Unavailable } from "./errors.js";
import { fieldsOf, type Incoming } from "./messages.js";
import { type SubscribeOptions, Subscription, type SubscriptionBounds } from "./subscription.js";

/** Wait before a subscription that the service could not resume is requested again. */
const RETRY_MS = 1_000;

interface Entry {
  readonly subscription: Subscription;
  /** Number of the last request: messages count only after its reply. */
  request: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  /** Settles `add`; null once it is settled. */
  begun: ((error: Error | null) => void) | null;
}

export class Channels {
  private readonly entries = new Map<string, Entry>();

  constructor(
    private readonly connection: () => Connection | null,
    private readonly random: () => number,
    private readonly bounds: SubscriptionBounds,
  ) {}

  /** Subscribe, and resolve when the service has confirmed it. */
  add<T>(
    channel: string,
    options: SubscribeOptions<T>,
    timeoutMs: number,
    problem: () => string,
  ): Promise<Subscription<T>> {
    if (this.entries.has(channel)) {
      const remedy = "close the other subscription first: a client has one for each channel";
      return Promise.reject(new BadValue("channel", channel, remedy));
    }
    const subscription = new Subscription<T>(this, this.bounds, channel, options);
    return new Promise((resolve, reject) => {
      const entry: Entry = {
        subscription: subscription as Subscription,
        request: 0,
        timer: undefined,
        begun: (error) => {
          clearTimeout(timer);
          entry.begun = null;
          if (error === null) resolve(subscription);
          else reject(error);
        },
      };
      const timer = setTimeout(() => {
        this.end(entry, new Unavailable(`no answer in ${timeoutMs} ms; ${problem()}`));
        this.unsubscribe(channel);
      }, timeoutMs);
      this.entries.set(channel, entry);
      this.request(entry);
    });
  }

  /** Request all channels on a new connection. */
  resumeAll(): void {
    for (const entry of this.entries.values()) if (!entry.subscription.isFull) this.request(entry);
  }

  /** The connection has ended: nothing counts until the channels are requested again. */
  suspendAll(): void {
    for (const entry of this.entries.values()) this.suspend(entry);
  }

  /** End all subscriptions: with an error, or because the client was closed. */
  fail(error: Error | null): void {
    for (const entry of [...this.entries.values()]) this.end(entry, error);
  }

  /** Pass on a message that the service sent by itself. */
  take(message: Incoming, text: string): void {
    const entry = this.entries.get(message.channel);
    if (entry === undefined) return;
    if (message.type === "unsubscribed") this.end(entry, errorOf(message.problem));
    else entry.subscription.take(message, text);
  }

  /** Request what follows the last received message. */
  resubscribe(subscription: Subscription): void {
    const entry = this.entries.get(subscription.channel);
    if (entry?.subscription === subscription) this.request(entry);
  }

  /** Request no more for now. */
  pause(subscription: Subscription): void {
    const entry = this.entries.get(subscription.channel);
    if (entry?.subscription !== subscription) return;
    this.suspend(entry);
    this.unsubscribe(subscription.channel);
  }

  /** End a subscription. */
  remove(subscription: Subscription): void {
    const entry = this.entries.get(subscription.channel);
    if (entry?.subscription !== subscription) return;
    this.end(entry, null);
    this.unsubscribe(subscription.channel);
  }

  private request(entry: Entry): void {
    this.suspend(entry);
    const connection = this.connection();
    if (connection === null) return;
    const { channel, receivedPosition: after } = entry.subscription;
    const { request } = entry;
    const fields = fieldsOf(after === null ? { channel } : { channel, after });
    connection.ask("subscribe", fields, (result) => {
      if (request === entry.request) this.note(entry, result);
    });
  }

  private note(entry: Entry, result: Incoming | Error): void {
    if (!(result instanceof Error)) {
      entry.subscription.resume(result.position);
      entry.begun?.(null);
    } else if (entry.begun === null && (result instanceof Refused || result instanceof Unavailable)) {
      const waitMs = result instanceof Refused ? (result.retryAfterMs ?? RETRY_MS) : RETRY_MS;
      entry.timer = setTimeout(() => this.request(entry), waitMs * (1 + this.random()));
    } else if (this.connection() !== null) {
      this.end(entry, result);
    }
  }

  private suspend(entry: Entry): void {
    clearTimeout(entry.timer);
    entry.request += 1;
    entry.subscription.suspend();
  }

  private end(entry: Entry, error: Error | null): void {
    this.suspend(entry);
    this.entries.delete(entry.subscription.channel);
    entry.subscription.finish(error);
    entry.begun?.(error ?? new Unavailable("it was closed"));
  }

  private unsubscribe(channel: string): void {
    this.connection()?.ask("unsubscribe", fieldsOf({ channel }), () => undefined);
  }
}
