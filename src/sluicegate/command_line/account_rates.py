"""Account rates: two looks at the nodes of a pub/sub cluster make one picture of its accounts.

Pure: what nodes say in, JSON-able values out. Counts become rates by the node's own clock; a node
that restarted counts from zero, and one that was not there before has no rates yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.command_line.board_rates import per_s

_NONE: Final[Mapping[str, Any]] = {}
PERIODS: Final = ("hour", "month")
_NO_PERIOD: Final[Mapping[str, int]] = {"used": 0, "nominal": 0, "restricted_at": 0}


class NodeSample(NamedTuple):
    """What a node says under `cluster` of its state; or why there is nothing."""

    url: str
    state: Mapping[str, Any] | None
    error: str = ""


def picture_of(before: Sequence[NodeSample], after: Sequence[NodeSample]) -> dict[str, Any]:
    """What the accounts do over all nodes, between these two looks."""
    earlier = {sample.url: sample.state for sample in before}
    accounts: dict[str, dict[str, Any]] = {}
    for sample in after:
        if sample.state is None:
            continue
        old = earlier.get(sample.url)
        seen = {} if old is None else {one["account"]: one for one in old["accounts"]}
        for one in sample.state["accounts"]:
            _add(accounts, one, seen.get(one["account"], _NONE), old, sample.state)
    return {
        "nodes": [_node(sample) for sample in after],
        "accounts": sorted(
            (_finished(one) for one in accounts.values()),
            key=lambda one: (-one["attempted"], one["account"]),
        ),
    }


def _add(
    accounts: dict[str, dict[str, Any]],
    one: Mapping[str, Any],
    old: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
) -> None:
    found = accounts.setdefault(
        one["account"],
        {
            "account": one["account"],
            "attempted": 0.0,
            "admitted": 0.0,
            "limit": 0,
            "masters": set(),
            "age_us": -1,
            "factor": 0.0,
            "weighed": 0.0,
            "hour": _NO_PERIOD,
            "month": _NO_PERIOD,
            "warnings": [],
        },
    )
    attempted = per_s(before, after, old.get("attempted", 0), one["attempted"])
    found["attempted"] += attempted
    found["admitted"] += per_s(before, after, old.get("admitted", 0), one["admitted"])
    found["limit"] = max(found["limit"], one["per_s"])
    found["factor"] = max(found["factor"], one["factor"])
    found["weighed"] += attempted * one["factor"]
    # Each node knows of all what its master said; the one that heard last knows most.
    for name in PERIODS:
        period = one["usage"][name]
        if period["used"] >= found[name]["used"]:
            found[name] = dict(period)
    found["warnings"] = sorted(
        {*found["warnings"], *(warned["limit"] for warned in one["warnings"])}
    )
    if one["heard_us"] >= 0:
        found["masters"].add(one["master"])
        # Of those on whom the account is: what an idle node once heard is of no account.
        if attempted or found["age_us"] < 0:
            found["age_us"] = max(found["age_us"], one["heard_us"])


def _finished(one: dict[str, Any]) -> dict[str, Any]:
    """The factor that the account meets: each node's, by what is attempted there."""
    weighed, attempted = one.pop("weighed"), one["attempted"]
    factor = weighed / attempted if attempted else one["factor"]
    return {**one, "factor": factor, "masters": sorted(one["masters"])}


def _node(sample: NodeSample) -> dict[str, Any]:
    if sample.state is None:
        return {"url": sample.url, "node": "", "error": sample.error, "failing": {}, "members": []}
    state = sample.state
    return {
        "url": sample.url,
        "node": state["node"],
        "error": "",
        "failing": dict(state["failing"]),
        "members": list(state["members"]),
    }
