"""Watermark: a service whose line stands too high refuses at once until the line is low again.

Judges by how many wait, which a function says. From `high` on all are refused, until at most `low`
wait. What the service has begun it finishes, and nobody else joins a line of those who are mostly
too late: clients that know of it come back later, or not at all. That is the back pressure of
Airbnb's "Building Services, Part 3" (2018).

Where a service has several lines or classes, `beside` says how many of those who wait are in a
unit's way: in the line that it would join, of what matters as much. If that is at most `low`, it is
not its line that stands too high, and it passes. Ten times the capacity in BULK had 13% of DEGRADED
refused by a mark that counted all alike, and CRITICAL alone passes at any number.

CRITICAL passes: its line is served first, and has the queue's own bounds. Above zero, `low` keeps
the places busy until those who come next are let in.

Callers' bursts end in pauses, and what the mark refuses in them could be served there. So `waiting`
is to leave out a line that is long for a moment, and a queue that waits longer for bursts hears of
all who are refused before it (`missed`), since between its marks what this lets through comes in
bursts of its own making. What that is worth is in docs/decisions/0032.

Cost: a comparison. Bounds: a handful of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

RULE_ID: Final = "watermark"


@final
@dataclass(frozen=True, kw_only=True)
class WatermarkSettings:
    """How many may wait before all are refused, and until when."""

    high: int = ranged(200, 1, 1 << 20)
    low: int = ranged(50, 0, 1 << 20)
    retry_after_us: int = ranged(250_000, 1, 600_000_000)

    def __post_init__(self) -> None:
        check_ranges("watermark", self)
        if self.low >= self.high:
            raise BadValue("watermark.low", self.low, f"it must be below high, {self.high}")


class WatermarkStats(NamedTuple):
    """Counts since the start, and where it stands."""

    admitted: int
    refused: int
    rises: int  # how often the high mark was reached
    refuses: bool


@final
class Watermark:
    """Refuses between the high mark and the low one."""

    __slots__ = (
        "_admitted", "_beside", "_missed", "_refused", "_rises", "_waiting", "refuses", "settings",
    )  # fmt: skip

    def __init__(
        self,
        waiting: Callable[[], int],
        settings: WatermarkSettings | None = None,
        missed: Callable[[int], None] | None = None,
        beside: Callable[[Request], int] | None = None,
    ) -> None:
        """Ask `waiting` for how many wait, and tell `missed` when anybody is refused."""
        self._beside = beside
        self.settings = WatermarkSettings() if settings is None else settings
        self._waiting = waiting
        self._missed = missed
        self._admitted = self._refused = self._rises = 0
        self.refuses = False

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Admit it, unless the line has not fallen to the low mark again."""
        waiting = self._waiting()
        if self.refuses:
            self.refuses = waiting > self.settings.low
        elif waiting >= self.settings.high:
            self.refuses = True
            self._rises += 1
        if self.refuses and not self._passes(request):
            self._refused += 1
            if self._missed is not None:
                self._missed(now_us)
            retry_us = self.settings.retry_after_us
            return Decision(False, 0, retry_us, retry_us, OVERLOADED, RULE_ID)
        self._admitted += 1
        return NOTHING_HELD

    def _passes(self, request: Request) -> bool:
        if request.criticality == Criticality.CRITICAL:
            return True
        return self._beside is not None and self._beside(request) <= self.settings.low

    def stats(self) -> WatermarkStats:
        """What it looks like now."""
        return WatermarkStats(self._admitted, self._refused, self._rises, self.refuses)
