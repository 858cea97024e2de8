"""Hosts: a group of servers behind one caller that picks where each call goes; one may turn gray.

A gray host still answers: ten times too slow, or at once and with an error. A run plays calls on a
heap of events, without a task for each. Each host has its workers and a queue without a bound; a
caller gives up after `timeout_us`, and the host does the work all the same. What picks the host is
the candidate, and learns how each call went.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import candidate_maker
from sluicegate.lab.speed_profile import STEADY, SpeedProfile
from sluicegate.policies.client.balance import Balance, BalanceSettings
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.outlier import Outlier, OutlierSettings
from sluicegate.policies.settings import part_of, within

BUCKET_US: Final = 1_000_000
KEYS: Final = 1_000
ERROR_US: Final = 1_000  # what a fast error takes
NOBODY: Final[tuple[str, ...]] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRig:
    """Hosts alike but for the first `gray`, which from `gray_from_us` on are slow or in error.

    `speed_profile` is that of the healthy ones; `errors` is the share of calls that fail on any.
    """

    arrivals: Arrivals
    hosts: int = 10
    workers: int = 4
    service: Duration = Exponential(10_000.0)  # noqa: RUF009 - frozen
    timeout_us: int = 500_000
    gray: int = 1
    slower: float = 1.0
    fails: float = 0.0
    gray_from_us: int = 0
    errors: float = 0.0
    speed_profile: SpeedProfile = STEADY
    span_us: int = 60_000_000

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise BadValue("hosts", self.hosts, "give at least one")
        within("gray", self.gray, 0, self.hosts)
        part_of("slower", self.slower, 1, 1e6)
        for field, share in (("fails", self.fails), ("errors", self.errors)):
            part_of(field, share, 0, 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts, the gray ones first."""
        return tuple(f"host-{number}" for number in range(self.hosts))


class _Pick(Protocol):
    """A call to `host`; it learns how the call went."""

    host: str

    def end_with(self, answer: CallResult[object], now_us: int) -> bool: ...


class _Picker(Protocol):
    """Picks the host of each call, and names the hosts left out at present."""

    def pick(self, key: str, now_us: int) -> _Pick: ...

    def out(self) -> Collection[str]: ...


MakePicker: TypeAlias = Callable[[HostsRig, RandomSource], _Picker]


@final
class HostsRun:
    """What became of the calls that began since hosts turned gray; series have every call."""

    def __init__(self, span_us: int) -> None:
        buckets = span_us // BUCKET_US + 1
        self.calls = 0
        self.good = 0
        self.good_us: list[int] = []
        self.false_ejections = 0  # times that a healthy host was left out
        self.out_max = 0  # hosts left out at one time
        self.calls_at = [0] * buckets
        self.lost_at = [0] * buckets  # not answered well, by when the call began
        self.gray_at = [0] * buckets  # calls to gray hosts

    @property
    def success(self) -> float:
        """Calls answered well and in time, as a share of all."""
        return self.good / self.calls if self.calls else 0.0


@final
class _Host:
    """Workers that serve in the order of arrival."""

    def __init__(self, rig: HostsRig, gray: bool) -> None:
        self.free_us = [0] * rig.workers
        self.gray = gray
        slow = gray and rig.slower > 1
        self.speed_profile = (
            SpeedProfile(((rig.gray_from_us, 1 / rig.slower),)) if slow else rig.speed_profile
        )
        self.fails = rig.fails if gray else 0.0

    def serve(self, work_us: int, now_us: int) -> int:
        """When work that comes now is done."""
        end_us = self.speed_profile.end_us(max(heapq.heappop(self.free_us), now_us), work_us)
        heapq.heappush(self.free_us, end_us)
        return end_us


