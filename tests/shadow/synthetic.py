"""Synthetic traffic, to try and to measure with.

A few entities send most of it, as in life: the n-th as often as 1 / n^alpha. Each sends the
same handful of things, in all four classes, at instants that are independent of each other. The
same seed makes the same capture to the byte, everywhere: the draws are bits of a hash.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import shake_128
from itertools import accumulate
from math import log
from typing import Final, NamedTuple

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT, NAME_HEADER_DEFAULT
from sluicegate.shadow.entities import entity_of
from sluicegate.shadow.traffic import ADMITTED, ALL, REFUSED, CapturedTraffic

BEGIN_US: Final = 1_700_000_000_000_000
ENTITIES_MAX: Final = 10_000_000
REQUESTS_MAX: Final = 1_000_000_000
DOMAIN: Final = "made"
CLIENT_TYPES: Final = ("mobile", "web", "tv")
_DRAWS_AT_ONCE: Final = 1 << 15
_TWO_53: Final = float(1 << 53)


class SyntheticOperation(NamedTuple):
    """One operation of every caller, so many times of a hundred."""

    name: str
    path: str  # `{}` is the caller
    priority: Criticality
    percent: int


OPERATIONS: Final = (
    SyntheticOperation("playback", "/api/v1/playback", Criticality.CRITICAL, 20),
    SyntheticOperation("search", "/api/v1/search", Criticality.DEGRADED, 25),
    SyntheticOperation("orders", "/users/{}/orders", Criticality.DEGRADED, 15),
    SyntheticOperation("recommend", "/api/v1/recommendations", Criticality.BEST_EFFORT, 25),
    SyntheticOperation("logs", "/api/v1/logs", Criticality.BULK, 15),
)


def synthetic_traffic(
    requests: int,
    *,
    seed: int = 0,
    entities: int = 10_000,
    alpha: float = 1.0,
    per_s: float = 1_000.0,
    begin_us: int = BEGIN_US,
    claims: bool = True,
    mesh: int = 0,
    refused: int = 0,
) -> CapturedTraffic:
    """So many requests, `per_s` of them in a second.

    With `claims` callers say how much it matters, else only the request's name does. Of 10,000
    entities `mesh` come as from a mesh, by domain, tenant and path; of 10,000 requests `refused`
    were turned away.
    """
    _check(requests, entities, alpha, per_s, mesh, refused)
    traffic = CapturedTraffic()
    sums = list(accumulate(1.0 / n**alpha for n in range(1, entities + 1)))
    edges = list(accumulate(one.percent / 100 for one in OPERATIONS))
    numbers: dict[int, int] = {}
    draw = _draws(seed).__next__
    at, gap, most, last = float(begin_us), -1e6 / per_s, sums[-1], entities - 1
    turned_away = refused / ALL
    for _ in range(requests):
        at += gap * log(1.0 - draw())
        entity = min(bisect_right(sums, draw() * most), last)
        chance = draw()
        operation = min(bisect_right(edges, chance), len(edges) - 1)
        place = entity * len(OPERATIONS) + operation
        number = numbers.get(place)
        if number is None:
            number = numbers[place] = len(traffic.queries)
            query = _query(entity, OPERATIONS[operation], claims=claims, mesh=mesh)
            traffic.queries.append(query)
            traffic.entities.append(entity_of(query))
        traffic.at_us.append(int(at))
        traffic.which.append(number)
        traffic.outcomes.append(REFUSED if turned_away and draw() < turned_away else ADMITTED)
    return traffic


def _query(
    entity: int, operation: SyntheticOperation, *, claims: bool, mesh: int
) -> CheckRequest | MeshRequest:
    # Spread over all, so that the heaviest are not all of one kind.
    if entity * 6_151 % ALL < mesh:
        path = operation.path.format("any")
        return MeshRequest(DOMAIN, [Descriptor([("tenant", f"tenant-{entity}"), ("path", path)])])
    user = f"user-{entity}"
    headers = {
        CLIENT_TYPE_HEADER_DEFAULT: CLIENT_TYPES[entity % len(CLIENT_TYPES)],
        NAME_HEADER_DEFAULT: operation.name,
    }
    priority = operation.priority if claims else None
    return CheckRequest(user, operation.path.format(user), headers=headers, priority=priority)


def _draws(seed: int) -> Iterator[float]:
    """Numbers from 0 up to 1: blocks of a hash's output, each of its own number."""
    number = 0
    while True:
        text = f"sluicegate made {seed}/{number}".encode()
        bits = array("Q", shake_128(text).digest(8 * _DRAWS_AT_ONCE))
        if sys.byteorder == "big":
            bits.byteswap()
        for one in bits:
            yield (one >> 11) / _TWO_53
        number += 1


def _check(
    requests: int, entities: int, alpha: float, per_s: float, mesh: int, refused: int
) -> None:
    for name, value, least, most in (
        ("requests", requests, 0, REQUESTS_MAX),
        ("entities", entities, 1, ENTITIES_MAX),
        ("alpha", alpha, 0, 10),
        ("per_s", per_s, 1e-3, 1e7),
        ("mesh", mesh, 0, ALL),
        ("refused", refused, 0, ALL),
    ):
        if not least <= value <= most:
            raise BadValue(name, value, f"give a number from {least:,} to {most:,}")
