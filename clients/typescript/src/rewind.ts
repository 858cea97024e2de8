/** Rewind: finds the position before the last messages of a channel. */

import type { HistoryPage } from "./messages.js";

const PAGE_MAX = 1_000;
/** Positions count over all channels, so a span of positions may hold few messages of one channel. */
const WIDER = 4;

export type ReadHistory = (after: number, count: number) => Promise<HistoryPage>;

/** Return the position after which the last `count` messages follow, fewer if there are fewer. */
export async function rewind(read: ReadHistory, count: number): Promise<number> {
  const { newest, cut } = await read(0, 1);
  for (let span = count; ; span *= WIDER) {
    const after = Math.max(cut, newest - span);
    const positions = await lastPositions(read, after, count);
    if (positions.length === count) return (positions[0] ?? after + 1) - 1;
    if (after === cut) return cut;
  }
}

/** Return the positions of the last `count` messages after a position. */
async function lastPositions(read: ReadHistory, after: number, count: number): Promise<number[]> {
  let found: number[] = [];
  for (;;) {
    const { messages } = await read(after, PAGE_MAX);
    const last = messages.at(-1);
    if (last === undefined) return found;
    after = last.position;
    const published = messages.filter((one) => one.type === "message");
    found = [...found, ...published.map((one) => one.position)].slice(-count);
  }
}
