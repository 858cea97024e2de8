/** Link: keeps one connection open. It reconnects with back-off, and stops when that cannot help. */

import type { Backoff } from "./backoff.js";
import { Connection, DENIED, UNAUTHENTICATED, type WebSocketClass } from "./connection.js";
import { asError, BadValue, Forbidden, Unauthenticated, Unavailable } from "./errors.js";
import type { Incoming } from "./messages.js";
import { Renewal } from "./renewal.js";
import { isFinal, type TokenSource } from "./token.js";

/** `waiting` is the time before the next attempt; `failed` and `closed` are final. */
export type ClientState = "idle" | "connecting" | "connected" | "waiting" | "failed" | "closed";

export interface LinkOptions {
  readonly url: string;
  readonly WebSocket: WebSocketClass;
  readonly openTimeoutMs: number;
  readonly silenceMs: number;
  readonly tokens: TokenSource;
  readonly backoff: Backoff;
}

/** The client, as its link uses it. */
export interface LinkListener {
  /** There is a new connection. */
  opened(): void;
  /** The first message of a connection has arrived. */
  heard(): void;
  /** A message that is no reply. */
  told(message: Incoming, text: string): void;
  /** The connection has ended. */
  ended(): void;
  /** No other attempt will help, or the client is closed. */
  stopped(error: Error): void;
  changed(state: ClientState, error: Error | null): void;
}

export class Link {
  state: ClientState = "idle";
  connection: Connection | null = null;
  failure: Error | null = null;
  problem = "it has not answered yet";
  reconnects = 0;
  private isClosing = false;
  private opening: Connection | null = null;
  private renewal: Renewal | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private stable: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly options: LinkOptions,
    private readonly listener: LinkListener,
  ) {}

  /** Connect, unless that has begun. Throws if the client has failed or is closed. */
  start(): void {
    if (this.failure !== null) throw this.failure;
    if (this.isClosing) throw closed();
    if (this.state === "idle") this.connect();
  }

  /** Accept no more requests. */
  refuse(): void {
    this.isClosing = true;
  }

  /** End the connection for good. */
  close(): void {
    this.isClosing = true;
    if (!this.isOver) this.stop("closed", closed());
  }

  private get isOver(): boolean {
    return this.state === "failed" || this.state === "closed";
  }

  private connect(): void {
    this.change("connecting", null);
    this.open().catch((error: unknown) => {
      if (this.isOver) return;
      this.problem = asError(error).message;
      if (isFinal(error) || error instanceof BadValue) this.stop("failed", asError(error));
      else this.wait(asError(error));
    });
  }

  private async open(): Promise<void> {
    const token = await this.options.tokens.take();
    if (this.isOver) return;
    this.opening = new Connection(
      { ...this.options, token },
      {
        opened: (connection) => this.opened(connection, token),
        heard: () => this.listener.heard(),
        told: (message, text) => this.listener.told(message, text),
        ended: (code, reason) => this.ended(code, reason),
      },
    );
  }

  private opened(connection: Connection, token: string): void {
    const { backoff, tokens } = this.options;
    this.connection = connection;
    this.stable = setTimeout(() => backoff.reset(), backoff.stableMs);
    if (tokens.isRenewable) {
      this.renewal = new Renewal(connection, tokens, backoff.random, (error) => this.stop("failed", error));
      this.renewal.send(token);
    }
    this.change("connected", null);
    this.listener.opened();
  }

  private ended(code: number, reason: string): void {
    this.disconnect();
    if (this.isOver) return;
    this.problem = reason || `it has ended the connection (${code})`;
    if (code === DENIED) {
      this.stop("failed", new Forbidden(this.problem));
    } else if (code === UNAUTHENTICATED && !this.options.tokens.reject()) {
      this.stop("failed", new Unauthenticated(this.problem));
    } else {
      this.wait(new Unavailable(this.problem));
    }
  }

  private wait(error: Error): void {
    this.change("waiting", error);
    this.retry = setTimeout(() => {
      this.reconnects += 1;
      this.connect();
    }, this.options.backoff.next());
  }

  private stop(state: "failed" | "closed", error: Error): void {
    if (this.isOver) return;
    const open = this.opening;
    clearTimeout(this.retry);
    this.problem = error.message;
    if (state === "failed") this.failure = error;
    this.change(state, state === "failed" ? error : null);
    open?.close();
    this.listener.stopped(error);
  }

  private disconnect(): void {
    this.connection = this.opening = null;
    clearTimeout(this.stable);
    this.renewal?.stop();
    this.renewal = null;
    this.listener.ended();
  }

  private change(state: ClientState, error: Error | null): void {
    this.state = state;
    try {
      this.listener.changed(state, error);
    } catch (caught) {
      console.error(caught); // of the application's callback
    }
  }
}

function closed(): Unavailable {
  return new Unavailable("this client is closed");
}
