"""Accounts: one account's traffic on the nodes of a cluster, its limit held by messages alone.

What comes is Poisson, or bursts that conform to the limit to the last unit; it is spread over the
nodes as unevenly as Zipf's law says, and the hot node may change. Every node reports to a master,
which answers, over a network that delays, loses and doubles; some nodes may be cut off for a while.
The contender is a scheme: what a node and what a master does. All of it runs in a world.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.network import Link, Network
from sluicegate.lab.spans import Exponential
from sluicegate.lab.world import World, run

BUCKET_US: Final = 50_000
SECOND_US: Final = 1_000_000
PER_S: Final = SECOND_US // BUCKET_US
ACCOUNT: Final = "account"
MASTER: Final = "master"

# What gossip has to live with in one data centre on a bad day.
GOSSIP: Final = Link(delay=Exponential(10_000.0), loss=0.01, reorder=0.01, duplicate=0.01)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRig:
    """An account with a limit of `per_s` and one second's burst, on `nodes` nodes.

    `hot` says from when on which node is the hottest; the others follow in a ring. While the
    network is parted, `cut` nodes, the hottest of the moment among them, hear and tell nothing.
    """

    arrivals: Arrivals
    per_s: int = 1_000
    nodes: int = 20
    skew: float = 1.0
    hot: tuple[tuple[int, int], ...] = ((0, 0),)
    parted_us: tuple[int, int] | None = None
    cut: int = 0
    link: Link = GOSSIP
    step_us: int = 0
    shift_us: int = 0
    drop_us: int = 0
    span_us: int = 30_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 1_000:
            raise BadValue("nodes", self.nodes, "give 1 to 1,000")
        if not 0 <= self.cut < self.nodes:
            raise BadValue("cut", self.cut, "leave at least one node with the master")
        begins = [begin_us for begin_us, _ in self.hot]
        if not begins or begins[0] != 0 or begins != sorted(set(begins)):
            raise BadValue("hot", self.hot, "begin at 0 and go on in ascending order")

    def hot_at(self, at_us: int) -> int:
        """The hottest node at that instant."""
        return self.hot[bisect_right(self.hot, at_us, key=lambda change: change[0]) - 1][1]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conforming:
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


class Node(Protocol):
    """A node's side."""

    def admit(self, now_us: int) -> bool:
        """Whether one operation of the account passes."""
        ...

    def report(self, now_us: int) -> object | None:
        """What to tell the master, if there is anything."""
        ...

    def hear(self, message: object, now_us: int) -> None:
        """Take in an answer."""
        ...


class Master(Protocol):
    """The master's side."""

    def hear(self, source: str, message: object, now_us: int) -> object | None:
        """Take in a report; what to answer."""
        ...


class Scheme(NamedTuple):
    """How an account is held to its limit: what makes a node and a master."""

    node: Callable[[AccountRig, int, World], Node]
    master: Callable[[AccountRig, World], Master]
    every_us: int = 50_000  # how often a node is asked for a report


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


def play(rig: AccountRig, scheme: Scheme, seed: int) -> AccountRun:
    """One run."""

    async def main(world: World) -> AccountRun:
        cluster = Cluster(world, rig, scheme)
        cluster.begin()
        await world.until_us(rig.span_us)
        return cluster.run

    return run(main, seed, leaks_allowed=False).value


@final
class Cluster:
    """The nodes, the master, and what goes between them."""

    __slots__ = (
        "_instants",
        "_limits",
        "_master",
        "_names",
        "_network",
        "_nodes",
        "_pick",
        "_rig",
        "_scheme",
        "_world",
        "run",
    )

    def __init__(self, world: World, rig: AccountRig, scheme: Scheme) -> None:
        self._world = world
        self._rig = rig
        self._scheme = scheme
        self._network = Network(world, rig.link)
        self._nodes = [scheme.node(rig, number, world) for number in range(rig.nodes)]
        self._names = [f"node-{number}" for number in range(rig.nodes)]
        self._master = scheme.master(rig, world)
        self._pick = world.chance("nodes").draw
        weights = [1 / (rank + 1) ** rig.skew for rank in range(rig.nodes)]
        self._limits = [part / sum(weights) for part in accumulate(weights)]
        self._instants = rig.arrivals.instants_us(world.chance("arrivals"))
        self.run = AccountRun(rig.span_us)

    def begin(self) -> None:
        """Let them all join, and the first operation come."""
        self._network.join(MASTER, self._heard)
        draw = self._world.chance("ticks").draw
        for number, name in enumerate(self._names):
            self._network.join(name, self._told(self._nodes[number]))
            self._world.call_at_us(int(draw() * self._scheme.every_us), self._tick, number)
        if self._rig.parted_us is not None:
            begin_us, end_us = self._rig.parted_us
            self._world.call_at_us(begin_us, self._part)
            self._world.call_at_us(end_us, self._network.heal)
        self._next()

    def _next(self) -> None:
        at_us = next(self._instants, self._rig.span_us)
        if at_us < self._rig.span_us:
            self._world.call_at_us(at_us, self._arrive, at_us)

    def _arrive(self, at_us: int) -> None:
        rank = bisect_right(self._limits, self._pick())
        number = (self._rig.hot_at(at_us) + min(rank, self._rig.nodes - 1)) % self._rig.nodes
        bucket = at_us // BUCKET_US
        self.run.attempted[bucket] += 1
        if self._nodes[number].admit(self._world.clock.now_us()):
            self.run.admitted[bucket] += 1
        else:
            self.run.refused_last_us = at_us
        self._next()

    def _tick(self, number: int) -> None:
        report = self._nodes[number].report(self._world.clock.now_us())
        if report is not None:
            self._network.send(self._names[number], MASTER, report)
        at_us = self._world.elapsed_us + self._scheme.every_us
        if at_us < self._rig.span_us:
            self._world.call_at_us(at_us, self._tick, number)

    def _heard(self, source: str, message: object) -> None:
        answer = self._master.hear(source, message, self._world.clock.now_us())
        if answer is not None:
            self._network.send(MASTER, source, answer)

    def _told(self, node: Node) -> Callable[[str, object], None]:
        return lambda _, message: node.hear(message, self._world.clock.now_us())

    def _part(self) -> None:
        rig = self._rig
        hot = rig.hot_at(self._world.elapsed_us)
        away = {self._names[(hot + rank) % rig.nodes] for rank in range(0, 2 * rig.cut, 2)}
        self._network.partition({MASTER, *self._names} - away, away)
