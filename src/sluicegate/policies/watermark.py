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

Between its marks what it lets through comes in bursts of its own making, with pauses between them.
A queue that waits longer for bursts would take them for the callers', so it hears of all who are
refused before it (`missed`).

Callers' own bursts end in pauses, and what the mark refused in them could have been served there. A
`BurstRoom` learns how much that is, and so many may wait beyond the marks. 32 places of 10 ms,
callers who wait for 500 ms (`sluicegate lab run bursts`), goodput without it and with it, means of
seeds 1 and 5:

    bursts of 50 in 100 ms, at twice the capacity    0.81    0.96
    100 in 200 ms, at the capacity                   0.62    0.79
    20 in 80 ms, at the capacity                     0.60    0.82
    steady, at five times (200 wait at most)         1.00    1.00

Cost: a comparison; of a room the arithmetic of `kernels/burst_allowance.py`, while refusals may
still be served. Bounds: a handful of numbers.
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
from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings
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
class BurstRoom:
    """How many more may wait, since refusing some has left places idle."""

    __slots__ = ("_allowance", "_idle", "_work_us")

    def __init__(self, burst_us_max: int) -> None:
        """As many, at most, as are served in that time; 0 is none."""
        self._allowance = BurstAllowance(BurstAllowanceSettings(allowance_us_max=burst_us_max))
        self._idle = 0
        self._work_us = 0  # of who was refused last

    def record_refusal(self, work_us: int, late_us: int, now_us: int) -> None:
        """Record that work was refused which would be in time until `late_us`."""
        if self._idle > 0:
            self._allowance.record_missed()  # somebody was there for that place: it is no pause
        elif work_us > 0:
            self._work_us = work_us
            self._allowance.record_refusal(work_us, late_us, now_us)

    def record(self, idle: int, places: int, now_us: int) -> None:
        """Record that so many of the places are idle from now on."""
        if self._allowance.counts:
            self._allowance.record(self._idle, places, now_us)
        self._idle = idle

    def units(self, places: int) -> int:
        """How many so many places serve in the time that bursts allow."""
        return self._allowance.us * places // self._work_us if self._work_us else 0


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
        missed: Callable[[Request], None] | None = None,
        beside: Callable[[Request], int] | None = None,
    ) -> None:
        """Ask `waiting` for how many wait, and tell `missed` who is refused."""
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
                self._missed(request)
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
