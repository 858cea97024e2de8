"""Accounts: one account's traffic on the nodes of a cluster, its limit held by messages alone.

What comes is Poisson, or bursts that conform to the limit to the last unit; it is spread over the
nodes as unevenly as Zipf's law says, and the hot node may change. Every node reports to a master,
which answers, over a network that delays, loses and doubles; some nodes may be cut off for a while.
The candidate is a scheme: what a node and what a master does. All of it runs in a world. Figures
are in units of the limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.lab.arrivals import Arrivals, Steps, poisson_count
from sluicegate.lab.durations import Exponential
from sluicegate.lab.network import Network, NetworkLink
from sluicegate.lab.scenario import Curves, Figures
from sluicegate.lab.world import World, run
from sluicegate.policies.settings import within
from sluicegate.policies.suppression.suppress import Suppress, SuppressSettings
from sluicegate.policies.suppression.suppress_master import (
    LINEAR,
    MEAN,
    AccountLimit,
    SuppressMaster,
    SuppressMasterSettings,
)

BUCKET_US: Final = 50_000
SECOND_US: Final = 1_000_000
PER_S: Final = SECOND_US // BUCKET_US
ACCOUNT: Final = "account"
MASTER: Final = "master"

# The network of one data centre on a bad day.
GOSSIP: Final = NetworkLink(delay=Exponential(10_000.0), loss=0.01, reorder=0.01, duplicate=0.01)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRig:
    """An account with a limit of `per_s` and one second's burst, on `nodes` nodes.

    With `batch_us`, what comes to a node in so long is one operation of that cost: a Poisson count,
    as if each had come by itself, so a high rate is played in few operations. `hot` says from when
    on which node is the hottest; the others follow in a ring. While the network is parted, `cut`
    nodes, the hottest of the moment among them, receive and send nothing.
    """

    arrivals: Arrivals
    per_s: int = 1_000
    batch_us: int = 0
    nodes: int = 20
    skew: float = 1.0
    hot: tuple[tuple[int, int], ...] = ((0, 0),)
    parted_us: tuple[int, int] | None = None
    cut: int = 0
    link: NetworkLink = GOSSIP
    step_us: int = 0
    shift_us: int = 0
    drop_us: int = 0
    span_us: int = 30_000_000

    def __post_init__(self) -> None:
        within("nodes", self.nodes, 1, 1_000)
        if not 0 <= self.cut < self.nodes:
            raise BadValue("cut", self.cut, "leave at least one node with the master")
        begins = [begin_us for begin_us, _ in self.hot]
        if not begins or begins[0] != 0 or begins != sorted(set(begins)):
            raise BadValue("hot", self.hot, "begin at 0 and go on in ascending order")
        if self.batch_us and not isinstance(self.arrivals, Steps):
            raise BadValue("batch_us", self.batch_us, "give arrivals in Steps, or no batches")

    def hot_at(self, at_us: int) -> int:
        """The hottest node at that instant."""
        return self.hot[bisect_right(self.hot, at_us, key=lambda change: change[0]) - 1][1]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConformingArrivals:
    """All that a limit of `per_s` and `burst` allows: a bucket that is emptied and fills again.

    After a rest of up to `rest_us` whatever has gathered is sent, `speed` times as fast as the
    limit, then the limit itself for up to as long again.
    """

    per_s: int
    burst: int
    speed: float = 10.0
    rest_us: int = 1_500_000

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise BadValue("burst", self.burst, "give at least one unit, or nothing conforms")

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """When they come."""
        gap_us = SECOND_US / self.per_s
        full_us = 0.0  # when the bucket is full again; each unit moves that on by its gap
        at_us = 0.0
        ahead_us = (self.burst - 1) * gap_us
        while True:
            at_us += chance.draw() * self.rest_us
            end_us = at_us + ahead_us + chance.draw() * self.rest_us
            while at_us < end_us:
                at_us = max(at_us + gap_us / self.speed, full_us - ahead_us)
                full_us = max(full_us, at_us) + gap_us
                yield int(at_us) + 1


class _Node(Protocol):
    """A node's side."""

    def admit(self, now_us: int, cost: int = 1) -> bool: ...

    def report(self, now_us: int) -> object | None: ...

    def receive(self, message: object, now_us: int) -> None: ...


