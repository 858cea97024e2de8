"""Clock: where `now_us` comes from, for the few that need it.

Kernels and policies are given the instant. Faces and apps hold a clock: the real one is in
`sluicegate.system`, one moved by hand in `sluicegate.testing`.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Microseconds since the epoch; it never goes back within a process."""

    def now_us(self) -> int:
        """The instant."""
        ...


class PausableClock(Clock, Protocol):
    """A clock that a pause moves, instead of waiting."""

    def pause(self, us: int) -> None:
        """Move the clock by `us`."""
        ...
