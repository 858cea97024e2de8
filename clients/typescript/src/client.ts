/**
 * Client of `sluicegate pubsub`: publish with acknowledgement, subscribe with resumption.
 *
 * The connection opens with the first request, and again whenever it breaks. Each subscription
 * resumes after the message that it received last. A publish without an answer may have been
 * accepted: the client never sends it twice.
 */

import { Backoff, type BackoffOptions } from "./backoff.js";
import { Channels } from "./channels.js";
import type { Connection, WebSocketClass } from "./connection.js";
import { BadValue } from "./errors.js";
import { Lane } from "./lane.js";
import { type ClientState, Link, type LinkListener } from "./link.js";
import { Members } from "./members.js";
import {
  fieldsOf,
  gapOf,
  type HistoryPage,
  type Incoming,
  type MembersPage,
  messageOf,
  type PubSubMember,
  type UsageWarning,
} from "./messages.js";
import { rewind } from "./rewind.js";
import type { SubscribeOptions, Subscription } from "./subscription.js";
import { type TokenProvider, TokenSource } from "./token.js";

const PATH = "/v1/socket";
/** Publishes that wait for their answer. Reads have separate slots, so that pages delay no publish. */
const PUBLISHES_MAX = 256;
const READS_MAX = 16;
/** The default of `--message-bytes-max`. */
const MESSAGE_BYTES_MAX = 64 * 1024;
/** Longer timers fire at once. */
const OPTION_MAX = 2 ** 31 - 1;

export interface PubSubOptions {
  /** A token, or a function that returns one and is called again before it expires. */
  readonly token?: string | TokenProvider;
  /** Time limit of a request, connecting included [5,000]. */
  readonly timeoutMs?: number;
  /** Messages that a subscription holds [1,000]. */
  readonly bufferMax?: number;
  /** Bytes that a subscription holds [1 MiB]. */
  readonly bufferBytesMax?: number;
  /** Bytes of all requests without an answer [4 MiB]. */
  readonly pendingBytesMax?: number;
  /** Limit of a message, if the service does not announce one [64 KiB]. */
  readonly messageBytesMax?: number;
  /** Silence before a probe; without an answer in the same time, the client reconnects [20,000]. */
  readonly silenceMs?: number;
  readonly backoff?: BackoffOptions;
  /** For Node before version 22 [the global `WebSocket`]. */
  readonly WebSocket?: WebSocketClass;
  /** Called when the state changes; `error` is why the client is waiting or has failed. */
  readonly onState?: (state: ClientState, error: Error | null) => void;
}

export interface CallOptions {
  readonly timeoutMs?: number;
}

export class PubSubClient {
  /** Limits that the account has nearly used up, as of the last accepted publish. */
  warnings: readonly UsageWarning[] = [];
  private readonly timeoutMs: number;
  private readonly publishes: Lane;
  private readonly reads: Lane;
  private readonly entered: Members;
  private readonly channels: Channels;
  private readonly link: Link;

  /** `url` is `ws://HOST:PORT`, or `wss://` for TLS. */
  constructor(url: string, options: PubSubOptions = {}) {
    this.timeoutMs = positive("timeoutMs", options.timeoutMs ?? 5_000);
    const bytes = {
      bytesMax: positive("pendingBytesMax", options.pendingBytesMax ?? 4 << 20),
      messageBytesMax: positive("messageBytesMax", options.messageBytesMax ?? MESSAGE_BYTES_MAX),
    };
    const backoff = new Backoff(options.backoff);
    const connection = (): Connection | null => this.link.connection;
    const problem = (): string => this.link.problem;
    this.publishes = new Lane({ inFlightMax: PUBLISHES_MAX, ...bytes }, connection, problem);
    this.reads = new Lane({ inFlightMax: READS_MAX, ...bytes }, connection, problem);
    this.entered = new Members(connection, backoff.random);
    this.channels = new Channels(connection, backoff.random, {
      messages: positive("bufferMax", options.bufferMax ?? 1_000),
      bytes: positive("bufferBytesMax", options.bufferBytesMax ?? 1 << 20),
    });
    const connecting = {
      url: addressOf(url),
      WebSocket: classOf(options.WebSocket),
      openTimeoutMs: this.timeoutMs,
      silenceMs: positive("silenceMs", options.silenceMs ?? 20_000),
      tokens: new TokenSource(options.token ?? ""),
      backoff,
    };
    this.link = new Link(connecting, this.listener(options.onState));
  }

  get state(): ClientState {
    return this.link.state;
  }

  /** Attempts to connect after the first one. */
  get reconnects(): number {
    return this.link.reconnects;
  }

  /** The error that has stopped the client: no other attempt will help. */
  get failure(): Error | null {
    return this.link.failure;
  }

  /**
   * Publish, and return the position of the message once it is durable.
   *
   * `Refused` if a limit rejects it. `Unavailable` if no answer arrives in time: it may have been
   * accepted.
   */
  async publish(channel: string, data: unknown, options: CallOptions = {}): Promise<number> {
    const answer = await this.call(this.publishes, "publish", { channel, data }, options);
    this.warnings = answer.warnings ?? [];
    return answer.position;
  }

