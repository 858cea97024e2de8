"""Refusal pace: how much later the connections of a caller far over its quota are read again.

A refusal costs nearly what a read costs, so who is refused fifty thousand times a second takes from
all others what its quota was to keep. A door cannot answer cheaper, but it can read less often. A
caller may have a burst of refusals, and so many a second; whatever goes beyond that puts its
connections off, for as long as the rate needs to catch up and never for longer than
`delay_us_max`.

Only who is *far* over: each request that was served pays for `SERVED_PAYS` refusals. A caller at
one and a half times its quota, or at ten times, is refused what is too much and slowed by nothing.

Source: the theoretical arrival time of GCRA (ITU-T I.371), moved back by what is served. Cost: a
look-up for each portion of work of a door, and nothing else for callers who are not refused.
Bounds: `callers_max`; who is forgotten begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

SERVED_PAYS: Final = 9
_SECOND_US: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalPaceSettings:
    """How many refusals a caller may have before it is slowed, and by how much at most."""

    burst: int = ranged(2_000, 1, 1 << 20)
    refusals_per_s: int = ranged(200, 1, 1 << 20)
    delay_us_max: int = ranged(1_000_000, 1_000, 60_000_000)
    callers_max: int = ranged(10_000, 1, 1 << 24)

    def __post_init__(self) -> None:
        check_ranges("refusal_pace", self)


@final
class RefusalPace:
    """The pace of all callers of a service."""

    __slots__ = ("_burst_us", "_interval_us", "due_us", "settings", "slowed", "slowed_us")

    def __init__(self, settings: RefusalPaceSettings | None = None) -> None:
        self.settings = settings = RefusalPaceSettings() if settings is None else settings
        self._interval_us = max(1, _SECOND_US // settings.refusals_per_s)
        self._burst_us = self._interval_us * settings.burst
        # When the rate will have made up for the refusals of each caller, if refused recently.
        self.due_us: dict[str, int] = {}
        self.slowed = 0  # times a connection was put off
        self.slowed_us = 0

    def record(self, caller: str, served: int, refused: int, now_us: int) -> None:
        """Record what a caller was served and refused."""
        due = self.due_us
        due_us = due.get(caller, 0)
        if due_us == 0 and refused == 0:
            return
        due_us = max(due_us, now_us) + (refused - SERVED_PAYS * served) * self._interval_us
        if due_us <= now_us:
            due.pop(caller, None)
            return
        if len(due) >= self.settings.callers_max and caller not in due:
            due.pop(next(iter(due)))
        due[caller] = min(due_us, now_us + self._burst_us + self.settings.delay_us_max)

    def delay_us(self, caller: str, now_us: int) -> int:
        """How much later its connections are to be read; 0 for nearly everybody."""
        due_us = self.due_us.get(caller, 0)
        if due_us == 0:
            return 0
        return min(max(0, due_us - now_us - self._burst_us), self.settings.delay_us_max)

    def count(self, delay_us: int) -> None:
        """Count a connection that was put off for so long."""
        self.slowed += 1
        self.slowed_us += delay_us
