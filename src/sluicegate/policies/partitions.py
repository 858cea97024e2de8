"""Partitions: who has a share of the places once all of them are taken, and nothing before that.

    [partitions.checkout]
    share = 0.5
    endpoints = ["/pay", "/cart"]

A request is of the first partition whose endpoints and callers fit it; one that names none of
either takes any. While places are free a partition may have all of them. Once none is, it still
has ceil(places * share) of its own: who comes while it has fewer begins at once, though the whole
stands above the number for it, by no more than the shares add up to. Who waits of a partition
begins as soon as that has fewer, before whoever else waits: of its classes the one that matters
most, the oldest first. So a slow partition keeps what it holds, and takes nothing that another has
a share of.

A partition that was enforced always would strand what the others do not use (`concurrency.py`,
which judges threads by the same partitions).

Cost: a look at each partition for a request, and a dictionary's entry for who waits. Bounds:
`PARTITIONS_MAX`, shares that add up to 1; who waits is bounded by the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.queue.waiter import Waiter
from sluicegate.policies.settings import part_of

PARTITIONS_MAX: Final = 100
_ROUNDED: Final = 1e-6  # 0.07 of 100 is 7, though as floats it is a hair more


@final
@dataclass(frozen=True, kw_only=True)
class PartitionSettings:
    """Whose it is, and its share of the places."""

    share: float = 0.0
    endpoints: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        part_of("partition.share", self.share, 0.001, 1.0)
        if not self.endpoints and not self.callers:
            raise BadValue("partition.endpoints", self.endpoints, "name endpoints or callers")


def check_partitions(path: str, partitions: Mapping[str, PartitionSettings]) -> None:
    """Refuse too many, and shares of more than there is."""
    if len(partitions) > PARTITIONS_MAX:
        raise BadValue(path, len(partitions), f"name at most {PARTITIONS_MAX}")
    whole = sum([one.share for one in partitions.values()])
    if whole > 1.0 + _ROUNDED:
        raise BadValue(f"{path}.share", round(whole, 3), "give shares that add up to 1 at most")


@final
class Partition:
    """One partition of one gate: its share, what it has at work, and who waits."""

    __slots__ = ("inflight", "name", "share", "waiting")

    def __init__(self, name: str, share: float) -> None:
        self.name = name
        self.share = share
        self.inflight = 0
        self.waiting: list[dict[Waiter, None]] = [{} for _ in Criticality]  # by class, in order

    def limit(self, places: int) -> int:
        """What it may have while the whole is full; none at all if it has no share."""
        if self.share <= 0.0:
            return 0
        part = ceil(places * self.share - _ROUNDED)
        return part if part > 1 else 1

    def join(self, waiter: Waiter) -> None:
        """Note one that waits."""
        self.waiting[waiter.request.criticality][waiter] = None

    def forget(self, waiter: Waiter) -> None:
        """Note that it waits no more."""
        self.waiting[waiter.request.criticality].pop(waiter, None)

    def next(self) -> Waiter | None:
        """Return who is to begin next of those who still stand in line."""
        for line in self.waiting:
            while line:
                waiter = next(iter(line))
                if waiter.queued:
                    return waiter
                del line[waiter]
        return None


@final
class PlaceShares:
    """The partitions of one gate, by the settings of a service."""

    __slots__ = ("_rules", "all")

    def __init__(self, settings: Mapping[str, PartitionSettings]) -> None:
        self.all = [Partition(name, one.share) for name, one in settings.items()]
        self._rules = [
            (frozenset(one.endpoints), frozenset(one.callers), partition)
            for one, partition in zip(settings.values(), self.all, strict=True)
        ]

    def of(self, request: Request) -> Partition | None:
        """Return the partition of a request; None if it is of none."""
        for endpoints, callers, partition in self._rules:
            if endpoints and request.operation not in endpoints:
                continue
            if callers and request.caller not in callers:
                continue
            return partition
        return None