class _Master(Protocol):
    """The master's side; it may answer a report."""

    def receive(self, source: str, message: object, now_us: int) -> object | None: ...


class AccountScheme(NamedTuple):
    """How an account is held to its limit: makers of a node and of the master."""

    node: Callable[[AccountRig, int, World], _Node]
    master: Callable[[AccountRig, World], _Master]
    every_us: int = 50_000  # how often a node may report


@final
class AccountRun:
    """Operations attempted, admitted and refused, in twentieths of a second."""

    __slots__ = ("admitted", "attempted", "refused_last_us")

    def __init__(self, span_us: int) -> None:
        buckets = span_us // BUCKET_US + 1
        self.attempted = [0] * buckets
        self.admitted = [0] * buckets
        self.refused_last_us = -1

    @property
    def refused(self) -> int:
        """How many were refused, from first to last."""
        return sum(self.attempted) - sum(self.admitted)


def play(rig: AccountRig, scheme: AccountScheme, seed: int) -> AccountRun:
    """Play one run."""

    async def main(world: World) -> AccountRun:
        cluster = _Cluster(world, rig, scheme)
        cluster.begin()
        await world.until_us(rig.span_us)
        return cluster.run

    return run(main, seed, leaks_allowed=False).value


@final
class _Cluster:
    """The nodes, the master, and what goes between them."""

    def __init__(self, world: World, rig: AccountRig, scheme: AccountScheme) -> None:
        self._world = world
        self._rig = rig
        self._scheme = scheme
        self._network = Network(world, rig.link)
        self._nodes = [scheme.node(rig, number, world) for number in range(rig.nodes)]
        self._names = [f"node-{number}" for number in range(rig.nodes)]
        self._master = scheme.master(rig, world)
        self._pick = world.chance("nodes").draw
        weights = [1 / (rank + 1) ** rig.skew for rank in range(rig.nodes)]
        self._shares = [weight / sum(weights) for weight in weights]
        self._limits = [*accumulate(self._shares)]
        self._instants = rig.arrivals.instants_us(world.chance("arrivals"))
        self.run = AccountRun(rig.span_us)

    def begin(self) -> None:
        """Join all of them to the network, and set the first operation."""
        self._network.join(MASTER, self._receive_report)
        draw = self._world.chance("ticks").draw
        for number, name in enumerate(self._names):
            self._network.join(name, self._receiver(self._nodes[number]))
            self._world.call_at_us(int(draw() * self._scheme.every_us), self._tick, number)
        if self._rig.parted_us is not None:
            begin_us, end_us = self._rig.parted_us
            self._world.call_at_us(begin_us, self._cut_off)
            self._world.call_at_us(end_us, self._network.heal)
        if self._rig.batch_us:
            self._batch(self._rig.batch_us)
        else:
            self._next()

    def _next(self) -> None:
        at_us = next(self._instants, self._rig.span_us)
        if at_us < self._rig.span_us:
            self._world.call_at_us(at_us, self._arrive, at_us)

    def _arrive(self, at_us: int) -> None:
        rank = bisect_right(self._limits, self._pick())
        self._attempt(min(rank, self._rig.nodes - 1), 1, at_us)
        self._next()

    def _batch(self, at_us: int) -> None:
        """Attempt at each node what has come there since the last time."""
        rig = self._rig
        if at_us > self._world.elapsed_us:
            self._world.call_at_us(at_us, self._batch, at_us)
            return
        assert isinstance(rig.arrivals, Steps)
        mean = rig.arrivals.per_s_at(at_us - 1) * rig.batch_us / SECOND_US
        for rank, share in enumerate(self._shares):
            cost = poisson_count(mean * share, self._pick)
            if cost > 0:
                self._attempt(rank, cost, at_us - 1)
        if at_us + rig.batch_us < rig.span_us:
            self._world.call_at_us(at_us + rig.batch_us, self._batch, at_us + rig.batch_us)

    def _attempt(self, rank: int, cost: int, at_us: int) -> None:
        number = (self._rig.hot_at(at_us) + rank) % self._rig.nodes
        bucket = at_us // BUCKET_US
        self.run.attempted[bucket] += cost
        if self._nodes[number].admit(self._world.clock.now_us(), cost):
            self.run.admitted[bucket] += cost
        else:
            self.run.refused_last_us = at_us

    def _tick(self, number: int) -> None:
        report = self._nodes[number].report(self._world.clock.now_us())
        if report is not None:
            self._network.send(self._names[number], MASTER, report)
        at_us = self._world.elapsed_us + self._scheme.every_us
        if at_us < self._rig.span_us:
            self._world.call_at_us(at_us, self._tick, number)

    def _receive_report(self, source: str, message: object) -> None:
        answer = self._master.receive(source, message, self._world.clock.now_us())
        if answer is not None:
            self._network.send(MASTER, source, answer)

    def _receiver(self, node: _Node) -> Callable[[str, object], None]:
        return lambda _, message: node.receive(message, self._world.clock.now_us())

    def _cut_off(self) -> None:
        rig = self._rig
        hot = rig.hot_at(self._world.elapsed_us)
        away = {self._names[(hot + rank) % rig.nodes] for rank in range(0, 2 * rig.cut, 2)}
        self._network.partition({MASTER, *self._names} - away, away)


