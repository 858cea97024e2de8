"""Fleet: dispatchers in front of the same resources share the slots of each.

Each dispatcher tells, once in a beat, how many units it has in flight and how many of each rank
wait, and hears the sums over all of them. What follows depends on what waits beyond the free slots:

    calm       it can start within a beat: each has an equal part, at least one slot, and whatever
               is free
    pressed    slots that come free until the next beat go to the ranks in their order, and
               within a rank to each dispatcher by the number of its units that wait

A part is rarely a whole number, and the rest is drawn. News is up to a beat old, so a queue that is
shorter than that is left to the resource. A dispatcher that hears nothing takes an equal part.

Cost: a few additions for each rank, resource and beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.resource import RANKS, Resource, equal_part

BEAT_US: Final = 50_000
SILENT_US: Final = 4 * BEAT_US  # what was heard before counts no more
_RATE_US: Final = 1_000_000  # the span over which the rate of ends is averaged
_LEAST: Final = 0.01  # slots; the estimates divide by it


class SharedLoad(NamedTuple):
    """The load of a resource at one dispatcher, or at all of them."""

    inflight: int
    ended: int  # since the start
    waiting: tuple[int, ...]  # by rank


NOTHING: Final = SharedLoad(0, 0, (0,) * RANKS)


@final
class _Part:
    """What a dispatcher has heard of one resource."""

    __slots__ = ("ended", "heard_us", "rate")

    def __init__(self, ended: int, now_us: int) -> None:
        self.ended = ended
        self.heard_us = now_us
        self.rate = 0.0  # units that end in a microsecond, at all dispatchers

    def hear(self, ended: int, now_us: int) -> None:
        """Follow the rate at which units end."""
        span_us = now_us - self.heard_us
        if span_us > 0:
            rate = max(0, ended - self.ended) / span_us
            self.rate += (rate - self.rate) * min(1.0, span_us / _RATE_US)
        self.ended, self.heard_us = ended, now_us


@final
class FleetShare:
    """The part that one dispatcher has in the slots of each of its resources."""

    __slots__ = ("_chance", "_gate", "_parts", "_told")

    def __init__(self, gate: Gate, chance: Chance) -> None:
        self._gate = gate
        self._chance = chance
        self._parts: dict[str, _Part] = {}
        self._told: set[str] = set()  # the resources that the fleet knows to be in use here

    def tell(self, now_us: int) -> dict[str, SharedLoad]:
        """Return the load here, of each resource that is in use or was when it was last told."""
        told = {}
        for name, resource in self._gate.resources.items():
            if (
                resource.slots and (resource.inflight or resource.queue.waiting)
            ) or name in self._told:
                told[name] = load_of(resource, self._need_us(name), now_us)
        return told

    def hear(
        self,
        told: Mapping[str, SharedLoad],
        fleet: Mapping[str, SharedLoad],
        members: int,
        now_us: int,
    ) -> None:
        """Take a part of each resource, after the `fleet` has counted what was `told`."""
        for name, load in told.items():
            if load.inflight or any(load.waiting):
                self._told.add(name)
            else:
                self._told.discard(name)
        for name, load in fleet.items():
            resource = self._gate.resource_named(name)
            if not resource.slots:
                continue
            part = self._parts.get(name)
            if part is None:
                part = self._parts[name] = _Part(load.ended, now_us)
            part.hear(load.ended, now_us)
            own = told.get(name, NOTHING)
            self._take(resource, part.rate * BEAT_US, own, load, members, now_us)
        self.forget(members, now_us)

    def forget(self, members: int, now_us: int) -> None:
        """Take an equal part of what was not heard of for long."""
        gate = self._gate
        for name, resource in gate.resources.items():
            part = self._parts.get(name)
            if part is not None and now_us - part.heard_us <= SILENT_US:
                continue
            self._parts.pop(name, None)
            limit = equal_part(resource.slots, members)
            if resource.slots and (resource.limit != limit or resource.at_a_time):
                gate.set_limit(resource, limit, now_us)

    def _take(
        self,
        resource: Resource,
        ends: float,
        own: SharedLoad,
        fleet: SharedLoad,
        members: int,
        now_us: int,
    ) -> None:
        """Set the limit of a resource, of which `ends` units end in a beat."""
        slots, gate = resource.slots, self._gate
        free = slots - fleet.inflight
        if sum(fleet.waiting) - free <= ends:
            limit = max(equal_part(slots, members), own.inflight + free)
            gate.set_limit(resource, limit, now_us)
            return
        left, mine = max(0.0, free + ends), 0.0
        for here, anywhere in zip(own.waiting, fleet.waiting, strict=True):
            if anywhere:
                given = min(left, anywhere)
                mine += given * here / anywhere
                left -= given
        mine += left / members  # for what will arrive
        at_a_time = max(_LEAST, mine * slots / ends if ends else mine)
        if ends > slots and at_a_time >= 1:  # work is shorter than a beat
            gate.set_limit(resource, self._whole(at_a_time), now_us)
        else:
            gate.set_limit(resource, own.inflight + self._whole(mine), now_us, at_a_time=at_a_time)

    def _need_us(self, name: str) -> float:
        """Return how long a unit takes while others wait, from the rate at which they end."""
        part = self._parts.get(name)
        if part is None or not part.rate:
            return 0.0
        return self._gate.resources[name].slots / part.rate

    def _whole(self, number: float) -> int:
        whole = int(number)
        return whole + (self._chance.draw() < number - whole)


def load_of(resource: Resource, need_us: float, now_us: int) -> SharedLoad:
    """Return the load of a resource here, where a unit that nothing is known of takes `need_us`."""
    queue = resource.queue
    waiting = tuple(
        queue.ready_of(rank, now_us + 2 * BEAT_US, int(need_us)) for rank in range(RANKS)
    )
    return SharedLoad(resource.inflight, resource.ended, waiting)
