"""Captures and rulebooks made by hand, small enough to know the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import ALL, UNKNOWN, CapturedTraffic

BEGAN_US = 1_700_000_000_000_000  # at the edge of a window of 1 s, 10 s and 100 s
SECOND_US = 1_000_000


def captured(
    requests: Iterable[tuple[float, Query]],
    *,
    share: int = ALL,
    lost: int = 0,
    outcomes: Sequence[int] | None = None,
) -> CapturedTraffic:
    """A capture of what was asked so many seconds after the beginning."""
    made = CapturedTraffic(share=share)
    made.lost = lost
    places: dict[int, int] = {}
    for number, (at_s, query) in enumerate(requests):
        place = places.get(id(query))
        if place is None:
            place = places[id(query)] = len(made.queries)
            made.queries.append(query)
            made.entities.append(entity_of(query))
        made.at_us.append(BEGAN_US + round(at_s * SECOND_US))
        made.which.append(place)
        made.outcomes.append(UNKNOWN if outcomes is None else outcomes[number])
    return made


def entity_of(query: Query) -> str:
    """Whose work it is."""
    if isinstance(query, CheckRequest):
        return query.user_id
    return (
        f"{query.domain}/{'='.join(query.descriptors[0].entries[0])}" if query.descriptors else ""
    )


def check(
    user: str, path: str = "/play", *, weight: int = 1, claim: Criticality | None = None
) -> CheckRequest:
    """Asked of the native half."""
    return CheckRequest(user, path, cost=weight, priority=claim)


def critical(user: str, path: str = "/play") -> CheckRequest:
    """Work that claims to be CRITICAL."""
    return check(user, path, claim=Criticality.CRITICAL)


def mesh(
    *several: Sequence[tuple[str, str]],
    hits: int = 0,
    own: int = -1,
    override: Override | None = None,
) -> MeshRequest:
    """Asked as a mesh does."""
    return MeshRequest(
        "shop", [Descriptor(tuple(one), cost=own, override=override) for one in several], hits
    )


def native(*rules: Mapping[str, object], **top: object) -> dict[str, bytes]:
    """A rulebook of our own format; everybody of `callers` may claim what it says."""
    return {"own.yaml": json.dumps({"version": 1, "rules": [*rules], **top}).encode()}


def limit(rule_id: str, count: int, window_s: int = 10, **more: object) -> dict[str, object]:
    """A rule that counts in fixed windows, unless it says otherwise."""
    return {
        "rule_id": rule_id,
        "limit": count,
        "window_seconds": window_s,
        "algorithm": "fixed_window",
        **more,
    }


def vips(*names: str, **more: object) -> dict[str, object]:
    """The table of callers that lets these claim CRITICAL."""
    return {"names": dict.fromkeys(names, "CRITICAL"), **more}


def envoy(*descriptors: Mapping[str, object]) -> dict[str, bytes]:
    """A rulebook of a mesh's format."""
    return {"shop.yaml": json.dumps({"domain": "shop", "descriptors": [*descriptors]}).encode()}


def rules(files: Mapping[str, bytes], **more: object) -> ReplayRules:
    """A rulebook, compiled."""
    return ReplayRules(files, **more)  # type: ignore[arg-type]
