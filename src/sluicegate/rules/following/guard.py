"""Guard of a rulebook: judges arrivals by the rules in force, for the doors of an application.

    guard = RulebookGuard(Limiter())
    follower = Follower(store, guard.put_in_force, ...)
    app = LimitMiddleware(app, guard, user=user_of)

Quotas by caller, rules by path, penalties and canaries are those that a limiter would decide by.
The caller is who has been authenticated, or else an address. What is counted stays where a rule
does. Until rules are in force none is about any arrival: start the follower before the service, and
give it `counts=guard.counts`, so that its reports say what a canary's quotas refuse.

Bounds: those of the rules and of the limiter, whose named rules these become.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.release_counts import DecisionCounts, release_counts
from sluicegate.rules.resources.paths import Rules
from sluicegate.rules.resources.service import binding_rule, claims_of, resolve

_CLAIM: Final = "x-sluicegate-criticality"


@final
class RulebookGuard:
    """A `contracts.guard.Guard` over the books of a follower."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._books: FleetBooks | None = None
        self._live = DecisionCounts()
        self._canary = DecisionCounts()

    def put_in_force(self, books: FleetBooks) -> None:
        """Judge by these books from now on."""
        before = self._books
        self._limiter.replace_rules(books.rules_beside(before))
        if before is None or before.live_version != books.live_version:
            self._live = DecisionCounts()
        if before is None or before.canary_version != books.canary_version:
            self._canary = DecisionCounts()
        self._books = books

    def counts(self) -> Mapping[str, Sequence[int]]:
        """Decisions by release and class, how many and how many refused, for a node's reports."""
        return release_counts(self._books, self._live, self._canary)

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now; None if no rule is about it."""
        asked = self._ask(arrival)
        if asked is None or not asked.claims:
            return None
        return asked.record(self._limiter.judge(*asked.claims))

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """`judge`, for asyncio."""
        asked = self._ask(arrival)
        if asked is None or not asked.claims:
            return None
        return asked.record(await self._limiter.ajudge(*asked.claims))

    def _ask(self, arrival: Arrival) -> _Asked | None:
        books = self._books
        if books is None:
            return None
        caller = arrival.user() or arrival.address()
        request = CheckRequest(
            caller, arrival.path, headers=_Headers(arrival), priority=_claimed(arrival)
        )
        book = books.book_for(caller)
        resolved = resolve(book.resources, request)
        counts = self._live if book is books.live else self._canary
        if not resolved.rules:
            counts.record(resolved.priority, allowed=True)
        return _Asked(claims_of(request, resolved), resolved.rules, resolved.priority, counts)


class _Asked(NamedTuple):
    """What the rules of an arrival claim, and where the decision is counted."""

    claims: list[Claim]
    rules: Rules
    priority: Criticality
    counts: DecisionCounts

    def record(self, judgement: Judgement) -> Judgement:
        self.counts.record(self.priority, allowed=judgement.decision.allowed)
        return _named(judgement, self.rules)


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
