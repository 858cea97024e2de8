"""Layout: what is called how in the blob store of a fleet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sluicegate.rules.editions.documents import check_node

SNAPSHOTS: Final = "snapshots/"
DELTAS: Final = "deltas/"
EDITIONS: Final = "editions/"
ORDERS: Final = "orders/"
NODES: Final = "nodes/"
CURRENT: Final = "orders/current.json"
SWEEP: Final = "sweep.json"

_JSON: Final = ".json"


def edition_name(version: int) -> str:
    """Where an edition lies."""
    return f"{EDITIONS}{version}{_JSON}"


def orders_name(number: int) -> str:
    """Where orders lie for good."""
    return f"{ORDERS}{number}{_JSON}"


def node_name(node: str) -> str:
    """Where a node reports."""
    return f"{NODES}{check_node(node)}{_JSON}"


def within(names: Iterable[str], prefix: str) -> list[str]:
    """What the names below a prefix are for: digests, numbers, nodes."""
    return [name.removeprefix(prefix).removesuffix(_JSON) for name in names]


def numbers(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers among the names below a prefix, in order."""
    return sorted(int(one) for one in within(names, prefix) if one.isascii() and one.isdecimal())
