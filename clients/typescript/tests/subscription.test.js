/** Subscriptions: order, resumption, gaps and bounds, on a simulated socket. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { BadValue, Forbidden } from "../dist/index.js";
import { FakeSocket, fakeClient, settle } from "./fake_socket.js";

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
});

const message = (position, data = position) => ({ type: "message", channel: "news", position, at_us: 1, data });
const requests = () => FakeSocket.last.sent.map(({ id, ...rest }) => rest);
const confirm = (position) => FakeSocket.last.answer("subscribe", { type: "subscribed", channel: "news", position });

async function subscribed(options, clientOptions) {
  const client = fakeClient(clientOptions);
  const subscribing = client.subscribe("news", options);
  await settle();
  FakeSocket.last.open();
  confirm(10);
  return { client, subscription: await subscribing };
}

async function reconnect() {
  FakeSocket.last.end();
  mock.timers.tick(250);
  await settle();
  FakeSocket.last.open();
}

test("subscription resumes after the last received message", async () => {
  const { subscription } = await subscribed();
  FakeSocket.last.tell(message(12));
  await reconnect();
  assert.deepEqual(requests(), [{ type: "subscribe", channel: "news", after: 12 }]);
  FakeSocket.last.tell(message(11)); // of nothing that was requested here
  confirm(12);
  FakeSocket.last.tell(message(13));
  assert.equal((await subscription.next()).value.position, 12);
  assert.equal((await subscription.next()).value.position, 13);
  assert.equal(subscription.position, 13);
});

test("subscription without messages resumes where it began", async () => {
  await subscribed();
  await reconnect();
  assert.deepEqual(requests(), [{ type: "subscribe", channel: "news", after: 10 }]);
});

test("gap is reported and resumed after", async () => {
  const { subscription } = await subscribed({ after: 3 });
  assert.equal(requests()[0].after, 3);
  const gap = { type: "gap", channel: "news", after: 3, before: 9, lost: null };
  FakeSocket.last.tell(gap);
  assert.deepEqual((await subscription.next()).value, gap);
  assert.equal(subscription.position, 8);
  await reconnect();
  assert.equal(requests()[0].after, 8);
});

test("presence is received only if requested", async () => {
  const presence = { ...message(11), type: "presence", presence: "enter", member: "mia" };
  for (const wanted of [false, true]) {
    const { subscription } = await subscribed({ presence: wanted });
    FakeSocket.last.tell(presence);
    FakeSocket.last.tell(message(12));
    assert.equal((await subscription.next()).value.type, wanted ? "presence" : "message");
  }
});

for (const [bound, options] of [["messages", { bufferMax: 3 }], ["bytes", { bufferBytesMax: 3_000 }]]) {
  test(`slow reader holds a bounded number of ${bound} and misses nothing`, async () => {
    const { subscription } = await subscribed({}, options);
    const text = "x".repeat(450);
    for (const position of [11, 12, 13, 14]) FakeSocket.last.tell(message(position, text));
    assert.deepEqual(requests().at(-1), { type: "unsubscribe", channel: "news" });
    for (const position of [11, 12, 13]) {
      assert.equal((await subscription.next()).value.position, position);
      assert.equal(requests().length, 2);
    }
    const next = subscription.next();
    assert.deepEqual(requests().at(-1), { type: "subscribe", channel: "news", after: 13 });
    confirm(13);
    FakeSocket.last.tell(message(14, text));
    assert.equal((await next).value.position, 14);
  });
}

test("leaving the loop unsubscribes", async () => {
  const { client, subscription } = await subscribed();
  FakeSocket.last.tell(message(11));
  for await (const one of subscription) {
    assert.equal(one.data, 11);
    break;
  }
  assert.deepEqual(requests().at(-1), { type: "unsubscribe", channel: "news" });
  assert.equal((await subscription.next()).done, true);
  client.subscribe("news").catch(() => undefined);
  assert.equal(requests().at(-1).type, "subscribe");
});

test("second subscription to a channel is a bad value", async () => {
  const { client } = await subscribed();
  await assert.rejects(client.subscribe("news"), BadValue);
});

test("callback receives one after the other", async () => {
  const seen = [];
  let go = () => undefined;
  const onReceived = (one) => {
    seen.push(one.data);
    return new Promise((resolve) => {
      go = resolve;
    });
  };
  await subscribed({ onReceived });
  FakeSocket.last.tell(message(11));
  FakeSocket.last.tell(message(12));
  await settle();
  assert.deepEqual(seen, [11]);
  go();
  await settle();
  assert.deepEqual(seen, [11, 12]);
});

test("callback that throws ends its subscription with the error", async () => {
  const errors = [];
  const onReceived = () => {
    throw new Error("of the application");
  };
  await subscribed({ onReceived, onError: (error) => errors.push(error.message) });
  FakeSocket.last.tell(message(11));
  await settle();
  assert.deepEqual(errors, ["of the application"]);
  assert.equal(requests().at(-1).type, "unsubscribe");
});

test("token without the right ends the subscription", async () => {
  const { subscription } = await subscribed();
  FakeSocket.last.tell(message(11));
  const problem = { status: 403, detail: "no right to subscribe" };
  FakeSocket.last.tell({ type: "unsubscribed", id: null, channel: "news", problem });
  assert.equal((await subscription.next()).value.position, 11);
  await assert.rejects(subscription.next(), Forbidden);
});

test("subscription that is rejected fails", async () => {
  const client = fakeClient();
  const subscribing = client.subscribe("news");
  await settle();
  FakeSocket.last.open();
  FakeSocket.last.answer("subscribe", { type: "error", problem: { status: 403, detail: "no right" } });
  await assert.rejects(subscribing, Forbidden);
});

test("resumption that is rejected is tried again", async () => {
  const { subscription } = await subscribed({}, { backoff: { random: () => 0 } });
  await reconnect();
  const problem = { status: 429, reason: "home_unavailable", detail: "later", retry_after: 2 };
  FakeSocket.last.answer("subscribe", { type: "error", problem });
  mock.timers.tick(1_999);
  assert.equal(requests().length, 1);
  mock.timers.tick(1);
  assert.equal(requests().length, 2);
  confirm(10);
  FakeSocket.last.tell(message(11));
  assert.equal((await subscription.next()).value.position, 11);
});

test("subscription fails if the service does not confirm it in time", async () => {
  const client = fakeClient();
  const subscribing = client.subscribe("news");
  await settle();
  FakeSocket.last.open();
  mock.timers.tick(5_000);
  await assert.rejects(subscribing, { name: "Unavailable" });
  assert.equal(requests().at(-1).type, "unsubscribe");
});

test("closing the client ends the loop", async () => {
  const { client, subscription } = await subscribed();
  const next = subscription.next();
  await client.close();
  assert.equal((await next).done, true);
});
