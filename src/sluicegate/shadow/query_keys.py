"""Query keys: a query as a plain tuple, by which it is told from others and written down.

A key holds only what may be kept: of headers those that are named, of descriptors those that carry
no secret. So what must never be written is gone before anything waits to be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.shadow.entities import holds_secret

Pairs: TypeAlias = tuple[tuple[str, str], ...]
# User, path, weight, priority claimed or -1, headers.
CheckKey: TypeAlias = tuple[str, str, int, int, Pairs]
# Pairs, hits, requests of an override and its unit or -1.
DescriptorKey: TypeAlias = tuple[Pairs, int, int, int]
# Domain, hits, descriptors.
MeshKey: TypeAlias = tuple[str, int, tuple[DescriptorKey, ...]]
QueryKey: TypeAlias = "CheckKey | MeshKey"

NO_CLAIM: Final = -1
NO_OVERRIDE: Final = -1
NO_PAIRS: Final[Pairs] = ()


def check_key(query: CheckRequest, headers: Sequence[str]) -> CheckKey:
    """The key of a check, with those of its headers that are named."""
    pairs = NO_PAIRS
    if query.headers:
        headers_given = query.headers
        pairs = tuple([(name, headers_given[name]) for name in headers if name in headers_given])
    claim = query.priority
    priority = NO_CLAIM if claim is None else int(claim)
    return query.user_id, query.resource_path, query.cost, priority, pairs


def mesh_key(query: MeshRequest) -> MeshKey:
    """The key of a mesh's request, without descriptors that carry a secret."""
    descriptors: list[DescriptorKey] = []
    for one in query.descriptors:
        if not holds_secret(one):
            pairs: Pairs = tuple([(pair[0], pair[1]) for pair in one.entries])
            over = one.override
            count, unit = NO_OVERRIDE, NO_OVERRIDE
            if over is not None:
                count, unit = over.requests_per_unit, over.unit
            descriptors.append((pairs, one.cost, count, unit))
    return query.domain, query.cost, tuple(descriptors)


def full_key(query: CheckRequest | MeshRequest) -> QueryKey:
    """The key of a query with all its headers, in the order of their names."""
    if isinstance(query, CheckRequest):
        return check_key(query, sorted(query.headers) if query.headers else ())
    return mesh_key(query)


def check_of(key: CheckKey) -> CheckRequest:
    """The check that has this key."""
    user, path, weight, priority, headers = key
    claim = None if priority == NO_CLAIM else Criticality(priority)
    return CheckRequest(user, path, headers=dict(headers), cost=weight, priority=claim)


def mesh_of(key: MeshKey) -> MeshRequest:
    """The mesh's request that has this key."""
    domain, hits, parts = key
    descriptors = [
        Descriptor(
            list(pairs),
            override=None if unit == NO_OVERRIDE else Override(count, unit),
            cost=own,
        )
        for pairs, own, count, unit in parts
    ]
    return MeshRequest(domain, descriptors, hits)