def play(rig: HostsRig, make_picker: MakePicker, seed: int) -> HostsRun:
    """Play one run."""
    random_source = RandomSource(seed)
    run = HostsRun(rig.span_us)
    picker = make_picker(rig, random_source)
    hosts = {name: _Host(rig, at < rig.gray) for at, name in enumerate(rig.names)}
    service = rig.service.sampler(random_source.of("service"))
    fate, draw_key = random_source.of("fate").draw, random_source.of("keys").draw
    keys = [f"key-{number}" for number in range(KEYS)]
    ends: list[tuple[int, int, int, _Pick, ResultKind]] = []
    watch = _Watch(run, hosts, picker)
    for call, now_us in enumerate(rig.arrivals.instants_us(random_source.of("arrivals"))):
        while ends and ends[0][0] <= now_us:
            at_us, _, began_us, ended, kind = heapq.heappop(ends)
            ended.end_with(CallResult(kind), at_us)
            if kind is ResultKind.OK and began_us >= rig.gray_from_us and at_us < rig.span_us:
                run.good += 1
                run.good_us.append(at_us - began_us)
        if now_us >= rig.span_us:
            break
        pick = picker.pick(keys[int(draw_key() * KEYS)], now_us)
        host = hosts[pick.host]
        kind = ResultKind.OK
        if host.fails and now_us >= rig.gray_from_us and fate() < host.fails:
            end_us, kind = now_us + ERROR_US, ResultKind.FAILED
        else:
            end_us = host.serve(service(), now_us)
            if rig.errors and fate() < rig.errors:
                kind = ResultKind.FAILED
        if end_us > now_us + rig.timeout_us:
            end_us, kind = now_us + rig.timeout_us, ResultKind.TIMED_OUT
        heapq.heappush(ends, (end_us, call, now_us, pick, kind))
        second = now_us // BUCKET_US
        run.calls_at[second] += 1
        run.lost_at[second] += kind is not ResultKind.OK
        run.gray_at[second] += host.gray
        # What has not ended with the run is not counted.
        if now_us >= rig.gray_from_us and end_us < rig.span_us:
            run.calls += 1
        watch.look()
    return run


@final
class _Watch:
    """Counts the hosts that are left out, and the healthy ones among them."""

    def __init__(self, run: HostsRun, hosts: dict[str, _Host], picker: _Picker) -> None:
        self._run = run
        self._hosts = hosts
        self._picker = picker
        self._out: Collection[str] = NOBODY

    def look(self) -> None:
        out = self._picker.out()
        if out is self._out:
            return
        run, hosts = self._run, self._hosts
        run.false_ejections += sum(not hosts[name].gray for name in out if name not in self._out)
        run.out_max = max(run.out_max, len(out))
        self._out = out


NO_EJECTION: Final = OutlierSettings(ejected_percent_max=0)
# A failure is entered as it took.
NO_PENALTY: Final = BalanceSettings(penalty_us=0)


@final
class _BalancedPicker:
    """`policies.balance` as a picker."""

    __slots__ = ("_balance", "_outlier")

    def __init__(self, balance: Balance) -> None:
        self._balance = balance
        self._outlier = balance.outlier

    def pick(self, key: str, now_us: int) -> _Pick:
        permit = self._balance.admit(Request(key), now_us)
        assert not isinstance(permit, Decision), "a group with hosts refuses nobody"
        return permit

    def out(self) -> Collection[str]:
        return self._outlier.out


def balanced(
    *, settings: BalanceSettings | None = None, outlier: OutlierSettings | None = None
) -> Callable[[HostsRig, RandomSource], _BalancedPicker]:
    """What makes the balancer for a rig; what is not given is as in production."""

    def make(rig: HostsRig, random_source: RandomSource) -> _BalancedPicker:
        watch = Outlier(rig.names, random_source.of("outlier"), outlier)
        return _BalancedPicker(Balance(rig.names, random_source.of("balance"), settings, watch))

    return make


@final
class _RoundRobin:
    """A baseline: one host after the other, as most clients do it.

    It is right while all hosts are alike. It does not learn how calls went, so a host that is slow
    or fails keeps its share of them.
    """

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


def round_robin(rig: HostsRig, random_source: RandomSource) -> _RoundRobin:
    """Return round robin over all hosts of the rig."""
    return _RoundRobin(rig.names)


candidate: Final = candidate_maker(play)
