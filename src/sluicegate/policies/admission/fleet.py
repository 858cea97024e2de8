"""Fleet: dispatchers in front of the same resources share the slots of each.

Each dispatcher tells, once in a beat, how many units it has in flight and how many of each rank
wait, and hears the sums over all of them. What follows depends on what waits beyond the free slots:

    calm       it can start within a beat: each has an equal part, at least one slot, and whatever
               is free
    pressed    slots that come free until the next beat go to the ranks in their order, and
               within a rank to each dispatcher by the number of its units that wait

Where the slots are unknown, the limit of the whole fleet is found (`fleet_limit.py`). While there
is one, its slots are shared in the same way.

A part is rarely a whole number, and the rest is drawn. News is up to a beat old, so a queue that is
shorter than that is left to the resource. A dispatcher that hears nothing takes an equal part, or
finds a limit by itself.

Cost: a few additions for each rank, resource and beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.kernels.found_limit import LIMIT_MAX
from sluicegate.policies.admission.fleet_limit import NOTHING, FleetLimit, SharedLoad
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.resource import RANKS, Resource, equal_part

BEAT_US: Final = 50_000
BEATS_PER_S: Final = 1_000  # of all dispatchers together
MEMBERS_MAX: Final = 250  # each of which beats four times a second; rarer news says little
SILENT_US: Final = 4 * BEAT_US  # what was heard before counts no more
_RATE_US: Final = 1_000_000  # the span over which the rate of ends is averaged
_LEAST: Final = 0.01  # slots; the estimates divide by it


def beat_us(members: int) -> int:
    """Return the time between two beats: longer in a large fleet."""
    return max(BEAT_US, members * 1_000_000 // BEATS_PER_S)


@final
class _Part:
    """What a dispatcher has heard of one resource."""

    __slots__ = ("ended", "found", "heard_us", "rate", "slots")

    def __init__(self, resource: Resource, ended: int, now_us: int) -> None:
        self.slots = resource.slots  # 0: there is no limit
        self.ended = ended
        self.heard_us = now_us
        self.rate = 0.0  # units that end in a microsecond, at all dispatchers
        found = resource.found
        self.found = None if found is None else FleetLimit(found.limit if found.limiting else 0)

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
            if resource.inflight or resource.queue.waiting or name in self._told:
                told[name] = self._load(resource, now_us)
        return told

    def found(self) -> dict[str, int]:
        """Return the limits of the fleet that were found, and not known."""
        return {
            name: part.slots
            for name, part in self._parts.items()
            if part.found is not None and part.slots
        }

    def hear(
        self,
        told: Mapping[str, SharedLoad],
        fleet: Mapping[str, SharedLoad],
        members: int,
        now_us: int,
        *,
        leads: bool = False,
    ) -> None:
        """Take a part of each resource, after the `fleet` has counted what was `told`.

        One dispatcher `leads`: it finds the limits that are not known.
        """
        for name, load in told.items():
            if load.inflight or any(load.waiting):
                self._told.add(name)
            else:
                self._told.discard(name)
        for name, load in fleet.items():
            resource = self._gate.resource_named(name)
            part = self._parts.get(name)
            if part is None:
                part = self._parts[name] = _Part(resource, load.ended, now_us)
            part.hear(load.ended, now_us)
            if self._is_limited(resource, part, load, now_us, leads=leads):
                own = told.get(name, NOTHING)
                self._take(resource, part, own, load, members, now_us)
        self.forget(members, now_us)

    def forget(self, members: int, now_us: int) -> None:
        """Take an equal part of what was not heard of for long."""
        gate = self._gate
        for name, resource in gate.resources.items():
            part = self._parts.get(name)
            if part is not None and now_us - part.heard_us <= SILENT_US:
                continue
            self._parts.pop(name, None)
            if resource.found is not None:
                resource.found.share(False)
                self._lift(resource, now_us)
                continue
            limit = equal_part(resource.slots, members)
            if resource.limit != limit or resource.at_a_time:
                gate.set_limit(resource, limit, now_us)

    def _is_limited(
        self, resource: Resource, part: _Part, fleet: SharedLoad, now_us: int, *, leads: bool
    ) -> bool:
        """Whether there is a limit; if it is not known, it is found."""
        if resource.found is None or part.found is None:
            return True
        resource.found.share(True)
        if leads:
            part.found.find(fleet, now_us)
        else:
            part.found.follow(fleet, now_us)
        part.slots = part.found.slots
        if not part.slots:
            self._lift(resource, now_us)
            return False
        resource.rationed = True
        if part.rate and resource.mean_us:
            resource.scale = min(1.0, part.slots / part.rate / resource.mean_us)
        return True

    def _lift(self, resource: Resource, now_us: int) -> None:
        """The fleet has no limit for the resource any more."""
        if resource.rationed:
            resource.rationed, resource.scale = False, 1.0
            self._gate.set_limit(resource, LIMIT_MAX, now_us)

    def _take(
        self,
        resource: Resource,
        part: _Part,
        own: SharedLoad,
        fleet: SharedLoad,
        members: int,
        now_us: int,
    ) -> None:
        """Set the limit of a resource to our part of its slots."""
        slots, gate = part.slots, self._gate
        ends = part.rate * beat_us(members)  # units that end in a beat
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

    def _load(self, resource: Resource, now_us: int) -> SharedLoad:
        """Return the load of a resource here."""
        part = self._parts.get(resource.name)
        need_us = 0  # how long a unit takes while others wait, if nothing is known of its kind
        if part is not None and part.rate:
            need_us = int(part.slots / part.rate)
        at_us, queue = now_us + 2 * BEAT_US, resource.queue
        waiting = NOTHING.waiting
        if queue.waiting:
            waiting = tuple(queue.ready_of(rank, at_us, need_us) for rank in range(RANKS))
        return SharedLoad(
            resource.inflight,
            resource.ended,
            resource.spent_us,
            int(resource.patience_us),
            waiting,
        )

    def _whole(self, number: float) -> int:
        whole = int(number)
        return whole + (self._chance.draw() < number - whole)
