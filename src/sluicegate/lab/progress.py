"""Progress: a bar, what is being played, and how long it will still take.

The time left is that of the runs left: each as long as the like of it took so far, and as many at
once as there are processes. On what is no terminal a long play says a line for each tenth of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from sluicegate.lab.jobs import Ran, Unit

BAR: Final = 24
LONG: Final = 20  # runs, from which on it tells of itself off a terminal
_TENTHS: Final = 10
_US: Final = 1_000_000

_Like: TypeAlias = tuple[str, ...]


@final
class Progress:
    """Hears of every run that has ended."""

    __slots__ = (
        "_at_once",
        "_done",
        "_left",
        "_length",
        "_live",
        "_tenths",
        "_took",
        "_total",
        "_write",
    )

    def __init__(self, write: Callable[[str], object], *, live: bool) -> None:
        self._write = write
        self._live = live
        self._left: Counter[_Like] = Counter()
        self._took: dict[_Like, tuple[int, int]] = {}  # runs, and their time
        self._at_once = 1
        self._done = 0
        self._total = 0
        self._length = 0
        self._tenths = 0

    def expect(self, units: Sequence[Unit], at_once: int) -> None:
        """These will be played, so many at once."""
        self._left.update((unit.where, unit.contender, unit.case) for unit in units)
        self._total += len(units)
        self._at_once = at_once

    def ran(self, ran: Ran) -> None:
        """One has been."""
        unit = ran.unit
        like = (unit.where, unit.contender, unit.case)
        self._left[like] -= 1
        self._done += 1
        for broader in (like, like[:2], like[:1], ()):
            runs, wall_us = self._took.get(broader, (0, 0))
            self._took[broader] = (runs + 1, wall_us + ran.wall_us)
        self._show(f"{unit.where} {unit.contender} {unit.case}, {in_words(self.left_us())} left")

    def left_us(self) -> int:
        """How long the rest will take, as far as one can tell."""
        left_us = sum(count * self._mean_us(like) for like, count in self._left.items())
        return int(left_us / self._at_once)

    def end(self) -> None:
        """Clear the line."""
        if self._live:
            self._write("\r" + " " * self._length + "\r")

    def _mean_us(self, like: _Like) -> float:
        for broader in (like, like[:2], like[:1], ()):
            if broader in self._took:
                runs, wall_us = self._took[broader]
                return wall_us / runs
        return 0.0

    def _show(self, what: str) -> None:
        if not self._live:
            tenths = _TENTHS * self._done // max(self._total, 1)
            if self._total >= LONG and tenths > self._tenths:
                self._tenths = tenths
                self._write(f"{self._done}/{self._total} {what}\n")
            return
        full = BAR * self._done // max(self._total, 1)
        line = f"[{'#' * full}{'.' * (BAR - full)}] {self._done}/{self._total} {what:<48.48}"
        self._length = len(line)
        self._write(f"\r{line}")


def in_words(us: int) -> str:
    """A time as one says it: 40 s, 3 min, 2 h 10 min."""
    seconds = us // _US
    if seconds < 100:
        return f"{seconds} s"
    minutes = (seconds + 30) // 60
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
