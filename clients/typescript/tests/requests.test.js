/** Requests: bounds, deadlines, errors and what a closing client waits for, on a simulated socket. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { BadValue, PubSubClient, Refused, Unavailable } from "../dist/index.js";
import { FakeSocket, fakeClient, settle } from "./fake_socket.js";

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
});

/** Return a connected client and its socket. */
async function connected(options) {
  const client = fakeClient(options);
  client.subscribe("other").catch(() => undefined);
  await settle();
  const socket = FakeSocket.last;
  socket.open();
  socket.answer("subscribe", { type: "subscribed", channel: "other", position: 0 });
  return { client, socket };
}

const publishes = (socket) => socket.sent.filter((one) => one.type === "publish");

test("publish resolves with its position and keeps warnings", async () => {
  const { client, socket } = await connected();
  const published = client.publish("news", { text: "hello" });
  assert.deepEqual(socket.sent.at(-1), { type: "publish", id: 2, channel: "news", data: { text: "hello" } });
  const warnings = [{ limit: "month", used: 9, nominal: 10, restricted_at: 25 }];
  socket.answer("publish", { type: "accepted", position: 7, warnings });
  assert.equal(await published, 7);
  assert.deepEqual(client.warnings, warnings);
});

test("publish without an answer fails in time, and its answer is ignored", async () => {
  const { client, socket } = await connected();
  const published = client.publish("news", 1, { timeoutMs: 100 });
  mock.timers.tick(100);
  await assert.rejects(published, Unavailable);
  socket.answer("publish", { type: "accepted", position: 7 });
});

test("publish fails when its connection breaks, and is not sent again", async () => {
  const { client, socket } = await connected();
  const published = client.publish("news", 1);
  socket.end();
  await assert.rejects(published, /the connection broke before the answer came/);
  mock.timers.tick(250);
  await settle();
  FakeSocket.last.open();
  assert.deepEqual(publishes(FakeSocket.last), []);
});

test("publish before the connection is sent once it opens", async () => {
  const client = fakeClient();
  const published = client.publish("news", 1);
  await settle();
  FakeSocket.last.open();
  FakeSocket.last.answer("publish", { type: "accepted", position: 1 });
  assert.equal(await published, 1);
});

test("256 publishes are in flight, the others wait", async () => {
  const { client, socket } = await connected();
  const all = Array.from({ length: 300 }, (_, n) => client.publish("news", n));
  assert.equal(publishes(socket).length, 256);
  for (const { id } of publishes(socket)) socket.tell({ type: "accepted", id, position: id });
  assert.deepEqual(publishes(socket).map((one) => one.data), [...Array(300).keys()]);
  for (const { id } of publishes(socket).slice(256)) socket.tell({ type: "accepted", id, position: id });
  await Promise.all(all);
});

test("waiting publishes are bounded in bytes", async () => {
  const client = fakeClient({ pendingBytesMax: 10_000 });
  const all = Array.from({ length: 10 }, () => client.publish("news", "x".repeat(2_000)));
  const errors = all.map((one) => one.catch((error) => error));
  for (const error of await Promise.all(errors.slice(3))) {
    assert.ok(error instanceof Refused);
    assert.equal(error.reason, "client_full");
  }
  mock.timers.tick(5_000);
  for (const error of await Promise.all(errors.slice(0, 3))) assert.ok(error instanceof Unavailable);
  const again = client.publish("news", "x".repeat(2_000));
  mock.timers.tick(5_000);
  await assert.rejects(again, Unavailable);
});

test("message over the announced limit is not sent", async () => {
  const client = fakeClient();
  const long = client.publish("news", "x".repeat(100_000));
  const late = client.publish("news", "é".repeat(100));
  await settle();
  const socket = FakeSocket.last;
  socket.open();
  assert.deepEqual(publishes(socket), []); // the limit is not known yet
  socket.tell({ type: "welcome", message_bytes_max: 200 });
  await assert.rejects(long, { name: "BadValue", message: /send at most 200/ });
  await assert.rejects(late, BadValue); // 200 bytes of data alone
  const last = { type: "publish", id: 1, channel: "news", data: "" };
  const fits = "x".repeat(200 - JSON.stringify(last).length);
  const published = client.publish("news", fits);
  assert.equal(JSON.stringify(publishes(socket)[0]).length, 200);
  socket.answer("publish", { type: "accepted", position: 1 });
  await published;
});

test("message up to a higher announced limit is sent", async () => {
  const client = fakeClient();
  client.publish("news", "x".repeat(100_000)).catch(() => undefined);
  await settle();
  FakeSocket.last.open();
  FakeSocket.last.tell({ type: "welcome", message_bytes_max: 200_000 });
  assert.equal(publishes(FakeSocket.last).length, 1);
});

