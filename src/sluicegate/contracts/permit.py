"""Permit: what an admitted unit of work holds until it ends, exactly once.

It ends as SUCCESS (its latency counts), IGNORE (it says nothing about the service: cancelled, the
caller's own fault) or DROPPED (it was lost to overload: a timeout, a refusal from behind). A
limiter that adapts learns from the first and the last.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Outcome(Enum):
    """How a permit ended."""

    SUCCESS = "success"
    IGNORE = "ignore"
    DROPPED = "dropped"


class Permit(Protocol):
    """The right to do one unit of work."""

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the permit back; False, and nothing happens, if it had ended before.

        With `spent=False` the work was never begun: what it was charged is given back.
        """
        ...


class BasePermit:
    """A permit whose class is compiled: a stack ends it without looking its method up."""

    __slots__ = ()

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give it back, as `Permit.end` says."""
        raise NotImplementedError
