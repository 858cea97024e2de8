/** A WebSocket that a test drives, and a client on it. */

import { PubSubClient } from "../dist/index.js";

export class FakeSocket {
  static all = [];

  /** The latest connection. */
  static get last() {
    return FakeSocket.all.at(-1);
  }

  constructor(url, protocols) {
    this.url = url;
    this.protocols = protocols;
    this.sent = [];
    this.closed = false;
    FakeSocket.all.push(this);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.closed = true;
  }

  open() {
    this.onopen?.({});
  }

  /** Let the service send a message. */
  tell(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  /** Let the service answer the latest request of a kind. */
  answer(kind, reply) {
    this.tell({ id: this.sent.findLast((one) => one.type === kind).id, ...reply });
  }

  end(code = 1006, reason = "") {
    this.onclose?.({ code, reason });
  }
}

/** Return a client without connections; waits are drawn as their ceiling. */
export function fakeClient(options = {}) {
  FakeSocket.all = [];
  const { backoff, ...rest } = options;
  return new PubSubClient("ws://127.0.0.1:7090", {
    WebSocket: FakeSocket,
    backoff: { random: () => 0.999999, ...backoff },
    ...rest,
  });
}

/** Let everything run that waits for promises alone. */
export async function settle() {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}
