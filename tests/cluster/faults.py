"""A cluster of real nodes on virtual time, and what goes wrong with it by a seed.

Nodes are `ClusterNode`s with the service's settings and clocks of their own, which neither agree
nor run evenly. Between them go the real bytes, over a network that delays, loses replies and says
things twice. One account attempts three to ten times its limit, unevenly; one moves from node to
node and conforms. Things go wrong from `BEGIN_S` to `END_S`; from `LET_GO_S` on the first
account conforms too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast, final

import hiredis

from sluicegate.apps.pubsub.node_settings import (
    master_settings,
    peer_settings,
    suppress_settings,
)
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.node import ClusterNode
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Forbidden, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.world import World, run
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.service.settings import settings_from
from sluicegate.stores.redis.connection import RedisCall, Reply
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.node_messages import encode_answer, parse_report

S: Final = 1_000_000
L: Final = 200
STEP_US: Final = 10_000
SETTINGS: Final = settings_from(PubSubSettings)
RECONNECT_US_MAX: Final = 500_000
BEGIN_S, END_S, LET_GO_S, OVER_S = 4, 16, 24, 30
OVER, FAIR = "over", "fair"

KILL = "kill"  # a node is killed and comes back
FREEZE = "freeze"  # it stands still, and goes on with what it knew
OLD = "old"  # it is killed and comes back with its clock set back
PART = "part"  # the network falls into two
PAIR = "pair"  # two nodes do not reach each other
MEMBERS = "members"  # each second one leaves or comes
REPLY = "reply"  # one in twenty is lost
TWICE = "twice"  # one report in ten comes again, late
SLOW = "slow"  # one message in fifty takes up to 0.4 s longer
ALONE = "alone"  # the master of the first account is cut off from all others, all the time
ONE_AT_A_TIME: Final = (FREEZE, KILL, OLD, PAIR, PART)
KINDS: Final = (*ONE_AT_A_TIME, MEMBERS, REPLY, TWICE, SLOW)


@final
@dataclass
class Machine:
    """A process, or where one was: its clock goes on."""

    name: str
    ahead_us: int
    pace: float  # microseconds of its clock a microsecond
    node: ClusterNode | None = None
    frozen: bool = False
    starts: int = 0
    known: bool = True  # to the others; a publish at one that is not is refused
    held: list[Callable[[], object]] = field(default_factory=list)  # what waits for it to go on


@final
class FaultyCluster:
    """The cluster, its load, and what was admitted."""

    def __init__(self, world: World, kinds: frozenset[str], *, mute: bool = False) -> None:
        self.world, self.kinds, self.mute = world, kinds, mute
        draw = world.chance("cluster").draw
        self.draw = draw
        self.names = [f"n{number}" for number in range(3 + int(draw() * 4))]
        self.machines = {
            name: Machine(name, int((draw() - 0.5) * 7_200 * S), 1 + (draw() - 0.5) * 2e-3)
            for name in self.names
        }
        self.members = list(self.names)
        self.sides: dict[str, int] = {}
        self.pairs: set[frozenset[str]] = set()
        self.delay_us = 300 + draw() * 10_000
        self.admitted = {OVER: list[int](), FAIR: list[int]()}  # each tenth of a second
        self.refused = {OVER: list[int](), FAIR: list[int]()}
        self.over = 3 + draw() * 7
        self.skew = 1 + int(draw() * 9)
        self.ended = False

    # What came of it.

    def rate(self, begin_s: float, end_s: float) -> float:
        """What was admitted of the first account between two instants, in limits."""
        return sum(self.admitted[OVER][int(begin_s * 10) : int(end_s * 10)]) / L / (end_s - begin_s)

    def above_s(self, limits: float) -> float:
        """The longest time in which each half second admitted more than so many limits."""
        longest = tenths = 0
        for at in range(BEGIN_S * 10, LET_GO_S * 10):
            tenths = tenths + 1 if self.rate(at / 10, at / 10 + 0.5) > limits else 0
            longest = max(longest, tenths)
        return (longest + 4) / 10 if longest else 0.0

    def refusals(self, account: str, begin_s: float = 0, end_s: float = OVER_S) -> int:
        return sum(self.refused[account][int(begin_s * 10) : int(end_s * 10)])

    # Processes.

    def clock_of(self, machine: Machine) -> int:
        return 10**15 + machine.ahead_us + int(self.world.elapsed_us * machine.pace)

    async def start(self, name: str) -> None:
        machine = self.machines[name]
        machine.starts += 1
        now_us = self.clock_of(machine)
        chance = self.world.chance(f"{name}/{machine.starts}")
        limiter = AccountLimiter(
            name, now_us, lambda _: AccountLimit(L), chance, now_us,
            node=suppress_settings(SETTINGS), master=master_settings(SETTINGS),
        )  # fmt: skip
        clock = _Clock(partial(self.clock_of, machine))
        machine.node = ClusterNode(
            limiter,
            {one: Endpoint(one, 1) for one in self.members if one != name},
            peer_settings(SETTINGS),
            clock,
            chance,
            gone_us=round(SETTINGS.gone_s * S),
            link_to=partial(_Link, self, name),
            knock_at=partial(self.knock, name),
        )
        await machine.node.start()

    async def stop(self, name: str) -> None:
        machine = self.machines[name]
        node, machine.node = machine.node, None
        machine.held.clear()
        if node is not None:
            await node.close()

    def freeze(self, name: str) -> None:
        self.machines[name].frozen = True

    def thaw(self, name: str) -> None:
        machine = self.machines[name]
        machine.frozen = False
        held, machine.held = machine.held, []
        for act in held:
            act()

    def serving(self) -> list[str]:
        return [
            name
            for name, one in self.machines.items()
            if one.node is not None and one.known and not one.frozen
        ]

    # The network.

    def apart(self, one: str, other: str) -> bool:
        sides = self.sides
        cut = frozenset((one, other)) in self.pairs
        return cut or sides.get(one, 0) != sides.get(other, 0) or self.mute

    async def knock(self, source: str, endpoint: Endpoint) -> None:
        await self.world.sleep_us(1_000)
        if self.apart(source, endpoint.host):
            await self.world.sleep_us(10 * S)
        if self.machines[endpoint.host].node is None:
            raise ConnectionRefusedError

    def later(self, act: Callable[[], object], *, times: float = 1.0) -> None:
        us = -self.delay_us * math.log(1 - self.draw()) * times
        if SLOW in self.kinds and self.draw() < 0.02:
            us += self.draw() * 400_000
        self.world.call_at_us(self.world.elapsed_us + 1 + int(us), act)

    def deliver(
        self, source: str, target: str, payload: bytes, back: Callable[[object], None]
    ) -> None:
        """A report arrives, and is answered."""
        machine = self.machines[target]
        if machine.frozen:
            machine.held.append(partial(self.deliver, source, target, payload, back))
            return
        if machine.node is None or self.apart(source, target):
            return
        reader = hiredis.Reader()
        reader.feed(payload)
        parts = cast("list[bytes]", reader.gets())
        try:
            answer = machine.node.report(parse_report(parts), Identity(source, [Grant.REPORT]))
        except Forbidden:
            self.later(partial(back, Unavailable(target, "it says no")))
            return
        if REPLY in self.kinds and self.draw() < 0.05:
            return
        reader.feed(encode_answer(answer))
        self.later(
            partial(self.arrive, source, target, partial(back, cast("Reply", reader.gets())))
        )

    def arrive(self, source: str, target: str, act: Callable[[], object]) -> None:
        machine = self.machines[source]
        if self.apart(source, target):
            return
        if machine.frozen:
            machine.held.append(act)
        else:
            act()

    # The load.

    async def load(self) -> None:
        over, fair = self.over * L, 0.85 * L
        drawn = self.world.chance("load").draw
        step = 0
        while not self.ended:
            await self.world.sleep_us(STEP_US)
            if step % 10 == 0:
                for counts in (*self.admitted.values(), *self.refused.values()):
                    counts.append(0)
            step += 1
            calm = self.world.elapsed_us > LET_GO_S * S
            serving = self.serving()
            if not serving:
                continue
            for account, rate in ((OVER, 0.6 * L if calm else over), (FAIR, fair)):
                for _ in range(_poisson(rate * STEP_US / S, drawn)):
                    if account == OVER:  # the first has as much as `skew` others
                        at = int(drawn() * (len(serving) + self.skew - 1)) - self.skew + 1
                        name = serving[max(at, 0)]
                    else:  # from node to node
                        name = serving[self.world.elapsed_us // 700_000 % len(serving)]
                    self.attempt(account, name)

    def attempt(self, account: str, name: str) -> None:
        machine = self.machines[name]
        if machine.node is None:
            return
        now_us = self.clock_of(machine)
        permit = machine.node.limiter.admit(Request("k", caller=account), now_us)
        if isinstance(permit, Decision):
            self.refused[account][-1] += 1
        else:
            self.admitted[account][-1] += 1
            permit.end(Outcome.SUCCESS, now_us)

    # What goes wrong.

    async def go_wrong(self) -> None:
        """Until `END_S`; then all is well again."""
        world, draw = self.world, self.world.chance("faults").draw
        await world.until_us(BEGIN_S * S)
        if ALONE in self.kinds:
            node = self.machines[self.names[0]].node
            assert node is not None
            self.sides = {node.limiter.master_of(OVER): 1}
            await world.until_us(END_S * S)
            self.sides = {}
        elif MEMBERS in self.kinds:
            await self.change_members(draw)
        elif faults := sorted(self.kinds & set(ONE_AT_A_TIME)):
            await self.one_by_one(faults, draw)
        await world.until_us(END_S * S)
        self.kinds = frozenset()

    async def one_by_one(self, faults: list[str], draw: Callable[[], float]) -> None:
        world = self.world
        while True:
            await world.sleep_us(int(draw() * 2 * S))
            for_us = int(200_000 + draw() * 4 * S)
            what = faults[int(draw() * len(faults))]
            if world.elapsed_us + for_us >= END_S * S:
                return
            serving = self.serving()
            if len(serving) < 2:
                continue
            name = serving[int(draw() * len(serving))]
            if what in (KILL, OLD):
                await self.stop(name)
                await world.sleep_us(for_us)
                if what == OLD:  # its clock is set back, and it begins at an older time
                    self.machines[name].ahead_us -= 60 * S
                if name in self.members and self.machines[name].node is None:
                    await self.start(name)
            elif what == FREEZE:
                self.freeze(name)
                await world.sleep_us(for_us)
                self.thaw(name)
            elif what == PART:
                self.sides = {one: int(draw() * 2) for one in self.names}
                await world.sleep_us(for_us)
                self.sides = {}
            else:
                other = self.names[int(draw() * len(self.names))]
                pair = frozenset((name, other))
                self.pairs.add(pair)
                await world.sleep_us(for_us)
                self.pairs.discard(pair)

    async def change_members(self, draw: Callable[[], float]) -> None:
        """Each second one leaves or comes, and each of the others hears of it later."""
        world = self.world
        while world.elapsed_us < (END_S - 1) * S:
            name = self.names[int(draw() * len(self.names))]
            if name not in self.members:
                self.members.append(name)
                if self.machines[name].node is None:
                    self.machines[name].known = False
                    await self.start(name)
            elif len(self.members) > 2:
                self.members.remove(name)
                await self.stop(name)
            self.tell(draw)
            await world.sleep_us(S)
        for name in self.names:
            if name not in self.members:
                self.members.append(name)
            if self.machines[name].node is None:
                self.machines[name].known = False
                await self.start(name)
        self.tell(draw)

    def tell(self, draw: Callable[[], float]) -> None:
        for name in self.names:
            heard_us = self.world.elapsed_us + 1 + int(draw() * 500_000)
            self.world.call_at_us(heard_us, self.hear, name)
        all_us = self.world.elapsed_us + 500_002
        for machine in self.machines.values():
            self.world.call_at_us(all_us, setattr, machine, "known", True)

    def hear(self, name: str) -> None:
        node = self.machines[name].node
        if node is not None:
            node.change_peers({one: Endpoint(one, 1) for one in self.members if one != name})


@final
class _Clock:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us


@final
class _Link:
    """To one peer: an answer, or a failure by its death or by the clock."""

    def __init__(
        self,
        cluster: FaultyCluster,
        source: str,
        endpoint: Endpoint,
        settings: RedisSettings,
        _: Chance,
    ) -> None:
        self._timeout_us = settings.timeout_us_max
        self.endpoint = endpoint
        self._cluster, self._source = cluster, source
        self._starts = cluster.machines[endpoint.host].starts
        self._lost_us = -RECONNECT_US_MAX

    def send(self, call: RedisCall) -> None:
        cluster, source, target = self._cluster, self._source, self.endpoint.host
        machine = cluster.machines[source]
        if machine.frozen:
            machine.held.append(partial(self.send, call))
            return
        peer, world = cluster.machines[target], cluster.world
        if peer.starts != self._starts:  # it is another process, which is not found at once
            self._starts = peer.starts
            self._lost_us = world.elapsed_us - int(cluster.draw() * RECONNECT_US_MAX)
        if peer.node is None or world.elapsed_us - self._lost_us < RECONNECT_US_MAX:
            call.fail(Unavailable(target, "nothing listens there"))
            return

        def back(reply: object) -> None:
            if call.future.done():
                return
            if isinstance(reply, Exception):
                call.fail(reply)
            else:
                call.future.set_result(cast("Reply", reply))

        arrive = partial(cluster.deliver, source, target, call.payload, back)
        cluster.later(arrive)
        if TWICE in cluster.kinds and cluster.draw() < 0.1:
            cluster.later(partial(cluster.deliver, source, target, call.payload, _nobody), times=10)
        timeout = Unavailable(target, "it does not answer")
        world.call_at_us(world.elapsed_us + self._timeout_us, call.fail, timeout)

    async def close(self) -> None:
        """Nothing is kept."""


def play(seed: int, kinds: Collection[str], *, mute: bool = False) -> FaultyCluster:
    """A run of a cluster in which these go wrong; `mute`, nobody hears anybody ever."""

    async def story(world: World) -> FaultyCluster:
        cluster = FaultyCluster(world, frozenset(kinds), mute=mute)
        for name in cluster.names:
            await cluster.start(name)
        tasks = [world.spawn(cluster.load(), "load"), world.spawn(cluster.go_wrong(), "faults")]
        await world.until_us(OVER_S * S)
        cluster.ended = True
        await asyncio.gather(*tasks)
        for name in cluster.names:
            await cluster.stop(name)
        return cluster

    return run(story, seed).value


def _nobody(_: object) -> None:
    """Hear an answer that nobody waits for."""


def _poisson(mean: float, draw: Callable[[], float]) -> int:
    least, count, product = math.exp(-mean), 0, draw()
    while product > least:
        count += 1
        product *= draw()
    return count
