/** Tokens that are renewed, reduced and revoked, at a real service. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, clientOf, take } from "./service.js";

const FOR_S = 3; // of a token

/** Return a provider of tokens with these arguments in turn, the last one again and again. */
function provider(...turns) {
  const provide = () => {
    const next = turns[Math.min(provide.calls, turns.length - 1)];
    provide.calls += 1;
    return next === null ? null : ask("token", next);
  };
  provide.calls = 0;
  return provide;
}

test("client outlives its first tokens", async () => {
  const token = provider({ for_s: FOR_S });
  const client = clientOf({ token });
  const subscription = await client.subscribe("chat");
  const sent = [];
  while (token.calls < 3) {
    sent.push(await client.publish("chat", sent.length));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const received = await take(subscription, sent.length);
  assert.deepEqual(received.map((one) => one.position), sent);
  await client.close();
});

test("renewal without the right ends the subscription", async () => {
  const client = clientOf({ token: provider({ for_s: FOR_S }, { for_s: 600, channels: { other: ["publish"] } }) });
  const subscription = await client.subscribe("chat");
  await assert.rejects(subscription.next(), { name: "Forbidden" });
  await client.publish("other", "the connection continues");
  assert.equal(client.state, "connected");
  await client.close();
});

test("provider that gives up stops the client with its error", async () => {
  const errors = [];
  const onState = (state, error) => state === "failed" && errors.push(error.name);
  const client = clientOf({ token: provider({ for_s: FOR_S }, null), onState });
  const subscription = await client.subscribe("chat");
  await assert.rejects(subscription.next(), { name: "Unauthenticated", message: /given up/ });
  assert.deepEqual(errors, ["Unauthenticated"]);
});

test("revoked account stops the client", async () => {
  const client = clientOf({ token: provider({ for_s: 600 }) });
  const subscription = await client.subscribe("chat");
  await ask("revoke");
  await assert.rejects(subscription.next(), { name: "Forbidden", message: "access was revoked or reduced" });
  await assert.rejects(client.publish("chat", 1), { name: "Forbidden" });
  assert.equal(client.reconnects, 0);
});
