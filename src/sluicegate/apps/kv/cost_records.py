"""Cost records: what is learned of costs, kept in the engine and shared by all who use it.

In the engine and not in the store of quotas: that one may be without a disk or not be there at all,
and what is known of tables belongs where the tables are. Two kinds of records, in a space of ours:

    statistics      estimates with the usual time of work, and key spans; one record, which each
                    dispatcher reads, and writes with its own knowledge added
    owed, a node    what its callers owe; the dispatcher that swaps the record away once its node
                    is gone adopts it, so that nobody owes twice or is let off

A record that cannot be read, or is of another version, counts as none. An engine that fails is
asked again at the next turn; no request waits for any of this. Bounds: `estimates_max`,
`partitions_max`, `callers_max` of a record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from sluicegate.apps.kv.key_spans import KeySpans
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Change, Engine, KeyRange
from sluicegate.contracts.errors import Unavailable
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.cost_model import EstimateRow, Weights, WorkRow
from sluicegate.kernels.key_span import KeySpanRow
from sluicegate.policies.quota.request_units import RequestUnits
from sluicegate.policies.settings import check_ranges
from sluicegate.telemetry.prometheus import MetricFamily, counter, gauge

VERSION: Final = 2
SPACE: Final = "costs"
STATISTICS: Final = b"statistics"
OWED: Final = b"owed"
NODES_MAX: Final = 1_000
SHOWN_MAX: Final = 100
_UNREADABLE: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRecordSettings:
    """How often, and how much."""

    every_us: int = ranged(10_000_000, 10_000, 600_000_000)
    gone_us: int = ranged(30_000_000, 20_000, 3_600_000_000)  # a node that has not written since
    close_us: int = ranged(2_000_000, 1_000, 60_000_000)  # how long the begin and the end may take
    # Of a record: it is read and written in one turn of the loop.
    estimates_max: int = ranged(1_000, 0, 100_000)
    partitions_max: int = ranged(100, 0, 100_000)
    callers_max: int = ranged(1_000, 0, 100_000)

    def __post_init__(self) -> None:
        check_ranges("cost_records", self)


@final
class CostRecords:
    """Keeps what one dispatcher learns, and takes in what others have."""

    __slots__ = (
        "_clock",
        "_engine",
        "_learned",
        "_node",
        "_spans",
        "_units",
        "_written",
        "failures",
        "settings",
    )

    def __init__(
        self,
        units: RequestUnits,
        spans: KeySpans,
        engine: Engine,
        clock: Clock,
        node: str,
        settings: CostRecordSettings | None = None,
    ) -> None:
        self.settings = settings or CostRecordSettings()
        self.failures = 0
        self._units = units
        self._spans = spans
        self._engine = engine
        self._clock = clock
        self._node = node.encode()
        self._learned = 0  # lessons, when it was written last
        self._written = b""

    async def load(self) -> None:
        """Begin with what is kept, if it can be read."""
        try:
            async with asyncio.timeout(self.settings.close_us / 1e6):
                await self._take_in()
                await self._adopt(own=True)
        except (Unavailable, TimeoutError):
            self.failures += 1

    async def run(self) -> None:
        """Exchange at every turn until cancelled."""
        while True:
            await asyncio.sleep(self.settings.every_us / 1e6)
            await self.exchange()

    async def exchange(self) -> None:
        """Take in what others have written, and write what is known here."""
        try:
            await self._take_in()
            await self._write(self._clock.now_us())
            await self._adopt(own=False)
        except Unavailable:
            self.failures += 1

    def state(self) -> Mapping[str, object]:
        """Return the estimates, those of tables first, and the debts."""
        units = self._units
        rows = [] if units.estimates is None else units.estimates.rows()
        return {
            "operations": {name: _weights(one) for name, one in units.operations().items()},
            "estimates": [_shown(one) for one in rows[:SHOWN_MAX]],
            "estimated": len(rows),
            "partitions": len(self._spans),
            "owed_mru": dict(_largest(units.owed_mru())[:SHOWN_MAX]),
            "failures": self.failures,
        }

    def families(self) -> Iterable[MetricFamily]:
        """The same as metrics."""
        estimates = self._units.estimates
        estimated = 0 if estimates is None else len(estimates)
        yield gauge("sluicegate_kv_cost_estimates", "Tables, operations and callers.", estimated)
        yield gauge("sluicegate_kv_cost_partitions", "With known key spans.", len(self._spans))
        owed = sum(self._units.owed_mru().values())
        yield gauge("sluicegate_kv_cost_owed_ru", "Beyond the debt of budgets.", owed / 1e3)
        yield counter(
            "sluicegate_kv_cost_record_failures", "Turns without an engine.", self.failures
        )

    async def close(self) -> None:
        """Write a last time; what callers owe may be adopted at once."""
        try:
            async with asyncio.timeout(self.settings.close_us / 1e6):
                await self._write(0)
        except (Unavailable, TimeoutError):
            self.failures += 1

    async def _take_in(self) -> None:
        result = self._engine.read(SPACE, [(STATISTICS, b"")])
        [stored] = await result if isinstance(result, Awaitable) else result
        if stored is not None and stored != self._written:
            now_us = self._clock.now_us()
            restore_statistics(stored, self._units, self._spans, now_us)

    async def _write(self, at_us: int) -> None:
        settings = self.settings
        changes: list[Change] = []
        if self._learned != self._units.learned:
            self._learned = self._units.learned
            self._written = statistics_of(
                self._units,
                self._spans,
                settings.estimates_max,
                settings.partitions_max,
            )
            changes.append(Change(SPACE, STATISTICS, b"", self._written))
        largest = _largest(self._units.owed_mru())[: settings.callers_max]
        record = _dump({"v": VERSION, "at_us": at_us, "owed": dict(largest)})
        changes.append(Change(SPACE, OWED, self._node, record))
        await self._engine.write(changes)

    async def _adopt(self, *, own: bool) -> None:
        """Take over what callers owed at nodes that are gone; `own`: what they owed here too."""
        result = self._engine.scan(SPACE, OWED, KeyRange(rows_max=NODES_MAX, bytes_max=16 << 20))
        page = await result if isinstance(result, Awaitable) else result
        now_us = self._clock.now_us()
        for node, stored in page.rows:
            at_us, owed = read_owed(stored)
            gone = own if node == self._node else at_us < now_us - self.settings.gone_us
            if not gone:
                continue
            if await self._engine.swap(Change(SPACE, OWED, node, None), stored):
                self._units.owe(owed)


def statistics_of(
    units: RequestUnits,
    spans: KeySpans,
    estimates_max: int,
    partitions_max: int,
) -> bytes:
    """Return the record of what has been learned."""
    rows = [] if units.estimates is None else units.estimates.rows()[:estimates_max]
    return _dump(
        {
            "v": VERSION,
            "estimates": [[*row[:3], *row.estimate] for row in rows],
            "spans": [
                [table, partition.hex(), one.first.hex(), one.last.hex(), one.rows, one.alphabets]
                for table, partition, one in spans.save(partitions_max)
            ],
        }
    )


def restore_statistics(stored: bytes, units: RequestUnits, spans: KeySpans, now_us: int) -> None:
    """Take in a record, where this dispatcher knows nothing itself."""
    try:
        record: Any = json.loads(stored)
        if record["v"] != VERSION:
            return
        if units.estimates is not None:
            rows = [_row_of(*row) for row in record["estimates"]]
            units.estimates.restore(rows, now_us)
        for table, partition, first, last, rows, alphabets in record["spans"]:
            row = KeySpanRow(bytes.fromhex(first), bytes.fromhex(last), rows, tuple(alphabets))
            spans.restore(table, bytes.fromhex(partition), row)
    except _UNREADABLE:
        return


def read_owed(stored: bytes) -> tuple[int, Mapping[str, int]]:
    """When a node wrote what its callers owe, and that; nothing of what cannot be read."""
    try:
        record: Any = json.loads(stored)
        if record["v"] != VERSION:
            return record["at_us"], {}
        owed = {name: mru for name, mru in record["owed"].items() if type(mru) is int}
        return record["at_us"], owed
    except _UNREADABLE:
        return 0, {}


def _row_of(table: str, operation: str, caller: str, count: int, *means: float) -> WorkRow:
    if len(means) != len(EstimateRow._fields) - 1 or not all(0.0 <= one < 1e15 for one in means):
        raise ValueError("no estimate")
    estimate = EstimateRow(int(count), *(float(one) for one in means))
    return WorkRow(str(table), str(operation), str(caller), estimate)


def _shown(row: WorkRow) -> dict[str, object]:
    return {**dict(zip(WorkRow._fields[:3], row[:3], strict=True)), **row.estimate._asdict()}


def _largest(owed_mru: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(owed_mru.items(), key=lambda item: -item[1])


def _weights(weights: Weights) -> list[float]:
    return [weights.base_ru, weights.row_ru, weights.byte_ru, weights.ms_ru]


def _dump(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()
