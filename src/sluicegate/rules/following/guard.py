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

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.guard import Judgement
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.arrivals import check_request, named
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.release_counts import DecisionCounts, release_counts
from sluicegate.rules.resources.service import claims_of, resolve


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
        request = check_request(arrival)
        book = books.book_for(request.user_id)
        resolved = resolve(book.resources, request)
        counts = self._live if book is books.live else self._canary
        if not resolved.rules:
            counts.record(resolved.priority, allowed=True)
        return _Asked(claims_of(request, resolved), resolved.priority, counts)


class _Asked(NamedTuple):
    """What the rules of an arrival claim, and where the decision is counted."""

    claims: list[Claim]
    priority: Criticality
    counts: DecisionCounts

    def record(self, judgement: Judgement) -> Judgement:
        self.counts.record(self.priority, allowed=judgement.decision.allowed)
        return named(judgement, self.claims)
