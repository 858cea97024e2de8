"""Cluster: nodes that suppress, and a master, over a network that loses, doubles and reorders.

Each load is an account; its attempts spread over the nodes that live. Nodes are cut off, leave
and come back as new ones, the master is succeeded, an account's rate surges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.lab.durations import Exponential
from sluicegate.lab.hunt.record import HuntRecord, SpendingLimit
from sluicegate.lab.hunt.setup import HuntLoad, Setup
from sluicegate.lab.hunt.stage import COURSE_US, MS, SAMPLE_US, active, arrivals_of, settled
from sluicegate.lab.network import Network, NetworkLink
from sluicegate.lab.world import World
from sluicegate.policies.suppression.suppress import Suppress
from sluicegate.policies.suppression.suppress_master import AccountLimit, SuppressMaster

MASTER: Final = "master"
TICK_US: Final = 50_000
BROADCAST_TICKS: Final = 10
# After a step the guide promises 3 s and, for a small excess, up to 20; ten are for 1.5 times.
SETTLE_US: Final = 10_000_000
SETTLED_US_MIN: Final = 5_000_000
OVER: Final = 1.5
CONFORMING: Final = 0.9
HELD: Final = (0.9, 1.1)
SIGMAS: Final = 6.0
LOSS_PERMILLE_MAX: Final = 200  # more than that is as good as a cut
CALM_US: Final = 45_000_000
FUSE: Final = 2


@final
class _Cluster:
    """The nodes, the master, and what each account was admitted."""

    def __init__(self, world: World, setup: Setup, record: HuntRecord) -> None:
        self.world, self.setup, self.record = world, setup, record
        knob = setup.knob
        self.per_s, self.burst = knob("limit_per_s", 200), knob("burst", knob("limit_per_s", 200))
        self.names = [f"n{number}" for number in range(knob("nodes", 4))]
        self.boots = dict.fromkeys(self.names, 0)
        self.nodes: dict[str, Suppress] = {}
        self.attempted: set[tuple[str, str]] = set()  # nodes, and accounts that were used there
        self.informed: set[tuple[str, str]] = set()  # nodes, and accounts whose limit they know
        link = NetworkLink(
            delay=Exponential(float(knob("delay_us", 5_000))),
            loss=knob("loss", 0) / 1_000,
            reorder=knob("reorder", 0) / 1_000,
            duplicate=knob("duplicate", 0) / 1_000,
        )
        self.network = Network(world, link)
        self.term = 0
        self.master = self._new_master()
        self.network.join(MASTER, self._to_master)
        for name in self.names:
            self._start(name)
            self.network.join(name, partial(self._to_node, name))
        self.admitted = {load.name: 0 for load in setup.loads}
        self.refused = {load.name: 0 for load in setup.loads}
        self.over = False

    def _new_master(self) -> SuppressMaster:
        self.term += 1
        limit = AccountLimit(self.per_s, self.burst)
        now_us = self.world.clock.now_us()
        return SuppressMaster(f"m{self.term}", self.term, lambda _: limit, now_us)

    def _start(self, name: str) -> None:
        """Start a node, or start it anew: it knows no limit."""
        self.boots[name] += 1
        boot = self.boots[name]
        self.nodes[name] = Suppress(name, boot, self.world.chance(f"{name}/{boot}"))
        self.informed = {pair for pair in self.informed if pair[0] != name}
        self.attempted = {pair for pair in self.attempted if pair[0] != name}

    def _to_master(self, source: str, message: object) -> None:
        if isinstance(message, SuppressReport):
            answer = self.master.receive(message, self.world.clock.now_us())
            if answer is not None:
                self.network.send(MASTER, source, answer)

    def _to_node(self, name: str, source: str, message: object) -> None:
        if not isinstance(message, FactorMessage) or self._is_absent(name):
            return
        self.nodes[name].receive(message, self.world.clock.now_us())
        # A node remembers nothing of an account that nobody has used there since it began.
        self.informed |= self.attempted & {(name, factor.account) for factor in message.factors}

    def _is_absent(self, name: str) -> bool:
        return active(self.setup, "gone", self.world.elapsed_us, name) is not None

    # What happens.

    async def attempts(self, load: HuntLoad) -> None:
        """All attempts of an account: those of the greatest surge, thinned."""
        world = self.world
        greatest = max(
            [1_000, *(fault.much for fault in self.setup.faults if fault.what == "surge")]
        )
        fastest = HuntLoad(
            name=load.name,
            per_s=load.per_s * greatest // 1_000,
            on_ms=load.on_ms,
            off_ms=load.off_ms,
        )
        draw = world.chance(f"attempts/{load.name}").draw
        arrivals = arrivals_of(fastest)
        for at_us in arrivals.instants_us(world.chance(f"arrivals/{load.name}")):
            if at_us >= self.setup.span_us:
                return
            await world.until_us(at_us)
            surge = active(self.setup, "surge", at_us, load.name)
            if draw() * greatest < (1_000 if surge is None else surge.much):
                self._attempt(load.name, draw())

    def _attempt(self, account: str, draw: float) -> None:
        live = [name for name in self.names if not self._is_absent(name)]
        if not live:
            return
        # Skewed: the first node has as much as `skew` others.
        weights = [self.setup.knob("skew", 1), *[1] * (len(live) - 1)]
        name = _pick(live, weights, draw)
        now_us = self.world.clock.now_us()
        permit = self.nodes[name].admit(Request("k", caller=account), now_us)
        self.attempted.add((name, account))
        if isinstance(permit, Decision):
            self.refused[account] += 1
            return
        permit.end(Outcome.SUCCESS, now_us)
        self.admitted[account] += 1
        if (name, account) in self.informed:
            spent = f"{account} at {name}, start {self.boots[name]}"
            self.record.spend(spent, now_us, 1)
            self.record.limits[spent] = SpendingLimit(
                FUSE * self.per_s, FUSE * max(self.burst, 1) + 1
            )

    def rejects(self) -> bool:
        """Whether any node would reject any of any account now."""
        now_us = self.world.clock.now_us()
        return any(
            node.factor(account, now_us) > 0.0
            for node in self.nodes.values()
            for account in self.admitted
        )

    async def tick_all(self) -> None:
        """Reports, now and then a broadcast, and what was planned to go wrong."""
        world = self.world
        was_absent = dict.fromkeys(self.names, False)
        taken_over: set[int] = set()
        ticks = 0
        while not self.over:
            await world.sleep_us(TICK_US)
            ticks += 1
            self._cut()
            for at, fault in enumerate(self.setup.faults):
                due = fault.what == "takeover" and world.elapsed_us >= fault.from_ms * MS
                if due and at not in taken_over:
                    taken_over.add(at)
                    self.master = self._new_master()
            for name in self.names:
                absent = self._is_absent(name)
                if was_absent[name] and not absent:
                    self._start(name)
                was_absent[name] = absent
                report = None if absent else self.nodes[name].report(world.clock.now_us())
                if report is not None:
                    self.network.send(name, MASTER, report)
            if ticks % BROADCAST_TICKS == 0:
                message = self.master.broadcast(world.clock.now_us())
                for name in self.names:
                    self.network.send(MASTER, name, message)

    def _cut(self) -> None:
        self.network.heal()
        for name in self.names:
            if active(self.setup, "cut", self.world.elapsed_us, name) is not None:
                self.network.cut(name, MASTER)
                self.network.cut(MASTER, name)


async def play_cluster(world: World, setup: Setup, record: HuntRecord) -> None:
    """The whole play."""
    cluster = _Cluster(world, setup, record)
    courses = {load.name: _course_of(record, load.name) for load in setup.loads}
    record.step_us = COURSE_US

    async def sample() -> None:
        while not cluster.over:
            before = dict(cluster.admitted)
            await world.sleep_us(COURSE_US)
            for name, course in courses.items():
                course.append((world.elapsed_us, cluster.admitted[name] - before[name]))

    ticking = world.spawn(cluster.tick_all(), "turns")
    sampling = world.spawn(sample(), "sampler")
    attempts = [world.spawn(cluster.attempts(load), f"account/{load.name}") for load in setup.loads]
    for task in attempts:
        await task
    await world.until_us(setup.span_us)
    record.settled = settled(setup, SETTLE_US, SETTLED_US_MIN)
    _judge(cluster, courses)
    if cluster.rejects():
        await world.sleep_us(CALM_US)
    for load in setup.loads:
        for name, node in cluster.nodes.items():
            factor = node.factor(load.name, world.clock.now_us())
            if factor > 0.0 and not _hurt(setup):
                sentence = f"{name} still rejects {factor:.0%} of {load.name} after {CALM_US} us"
                record.add_violation("let go", sentence)
    cluster.over = True
    await ticking
    await sampling
    await world.sleep_us(SAMPLE_US)


def _judge(cluster: _Cluster, courses: dict[str, list[tuple[int, int]]]) -> None:
    """Check that conforming accounts pass, and that others are held to the limit."""
    setup, record = cluster.setup, cluster.record
    quiet = not any(fault.what in {"cut", "surge"} for fault in setup.faults)
    for load in setup.loads:
        bursts = load.on_ms and load.off_ms
        conforms = load.per_s <= CONFORMING * cluster.per_s <= cluster.burst * 2 and not bursts
        if conforms and quiet and not _hurt(setup) and cluster.refused[load.name]:
            sentence = f"{load.name} at {load.per_s} of {cluster.per_s} a second was suppressed"
            record.add_violation("conforming", f"{sentence} {cluster.refused[load.name]:,} times")
        if record.settled is None or _hurt(setup) or load.per_s < OVER * cluster.per_s:
            continue
        begin_us, end_us = record.settled
        counts = [count for at_us, count in courses[load.name] if begin_us < at_us <= end_us]
        if not counts:
            continue
        expected = cluster.per_s * len(counts) * COURSE_US / 1e6
        low, high = HELD[0] * expected, HELD[1] * expected
        noise = SIGMAS * sqrt(expected)
        if not low - noise <= sum(counts) <= high + noise:
            sentence = (
                f"{load.name} asked for {load.per_s} a second and was admitted {sum(counts):,}"
            )
            record.add_violation("held", f"{sentence}, where {expected:,.0f} are its limit")


def _hurt(setup: Setup) -> bool:
    return setup.knob("loss", 0) > LOSS_PERMILLE_MAX


def _course_of(record: HuntRecord, account: str) -> list[tuple[int, int]]:
    return record.courses.setdefault(f"what {account} is admitted in half a second", [])


def _pick(names: Sequence[str], weights: Sequence[int], draw: float) -> str:
    left = draw * sum(weights)
    for name, weight in zip(names, weights, strict=True):
        left -= weight
        if left < 0:
            return name
    return names[-1]
