/** Connection: one WebSocket from its handshake to its end. It matches replies to requests by id. */

import { BadValue, errorOf, Unavailable } from "./errors.js";
import type { Incoming } from "./messages.js";

export const SUBPROTOCOL = "sluicegate.pubsub.v1";
export const UNAUTHENTICATED = 4401;
export const DENIED = 4403;
const ABNORMAL = 1006;
const NORMAL = 1000;

/** The part of a browser's `WebSocket` that the client uses. */
export interface SocketLike {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketClass = new (url: string, protocols: string[]) => SocketLike;

/** Called once, with the reply or with the error. */
export type Answer = (result: Incoming | Error) => void;

export interface ConnectionOptions {
  readonly WebSocket: WebSocketClass;
  readonly url: string;
  readonly token: string;
  readonly openTimeoutMs: number;
  /** Silence before a probe; without an answer in the same time, the connection ends. */
  readonly silenceMs: number;
}

export interface ConnectionListener {
  opened(connection: Connection): void;
  /** A message that is no reply, and its text. */
  told(message: Incoming, text: string): void;
  /** The first message has arrived: a limit that the service announces is known. */
  heard(): void;
  ended(code: number, reason: string): void;
}

export class Connection {
  /** Limit that the service has announced, null without an announcement. */
  messageBytesMax: number | null = null;
  /** Whether a message has arrived. The announcement of the limit is the first message. */
  hasHeard = false;
  private readonly socket: SocketLike;
  private readonly pending = new Map<number, Answer>();
  private readonly opening: ReturnType<typeof setTimeout>;
  private watch: ReturnType<typeof setInterval> | undefined;
  private lastId = 0;
  private isSilent = false; // since the last tick of `watch`
  private isOver = false;

  /** Throws `BadValue` if the address or the token cannot be used. */
  constructor(
    options: ConnectionOptions,
    private readonly listener: ConnectionListener,
  ) {
    const { WebSocket, url, token, openTimeoutMs, silenceMs } = options;
    const protocols = token ? [SUBPROTOCOL, `bearer.${token}`] : [SUBPROTOCOL];
    try {
      this.socket = new WebSocket(url, protocols);
    } catch {
      throw new BadValue("token", "(not shown)", `give a token that a subprotocol can hold, for ${url}`);
    }
    this.opening = setTimeout(() => this.end(ABNORMAL, "the handshake took too long"), openTimeoutMs);
    this.socket.onopen = () => {
      clearTimeout(this.opening);
      this.watch = this.watchSilence(silenceMs);
      this.listener.opened(this);
    };
    this.socket.onmessage = (event: { data: unknown }) => this.receive(event.data);
    this.socket.onclose = (event: { code: number; reason: string }) => this.end(event.code, event.reason);
    // `onclose` follows in the same turn, but not in Node 20 for a connection that was never open.
    this.socket.onerror = () => {
      setTimeout(() => this.end(ABNORMAL, "it cannot be reached"), 0);
    };
  }

  /** Send a request and return its id. `fields` is JSON without braces. */
  ask(kind: string, fields: string, answer: Answer): number {
    this.lastId += 1;
    const id = this.lastId;
    this.pending.set(id, answer);
    this.socket.send(requestOf(kind, id, fields));
    return id;
  }

  /** Return the size of the next request without its fields. */
  headBytes(kind: string): number {
    return requestOf(kind, this.lastId + 1, "").length;
  }

  /** Ignore the reply to a request. */
  forget(id: number): void {
    this.pending.delete(id);
  }

  /** Close the connection. Requests without a reply fail. */
  close(): void {
    this.end(NORMAL, "this client is closed");
  }

  private receive(data: unknown): void {
    this.isSilent = false;
    try {
      const text = String(data);
      this.take(JSON.parse(text) as Incoming, text);
    } catch {
      this.end(ABNORMAL, "it sent what is no message of this protocol");
    }
  }

  private take(message: Incoming, text: string): void {
    const { id, type } = message;
    const isFirst = !this.hasHeard;
    this.hasHeard = true;
    if (type === "welcome") this.messageBytesMax = message.message_bytes_max;
    if (isFirst) this.listener.heard();
    if (typeof id !== "number") {
      this.listener.told(message, text);
      return;
    }
    const answer = this.pending.get(id);
    this.pending.delete(id);
    answer?.(type === "error" ? errorOf(message.problem) : message);
  }

  /** Browsers cannot send pings; a request that changes nothing shows whether the service answers. */
  private watchSilence(silenceMs: number): ReturnType<typeof setInterval> {
    let isProbed = false;
    return setInterval(() => {
      if (!this.isSilent) {
        this.isSilent = true;
        isProbed = false;
      } else if (isProbed) {
        this.end(ABNORMAL, "it does not answer");
      } else {
        isProbed = true;
        this.ask("unsubscribe", '"channel":""', () => undefined);
      }
    }, silenceMs);
  }

  private end(code: number, reason: string): void {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.opening);
    clearInterval(this.watch);
    const { socket } = this;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = () => undefined; // without a listener, some versions of Node throw
    socket.close(NORMAL);
    const broken = new Unavailable(`the connection broke before the answer came (${reason || code})`);
    const answers = [...this.pending.values()];
    this.pending.clear();
    this.listener.ended(code, reason); // before the answers, so that they start nothing on this connection
    for (const answer of answers) answer(broken);
  }
}

/** Return a request. The id comes first: the service finds it even if it cannot read the rest. */
export function requestOf(kind: string, id: number, fields: string): string {
  return `{"type":"${kind}","id":${id},${fields}}`;
}