_OPERATION: Final = Request("operation", caller=ACCOUNT)

# The seed's form: a report every two seconds at most, a mean of 24 s, no fuse.
SEED_NODE: Final = SuppressSettings(
    interval_us=2_000_000, heartbeat_us=2_000_000, doubt_us=8_000_000, fuse_ratio=0
)
SEED_MASTER: Final = SuppressMasterSettings(form=MEAN, valid_us=8_000_000, silent_us=4_000_000)
# Its first attempt: the same mean, of what was accepted, and a linear profile.
FIRST_MASTER: Final = replace(SEED_MASTER, form=LINEAR)


@final
class SuppressingNode:
    """`policies.suppress` on a node."""

    __slots__ = ("_policy",)

    def __init__(self, name: str, chance: Chance, settings: SuppressSettings | None) -> None:
        self._policy = Suppress(name, 1, chance, settings)

    def admit(self, now_us: int, cost: int = 1) -> bool:
        """Admit one operation, which ends at once."""
        request = _OPERATION if cost == 1 else Request("operation", caller=ACCOUNT, cost=cost)
        return not isinstance(self._policy.admit(request, now_us), Decision)

    def report(self, now_us: int) -> SuppressReport | None:
        """Return the policy's report, if it has one."""
        return self._policy.report(now_us)

    def receive(self, message: object, now_us: int) -> None:
        """Hand the message to the policy."""
        assert isinstance(message, FactorMessage)
        self._policy.receive(message, now_us)


@final
class _SuppressingMaster:
    """`policies.suppress_master`; the limit's burst is one second of it, the default."""

    __slots__ = ("_policy",)

    def __init__(self, per_s: int, now_us: int, settings: SuppressMasterSettings | None) -> None:
        limit = AccountLimit(per_s)
        self._policy = SuppressMaster("master", 1, lambda _: limit, now_us, settings)

    def receive(self, source: str, message: object, now_us: int) -> FactorMessage | None:
        assert isinstance(message, SuppressReport)
        return self._policy.receive(message, now_us)


def suppressing(
    node: SuppressSettings | None = None, master: SuppressMasterSettings | None = None
) -> AccountScheme:
    """Return the product's scheme; what is not given is as in production."""
    return AccountScheme(
        lambda rig, number, world: SuppressingNode(
            f"node-{number}", world.chance(f"suppress/{number}"), node
        ),
        lambda rig, world: _SuppressingMaster(rig.per_s, world.clock.now_us(), master),
        (SuppressSettings() if node is None else node).interval_us,
    )


TOLERANCE: Final = 0.05
PARTED_MAX: Final = 1.5  # limits that a divided cluster may admit in all
STEADY_AFTER_US: Final = 5 * SECOND_US
STEADY_WINDOW_S: Final = 5
SWING_AFTER_US: Final = 30 * SECOND_US  # whoever remembers 24 s has seen the step by then


