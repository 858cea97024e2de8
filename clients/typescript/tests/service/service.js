/** The service that the Python test has started, and what it does to it on request. */

import { PubSubClient } from "../../dist/index.js";

const { SLUICEGATE_URL: url, SLUICEGATE_CONTROL: control } = process.env;

/** Return a client of the service. */
export function clientOf(options = {}) {
  return new PubSubClient(url, { timeoutMs: 60_000, ...options });
}

/** Make the Python test do something, and return its result. */
export async function ask(what, argument = null) {
  const reply = await fetch(`${control}/${what}`, { method: "POST", body: JSON.stringify(argument) });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

/** Return the next `count` of a subscription. */
export async function take(subscription, count) {
  const found = [];
  while (found.length < count) found.push((await subscription.next()).value);
  return found;
}
