"""Outlier: decides which hosts of a group are left out for a while.

It records how each call to each host went, and sweeps once a `sweep_us`, with the next call of
any method: it has no timer. The kernel is `kernels/outlier.py`: failures in a row, share of
failures, success rate and latency against the others; at most a share of the group is out, each
return has its own instant. `weight` is what a balancer asks: 0 for a host that is out, less than 1
for one that has just come back (its traffic grows over `ramp_us`), 1 for the others. When so many
are out that the rest could not carry the load (`panic_percent`), all are used again.

Which results are evidence: errors, time-outs and missing connections. A host that refuses because
it has too much is not ejected, or in a general overload the last ones standing would get the rest.

A request that breaks whatever host serves it is no host's fault. A key that has failed on
`poison_hosts` of them with no success between counts against no host any more, until it succeeds
somewhere; so a hot key that fails on a few bad hosts and succeeds on the others hides none of them.

A sweep of a second is not the usual ten: a host that fails fast does its harm in the first ones.
Whoever comes to `failures_in_row` is looked at a quarter of a sweep later, if it still has no
success by then: of 500 calls a second to ten hosts, one that fails is out after 0.3 to 0.6 s.
One that fails is priced by the balancer and hardly asked again, so the five would take seconds, or
never come: with ten hosts and 150 calls a second it was out after 7 to 14 s, of 500 never. So
`next_probe` names a host that has failed without a success since, within a quarter of a sweep each
time, for one call every `probe_us`: until it succeeds, or is out (`tests/prove/test_ejections.py`).
A slow one must have been slow for `latency_sweeps` of them in a row, more than the window holds:
where work varies, one second of long calls raises a p95 threefold for as long as it is in there.

Cost: four additions and a logarithm a call; a sweep reads a quantile of each host. Bounds:
`hosts_max` hosts with about 60 kB at most each; `poison_keys_max` keys that failed lately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.moving_rate import SlotRing
from sluicegate.kernels.outlier import (
    COUNT_MAX,
    LATENCY,
    HostStats,
    HostVerdict,
    SweepSettings,
    ejected_max,
    panics,
    slow_start,
    sweep,
)
from sluicegate.kernels.windowed_quantile import WINDOWS_MAX, Scale, WindowedQuantile
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.settings import check_ranges, wrong_setting

RULE_ID: Final = "outlier"
TOLD: Final = "ejected by others"
HOSTS_MAX: Final = 100_000
POISON_HOSTS_MAX: Final = 100
P95: Final = 0.95
ALPHA: Final = 0.05  # latencies are compared by factors of three; a wide bucket is small


@final
@dataclass(frozen=True, kw_only=True)
class OutlierSettings(SweepSettings):
    """The settings of a sweep; how often there is one, and how a host comes back."""

    sweep_us: int = ranged(1_000_000, 1, WAIT_US_MAX)
    windows: int = ranged(10, 2, WINDOWS_MAX)
    probe_us: int = ranged(50_000, 0, WAIT_US_MAX)  # between calls of a doubted host; 0: none
    probe_calls_min: int = ranged(1_000, 0, COUNT_MAX)  # of all hosts in the windows
    latency_sweeps: int = ranged(15, 1, WINDOWS_MAX)  # in a row that find it slow
    ramp_us: int = ranged(10_000_000, 0, WAIT_US_MAX)
    weight_least: float = 0.1
    hosts_max: int = ranged(1_000, 1, HOSTS_MAX)
    poison_hosts: int = ranged(3, 2, POISON_HOSTS_MAX)
    poison_keys_max: int = ranged(256, 0, HOSTS_MAX)

    def __post_init__(self) -> None:
        check_ranges("outlier", self)
        if not 0.0 < self.weight_least <= 1.0:
            raise BadValue("outlier.weight_least", self.weight_least, "give more than 0, at most 1")
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None


class OutlierStats(NamedTuple):
    """Hosts, of which out; whether all are used anyhow; ejections, returns; calls recorded."""

    hosts: int
    out: int
    panics: bool
    ejections: int
    returns: int
    recorded: int
    poisonous: int


class HostStanding(NamedTuple):
    """How one host stands."""

    ejected: bool
    until_us: int
    ejections: int
    reason: str


_NEVER_US: Final = 1 << 62

# Given each ejection and each return, with the instant. May not raise, and must be quick.
OutlierListener: TypeAlias = Callable[[HostVerdict, int], None]


@final
class _Host:
    """The calls of one host in the window, and how it stands."""

    __slots__ = (
        "back_us",
        "ejected",
        "ejections",
        "failed_us",
        "failures",
        "latency",
        "reason",
        "requests",
        "row",
        "slow_sweeps",
        "until_us",
    )

    def __init__(self, settings: OutlierSettings, scale: Scale) -> None:
        self.requests = SlotRing(settings.windows, settings.sweep_us)
        self.failures = SlotRing(settings.windows, settings.sweep_us)
        self.latency = WindowedQuantile(settings.windows, settings.sweep_us, scale)
        self.row = 0
        self.failed_us = 0
        self.slow_sweeps = 0  # in a row that found it slow
        self.ejected = False
        self.until_us = 0
        self.ejections = 0
        self.reason = ""
        self.back_us = -WAIT_US_MAX

    def host_stats(self, name: str, requests_min: int, now_us: int) -> HostStats:
        """The host as the kernel's sweep takes it."""
        self.requests.advance(now_us)
        self.failures.advance(now_us)
        latency_us = 0.0
        if self.requests.total >= requests_min:
            latency_us = self.latency.quantile(P95, now_us) or 0.0
        return HostStats(
            name,
            requests=self.requests.total,
            failures=self.failures.total,
            failures_in_row=self.row,
            latency_us_p95=int(latency_us),
            ejected=self.ejected,
            until_us=self.until_us,
            ejections=self.ejections,
        )


