"""Oracle: a scheduler that knows the slots, the speed to come, and all work and patience.

It is one queue for each set of slots, whatever the number of dispatchers. It serves the request
with the least time to spare among those that can still be answered in time, and never begins a
request that cannot. If that answers all but one in a thousand, it is the answer. Else the highest
class goes first, and within a class the least time to spare.

It does not preempt, and does not keep a slot free for a request that is still to come. So it is a
bound for what classes and deadlines allow, not for what a preemptive scheduler could do. Where
requests share cores it runs as many at a time as there are cores.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.zoo.outcome import SERVED, Record
from sluicegate.lab.zoo.shape import ZooRequest, ZooShape

ENOUGH: Final = 0.999


def play_oracle(shape: ZooShape, load: Sequence[ZooRequest]) -> Record:
    """Play the load with the oracle."""
    record = _play(shape, load, classes=False)
    if record.fate.count(SERVED) >= ENOUGH * len(load):
        return record
    return _play(shape, load, classes=True)


def _play(shape: ZooShape, load: Sequence[ZooRequest], *, classes: bool) -> Record:
    record = Record(shape, load)
    by_resource: defaultdict[int, list[ZooRequest]] = defaultdict(list)
    for ask in load:
        by_resource[shape.resource_of(ask.shard)].append(ask)
    for resource, asks in by_resource.items():
        profile = SpeedProfile(tuple(shape.speeds(resource)))
        for ask, end_us in _ends(shape, asks, profile, classes):
            if end_us + shape.traffic[ask.kind].stream_us <= shape.span_us:
                record.answer(ask, end_us)
                record.end(ask)
    for ask in load:
        record.refuse(ask, ask.at_us)  # what is still open; the oracle knew it from the start
    return record


def _servers(shape: ZooShape) -> float:
    if shape.in_loop:
        return 1
    return min(shape.slots or inf, int(shape.cores) or inf)


def _ends(
    shape: ZooShape, asks: list[ZooRequest], profile: SpeedProfile, classes: bool
) -> Iterator[tuple[ZooRequest, int]]:
    """Yield each request that is served, and when its work ends."""
    idle = _servers(shape)
    waiting: list[tuple[int, float, int, ZooRequest]] = []
    arrivals = sorted((ask.at_us + shape.traffic[ask.kind].upload_us, ask) for ask in asks)
    ends: list[int] = []
    at = 0
    while at < len(arrivals) or ends:
        now_us = min(arrivals[at][0] if at < len(arrivals) else inf, ends[0] if ends else inf)
        while ends and ends[0] <= now_us:
            heapq.heappop(ends)
            idle += 1
        while at < len(arrivals) and arrivals[at][0] <= now_us:
            ask = arrivals[at][1]
            kind = shape.traffic[ask.kind]
            spare_us = ask.at_us + kind.patience_of() - ask.work_us
            heapq.heappush(waiting, (kind.criticality * classes, spare_us, ask.number, ask))
            at += 1
        while idle and waiting:
            ask = heapq.heappop(waiting)[3]
            end_us = profile.end_us(int(now_us), ask.work_us)
            if end_us <= ask.at_us + shape.traffic[ask.kind].patience_of():
                heapq.heappush(ends, end_us)
                idle -= 1
                yield ask, end_us
