"""Peak EWMA: of two hosts drawn, the one with the lower recent latency times calls in flight.

It is Finagle's balancer, made of the product's own kernel, and the best there is for a slow host.
It is not told that a call failed, only how long it took: a host that fails at once looks like the
fastest of all and draws the traffic of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from sluicegate.contracts.chance import Chance
from sluicegate.kernels.two_choices import HostLoad, LoadSettings, choose
from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.hosts import NOBODY, HostsRig
from sluicegate.policies.call_result import CallResult


@final
class PeakEwma:
    """Two choices by peak latency."""

    __slots__ = ("_chance", "_loads", "_names")

    def __init__(self, names: Collection[str], chance: Chance) -> None:
        self._names = tuple(names)
        self._loads = [HostLoad(LoadSettings(), 0) for _ in names]
        self._chance = chance

    def pick(self, key: str, now_us: int) -> TimedCall:
        """The less loaded of two."""
        draw = self._chance.draw
        at = choose(self._loads, now_us, draw(), draw())
        self._loads[at].start(now_us)
        return TimedCall(self._names[at], self._loads[at], now_us)

    def out(self) -> Collection[str]:
        """Nobody, ever."""
        return NOBODY


@final
class TimedCall:
    """A call to `host`, of which only the time counts."""

    __slots__ = ("_began_us", "_load", "host")

    def __init__(self, host: str, load: HostLoad, began_us: int) -> None:
        self._load = load
        self._began_us = began_us
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        """It took so long."""
        self._load.succeed(self._began_us, now_us)
        return True


def peak_ewma(rig: HostsRig, dice: Dice) -> PeakEwma:
    """All hosts of the rig."""
    return PeakEwma(rig.names, dice.of("balance"))
