"""Entities: whose work a query is, so that what shares a counter is captured together.

Of a check it is the user. A mesh describes a request by pairs, and a rule may count by any of them;
so the entity is the first pair that is likely to single somebody out. What a route's configuration
writes itself, as `generic_key`, is the same for everybody and says nothing. Who knows better names
the keys (`mesh_keys`): then the first pair with the first such key that a request has.

A rule that counts beyond one entity (`per: resource`, a descriptor of nothing but constants) sees
in a capture of a tenth of all entities a tenth of its traffic. No way of sampling could help that;
whoever replays must say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.shadow.secret_names import is_secret

# What Envoy's actions write of a route, and not of the caller.
ROUTE_KEYS: Final = frozenset(
    {
        "destination_cluster",
        "generic_key",
        "header_match",
        "query_match",
        "query_parameter_value_match",
        "source_cluster",
    }
)
NO_KEYS: Final[tuple[str, ...]] = ()
NOBODY: Final = ""  # nothing that may be kept says whose work it is


def entity_of(query: CheckRequest | MeshRequest, mesh_keys: Sequence[str] = NO_KEYS) -> str:
    """Whose work it is."""
    if isinstance(query, CheckRequest):
        return query.user_id
    return mesh_entity(query, mesh_keys)


def mesh_entity(query: MeshRequest, mesh_keys: Sequence[str] = NO_KEYS) -> str:
    """The domain and the pair that singles out; `NOBODY` if each descriptor has a secret."""
    for name in mesh_keys:
        for descriptor in query.descriptors:
            if not holds_secret(descriptor):
                for key, value in descriptor.entries:
                    if key == name:
                        return f"{query.domain}/{key}={value}"
    constant = NOBODY
    for descriptor in query.descriptors:
        if not holds_secret(descriptor):
            for key, value in descriptor.entries:
                if key not in ROUTE_KEYS:
                    return f"{query.domain}/{key}={value}"
                if not constant:
                    constant = f"{query.domain}/{key}={value}"
    return constant


def holds_secret(descriptor: Descriptor) -> bool:
    """Whether one of its pairs is never kept; then none of it is, for it is no rule's without."""
    for key, _ in descriptor.entries:  # noqa: SIM110 - a generator costs a compiled loop its speed
        if is_secret(key):
            return True
    return False