def rates(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, window_s: int
) -> list[float]:
    """What was admitted in every span of `window_s` between the two, in limits."""
    first, last = -(-begin_us // BUCKET_US), end_us // BUCKET_US
    width = window_s * PER_S
    counts = run.admitted
    return [
        sum(counts[at : at + width]) / (rig.per_s * window_s)
        for at in range(first, last - width + 1)
    ]


def settled_s(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, low: float, high: float
) -> float:
    """From `begin_us` until every second admits from `low` to `high` limits."""
    each_s = rates(rig, run, begin_us, end_us, 1)
    off = [at for at, rate in enumerate(each_s) if not low <= rate <= high]
    if not off:
        return 0.0
    return (off[-1] + 1) / PER_S if off[-1] + 1 < len(each_s) else inf


def overshoot_s(
    rig: AccountRig, run: AccountRun, begin_us: int, end_us: int, high: float = 1.0
) -> float:
    """The most admitted above `high` limits since then, beyond the burst, in limits times s."""
    most = above = 0.0
    for count in run.admitted[begin_us // BUCKET_US : end_us // BUCKET_US]:
        above += count / rig.per_s - high / PER_S
        most = max(most, above)
    return max(most - 1.0, 0.0)


def swing(rig: AccountRig, run: AccountRun, begin_us: int, end_us: int) -> tuple[float, float]:
    """Between the lowest and the highest second, in limits; and from one rise to the next, in s.

    A rise is from below half of the limit to above it; without two of them the period is 0.
    """
    each_s = rates(rig, run, begin_us, end_us, 1)
    rises: list[int] = []
    low = False
    for at, rate in enumerate(each_s):
        if low and rate > 1.0:
            rises.append(at)
        low = rate < 0.5 or (low and rate <= 1.0)
    period_s = (rises[-1] - rises[0]) / PER_S / (len(rises) - 1) if len(rises) > 1 else 0.0
    return max(each_s) - min(each_s), period_s


def measure(rig: AccountRig, run: AccountRun) -> Figures:
    """Every figure that the rig's course has an instant for."""
    found = {"refused": float(run.refused)}
    low, high = 1 - TOLERANCE, 1 + TOLERANCE
    if rig.shift_us:
        step_us, shift_us, drop_us = rig.step_us, rig.shift_us, rig.drop_us
        steady = rates(rig, run, step_us + STEADY_AFTER_US, shift_us, STEADY_WINDOW_S)
        found |= {
            "settled_s": settled_s(rig, run, step_us, shift_us, low, high),
            "overshoot_s": overshoot_s(rig, run, step_us, shift_us),
            "steady_min": min(steady),
            "steady_max": max(steady),
            "shifted_s": settled_s(rig, run, shift_us, drop_us, low, high),
            "recovery_s": max(run.refused_last_us - drop_us, 0) / SECOND_US,
        }
    elif rig.step_us and rig.parted_us is None:
        found["swing"], found["period_s"] = swing(
            rig, run, rig.step_us + SWING_AFTER_US, rig.span_us
        )
    if rig.parted_us is not None:
        begin_us, end_us = rig.parted_us[0], rig.span_us
        if rig.step_us < begin_us:
            found["parted_max"] = max(rates(rig, run, begin_us, end_us, 1))
        else:
            surge_us = rig.step_us
            found["surge_s"] = settled_s(rig, run, surge_us, end_us, 0.0, PARTED_MAX)
            found["surge_overshoot_s"] = overshoot_s(rig, run, surge_us, end_us, PARTED_MAX)
    return found


def curves(rig: AccountRig, run: AccountRun) -> Curves:
    """Attempted and admitted over time, in limits; about 200 points."""
    step = max(len(run.admitted) // 200, 1)

    def line(counts: list[int]) -> list[tuple[float, float]]:
        return [
            (at / PER_S, sum(counts[at : at + step]) * PER_S / step / rig.per_s)
            for at in range(0, len(counts) - step, step)
        ]

    return {"attempted": line(run.attempted), "admitted": line(run.admitted)}