test("limit is 64 KiB where the service announces none", async () => {
  const { client, socket } = await connected();
  await assert.rejects(client.publish("news", "x".repeat(65_536)), /send at most 65536/);
  assert.deepEqual(publishes(socket), []);
});

const circle = {};
circle.self = circle;
for (const [name, data] of [
  ["NaN", { deep: [Number.NaN] }],
  ["a circle", circle],
  ["a function", () => 1],
  ["a bigint", 1n],
]) {
  test(`publish of ${name} is a bad value`, async () => {
    const client = fakeClient();
    await assert.rejects(client.publish("news", data), BadValue);
    assert.equal(client.state, "idle");
  });
}

for (const [problem, expected] of [
  [{ status: 400, field: "channel", value: "no/pe", remedy: "fix it" }, { name: "BadValue", field: "channel" }],
  [{ status: 413, field: "message", value: "9 bytes", remedy: "send less" }, { name: "BadValue" }],
  [{ status: 401, detail: "send a valid token" }, { name: "Unauthenticated" }],
  [{ status: 403, detail: "no grant" }, { name: "Forbidden" }],
  [
    { status: 429, reason: "channel_limited", detail: "too much", retry_after: 0.25 },
    { name: "Refused", reason: "channel_limited", retryAfterMs: 250 },
  ],
  [{ status: 429, reason: "presence_full", detail: "full" }, { name: "Refused", retryAfterMs: null }],
  [{ status: 503, detail: "the disk is full" }, { name: "Unavailable" }],
]) {
  test(`problem ${problem.status} ${problem.reason ?? ""} is ${expected.name}`, async () => {
    const { client, socket } = await connected();
    const published = client.publish("news", 1);
    socket.answer("publish", { type: "error", problem });
    await assert.rejects(published, expected);
  });
}

test("members are read page by page", async () => {
  const { client, socket } = await connected();
  const found = client.members("news");
  socket.answer("members", { type: "members", members: [{ member: "a", data: 1, position: 1 }], next: "a" });
  await settle();
  assert.deepEqual(socket.sent.at(-1), { type: "members", id: 3, channel: "news", after: "a" });
  socket.answer("members", { type: "members", members: [{ member: "b", data: 2, position: 2 }], next: null });
  assert.deepEqual((await found).map((one) => one.member), ["a", "b"]);
});

test("member enters again on a new connection, and later if refused", async () => {
  const { client, socket } = await connected({ backoff: { random: () => 0.5 } });
  const entered = client.enter("news", "mia", { at: "desk" });
  socket.answer("enter", { type: "entered", position: 5 });
  assert.equal(await entered, 5);
  socket.end();
  mock.timers.tick(250);
  await settle();
  const again = { type: "enter", channel: "news", member: "mia", data: { at: "desk" }, held: 5 };
  FakeSocket.last.open();
  const requests = () => FakeSocket.last.sent.filter((one) => one.type === "enter");
  assert.deepEqual(requests(), [{ ...again, id: 2 }]);
  const problem = { status: 429, reason: "suppressed", detail: "too much", retry_after: 2 };
  FakeSocket.last.answer("enter", { type: "error", problem });
  mock.timers.tick(3_000);
  assert.equal(requests().length, 2);
  client.leave("news", "mia").catch(() => undefined);
  FakeSocket.last.end();
  mock.timers.tick(500);
  await settle();
  FakeSocket.last.open();
  assert.deepEqual(requests(), []);
});

test("close waits for answers of publishes", async () => {
  const { client, socket } = await connected();
  const published = client.publish("news", 1);
  const closing = client.close();
  await settle();
  assert.equal(socket.closed, false);
  await assert.rejects(client.publish("news", 2), /closed/);
  socket.answer("publish", { type: "accepted", position: 3 });
  assert.equal(await published, 3);
  await closing;
  assert.equal(socket.closed, true);
});

test("close waits no longer than its limit", async () => {
  const { client, socket } = await connected();
  const published = client.publish("news", 1);
  const closing = client.close({ timeoutMs: 50 });
  mock.timers.tick(50);
  await closing;
  assert.equal(socket.closed, true);
  await assert.rejects(published, Unavailable);
});

for (const [url, options] of [
  ["http://127.0.0.1:7090", {}],
  ["ws://127.0.0.1:7090", { timeoutMs: 0 }],
  ["ws://127.0.0.1:7090", { timeoutMs: 2 ** 31 }],
  ["ws://127.0.0.1:7090", { pendingBytesMax: Number.NaN }],
]) {
  test(`client of ${url} with ${JSON.stringify(options)} is a bad value`, () => {
    assert.throws(() => new PubSubClient(url, { WebSocket: FakeSocket, ...options }), BadValue);
  });
}
