/** Connections: back-off, silence, tokens and close codes, with a simulated socket and clock. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { Forbidden, Unauthenticated, Unavailable } from "../dist/index.js";
import { FakeSocket, fakeClient, settle } from "./fake_socket.js";

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
});

/** Advance the clock, and return whether a connection was attempted meanwhile. */
async function connectsWithin(ms) {
  const before = FakeSocket.all.length;
  mock.timers.tick(ms);
  await settle();
  return FakeSocket.all.length > before;
}

async function started(options) {
  const client = fakeClient(options);
  client.publish("news", 1).catch(() => undefined);
  await settle();
  return client;
}

test("waits double from 250 ms to 10 s", async () => {
  await started();
  for (const ceiling of [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]) {
    FakeSocket.last.end();
    assert.equal(await connectsWithin(ceiling - 1), false, `before ${ceiling}`);
    assert.equal(await connectsWithin(1), true, `after ${ceiling}`);
  }
});

test("waits are drawn between 0 and the ceiling", async () => {
  const draws = [0.5, 0];
  await started({ backoff: { random: () => draws.shift() } });
  FakeSocket.last.end();
  assert.equal(await connectsWithin(124), false);
  assert.equal(await connectsWithin(1), true);
  FakeSocket.last.end();
  assert.equal(await connectsWithin(1), true);
});

test("only a stable connection resets the wait", async () => {
  await started();
  FakeSocket.last.end();
  await connectsWithin(250);
  FakeSocket.last.open();
  mock.timers.tick(4_999);
  FakeSocket.last.end();
  assert.equal(await connectsWithin(499), false);
  assert.equal(await connectsWithin(1), true);
  FakeSocket.last.open();
  mock.timers.tick(5_000);
  FakeSocket.last.end();
  assert.equal(await connectsWithin(250), true);
});

test("handshake without an answer is given up", async () => {
  const client = await started();
  mock.timers.tick(5_000);
  assert.equal(FakeSocket.last.closed, true);
  assert.equal(client.state, "waiting");
  assert.equal(await connectsWithin(250), true);
});

test("error without a close event ends the attempt", async () => {
  const client = await started();
  FakeSocket.last.onerror({}); // Node 20, for a refused connection
  mock.timers.tick(0);
  assert.equal(client.state, "waiting");
  assert.equal(await connectsWithin(250), true);
});

test("silent connection is probed, then replaced", async () => {
  await started({ silenceMs: 100 });
  const socket = FakeSocket.last;
  socket.open();
  mock.timers.tick(100);
  assert.equal(socket.sent.at(-1).type, "publish");
  mock.timers.tick(100);
  assert.deepEqual(socket.sent.at(-1), { type: "unsubscribe", id: 2, channel: "" });
  socket.tell({ type: "unsubscribed", id: 2, channel: "" });
  mock.timers.tick(200);
  assert.equal(socket.closed, false);
  mock.timers.tick(100);
  assert.equal(socket.closed, true);
  assert.equal(await connectsWithin(250), true);
});

for (const garbage of ["{", "null", '{"type": "error", "id": 1}', '{"type": "unsubscribed", "channel": "news"}']) {
  test(`garbage ${garbage} costs the connection and not the client`, async () => {
    const client = fakeClient();
    client.subscribe("news").catch(() => undefined);
    await settle();
    FakeSocket.last.open();
    FakeSocket.last.onmessage({ data: garbage });
    assert.equal(client.state, "waiting");
    assert.equal(await connectsWithin(250), true);
  });
}

test("static token that is rejected stops the client", async () => {
  const states = [];
  const client = fakeClient({ token: "old", onState: (state, error) => states.push([state, error?.message]) });
  const published = client.publish("news", 1);
  const [subscription] = [client.subscribe("news")];
  await settle();
  assert.deepEqual(FakeSocket.last.protocols, ["sluicegate.pubsub.v1", "bearer.old"]);
  FakeSocket.last.open();
  FakeSocket.last.end(4401, "the token has expired");
  await assert.rejects(published, Unavailable); // it was sent
  await assert.rejects(subscription, Unauthenticated);
  await assert.rejects(client.publish("news", 2), { name: "Unauthenticated", message: "the token has expired" });
  assert.equal(await connectsWithin(60_000), false);
  assert.deepEqual(states.at(-1), ["failed", "the token has expired"]);
});

test("revoked access stops the client", async () => {
  const client = await started({ token: () => "any" });
  FakeSocket.last.open();
  FakeSocket.last.end(4403, "access was revoked or reduced");
  assert.ok(client.failure instanceof Forbidden);
  assert.equal(await connectsWithin(60_000), false);
});

test("expired token is replaced by a new one", async () => {
  const tokens = ["one", "two", "three"];
  const client = await started({ token: async () => tokens.shift() });
  FakeSocket.last.open();
  FakeSocket.last.answer("auth", { type: "authenticated", expires_in: null });
  FakeSocket.last.end(4401, "the token has expired");
  assert.equal(await connectsWithin(250), true);
  assert.equal(FakeSocket.last.protocols[1], "bearer.two");
  FakeSocket.last.open();
  FakeSocket.last.end(4401, "this token is nobody's"); // a new token, never accepted
  assert.ok(client.failure instanceof Unauthenticated);
  assert.deepEqual(tokens, ["three"]);
});

test("token is renewed at three quarters of its lifetime", async () => {
  const tokens = ["one", "two"];
  await started({ token: () => tokens.shift(), silenceMs: 1e9 });
  const socket = FakeSocket.last;
  socket.open();
  assert.deepEqual(socket.sent[0], { type: "auth", id: 1, token: "one" });
  socket.answer("auth", { type: "authenticated", expires_in: 300 });
  mock.timers.tick(224_999);
  await settle();
  assert.equal(tokens.length, 1);
  mock.timers.tick(1);
  await settle();
  assert.equal(socket.sent.at(-1).token, "two");
});

test("provider that fails is called again, later", async () => {
  let calls = 0;
  const provider = () => {
    calls += 1;
    if (calls < 3) throw new Error("no network");
    return "late";
  };
  await started({ token: provider });
  assert.equal(FakeSocket.all.length, 0);
  await connectsWithin(250);
  assert.equal(calls, 2);
  assert.equal(await connectsWithin(500), true);
  assert.equal(FakeSocket.last.protocols[1], "bearer.late");
});

for (const [name, giveUp] of [
  ["null", () => null],
  ["Forbidden", () => Promise.reject(new Forbidden("logged out"))],
]) {
  test(`provider that gives up with ${name} stops the client`, async () => {
    const client = fakeClient({ token: giveUp });
    await assert.rejects(client.publish("news", 1), { name: name === "null" ? "Unauthenticated" : name });
    assert.equal(client.state, "failed");
    assert.equal(await connectsWithin(60_000), false);
  });
}

test("renewed token of another client stops the client", async () => {
  const client = await started({ token: () => "any" });
  FakeSocket.last.open();
  const problem = { status: 400, field: "token", value: "(not shown)", remedy: "open another connection" };
  FakeSocket.last.answer("auth", { type: "error", problem });
  assert.equal(client.failure?.name, "BadValue");
});

test("closed client reconnects no more", async () => {
  const client = await started();
  FakeSocket.last.end();
  const closing = client.close({ timeoutMs: 10 });
  mock.timers.tick(10);
  await closing;
  assert.equal(await connectsWithin(60_000), false);
  await assert.rejects(client.publish("news", 1), /this client is closed/);
});
