/** Limits that reject a publish, and a history that drops messages. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Refused } from "../../dist/index.js";
import { clientOf } from "./service.js";

/** Publish until the limit of the channel admits it. */
async function admitted(client, data) {
  for (;;) {
    try {
      return await client.publish("news", data);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
}

test("rejected publish has its reason and its wait", async () => {
  const client = clientOf();
  const results = await Promise.allSettled(Array.from({ length: 300 }, (_, n) => client.publish("busy", n)));
  const errors = results.filter((one) => one.status === "rejected").map((one) => one.reason);
  assert.ok(errors.length > 0);
  for (const error of errors) {
    assert.ok(error instanceof Refused);
    assert.equal(error.reason, "channel_limited");
    assert.ok(error.retryAfterMs > 0);
  }
  await client.close();
});

test("dropped messages are one gap, then the rest follows", async () => {
  const client = clientOf();
  const text = "x".repeat(1_000);
  const first = await admitted(client, text);
  let last = first;
  for (let n = 0; n < 40; n += 1) last = await admitted(client, text);
  const subscription = await client.subscribe("news", { after: first });
  const gap = (await subscription.next()).value;
  assert.equal(gap.type, "gap");
  assert.equal(gap.after, first);
  assert.ok(gap.before > first + 1);
  let position = gap.before - 1;
  while (position < last) {
    const one = (await subscription.next()).value;
    assert.equal(one.type, "message");
    assert.ok(one.position > position);
    position = one.position;
  }
  assert.deepEqual((await client.history("news", first, 1)).gap, gap);
  await client.close();
});
