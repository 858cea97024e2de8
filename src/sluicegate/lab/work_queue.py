"""The queue before the workers, as the kernel-only mode sees it.

A queue takes arrivals and gives the next unit to serve; units that it loses it appends to a list.
It may refuse an arrival, hold it, or lose it later. The one here is composed of the product's own
kernels, `adaptive_lifo` and `codel`, and the deadline's slack rule; those it is compared with are
in `baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

from sluicegate.kernels.adaptive_lifo import AdaptiveLifo, QueueEntry
from sluicegate.kernels.codel import CodelSettings, CodelTimeout


@final
@dataclass(slots=True, eq=False)
class WorkUnit:
    """One attempt at one unit of work in the kernel-only mode."""

    kind: int
    caller: int
    arrived_us: int
    deadline_us: int
    attempt: int
    work_us: int = 0
    abandoned: bool = False  # its caller waits no longer


class WorkQueue(Protocol):
    """The queue before the workers."""

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Take a unit in, or lose it, or lose another in its place."""
        ...

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """The unit to serve now; None if there is none."""
        ...

    def waiting(self) -> int:
        """How many are held, the dead among them included."""
        ...


@final
class KernelQueue:
    """Adaptive LIFO, CoDel's timeout, and the slack rule.

    A unit is lost when it has waited for its timeout, or when what remains of its time is less than
    `slack_us`, the p99 of the work: it would be served too late.
    """

    __slots__ = ("_codel", "_expired", "_lifo", "_slack_us")

    def __init__(
        self,
        *,
        length_max: int,
        slack_us: int,
        normal_us: int = 100_000,
        aggressive_us: int = 5_000,
        lifo: bool = True,
    ) -> None:
        self._codel = CodelTimeout(CodelSettings(normal_us=normal_us, aggressive_us=aggressive_us))
        self._lifo: AdaptiveLifo[WorkUnit] = AdaptiveLifo(
            length_max=length_max, standing_us=normal_us if lifo else None
        )
        self._expired: list[QueueEntry[WorkUnit]] = []
        self._slack_us = slack_us

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Hold it for as long as CoDel and its own deadline allow."""
        lifo = self._lifo
        timeout_us = self._codel.timeout_us(lifo.length, now_us)
        left_us = unit.deadline_us - now_us - self._slack_us
        if left_us < timeout_us:
            timeout_us = left_us
        lifo.push(unit, timeout_us, now_us, self._expired)
        if self._expired:
            self._lose(lost)

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """The next one, and never one that has expired."""
        entry = self._lifo.pop(now_us, self._expired)
        if self._expired:
            self._lose(lost)
        return None if entry is None else entry.item

    def waiting(self) -> int:
        """How many are held."""
        return self._lifo.length

    def _lose(self, lost: list[WorkUnit]) -> None:
        for entry in self._expired:
            lost.append(entry.item)  # noqa: PERF401 - a loop is what mypyc compiles best
        self._expired.clear()
