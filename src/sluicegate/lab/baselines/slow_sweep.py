"""Slow sweep: the hosts in turn, without those that a sweep every ten seconds has ejected.

It is outlier detection with Envoy's published defaults: five failures in a row, or a success rate
1.9 deviations below the mean of hosts with 100 calls each; out for 30 s, at most a tenth of them.
The sweep is the product's own. It is not quick, and it does not look at latency.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import cycle
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.hosts import HostsRig
from sluicegate.policies.call_result import CallResult
from sluicegate.policies.outlier import Outlier, OutlierSettings

PUBLISHED: Final = OutlierSettings(
    sweep_us=10_000_000,
    windows=2,
    ramp_us=0,
    failures_in_row=5,
    failure_percent=0,
    deviations=1.9,
    healthy_percent=100,
    latency_ratio=0.0,
    requests_min=100,
    ejected_percent_max=10,
    base_us=30_000_000,
    jitter_us=0,
    poison_keys_max=0,
)


@final
class SlowSweep:
    """In turn, without those who are out."""

    __slots__ = ("_outlier", "_turns")

    def __init__(self, names: Collection[str], chance: Chance) -> None:
        self._outlier = Outlier(names, chance, PUBLISHED)
        self._turns = cycle(tuple(names))

    def pick(self, key: str, now_us: int) -> ToldCall:
        """The next who is in."""
        host = next(self._turns)
        while self._outlier.weight(host, now_us) <= 0.0:
            host = next(self._turns)
        return ToldCall(self._outlier, host, key, now_us)

    def out(self) -> Collection[str]:
        """Who is ejected."""
        return self._outlier.out


@final
class ToldCall:
    """A call to `host`, of which the sweep hears."""

    __slots__ = ("_began_us", "_key", "_outlier", "host")

    def __init__(self, outlier: Outlier, host: str, key: str, began_us: int) -> None:
        self._outlier = outlier
        self._key = key
        self._began_us = began_us
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        """It went so."""
        self._outlier.tell(self.host, answer, now_us - self._began_us, self._key, now_us)
        return True


def slow_sweep(rig: HostsRig, dice: Dice) -> SlowSweep:
    """All hosts of the rig."""
    return SlowSweep(rig.names, dice.of("balance"))
