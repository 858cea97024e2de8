"""Host pickers: three common ways to choose the host of a call.

*Round robin* takes the hosts one after the other, whatever comes of it. It is what most clients do:
fair, without state, and right while all hosts are alike. It does not learn how calls went, so a
host that is slow or fails keeps its share of them.

*Peak EWMA* takes, of two hosts drawn, the one with the lower recent latency times calls in flight.
It is Finagle's balancer, made of the product's own kernel, and the best there is for a slow host.
It learns only how long a call took, not that it failed: a host that fails at once looks like the
fastest of all and draws the traffic of the others.

*Slow sweep* takes the hosts one after the other, without those that a sweep every ten seconds has
ejected. It is outlier detection with Envoy's published defaults: five failures in a row, or a
success rate 1.9 deviations below the mean of hosts with 100 calls each; out for 30 s, at most a
tenth of them. The sweep is the product's own. It is not quick, and does not look at latency.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import cycle
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.kernels.two_choices import HostLoad, LoadSettings, choose
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.hosts import NOBODY, HostsRig
from sluicegate.policies.client.call_result import CallResult
from sluicegate.policies.client.outlier import Outlier, OutlierSettings

PUBLISHED: Final = OutlierSettings(
    sweep_us=10_000_000,
    windows=2,
    probe_us=0,
    ramp_us=0,
    failures_in_row=5,
    failure_percent=0,
    deviations=1.9,
    healthy_percent=100,
    throughput_percent=0,
    latency_ratio=0.0,
    requests_min=100,
    ejected_percent_max=10,
    base_us=30_000_000,
    jitter_us=0,
    poison_keys_max=0,
)


@final
class _RoundRobin:
    """One host after the other."""

    __slots__ = ("_at", "_calls")

    def __init__(self, names: Collection[str]) -> None:
        self._calls: Final = [_UnmeasuredCall(name) for name in names]
        self._at = 0

    def pick(self, key: str, now_us: int) -> _UnmeasuredCall:
        """Return a call to the next host."""
        self._at = (self._at + 1) % len(self._calls)
        return self._calls[self._at]

    def out(self) -> Collection[str]:
        return NOBODY


@final
class _UnmeasuredCall:
    __slots__ = ("host",)

    def __init__(self, host: str) -> None:
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        return True


@final
class _PeakEwma:
    """Two choices by peak latency."""

    __slots__ = ("_chance", "_loads", "_names")

    def __init__(self, names: Collection[str], chance: Chance) -> None:
        self._names = tuple(names)
        self._loads = [HostLoad(LoadSettings()) for _ in names]
        self._chance = chance

    def pick(self, key: str, now_us: int) -> _TimedCall:
        """Return a call to the less loaded of two."""
        draw = self._chance.draw
        at = choose(self._loads, now_us, draw(), draw())
        self._loads[at].start(now_us)
        return _TimedCall(self._names[at], self._loads[at], now_us)

    def out(self) -> Collection[str]:
        return NOBODY


@final
class _TimedCall:
    __slots__ = ("_began_us", "_load", "host")

    def __init__(self, host: str, load: HostLoad, began_us: int) -> None:
        self._load = load
        self._began_us = began_us
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        self._load.succeed(self._began_us, now_us)
        return True


@final
class _SlowSweep:
    """One after the other of those that are not ejected."""

    __slots__ = ("_names", "_outlier")

    def __init__(self, names: Collection[str], chance: Chance) -> None:
        self._outlier = Outlier(names, chance, PUBLISHED)
        self._names = cycle(tuple(names))

    def pick(self, key: str, now_us: int) -> _ReportedCall:
        """Return a call to the next host that is not ejected."""
        host = next(self._names)
        while self._outlier.weight(host, now_us) <= 0.0:
            host = next(self._names)
        return _ReportedCall(self._outlier, host, key, now_us)

    def out(self) -> Collection[str]:
        return self._outlier.out


@final
class _ReportedCall:
    __slots__ = ("_began_us", "_key", "_outlier", "host")

    def __init__(self, outlier: Outlier, host: str, key: str, began_us: int) -> None:
        self._outlier = outlier
        self._key = key
        self._began_us = began_us
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        self._outlier.record(self.host, answer, now_us - self._began_us, self._key, now_us)
        return True


def round_robin(rig: HostsRig, random_source: RandomSource) -> _RoundRobin:
    """Return round robin over all hosts of the rig."""
    return _RoundRobin(rig.names)


def peak_ewma(rig: HostsRig, random_source: RandomSource) -> _PeakEwma:
    """Return Peak EWMA over all hosts of the rig."""
    return _PeakEwma(rig.names, random_source.of("balance"))


def slow_sweep(rig: HostsRig, random_source: RandomSource) -> _SlowSweep:
    """Return a slow sweep over all hosts of the rig."""
    return _SlowSweep(rig.names, random_source.of("balance"))
