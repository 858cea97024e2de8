/** A service that is killed while messages are published and received. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, clientOf } from "./service.js";

test("killed service costs a subscriber no message", async () => {
  const client = clientOf({ backoff: { baseMs: 50, maxMs: 200 } });
  const accepted = [];
  const received = [];
  const subscription = await client.subscribe("news");
  await client.enter("room", "mia", "here");
  const last = "the last one";
  const reading = (async () => {
    for await (const one of subscription) {
      assert.equal(one.type, "message");
      if (one.data === last) break;
      received.push(one.position);
    }
  })();
  const publish = async (count) => {
    for (let n = 0; n < count; n += 1) {
      await client.publish("news", n).then(
        (position) => accepted.push(position),
        (error) => assert.equal(error.name, "Unavailable"),
      );
    }
  };
  for (let turn = 0; turn < 2; turn += 1) {
    await publish(20);
    const publishing = publish(20); // while the service is killed
    await ask("restart");
    await publishing;
  }
  await client.publish("news", last);
  await reading;
  assert.deepEqual(received, [...new Set(received)].sort((one, other) => one - other)); // in order, once
  assert.deepEqual(accepted.filter((position) => !received.includes(position)), []); // none is lost
  assert.ok(client.reconnects >= 2);
  assert.deepEqual((await client.members("room")).map((one) => one.member), ["mia"]);
  await client.close();
});