  /**
   * Subscribe to a channel. Iterate over the result with `for await`, or give `onReceived`.
   *
   * A client has one subscription to a channel at a time.
   */
  async subscribe<T = unknown>(channel: string, options: SubscribeOptions<T> = {}): Promise<Subscription<T>> {
    this.link.start();
    const { after, rewind: count } = options;
    const begun = count === undefined || after !== undefined ? options : await this.rewound(channel, options, count);
    const subscription = await this.channels.add<T>(channel, begun, this.timeoutMs, () => this.link.problem);
    subscription.deliver(options).catch(console.error);
    return subscription;
  }

  /** Return a page of the history: at most `count` messages after `after`, oldest first. */
  async history<T = unknown>(channel: string, after = 0, count = 64): Promise<HistoryPage<T>> {
    const page = await this.call(this.reads, "read", { channel, after, count });
    const messages = page.messages.map((one) => messageOf(channel, one));
    const gap = page.gap === null ? null : gapOf(channel, page.gap);
    return { messages, cut: page.cut, newest: page.newest, gap } as HistoryPage<T>;
  }

  /**
   * Enter a channel as a member until `leave` or `close`, and return the position of that change.
   *
   * The member enters again by itself when the connection breaks.
   */
  async enter(channel: string, member: string, data: unknown = null): Promise<number> {
    const { position } = await this.call(this.publishes, "enter", { channel, member, data });
    this.entered.add(channel, member, data, position);
    return position;
  }

  /** Change the data of a member; the same as to enter again. */
  update(channel: string, member: string, data: unknown): Promise<number> {
    return this.enter(channel, member, data);
  }

  /** Leave a channel. */
  async leave(channel: string, member: string): Promise<void> {
    this.entered.remove(channel, member);
    await this.call(this.publishes, "leave", { channel, member });
  }

  /** Return all members of a channel, page by page. */
  async members<T = unknown>(channel: string): Promise<PubSubMember<T>[]> {
    const found: PubSubMember<T>[] = [];
    let after: string | null = "";
    while (after !== null) {
      const page: MembersPage<T> = await this.membersPage<T>(channel, after);
      found.push(...page.members);
      after = page.next;
    }
    return found;
  }

  /** Return a page of the members after a name. */
  async membersPage<T = unknown>(channel: string, after = ""): Promise<MembersPage<T>> {
    const answer = await this.call(this.reads, "members", after === "" ? { channel } : { channel, after });
    return { members: answer.members, next: answer.next ?? null } as MembersPage<T>;
  }

  /** Wait at most `timeoutMs` for the answers to all requests, then end the connection. */
  async close({ timeoutMs = this.timeoutMs }: CallOptions = {}): Promise<void> {
    this.link.refuse();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([Promise.all([this.publishes.settled(), this.reads.settled()]), late]);
    clearTimeout(timer);
    this.link.close();
  }

  /** Return the options with the position that `rewind` stands for. */
  private async rewound<T>(
    channel: string,
    options: SubscribeOptions<T>,
    count: number,
  ): Promise<SubscribeOptions<T>> {
    const whole = positive("rewind", Math.ceil(count));
    const after = await rewind((from, most) => this.history(channel, from, most), whole);
    return { ...options, after };
  }

  private async call(
    lane: Lane,
    kind: string,
    fields: Readonly<Record<string, unknown>>,
    { timeoutMs = this.timeoutMs }: CallOptions = {},
  ): Promise<Incoming> {
    const text = fieldsOf(fields);
    this.link.start();
    return lane.call(kind, text, positive("timeoutMs", timeoutMs));
  }

  private listener(onState: PubSubOptions["onState"]): LinkListener {
    const pump = (): void => {
      this.publishes.pump();
      this.reads.pump();
    };
    return {
      opened: () => {
        this.channels.resumeAll();
        this.entered.enterAll();
        pump();
      },
      heard: pump,
      told: (message, text) => this.channels.take(message, text),
      ended: () => {
        this.channels.suspendAll();
        this.entered.stop();
      },
      stopped: (error) => {
        this.publishes.fail(error);
        this.reads.fail(error);
        this.channels.fail(this.failure);
      },
      changed: (state, error) => onState?.(state, error),
    };
  }
}

function positive(name: string, value: number): number {
  if (value > 0 && value <= OPTION_MAX) return value;
  throw new BadValue(name, String(value), `give more than 0, at most ${OPTION_MAX}`);
}

function addressOf(url: string): string {
  const parts = URL.canParse(url) ? new URL(url) : null;
  if (parts === null || !/^wss?:$/.test(parts.protocol) || parts.hash !== "") {
    throw new BadValue("url", url, "give ws://HOST:PORT, or wss:// for TLS");
  }
  if (parts.pathname === "/") parts.pathname = PATH;
  return parts.href;
}

function classOf(given: WebSocketClass | undefined): WebSocketClass {
  const found = given ?? (globalThis.WebSocket as WebSocketClass | undefined);
  if (found !== undefined) return found;
  throw new BadValue("WebSocket", "undefined", "give the option WebSocket: Node has a global one from version 22 on");
}
