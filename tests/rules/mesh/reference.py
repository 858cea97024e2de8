"""What envoyproxy/ratelimit decides, written out as slowly and plainly as it can be.

No index, no shared limits, no store: a walk through the tree, and a dict of counters. What is
tested is held against this.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SECONDS = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}
NUMBERS = {"second": 1, "minute": 2, "hour": 3, "day": 4, "month": 5, "year": 6, "week": 7}
UNITS = {number: unit for unit, number in NUMBERS.items()}

Node = Mapping[str, Any]


class ReferenceDescriptor(NamedTuple):
    """A descriptor as asked."""

    entries: tuple[tuple[str, str], ...]
    hits: int | None = None
    override: tuple[int, int] | None = None


class Status(NamedTuple):
    """What is expected of one descriptor."""

    over: bool
    limit: tuple[int, int, str] | None
    remaining: int
    reset_s: int


NOTHING = Status(False, None, 0, -1)
UNLIMITED = Status(False, None, (1 << 32) - 1, -1)


class Limit(NamedTuple):
    """A limit that applies to a descriptor."""

    allowed: int
    unit: str
    name: str
    unlimited: bool
    replaces: tuple[str, ...]
    shadow: bool
    quota: bool
    identity: tuple[object, ...]
    stats: str


def glob_matches(pattern: str, value: str) -> bool:
    """Each star stands for any run of characters."""
    parts = [re.escape(part) for part in pattern.split("*")]
    return re.fullmatch(".*".join(parts), value, re.DOTALL) is not None


class Reference:
    """The service."""

    def __init__(
        self, domain: str, descriptors: Sequence[Node], *, stop: bool = False, cache: bool = False
    ) -> None:
        self.domain, self.descriptors = domain, descriptors
        self.stop, self.cache = stop, cache
        self.counts: Counter[tuple[object, ...]] = Counter()
        self.cached: set[tuple[object, ...]] = set()
        self.stats: dict[str, Counter[str]] = {}

    def find(self, descriptor: ReferenceDescriptor) -> Limit | None:
        """The limit of a descriptor."""
        if descriptor.override is not None:
            count, number = descriptor.override
            name = ".".join([self.domain, *[f"{k}_{v}" for k, v in descriptor.entries]])
            own = ("override", descriptor.override, descriptor.entries)
            return Limit(count, UNITS[number], "", False, (), False, False, own, name)
        level, node = self.descriptors, None
        identity: list[tuple[str, str]] = []
        steps: list[tuple[str, str, str, bool, bool]] = []
        for key, value in descriptor.entries:
            same = [one for one in level if one["key"] == key]
            exact = [one for one in same if one.get("value") == value and "*" not in value]
            globs = [
                one
                for one in same
                if "*" in one.get("value", "") and glob_matches(one["value"], value)
            ]
            plain = [one for one in same if not one.get("value")]
            found = [one for one in exact if value] or globs or plain
            if not found:
                return None
            node = found[0]
            shared = node.get("share_threshold", False)
            identity.append((key, node["value"] if shared else value))
            steps.append(
                (key, node.get("value", ""), value, shared, node.get("value_to_metric", False))
            )
            level = node.get("descriptors", [])
        limit = None if node is None else node.get("rate_limit")
        if node is None or limit is None:
            return None
        stats = [self.domain]
        for key, written, value, shared, detailed in steps:
            label = written
            if (detailed or node.get("detailed_metric")) and not shared:
                stats.append(f"{key}_{value}")
            else:
                stats.append(f"{key}_{label}" if label else key)
        return Limit(
            limit.get("requests_per_unit", 0),
            limit.get("unit", ""),
            limit.get("name", ""),
            limit.get("unlimited", False),
            tuple(one["name"] for one in limit.get("replaces", [])),
            node.get("shadow_mode", False),
            node.get("quota_mode", False),
            tuple(identity),
            ".".join(stats),
        )

    def ask(
        self, descriptors: Sequence[ReferenceDescriptor], hits: int, now_s: int
    ) -> tuple[bool, list[Status]]:
        """Whether the request is over, and each descriptor's status."""
        limits = [self.find(descriptor) for descriptor in descriptors]
        replaced = {name for limit in limits if limit for name in limit.replaces}
        limits = [limit if limit and limit.name not in replaced else None for limit in limits]
        weights = [
            max(1, hits) if descriptor.hits is None else descriptor.hits
            for descriptor in descriptors
        ]
        keys = [self._key(limit, now_s) for limit in limits]
        takes = list(weights)
        if self.stop:
            over = [
                limit is not None
                and not limit.unlimited
                and key not in self.cached
                and self.counts[key] + weight > limit.allowed
                for limit, key, weight in zip(limits, keys, weights, strict=True)
            ]
            if self.cache and not self.cached.isdisjoint(keys):
                takes = [0] * len(takes)
            elif any(over):
                takes = [take if one else 0 for take, one in zip(takes, over, strict=True)]
        was_cached = [key in self.cached for key in keys]
        statuses = [
            self._one(limit, key, weight, take, now_s, known)
            for limit, key, weight, take, known in zip(
                limits, keys, weights, takes, was_cached, strict=True
            )
        ]
        plain = [
            status.over
            for limit, status in zip(limits, statuses, strict=True)
            if limit is None or not limit.quota
        ]
        quotas = [
            status.over
            for limit, status in zip(limits, statuses, strict=True)
            if limit is not None and limit.quota
        ]
        return any(plain) or (bool(quotas) and all(quotas)), statuses

    def _key(self, limit: Limit | None, now_s: int) -> tuple[object, ...]:
        if limit is None or limit.unlimited:
            return ()
        return (self.domain, limit.identity, limit.unit, now_s // SECONDS[limit.unit])

    def _one(
        self,
        limit: Limit | None,
        key: tuple[object, ...],
        weight: int,
        take: int,
        now_s: int,
        known: bool,
    ) -> Status:
        if limit is None:
            return NOTHING
        if limit.unlimited:
            return UNLIMITED
        seconds = SECONDS[limit.unit]
        stats = self.stats.setdefault(limit.stats, Counter())
        stats["total_hits"] += weight
        wire_limit = (limit.allowed, NUMBERS[limit.unit], limit.name)
        reset_s = seconds - now_s % seconds
        near = int(limit.allowed * 0.8)
        if self.cache and known:
            over, left = True, 0
            stats["over_limit"] += weight
            stats["over_limit_with_local_cache"] += weight
        else:
            self.counts[key] += take
            after = self.counts[key]
            over, left = after > limit.allowed, max(limit.allowed - after, 0)
            for unit in range(after - take + 1, after + 1) if take == weight else ():
                if unit > limit.allowed:
                    stats["over_limit"] += 1
                elif unit > near:
                    stats["near_limit"] += 1
            if not over:
                stats["within_limit"] += weight
            elif self.cache:
                self.cached.add(key)
        if over and limit.shadow:
            stats["shadow_mode"] += weight
        return Status(over and not limit.shadow, wire_limit, left, reset_s)
