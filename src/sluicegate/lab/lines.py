"""Lines: what stands before the workers, as the kernel-only mode sees it.

A line is told of an arrival and asked for the next unit; units that it loses it appends to a list.
It may refuse an arrival, hold it, or lose it later. The one here is composed of the product's own
kernels, `adaptive_lifo` and `codel`, and the deadline's slack rule; the lines it is compared with
are in `baselines`.
"""

from __future__ import annotations

from typing import Protocol, final

from sluicegate.kernels.adaptive_lifo import AdaptiveLifo, QueueEntry
from sluicegate.kernels.codel import CodelTimeout


@final
class Unit:
    """One attempt at one unit of work in the kernel-only mode."""

    __slots__ = (
        "arrived_us",
        "attempt",
        "caller",
        "deadline_us",
        "given_up",
        "kind",
        "work_us",
    )

    def __init__(
        self, kind: int, caller: int, arrived_us: int, deadline_us: int, attempt: int
    ) -> None:
        self.kind = kind
        self.caller = caller
        self.arrived_us = arrived_us
        self.deadline_us = deadline_us
        self.attempt = attempt
        self.work_us = 0
        self.given_up = False  # its caller has turned to something else


class Line(Protocol):
    """What stands before the workers."""

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Take a unit in, or lose it, or lose another in its place."""
        ...

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The unit to serve now; None if there is none."""
        ...

    def waiting(self) -> int:
        """How many are held, the dead among them included."""
        ...


@final
class KernelLine:
    """Adaptive LIFO, CoDel's timeout, and the slack rule.

    A unit is lost when it has waited for its timeout, or when what remains of its time is less than
    `slack_us`, the p99 of the work: it would be served too late.
    """

    __slots__ = ("_codel", "_gone", "_lifo", "_slack_us")

    def __init__(
        self,
        *,
        length_max: int,
        slack_us: int,
        normal_us: int = 100_000,
        aggressive_us: int = 5_000,
        lifo: bool = True,
    ) -> None:
        self._codel = CodelTimeout(normal_us=normal_us, aggressive_us=aggressive_us)
        self._lifo: AdaptiveLifo[Unit] = AdaptiveLifo(
            length_max=length_max, standing_us=normal_us if lifo else None
        )
        self._gone: list[QueueEntry[Unit]] = []
        self._slack_us = slack_us

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Hold it for as long as CoDel and its own deadline allow."""
        lifo = self._lifo
        timeout_us = self._codel.timeout_us(lifo.length, now_us)
        left_us = unit.deadline_us - now_us - self._slack_us
        if left_us < timeout_us:
            timeout_us = left_us
        lifo.push(unit, timeout_us, now_us, self._gone)
        if self._gone:
            self._lose(lost)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The one whose turn it is, and never one that has expired."""
        entry = self._lifo.pop(now_us, self._gone)
        if self._gone:
            self._lose(lost)
        return None if entry is None else entry.item

    def waiting(self) -> int:
        """How many are held."""
        return self._lifo.length

    def _lose(self, lost: list[Unit]) -> None:
        for entry in self._gone:
            lost.append(entry.item)  # noqa: PERF401 - a loop is what mypyc compiles best
        self._gone.clear()
