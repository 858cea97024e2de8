"""Clock: one that stands still until it is moved by hand.

Whoever waits on it moves it instead of waiting, so a wait of an hour takes no time.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import BadValue

# A readable instant to start from: 2001-09-09 01:46:40 UTC.
START_US: Final = 1_000_000_000_000_000


@final
class HandClock:
    """A clock that stands still until it is moved."""

    __slots__ = ("_now_us",)

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        """Return the instant."""
        return self._now_us

    def advance(self, *, s: float = 0, ms: float = 0, us: int = 0) -> None:
        """Move forward; fractions of a microsecond are rounded."""
        step_us = round(s * 1_000_000) + round(ms * 1_000) + us
        if step_us < 0:
            raise BadValue("advance", step_us, "use go_back() to move a clock backwards on purpose")
        self._now_us += step_us

    def pause(self, us: int) -> None:
        """What waits on this clock moves it, instead of waiting."""
        self.advance(us=us)

    def go_back(self, *, s: float = 0, us: int = 0) -> None:
        """Move backwards, as a broken clock would: for tests of what happens then."""
        self._now_us -= round(s * 1_000_000) + us
