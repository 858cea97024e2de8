"""Arrivals under rows: an arrival of an application as a check, and decisions by names of rows.

The user of an arrival is the authenticated user, or else the address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.store import SHARED, SharedKey
from sluicegate.limits.claims import Claim

_CLAIM: Final = "x-sluicegate-criticality"


def check_request(arrival: Arrival) -> CheckRequest:
    """The check that an arrival is."""
    return CheckRequest(
        arrival.user() or arrival.address(),
        arrival.path,
        headers=_Headers(arrival),
        priority=_claimed(arrival),
    )


def named(judgement: Judgement, claims: Sequence[Claim]) -> Judgement:
    """The same by the names of the rows, where the limiter has those of shared limits."""
    names: dict[object, list[str]] = {}
    for claim in claims:
        if isinstance(claim.key, SharedKey):
            names.setdefault(claim.rule, []).append(claim.key.rule_id)
    binding = judgement.decision
    bound, decisions = binding, []
    for one in judgement.decisions:
        decision = one.decision
        if one.name in names:
            # Decisions of one shared limit come in the order of their claims.
            several = names[one.name]
            decision = decision.with_rule(several.pop(0) if len(several) > 1 else several[0])
        decisions.append(RuleDecision(decision.rule_id, one.limit, decision))
        if one.decision is binding:
            bound = decision
    return Judgement(_renamed(bound, names), decisions)


def _renamed(decision: Decision, names: Mapping[object, list[str]]) -> Decision:
    """Rename a binding decision that is not among the counted ones."""
    if decision.rule_id.startswith(SHARED) and decision.rule_id in names:
        return decision.with_rule(names[decision.rule_id][0])
    return decision


def _claimed(arrival: Arrival) -> Criticality | None:
    """Return the claimed class; the server of the request rejects an invalid claim."""
    text = arrival.header(_CLAIM)
    try:
        return parse_criticality(text, field=_CLAIM) if text else None
    except BadValue:
        return None


@final
class _Headers(Mapping[str, str]):
    """The headers of an arrival, each read on demand."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival

    def __getitem__(self, name: str) -> str:
        found = self._arrival.header(name)
        if not found:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(())  # an arrival does not tell which it has

    def __len__(self) -> int:
        return 0
