/** Publish, subscribe, history, presence and errors, at a real service. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ask, clientOf, take } from "./service.js";

const token = await ask("token", {});
const client = clientOf({ token });
after(() => client.close());

test("published messages are received in order", async () => {
  const subscription = await client.subscribe("news");
  const values = [null, "é\u2028😀", [], { deep: { list: [1, -0.5] } }, ""];
  const positions = await Promise.all(values.map((value) => client.publish("news", value)));
  const received = await take(subscription, values.length);
  assert.deepEqual(received.map((one) => one.data), values);
  assert.deepEqual(received.map((one) => one.position), positions);
  assert.deepEqual(positions, [...positions].sort((one, other) => one - other));
  subscription.close();
  const again = await client.subscribe("news", { after: positions[1] });
  assert.deepEqual((await take(again, 3)).map((one) => one.data), values.slice(2));
  again.close();
  const page = await client.history("news", positions[0], 2);
  assert.deepEqual(page.messages, received.slice(1, 3));
  assert.equal(page.gap, null);
  assert.ok(page.newest >= positions.at(-1));
});

test("callback receives the history and new messages", async () => {
  await client.publish("log", 1);
  let whole;
  const received = new Promise((resolve) => {
    whole = resolve;
  });
  const seen = [];
  const onReceived = (one) => {
    seen.push(one.data);
    if (seen.length === 2) whole();
  };
  await client.subscribe("log", { after: 0, onReceived });
  await client.publish("log", 2);
  await received;
  assert.deepEqual(seen, [1, 2]);
});

test("rewind receives the last messages", async () => {
  for (let n = 0; n < 5; n += 1) {
    await client.publish("rewound", n);
    await client.publish("between", n);
  }
  const subscription = await client.subscribe("rewound", { rewind: 2 });
  await client.publish("rewound", "new");
  assert.deepEqual((await take(subscription, 3)).map((one) => one.data), [3, 4, "new"]);
});

test("many members are listed by name", async () => {
  const account = clientOf({ token: await ask("account") });
  const names = Array.from({ length: 40 }, (_, n) => `member-${10 + n}`);
  await Promise.all(names.map((name) => account.enter("hall", name, "x".repeat(3_000))));
  const found = await client.members("hall"); // 120 kB: several pages where the service pages
  assert.deepEqual(found.map((one) => one.member).sort(), names);
  await account.close();
});

test("members are listed, and their changes are received", async () => {
  const changes = await client.subscribe("room", { presence: true });
  await client.enter("room", "mia", { at: "desk" });
  assert.deepEqual((await client.members("room")).map((one) => [one.member, one.data]), [["mia", { at: "desk" }]]);
  await client.update("room", "mia", null);
  await client.leave("room", "mia");
  assert.deepEqual(await client.members("room"), []);
  const found = await take(changes, 3);
  assert.deepEqual(found.map((one) => [one.type, one.presence, one.member]), [
    ["presence", "enter", "mia"],
    ["presence", "update", "mia"],
    ["presence", "leave", "mia"],
  ]);
});

test("errors are typed and the connection continues", async () => {
  await assert.rejects(client.publish("no/pe", 1), { name: "BadValue", field: "channel" });
  await assert.rejects(client.publish("news", "x".repeat(70_000)), { name: "BadValue", field: "message" });
  await assert.rejects(client.enter("room", "ben"), { name: "Forbidden" });
  await client.publish("news", "and the connection continues");
  assert.equal(client.reconnects, 0);
});

test("close right after publish keeps the acknowledgement", async () => {
  const other = clientOf({ token });
  const published = other.publish("news", "last");
  await other.close();
  assert.ok((await published) > 0);
});

test("invalid token stops the client", async () => {
  const other = clientOf({ token: await ask("token", { for_s: -1 }) });
  await assert.rejects(other.subscribe("news"), { name: "Unauthenticated", message: "the token has expired" });
  assert.equal(other.state, "failed");
});
