"""Round robin: the hosts in turn, whatever comes of it.

It is what most clients do: fair, without state, and right while all hosts are alike. It is not told
how calls went, so a host that is slow or fails keeps its share of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.hosts import NOBODY, HostsRig
from sluicegate.policies.call_result import CallResult


@final
class Turn:
    """A call to `host`; how it went is of no interest."""

    __slots__ = ("host",)

    def __init__(self, host: str) -> None:
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        """It has ended."""
        return True


@final
class RoundRobin:
    """One after the other."""

    __slots__ = ("_at", "_turns")

    def __init__(self, names: Collection[str]) -> None:
        self._turns: Final = [Turn(name) for name in names]
        self._at = 0

    def pick(self, key: str, now_us: int) -> Turn:
        """The next."""
        self._at = (self._at + 1) % len(self._turns)
        return self._turns[self._at]

    def out(self) -> Collection[str]:
        """Nobody, ever."""
        return NOBODY


def round_robin(rig: HostsRig, dice: Dice) -> RoundRobin:
    """All hosts of the rig."""
    return RoundRobin(rig.names)
