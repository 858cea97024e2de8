"""Which row comes next: the distributions of the YCSB core workloads.

Source: Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking Cloud Serving Systems with
YCSB" (SoCC 2010), and for the Zipfian draw Gray, Sundaresan, Englert, Baclawski and Weinberger,
"Quickly Generating Billion-YcsbRecord Synthetic Databases" (SIGMOD 1994): rank r of n comes with a
probability in proportion to 1 / (r + 1)^theta, by one draw and no table.

    scrambled    ranks are scatter over all rows, so the popular ones are not neighbours
    latest       rank 0 is the row that was inserted last

What was changed: the sum of a growing n goes on where it was, as theirs does, and the scattering is
by multiplication and not by FNV: one step, every bit of the rank in it.

Cost: O(n) once, and then O(1) a draw.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import BadValue

THETA: Final = 0.99
ROWS_MAX: Final = 100_000_000
_SCATTER: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


@final
class Zipfian:
    """Ranks from 0, the low ones often."""

    __slots__ = ("_alpha", "_eta", "_half", "_rows", "_theta", "_zeta")

    def __init__(self, rows: int, theta: float = THETA) -> None:
        if not 1 <= rows <= ROWS_MAX:
            raise BadValue("rows", rows, f"give from 1 to {ROWS_MAX}")
        if not 0.0 < theta < 1.0:
            raise BadValue("theta", theta, "give a number between 0 and 1")
        self._theta = theta
        self._alpha = 1.0 / (1.0 - theta)
        self._half = 1.0 + 0.5**theta
        self._rows = 0
        self._zeta = 0.0
        self._eta = 0.0
        self.grow(rows)

    def grow(self, rows: int) -> None:
        """From now on draw from so many, not fewer than before."""
        theta = self._theta
        for rank in range(self._rows, rows):
            self._zeta += 1.0 / (rank + 1) ** theta
        self._rows = max(rows, self._rows)
        last = 1.0 - self._half / self._zeta
        # With one or two rows the first two answers below are all there are.
        self._eta = (1.0 - (2.0 / self._rows) ** (1.0 - theta)) / last if last > 0.0 else 0.0

    def rank(self, draw: float) -> int:
        """The rank of a draw from 0 to 1."""
        share = draw * self._zeta
        if share < 1.0:
            return 0
        if share < self._half:
            return min(1, self._rows - 1)
        rank = int(self._rows * (self._eta * draw - self._eta + 1.0) ** self._alpha)
        return min(rank, self._rows - 1)


def scatter(rank: int, rows: int) -> int:
    """The row of a rank, somewhere among all."""
    mixed = (rank + 1) * _SCATTER & _MASK
    mixed = (mixed ^ mixed >> 32) * _SCATTER & _MASK
    return (mixed ^ mixed >> 29) % rows


@final
class RowChooser:
    """Which row comes next, among those that are there."""

    __slots__ = ("_early", "_zipfian", "next_free", "there")

    def __init__(self, rows: int) -> None:
        self._zipfian = Zipfian(rows)
        self._early: set[int] = set()  # inserted, and one before them is not yet
        self.there = rows  # every row below this one
        self.next_free = rows

    def scrambled(self, draw: float) -> int:
        """A row, the popular ones scatter."""
        return scatter(self._zipfian.rank(draw), self.there)

    def latest(self, draw: float) -> int:
        """A row, those inserted last the most popular."""
        return self.there - 1 - self._zipfian.rank(draw)

    def next_row(self) -> int:
        """The number of a row that is about to be inserted."""
        row, self.next_free = self.next_free, self.next_free + 1
        return row

    def record_insert(self, row: int) -> None:
        """The row is there: as soon as all before it are, it may be drawn."""
        self._early.add(row)
        while self.there in self._early:
            self._early.discard(self.there)
            self.there += 1
        self._zipfian.grow(self.there)
