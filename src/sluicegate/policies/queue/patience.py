"""Patience: how long a line may stand before it is taken to be one that waits in vain.

A line that is as long as callers wait can come from a burst, and the pause behind it serves all of
it in time; only when it has stood for as long as they wait has everybody in it who came at the
beginning waited for nothing. So the rule of the queue shortens nothing before that. Once it has,
it goes on by its own measure, and a line may stand anew only after a rest of twenty times as long.

How long callers wait is an average over the last sixteen or so who had to, and bounded by
`burst_us_max` of the queue.

Cost: an addition and a shift for each who has to wait. Bounds: three numbers.
"""

from __future__ import annotations

from typing import Final, final

_SHIFT: Final = 4
_REST_TIMES: Final = 20
_NEVER: Final = -(1 << 60)


@final
class Patience:
    """How long callers wait, since when the line stands, and when that was too long."""

    __slots__ = ("_ended_us", "_stands_us", "us")

    def __init__(self) -> None:
        self.us = 0
        self._stands_us = 0
        self._ended_us = _NEVER

    def record_wait(self, timeout_us: int) -> None:
        """Record how long somebody may wait."""
        if self.us == 0:
            self.us = timeout_us
        self.us += (timeout_us - self.us) >> _SHIFT

    def record_empty(self, now_us: int) -> None:
        """Record that nobody has been in line until now."""
        self._stands_us = now_us

    def lasts(self, now_us: int) -> bool:
        """Whether the line may stand."""
        if now_us < self._stands_us:  # The clock went back.
            self._stands_us = now_us
        if 0 <= now_us - self._ended_us <= _REST_TIMES * self.us:
            return False
        return now_us - self._stands_us < self.us

    def end(self, now_us: int) -> None:
        """Record that the line is shortened."""
        self._ended_us = now_us