@final
class Outlier:
    """Ejects the hosts that do worse than the others."""

    __slots__ = (
        "_called",
        "_chance",
        "_doubts",
        "_ejections",
        "_failed_on",
        "_hosts",
        "_listeners",
        "_look_us",
        "_panics",
        "_recorded",
        "_returns",
        "_scale",
        "_sweep_us",
        "out",
        "settings",
        "version",
    )

    def __init__(
        self, hosts: Iterable[str], chance: Chance, settings: OutlierSettings | None = None
    ) -> None:
        self.settings = OutlierSettings() if settings is None else settings
        self._scale = Scale(ALPHA)
        self._chance = chance
        self._hosts: dict[str, _Host] = {}
        self._failed_on: dict[str, tuple[str, ...]] = {}  # by key, no success between
        self._called = 0  # of late, as the last sweep found
        self._doubts: dict[str, int] = {}  # when they are to be asked again
        self._sweep_us = 0
        self._look_us = _NEVER_US  # an early one, while somebody fails in a row
        self._listeners: list[OutlierListener] = []
        self.out: tuple[str, ...] = ()  # who is ejected now
        self._panics = False
        self._ejections = self._returns = self._recorded = 0
        self.version = 0  # changes with who is in
        self.set_hosts(hosts)

    def subscribe(self, listener: OutlierListener) -> None:
        """Call it with every ejection and return from now on."""
        self._listeners.append(listener)

    def set_hosts(self, hosts: Iterable[str]) -> None:
        """The group as it is now; who stays keeps its standing."""
        names = list(dict.fromkeys(hosts))
        if len(names) > self.settings.hosts_max or "" in names:
            raise BadValue(
                "outlier.hosts", names, f"give at most {self.settings.hosts_max} names, none empty"
            )
        previous = self._hosts
        self._hosts = {
            name: previous[name] if name in previous else _Host(self.settings, self._scale)
            for name in names
        }
        self._count()

    def record(
        self, host: str, result: CallResult[object], took_us: int, key: str, now_us: int
    ) -> None:
        """Record how a call to a host went; a host outside of the group is ignored."""
        self._keep_up(now_us)
        entry = self._hosts.get(host)
        kind = result.kind
        if entry is None or kind in {
            ResultKind.CANCELLED,
            ResultKind.OVERLOADED,
            ResultKind.LIMITED,
        }:
            return
        self._recorded += 1
        if result.is_failure:
            if not self._is_poison(key, host):
                entry.requests.add(1, now_us)
                entry.failures.add(1, now_us)
                entry.row += 1
                entry.failed_us = now_us
                if entry.row == self.settings.failures_in_row:
                    self._look_us = min(self._look_us, now_us + self.settings.sweep_us // 4)
                self._doubt(host, entry, took_us, now_us)
            return
        if host in self._doubts and now_us - took_us >= entry.failed_us:
            del self._doubts[host]  # it began after the last failure, so it says how things are now
        if self._failed_on:
            self._failed_on.pop(key, None)
        entry.requests.add(1, now_us)
        entry.row = 0
        if took_us > 0:
            entry.latency.add(took_us, now_us)

    def record_late(self, host: str, took_us: int, now_us: int) -> None:
        """Record that a call took longer than this at a host, and that no more is known of it."""
        self._keep_up(now_us)
        entry = self._hosts.get(host)
        if entry is not None and took_us > 0:
            entry.latency.add(took_us, now_us)

    def next_probe(self, now_us: int) -> str:
        """A host that is to be given the next call, to learn whether it fails; "" if none is."""
        for host, due_us in self._doubts.items():
            if now_us >= due_us:
                # Until this call has ended nobody else is sent there for it.
                self._doubts[host] = now_us + self.settings.sweep_us
                return host
        return ""

    def weight(self, host: str, now_us: int) -> float:
        """The host's share beside others: 0 while it is out, unless nearly all are."""
        self._keep_up(now_us)
        entry = self._hosts.get(host)
        if entry is None:
            return 0.0
        if self._panics:
            return 1.0
        if entry.ejected:
            return 0.0
        if now_us - entry.back_us >= self.settings.ramp_us:
            return 1.0
        return slow_start(now_us, entry.back_us, self.settings.ramp_us, self.settings.weight_least)

    def sweep(self, now_us: int) -> list[HostVerdict]:
        """Look at all hosts at once; done by itself every `sweep_us` with the next call."""
        self._sweep_us = now_us + self.settings.sweep_us
        return self._judge(now_us, early=False)

    def _keep_up(self, now_us: int) -> None:
        """Sweep if it is time; an early look is for those who fail in a row."""
        if now_us >= self._sweep_us:
            self.sweep(now_us)
        elif now_us >= self._look_us:
            self._judge(now_us, early=True)

    def _judge(self, now_us: int, *, early: bool) -> list[HostVerdict]:
        self._look_us = _NEVER_US
        least = self.settings.requests_min
        stats = [host.host_stats(name, least, now_us) for name, host in self._hosts.items()]
        self._called = sum([host.requests for host in stats])
        verdicts = sweep(stats, self.settings, now_us, self._chance.draw())
        if early:
            verdicts = [verdict for verdict in verdicts if verdict.reason != LATENCY]
        else:
            verdicts = self._lasting(verdicts)
        for verdict in verdicts:
            host = self._hosts[verdict.name]
            if verdict.ejected:
                self._ejections += 1
            else:
                # What it did before its ejection must not eject it again.
                fresh = _Host(self.settings, self._scale)
                fresh.back_us = now_us
                self._hosts[verdict.name] = host = fresh
                self._returns += 1
            host.ejected = verdict.ejected
            host.until_us = verdict.until_us
            host.ejections = verdict.ejections
            host.reason = verdict.reason
        if verdicts:
            self._count()
        for listener in self._listeners:
            for verdict in verdicts:
                listener(verdict, now_us)
        return verdicts

    def found_bad(self) -> list[str]:
        """Who is out by what was recorded here, and not since others said so."""
        return [name for name in self.out if self._hosts[name].reason != TOLD]

    def leave_out(self, hosts: Iterable[str], until_us: int, now_us: int) -> None:
        """Eject what others have found bad, until then or until it is said again.

        No more of the group than may be out: with little room, the first of them.
        """
        room = ejected_max(len(self._hosts), self.settings.ejected_percent_max) - len(self.out)
        verdicts = []
        for name in hosts:
            host = self._hosts.get(name)
            if host is None:
                continue
            if not host.ejected and room > 0:
                room -= 1
                host.ejected = True
                host.until_us = until_us
                host.reason = TOLD
                verdicts.append(HostVerdict(name, True, until_us, host.ejections, TOLD))
            elif host.ejected and host.reason == TOLD:
                host.until_us = max(until_us, host.until_us)
        if verdicts:
            self._ejections += len(verdicts)
            self._count()
        for listener in self._listeners:
            for verdict in verdicts:
                listener(verdict, now_us)

    def standing(self, host: str) -> HostStanding:
        """How a host stands since the last sweep."""
        entry = self._hosts[host]
        return HostStanding(entry.ejected, entry.until_us, entry.ejections, entry.reason)

    def stats(self) -> OutlierStats:
        """What was decided so far, and how things stand."""
        least = self.settings.poison_hosts
        poisonous = sum([len(hosts) >= least for hosts in self._failed_on.values()])
        return OutlierStats(
            len(self._hosts),
            len(self.out),
            self._panics,
            self._ejections,
            self._returns,
            self._recorded,
            poisonous,
        )

    def _lasting(self, verdicts: list[HostVerdict]) -> list[HostVerdict]:
        """Leave out whoever has not been slow for long: one bad second stays in the window."""
        slow = {verdict.name for verdict in verdicts if verdict.reason == LATENCY}
        for name, host in self._hosts.items():
            host.slow_sweeps = host.slow_sweeps + 1 if name in slow else 0
        least = self.settings.latency_sweeps
        return [
            verdict
            for verdict in verdicts
            if verdict.reason != LATENCY or self._hosts[verdict.name].slow_sweeps >= least
        ]

    def _count(self) -> None:
        for name in list(self._doubts):
            if name not in self._hosts or self._hosts[name].ejected:
                del self._doubts[name]
        self.out = tuple([name for name, host in self._hosts.items() if host.ejected])
        self._panics = panics(len(self._hosts), len(self.out), self.settings.panic_percent)
        self.version += 1

    def _doubt(self, host: str, entry: _Host, took_us: int, now_us: int) -> None:
        """It has failed again: have it asked once more, or no more."""
        settings = self.settings
        enough = settings.failures_in_row
        if entry.ejected or took_us > settings.sweep_us // 4 or entry.row >= 2 * enough:
            self._doubts.pop(host, None)
        elif settings.probe_us and self._called >= settings.probe_calls_min:
            # The look that follows the last of them is to find a success, if there is one.
            wait_us = settings.probe_us if entry.row < enough else settings.sweep_us // 8
            self._doubts[host] = now_us + wait_us

    def _is_poison(self, key: str, host: str) -> bool:
        """Note that this key failed here; whether it fails everywhere."""
        if self.settings.poison_keys_max == 0 or not key:
            return False
        hosts = self._failed_on.get(key, ())
        most = self.settings.poison_hosts
        if len(hosts) >= most:
            return True
        if host in hosts:
            return False
        if not hosts and len(self._failed_on) >= self.settings.poison_keys_max:
            del self._failed_on[next(iter(self._failed_on))]
        self._failed_on[key] = (*hosts, host)
        return len(hosts) + 1 >= most
