"""Progress: a bar on a terminal, what is running, and how long the rest will take.

The time left is that of the runs left: each as long as similar runs took so far, divided by the
number of processes. Off a terminal long work prints a line for each tenth of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from sluicegate.lab.text import format_time_left

BAR: Final = 24
LONG: Final = 20  # runs, from which on progress is printed off a terminal
_TENTHS: Final = 10

# What makes runs similar, the broadest first: the scenario, the candidate, the case.
RunKind: TypeAlias = tuple[str, ...]


def write_status(text: str) -> None:
    """Write to stderr at once: a bar has no end of line."""
    sys.stderr.write(text)
    sys.stderr.flush()


@final
class ProgressBar:
    """A bar that grows on a terminal and is cleared at the end; elsewhere nothing is written."""

    __slots__ = ("_length", "_write", "live")

    def __init__(self, write: Callable[[str], object], *, live: bool) -> None:
        self._write = write
        self._length = 0
        self.live = live

    def show(self, done: int, total: int, text: str) -> None:
        """So much is done; at the end the bar is cleared."""
        if done == total:
            self.clear()
        elif self.live:
            full = BAR * done // total
            line = f"[{'#' * full}{'.' * (BAR - full)}] {done}/{total} {text:<48.48}"
            self._length = len(line)
            self._write(f"\r{line}")

    def clear(self) -> None:
        """Clear the line."""
        if self._length:
            self._write("\r" + " " * self._length + "\r")
            self._length = 0


@final
class RunProgress:
    """The progress of many runs of scenarios."""

    __slots__ = ("_at_once", "_bar", "_done", "_left", "_tenths", "_took", "_total", "_write")

    def __init__(self, write: Callable[[str], object], *, live: bool) -> None:
        self._write = write
        self._bar = ProgressBar(write, live=live)
        self._left: Counter[RunKind] = Counter()
        self._took: dict[RunKind, tuple[int, int]] = {}  # runs, and their time
        self._at_once = 1
        self._done = 0
        self._total = 0
        self._tenths = 0

    def expect(self, runs: Sequence[RunKind], at_once: int) -> None:
        """These will be run, so many at once."""
        self._left.update(runs)
        self._total += len(runs)
        self._at_once = at_once
        self._bar.show(self._done, self._total, "")

    def record(self, similar: RunKind, took_us: int) -> None:
        """A run has ended."""
        self._left[similar] -= 1
        self._done += 1
        for broader in (similar, similar[:2], similar[:1], ()):
            runs, wall_us = self._took.get(broader, (0, 0))
            self._took[broader] = (runs + 1, wall_us + took_us)
        left = format_time_left(self.left_us())
        text = f"{' '.join(similar)}, {left} left"
        self._bar.show(self._done, self._total, text)
        tenths = _TENTHS * self._done // max(self._total, 1)
        if not self._bar.live and self._total >= LONG and tenths > self._tenths:
            self._tenths = tenths
            self._write(f"{self._done}/{self._total} {text}\n")

    def left_us(self) -> int:
        """An estimate of how long the rest will take."""
        left_us = sum(count * self._mean_us(similar) for similar, count in self._left.items())
        return int(left_us / self._at_once)

    def end(self) -> None:
        """Clear the line."""
        self._bar.clear()

    def _mean_us(self, similar: RunKind) -> float:
        for broader in (similar, similar[:2], similar[:1], ()):
            if broader in self._took:
                runs, wall_us = self._took[broader]
                return wall_us / runs
        return 0.0
