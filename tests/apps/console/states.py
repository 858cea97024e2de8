"""States of services as they answer them, made by hand, and nodes that have been looked at."""

from __future__ import annotations

from typing import Any

from sluicegate.apps.console.fleet import Node
from sluicegate.apps.console.picture import CLASSES, FleetPicture, picture_of
from sluicegate.command_line.service_client import ServiceAddress

START_US = 1_000_000_000_000_000
SECOND_US = 1_000_000
BOUNDS_US = (1_000, 10_000, 100_000)


def dispatcher(at_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """A dispatcher's state; `more` are fields of its board."""
    board = {
        "version": 1,
        "at_us": START_US + round(at_s * SECOND_US),
        "node": "kv-1",
        "classes": [{"class": name, "admitted": 0, "refused": 0} for name in CLASSES],
        **more,
    }
    return {"app": "kv", "version": "1.0", "up_us": SECOND_US, "board": board}


def slow_shard(shard: str, ratio: float, waiting: int = 0) -> dict[str, Any]:
    """A shard of a board on which gets take longer than usual."""
    return {
        "shard": shard,
        "operation": "get",
        "ratio": ratio,
        "waiting": waiting,
        "limit": 12,
        "origin": "found",
    }


def done(**classes: int) -> dict[str, Any]:
    """What was done, a number by class, all of it within a millisecond."""
    counts = {name: [number, 0, 0, 0] for name, number in classes.items()}
    return {"bounds_us": BOUNDS_US, "classes": counts}


def limiter(at_s: float = 0.0, utilization: float = 0.1, **classes: Any) -> dict[str, Any]:
    """A limiter's state; of each class its outcomes."""
    return {
        "app": "limiter",
        "version": "1.0",
        "at_us": START_US + round(at_s * SECOND_US),
        "up_us": SECOND_US,
        "decisions": classes,
        "gate": {"utilization": utilization, "worst": "cpu", "shares": [0.0, 0.0, 0.0, 0.0]},
    }


def account(name: str, factor: float = 0.0, **more: Any) -> dict[str, Any]:
    """What a pub/sub node says of an account."""
    period = {"used": 95, "nominal": 100, "restricted_at": 250}
    return {
        "account": name, "attempted": 0, "admitted": 0, "factor": factor, "per_s": 100,
        "master": "n1", "heard_us": 40_000, "usage": {"hour": period, "month": period},
        "warnings": [{"limit": "hour"}], **more,
    }  # fmt: skip


def pubsub(at_s: float = 0.0, *accounts: dict[str, Any], **node: int) -> dict[str, Any]:
    """A pub/sub node's state, and of its `accounts`; `node` are counts of all of them."""
    names = ("admitted", "suppressed", "fused", "accounts", "suppressed_accounts", "untracked")
    return {
        "app": "pubsub",
        "at_us": START_US + round(at_s * SECOND_US),
        "accounts": {
            "node": {name: node.get(name, 0) for name in names},
            "master": dict.fromkeys(("accounts", "nodes", "untracked"), 1),
        },
        "cluster": {
            "at_us": START_US + round(at_s * SECOND_US),
            "node": "n1",
            "members": ["n1", "n2"],
            "failing": {},
            "accounts": list(accounts),
        },
    }


def looked(
    before: dict[str, Any] | None, now: dict[str, Any] | None, url: str = "http://node:1"
) -> Node:
    """A node, after two looks."""
    node = Node(ServiceAddress(url), timeout_s=1.0)
    node.before, node.now = before, now
    node.error = "" if now is not None else "connection refused"
    return node


def pictured(*nodes: Node) -> FleetPicture:
    """The picture of these nodes."""
    return picture_of(nodes, START_US)
