"""Shape: one service or engine, its traffic and its incidents, as a plain value.

`draw_load` turns a shape and a seed into requests with their instants, work and shards. All
candidates are given the same requests, so that a difference between two of them is their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Arrivals, Poisson
from sluicegate.lab.durations import Duration, Sampler
from sluicegate.lab.random_source import RandomSource

SECOND_US: Final = 1_000_000
SETTLED_US: Final = 10 * SECOND_US  # what the search for a limit has, from the onset on
SERVICE: Final = "service"
ENGINE: Final = "engine"
# How the product can learn a caller's patience.
DEADLINE: Final = "deadline"  # sent with the request
HANGUP: Final = "hangup"  # the caller disconnects
HIDDEN: Final = "hidden"  # neither


class Cold(NamedTuple):
    """A span in which work takes longer, as in a table that is not in memory."""

    from_us: int
    to_us: int
    times: float


class Incident(NamedTuple):
    """A span in which one shard, or all of them, works at another speed; 0 is a stall."""

    from_us: int
    to_us: int
    speed: float
    shard: int = -1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTraffic:
    """One kind of request; `share` is its part of all arrivals.

    `work` is done by the resource before the first byte. The upload comes before it, the stream and
    the background work after it, and these three use no resource.
    """

    work: Duration
    share: float = 1.0
    name: str = "work"
    criticality: Criticality = Criticality.DEGRADED
    patience_us: int = 0  # 0: unlimited
    tells: str = DEADLINE
    callers: int = 4
    shard: int = -1  # -1: any
    rows: int = 1
    cold: tuple[Cold, ...] = ()
    upload_us: int = 0
    stream_us: int = 0
    background_us: int = 0
    socket: bool = False

    def patience_of(self) -> float:
        """Return how long its callers wait."""
        return self.patience_us or math.inf


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ZooShape:
    """One service or engine.

    `slots` serve at a time in each shard (0: any number), with the power of `cores` (0: of as many
    as are busy). With `in_loop` the event loop of the service does the work. `known` is the limit
    that an operator would set for each shard; 0 without such a limit.
    """

    name: str
    family: str
    arrivals: Arrivals
    traffic: tuple[ShapeTraffic, ...]
    slots: int = 0
    cores: float = 0
    in_loop: bool = False
    gil: bool = False
    shards: int = 1
    shared: bool = False  # all shards share the slots
    dispatchers: int = 1
    incidents: tuple[Incident, ...] = ()
    starved: tuple[int, int] = (0, 0)  # how often the process is stopped, and for how long
    quota: float = 0  # of each caller, as a multiple of its need; 0: unlimited
    known: int = 0
    overload: bool = False
    onset_us: int = 0
    ordinary: bool = False
    command: bool = False  # one of the commands whose best column is a target
    slow_shard: int = -1  # whose share of capacity is a target
    limit: str = ""  # why it is outside the bounds; then no target applies
    until_us: int = 25 * SECOND_US
    drain_us: int = 5 * SECOND_US

    @property
    def span_us(self) -> int:
        """How long a run lasts; nothing arrives in its last part."""
        return self.until_us + self.drain_us

    @property
    def resources(self) -> int:
        """How many sets of slots there are."""
        return 1 if self.shared else self.shards

    def resource_of(self, shard: int) -> int:
        """Return which set of slots serves a shard."""
        return 0 if self.shared else shard

    def speeds(self, resource: int) -> list[tuple[int, float]]:
        """Return the changes of speed of one set of slots, in order."""
        changes: dict[int, float] = {}
        for one in self.incidents:
            if one.shard in (-1, resource):
                changes[one.from_us] = one.speed
                changes[one.to_us] = 1.0
        return sorted(changes.items())

    def restored_us(self) -> int:
        """Return when the last incident ends within the run; 0 without incidents."""
        ends = [one.to_us for one in self.incidents]
        ends += [one.to_us for kind in self.traffic for one in kind.cold]
        ends = [end for end in ends if end <= self.until_us - 4 * SECOND_US]
        return max(ends, default=0)


class ZooRequest(NamedTuple):
    """One request."""

    number: int
    at_us: int
    kind: int  # its place in the shape's traffic
    caller: int
    work_us: int
    shard: int
    dispatcher: int


def draw_load(shape: ZooShape, seed: int) -> list[ZooRequest]:
    """Return the requests of a run, in order of arrival."""
    dice = RandomSource(seed)
    samplers = [
        kind.work.sampler(dice.of(f"work/{number}")) for number, kind in enumerate(shape.traffic)
    ]
    total = sum(kind.share for kind in shape.traffic)
    pick, who, where = dice.of("kinds").draw, dice.of("callers").draw, dice.of("shards").draw
    through = dice.of("dispatchers").draw
    asks: list[ZooRequest] = []
    for at_us in shape.arrivals.instants_us(dice.of("arrivals")):
        if at_us >= shape.until_us:
            break
        left, number = pick() * total, 0
        while number < len(shape.traffic) - 1 and left >= shape.traffic[number].share:
            left -= shape.traffic[number].share
            number += 1
        kind = shape.traffic[number]
        work_us = float(samplers[number]())
        for cold in kind.cold:
            if cold.from_us <= at_us < cold.to_us:
                work_us *= cold.times
        shard = kind.shard if kind.shard >= 0 else int(where() * shape.shards)
        caller, dispatcher = int(who() * kind.callers), int(through() * shape.dispatchers)
        asks.append(ZooRequest(len(asks), at_us, number, caller, round(work_us), shard, dispatcher))
    return asks


@final
@dataclass(frozen=True, slots=True)
class Bursts:
    """Groups of `size` at once, at random instants; `per_s` requests a second on average."""

    per_s: float
    size: int

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield each instant `size` times."""
        for at_us in Poisson(self.per_s / self.size).instants_us(chance):
            for _ in range(self.size):
                yield at_us


@final
@dataclass(frozen=True, slots=True)
class Correlated:
    """Times that resemble the one before: the logarithm is an autoregression."""

    mean_us: float
    sigma: float = 0.5
    memory: float = 0.99

    def sampler(self, chance: Chance) -> Sampler:
        """Return what draws durations."""
        level = 0.0
        fresh = self.sigma * math.sqrt(1 - self.memory**2)

        def duration_us() -> int:
            nonlocal level
            normal = math.sqrt(-2.0 * math.log(1.0 - chance.draw())) * math.cos(
                2 * math.pi * chance.draw()
            )
            level = self.memory * level + fresh * normal
            return int(self.mean_us * math.exp(level - self.sigma**2 / 2) + 0.5)

        return duration_us
