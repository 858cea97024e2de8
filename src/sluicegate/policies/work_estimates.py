"""Work estimates: what work of a table, an operation and a caller has weighed, for what comes.

The part of `request_units` that says how many bytes a read will move before it is done. A sketch is
two means and a largest: rows and bytes of a request, each moved by 1/n of the error while it is
young and by `RATE` later, and the bytes of the heaviest request of the last `HEAVIEST_US`.

    caller's own      work of this table, operation and caller
    table's           of this table, by whoever reads or writes there: for newcomers

A mean is right in sum and wrong request by request: whoever asks for tiny rows and rarely for a
huge one is charged too much for the former and too little for the latter. What that leaves is
carried to the caller's next estimates (`estimate_error.py`). The heaviest tells how much could be
left by requests that are under way at once.

Cost: a look-up; a lesson moves two floats. Bound: `sketches_max`; of the `LOOKS` oldest, the one
with the fewest lessons is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

from sluicegate.kernels.cost_model import AMOUNT_MAX

LOOKS: Final = 4
RATE: Final = 1 / 64
YOUTH: Final = 64  # lessons, until which the heaviest of the table counts too
HEAVIEST_US: Final = 3_600_000_000


@final
class WorkSketch:
    """What requests of one kind have weighed."""

    __slots__ = ("_heaviest_us", "heaviest", "lessons", "rows", "size_bytes")

    def __init__(self) -> None:
        self.lessons = 0
        self.rows = 0.0
        self.size_bytes = 0.0
        self.heaviest = 0  # bytes of a request
        self._heaviest_us = 0

    def learn(self, rows: int, size_bytes: int, now_us: int) -> None:
        """Take in what one weighed."""
        if self.lessons < YOUTH:
            self.lessons += 1
        rate = 1.0 / self.lessons
        self.rows += rate * (rows - self.rows)
        self.size_bytes += rate * (size_bytes - self.size_bytes)
        age_us = now_us - self._heaviest_us
        if size_bytes >= self.heaviest or age_us > HEAVIEST_US or age_us < -HEAVIEST_US:
            self.heaviest = size_bytes
            self._heaviest_us = now_us

    def bytes_of(self, rows: int) -> int:
        """What so many rows usually weigh."""
        if self.rows <= 0.0:
            return 0
        size = self.size_bytes * rows / self.rows
        return int(size) if size < AMOUNT_MAX else AMOUNT_MAX

    def restore(self, rows: float, size_bytes: float, heaviest: int, now_us: int) -> None:
        """Begin with what was kept; the first lessons of now weigh as those of a young sketch."""
        self.lessons = YOUTH // 2
        self.rows, self.size_bytes, self.heaviest = rows, size_bytes, heaviest
        self._heaviest_us = now_us


class SketchRow(NamedTuple):
    """A sketch as it is shown and kept; `operation` and `caller` are empty for a whole table."""

    table: str
    operation: str
    caller: str
    rows: float  # a request
    size_bytes: float
    heaviest: int


@final
class WorkEstimates:
    """The sketches, at most `sketches_max` of them."""

    __slots__ = ("_sketches", "_tables", "sketches_max")

    def __init__(self, sketches_max: int) -> None:
        self.sketches_max = sketches_max
        self._sketches: dict[tuple[str, str, str], WorkSketch] = {}
        self._tables: dict[str, WorkSketch] = {}

    def find(self, table: str, operation: str, caller: str) -> WorkSketch | None:
        """The caller's own; None if nothing has been learned."""
        return self._sketches.get((table, operation, caller))

    def of_table(self, table: str) -> WorkSketch | None:
        """That of the whole table; its rows are single ones."""
        return self._tables.get(table)

    def meet(self, table: str, operation: str, caller: str) -> WorkSketch:
        """The caller's own, a new one if there is none."""
        key = (table, operation, caller)
        sketch = self._sketches.get(key)
        if sketch is None:
            if len(self._sketches) >= self.sketches_max:
                self._forget()
            sketch = self._sketches[key] = WorkSketch()
        return sketch

    def learn_table(self, table: str, rows: int, size_bytes: int, now_us: int) -> None:
        """Take in what rows of a table weigh, by whoever wrote or read them."""
        if rows < 1 or size_bytes < 1:
            return
        sketch = self._tables.get(table)
        if sketch is None:
            if len(self._tables) >= self.sketches_max:
                del self._tables[next(iter(self._tables))]
            sketch = self._tables[table] = WorkSketch()
        sketch.learn(1, size_bytes // rows, now_us)

    def rows(self) -> list[SketchRow]:
        """All sketches, the tables' first."""
        rows = [
            SketchRow(table, "", "", one.rows, one.size_bytes, one.heaviest)
            for table, one in self._tables.items()
        ]
        rows += [
            SketchRow(*key, one.rows, one.size_bytes, one.heaviest)
            for key, one in self._sketches.items()
        ]
        return rows

    def restore(self, rows: Iterable[SketchRow], now_us: int) -> None:
        """Begin with what was kept, where nothing has been learned since."""
        for row in rows:
            sketch: WorkSketch | None = None
            if row.operation:
                if len(self._sketches) < self.sketches_max:
                    sketch = self.meet(row.table, row.operation, row.caller)
            elif len(self._tables) < self.sketches_max:
                sketch = self._tables.setdefault(row.table, WorkSketch())
            if sketch is not None and sketch.lessons == 0:
                sketch.restore(row.rows, row.size_bytes, row.heaviest, now_us)

    def __len__(self) -> int:
        return len(self._sketches)

    def _forget(self) -> None:
        sketches = self._sketches
        looked = []
        for key in sketches:
            looked.append(key)
            if len(looked) == LOOKS:
                break
        least = min(looked, key=lambda key: sketches[key].lessons)
        for key in looked:
            sketch = sketches.pop(key)
            if key != least:
                sketches[key] = sketch  # behind the others: the next search looks elsewhere
