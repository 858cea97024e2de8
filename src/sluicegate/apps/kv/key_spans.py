"""Key spans: what is known of the keys of each partition, so that a range is charged for its rows.

Nothing here reads an engine: LMDB knows how many rows a page has, but its binding tells only the
totals of a whole file. Bound: `partitions_max`; the one whose statistics were made first is
forgotten first. Of a write or a scan about `KEYS_MAX` keys are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, final

from sluicegate.apps.kv.tables.scan import ScanResult
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.key_values import Write
from sluicegate.kernels.key_span import UNKNOWN, KeySpan, KeySpanRow

KEYS_MAX: Final = 16


@final
class KeySpans:
    """The statistics of partitions."""

    __slots__ = ("_spans", "partitions_max")

    def __init__(self, partitions_max: int = 4_000) -> None:
        self.partitions_max = partitions_max
        self._spans: dict[tuple[str, bytes], KeySpan] = {}

    def rows_between(self, table: str, partition: bytes, span: KeyRange) -> int:
        """How many rows of a range there are, its limit included; at least one."""
        known = self._spans.get((table, partition))
        rows = UNKNOWN if known is None else known.rows_between(span.begin, span.end)
        return span.rows_max if rows == UNKNOWN else min(span.rows_max, max(1, rows))

    def write(self, table: str, writes: Sequence[Write]) -> None:
        """Take in what was written; rows of one key a partition teach nothing."""
        for one in writes if len(writes) <= KEYS_MAX else islice(writes, KEYS_MAX):
            if one.sort and one.value is not None:
                self._meet(table, one.partition).write(one.sort)

    def scan(self, table: str, partition: bytes, span: KeyRange, result: ScanResult) -> None:
        """Take in what a scan has found."""
        rows = result.rows
        begin, end = span.begin, span.end
        if result.more and result.last is not None:
            if span.reverse:
                begin = result.last
            else:
                end = result.last
        met = [one.sort for one in rows[:: max(1, len(rows) // KEYS_MAX)]]
        if rows:
            met.append(rows[-1].sort)
        self._meet(table, partition).scan(begin, end, met, len(rows))

    def save(self, count_max: int) -> list[tuple[str, bytes, KeySpanRow]]:
        """Return what a restart keeps, of the last partitions that were met."""
        rows: list[tuple[str, bytes, KeySpanRow]] = []
        for (table, partition), known in islice(reversed(self._spans.items()), count_max):
            row = known.save()
            if row is not None:
                rows.append((table, partition, row))
        return rows

    def restore(self, table: str, partition: bytes, row: KeySpanRow) -> None:
        """Begin with what was kept, where nothing has been learned since."""
        if (table, partition) not in self._spans and len(self._spans) < self.partitions_max:
            self._meet(table, partition).restore(row)

    def __len__(self) -> int:
        return len(self._spans)

    def _meet(self, table: str, partition: bytes) -> KeySpan:
        key = (table, partition)
        known = self._spans.get(key)
        if known is None:
            if len(self._spans) >= self.partitions_max:
                del self._spans[next(iter(self._spans))]
            known = self._spans[key] = KeySpan()
        return known
