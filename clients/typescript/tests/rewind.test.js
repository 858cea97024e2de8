/** Rewind: the position before the last messages of a channel among others. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewind } from "../dist/rewind.js";

/** Return a history of a channel in pages, and the number of reads. */
function historyOf(positions, { newest = positions.at(-1) ?? 0, cut = 0, presence = [] } = {}) {
  const read = async (after, count) => {
    read.calls += 1;
    const some = positions.filter((one) => one > after).slice(0, Math.min(count, 50));
    const messages = some.map((position) => ({ type: presence.includes(position) ? "presence" : "message", position }));
    return { messages, newest, cut, gap: null };
  };
  read.calls = 0;
  return read;
}

const range = (first, last, step = 1) => Array.from({ length: (last - first) / step + 1 }, (_, n) => first + n * step);

for (const [name, history, count, expected] of [
  ["dense history", historyOf(range(1, 500)), 20, 480],
  ["sparse history", historyOf(range(1, 1_000_001, 1_000), { newest: 1_000_500 }), 20, 981_000],
  ["several pages", historyOf(range(1, 500)), 120, 380],
  ["fewer messages than requested", historyOf(range(1, 5)), 20, 0],
  ["history that was cut", historyOf(range(91, 95), { cut: 90 }), 20, 90],
  ["presence between messages", historyOf(range(1, 100), { presence: range(96, 100) }), 3, 92],
  ["empty history", historyOf([], { newest: 70 }), 3, 0],
]) {
  test(`rewind of ${name}`, async () => {
    assert.equal(await rewind(history, count), expected);
    assert.ok(history.calls < 50, `${history.calls} reads`);
  });
}
