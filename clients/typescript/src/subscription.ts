/**
 * Subscription: one channel as it is received over all connections.
 *
 * It resumes after the last message that it received. It holds a bounded number of messages and
 * bytes: then the channel is unsubscribed, and resumed once the held messages are taken.
 */

import { asError } from "./errors.js";
import { gapOf, type Incoming, messageOf, type Received } from "./messages.js";

/** V8 and others store a character of a string in up to two bytes. */
const CHARACTER_BYTES = 2;

export interface SubscribeOptions<T = unknown> {
  /** Receive what follows this position; 0 is the whole history. Without it, new messages only. */
  readonly after?: number;
  /** Without `after`: also receive the last messages, this many. */
  readonly rewind?: number;
  /** Also receive what members do [false]. */
  readonly presence?: boolean;
  /** Called for each message or gap, in order; a returned promise is awaited first. */
  readonly onReceived?: (one: Received<T>) => void | Promise<void>;
  /** Called once if the subscription with `onReceived` ends with an error. */
  readonly onError?: (error: Error) => void;
}

/** The client, as a subscription uses it. */
export interface SubscribingClient {
  /** Request what follows the last received message. */
  resubscribe(subscription: Subscription): void;
  /** Request no more for now. */
  pause(subscription: Subscription): void;
  /** End the subscription. */
  remove(subscription: Subscription): void;
}

/** What a subscription holds at most. */
export interface SubscriptionBounds {
  readonly messages: number;
  readonly bytes: number;
}

interface Reader {
  resolve(result: IteratorResult<Received, undefined>): void;
  reject(error: Error): void;
}

export class Subscription<T = unknown> implements AsyncIterableIterator<Received<T>> {
  readonly presence: boolean;
  /** Position after the last message that was taken: give it as `after` to resume later. */
  position: number | null;
  /** @internal Position after the last message that was received. */
  receivedPosition: number | null;
  /** @internal Whether it holds as much as it may. */
  isFull = false;
  private readonly held: string[] = [];
  private heldBytes = 0;
  private readonly readers: Reader[] = [];
  private isActive = false;
  private isOver = false;
  private failure: Error | null = null;

  /** @internal */
  constructor(
    private readonly client: SubscribingClient,
    private readonly bounds: SubscriptionBounds,
    readonly channel: string,
    options: SubscribeOptions<T>,
  ) {
    this.presence = options.presence ?? false;
    this.position = this.receivedPosition = options.after ?? null;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Return the next message or gap. Throws the error that ended the subscription. */
  async next(): Promise<IteratorResult<Received<T>, undefined>> {
    const text = this.held.shift();
    if (text !== undefined) {
      this.heldBytes -= text.length * CHARACTER_BYTES;
      return { done: false, value: this.taken(JSON.parse(text) as Incoming) as Received<T> };
    }
    if (this.failure !== null) throw this.failure;
    if (this.isOver) return { done: true, value: undefined };
    if (this.isFull) {
      this.isFull = false;
      this.client.resubscribe(this as Subscription);
    }
    return new Promise((resolve, reject) => {
      this.readers.push({ resolve: resolve as Reader["resolve"], reject });
    });
  }

  /** Unsubscribe; `for await` calls this when its loop is left. */
  async return(): Promise<IteratorResult<Received<T>, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Unsubscribe. Held messages are dropped. */
  close(): void {
    if (this.isOver) return;
    this.client.remove(this as Subscription);
    this.held.length = this.heldBytes = 0;
    this.finish(null);
  }

  /** @internal Ignore messages until `resume`: they belong to an earlier request. */
  suspend(): void {
    this.isActive = false;
  }

  /** @internal The service has subscribed the channel after `position`. */
  resume(position: number): void {
    this.isActive = true;
    this.receivedPosition ??= position;
    this.position ??= position;
  }

  /** @internal Take or hold a message that has arrived. */
  take(one: Incoming, text: string): void {
    if (!this.isActive || this.isOver) return;
    this.receivedPosition = positionOf(one);
    if (one.type === "presence" && !this.presence) return;
    const reader = this.readers.shift();
    if (reader !== undefined) {
      reader.resolve({ done: false, value: this.taken(one) });
      return;
    }
    this.held.push(text); // a parsed object takes up to twenty times as much memory
    this.heldBytes += text.length * CHARACTER_BYTES;
    if (this.held.length >= this.bounds.messages || this.heldBytes >= this.bounds.bytes) {
      this.isFull = true;
      this.suspend();
      this.client.pause(this as Subscription);
    }
  }

  /** @internal End with an error, which follows the held messages; null without one. */
  finish(error: Error | null): void {
    if (this.isOver) return;
    this.isOver = true;
    this.failure = error;
    for (const reader of this.readers.splice(0)) {
      if (error !== null) reader.reject(error);
      else reader.resolve({ done: true, value: undefined });
    }
  }

  /** @internal Pass everything to the callback until the subscription ends. */
  async deliver(options: SubscribeOptions<T>): Promise<void> {
    const { onReceived, onError } = options;
    if (onReceived === undefined) return;
    try {
      for await (const one of this) await onReceived(one);
    } catch (caught) {
      const error = asError(caught);
      if (onError !== undefined) onError(error);
      else console.error(error);
    }
  }

  private taken(one: Incoming): Received {
    this.position = positionOf(one);
    return one.type === "gap" ? gapOf(this.channel, one) : messageOf(this.channel, one);
  }
}

function positionOf(one: Incoming): number {
  return one.type === "gap" ? one.before - 1 : one.position;
}
