"""Guard of a rulebook: judges arrivals by the rules in force, for the doors of an application.

    guard = RulebookGuard(Limiter())
    follower = Follower(store, guard.put_in_force, ...)
    app = LimitMiddleware(app, guard, user=user_of)

Quotas by caller, rules by path, penalties and canaries are those that a limiter would decide by.
The caller is who has been authenticated, or else an address. What is counted stays where a rule
does. Until rules are in force none is about any arrival: start the follower before the service.

Bounds: those of the rules and of the limiter, whose named rules these become.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.resources.paths import Rules
from sluicegate.rules.resources.service import binding_rule, claims_of, resolve

_CLAIM: Final = "x-sluicegate-criticality"


@final
class RulebookGuard:
    """A `contracts.guard.Guard` over the books of a follower."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._books: FleetBooks | None = None

    def put_in_force(self, books: FleetBooks) -> None:
        """Judge by these books from now on."""
        self._limiter.replace_rules(books.rules_beside(self._books))
        self._books = books

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now; None if no rule is about it."""
        claims, rules = self._claims(arrival)
        return _named(self._limiter.judge(*claims), rules) if rules else None

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """`judge`, for asyncio."""
        claims, rules = self._claims(arrival)
        return _named(await self._limiter.ajudge(*claims), rules) if rules else None

    def _claims(self, arrival: Arrival) -> tuple[list[Claim], Rules]:
        books = self._books
        if books is None:
            return [], ()
        caller = arrival.user() or arrival.address()
        request = CheckRequest(
            caller, arrival.path, headers=_Headers(arrival), priority=_claimed(arrival)
        )
        resolved = resolve(books.book_for(caller).resources, request)
        return claims_of(request, resolved), resolved.rules


def _claimed(arrival: Arrival) -> Criticality | None:
    """The class that is claimed; whoever serves the request refuses a claim that is none."""
    text = arrival.header(_CLAIM)
    try:
        return parse_criticality(text, field=_CLAIM) if text else None
    except BadValue:
        return None


def _named(judgement: Judgement, rules: Rules) -> Judgement:
    """The same by the names of the rules, where the limiter has those of shared limits."""
    bound = judgement.decision.with_rule(binding_rule(judgement, rules).rule_id)
    left = list(rules)
    named: list[RuleDecision] = []
    for one in judgement.decisions:
        rule = next(rule for rule in left if rule.kind.shared_id == one.name)
        left.remove(rule)
        named.append(RuleDecision(rule.rule_id, one.limit, one.decision.with_rule(rule.rule_id)))
    return Judgement(bound, named)


@final
class _Headers(Mapping[str, str]):
    """The headers of an arrival, each looked for when it is asked for."""

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
