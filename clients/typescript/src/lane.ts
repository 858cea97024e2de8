/** Lane: requests that wait for a connection or a slot, and requests that wait for their reply. */

import type { Connection } from "./connection.js";
import { BadValue, Refused, Unavailable } from "./errors.js";
import { bytesOf, type Incoming } from "./messages.js";

/** Memory of a waiting request besides its text: promise, timer and entries. */
const CALL_BYTES = 512;

interface Call {
  readonly kind: string;
  readonly fields: string;
  readonly bytes: number;
  /** Settle the promise; later results are ignored. */
  readonly finish: (result: Incoming | Error) => void;
  /** Release the slot of a sent request whose reply no longer matters. */
  release: () => void;
}

export interface LaneOptions {
  readonly inFlightMax: number;
  /** Bytes of all requests without a result. */
  readonly bytesMax: number;
  /** Limit of a message if the service does not announce one. */
  readonly messageBytesMax: number;
}

export class Lane {
  private readonly queue: Call[] = [];
  private readonly started = new Set<Promise<unknown>>();
  private inFlight = 0;
  private bytes = 0;

  constructor(
    private readonly options: LaneOptions,
    private readonly connection: () => Connection | null,
    private readonly problem: () => string,
  ) {}

  /** Send a request as soon as there is a connection and a slot; reject after `timeoutMs`. */
  call(kind: string, fields: string, timeoutMs: number): Promise<Incoming> {
    const bytes = bytesOf(fields);
    const held = this.bytes + bytes + CALL_BYTES;
    const { bytesMax } = this.options;
    if (held > bytesMax) {
      const detail = `requests without a reply would hold ${held} bytes; pendingBytesMax is ${bytesMax}`;
      return Promise.reject(new Refused("client_full", detail, null));
    }
    const result = this.enqueue(kind, fields, bytes, timeoutMs);
    const settled: Promise<unknown> = result.catch(() => undefined).then(() => this.started.delete(settled));
    this.started.add(settled);
    this.pump();
    return result;
  }

  /** Send waiting requests in order, up to the number of slots. */
  pump(): void {
    const connection = this.connection();
    while (connection !== null && this.inFlight < this.options.inFlightMax) {
      const call = this.queue[0];
      if (call === undefined) return;
      const size = call.bytes + connection.headBytes(call.kind);
      const most = connection.messageBytesMax ?? this.options.messageBytesMax;
      if (size > most && !connection.hasHeard) return; // the service may announce another limit
      this.queue.shift();
      if (size > most) {
        call.finish(new BadValue("message", `${size} bytes`, `send at most ${most} (--message-bytes-max)`));
      } else {
        this.send(connection, call);
      }
    }
  }

  /** Reject all requests that are not sent. */
  fail(error: Error): void {
    for (const call of this.queue.splice(0)) call.finish(error);
  }

  /** Resolve when every present request has its result. */
  async settled(): Promise<void> {
    await Promise.all(this.started);
  }

  private enqueue(kind: string, fields: string, bytes: number, timeoutMs: number): Promise<Incoming> {
    this.bytes += bytes + CALL_BYTES;
    return new Promise((resolve, reject) => {
      let isOver = false;
      const finish = (result: Incoming | Error): void => {
        if (isOver) return;
        isOver = true;
        clearTimeout(timer);
        this.bytes -= bytes + CALL_BYTES;
        if (result instanceof Error) reject(result);
        else resolve(result);
      };
      const unsend = (): void => {
        this.queue.splice(this.queue.indexOf(call), 1);
      };
      const call: Call = { kind, fields, bytes, finish, release: unsend };
      const timer = setTimeout(() => {
        call.release();
        finish(new Unavailable(`no answer in ${timeoutMs} ms; ${this.problem()}`));
      }, timeoutMs);
      this.queue.push(call);
    });
  }

  private send(connection: Connection, call: Call): void {
    this.inFlight += 1;
    const leave = (): void => {
      this.inFlight -= 1;
      this.pump();
    };
    const id = connection.ask(call.kind, call.fields, (result) => {
      call.finish(result);
      leave();
    });
    call.release = () => {
      connection.forget(id);
      leave();
    };
  }
}
