"""Service: answers asks for resources by the rules of the native format.

In this order: who and what is asked is checked, the priority is settled, the gate sheds what
matters less, the book finds the rules, the limiter counts them, all or none, and the ledger is told
once what came of it. Where counts are kept in this process an answer is there at once; only a far
store makes anybody wait.

The book is swapped by assigning `book`. An ask goes by the book that was in force when it came.

Cost: a look-up in the book and one in the limiter; nothing is allocated but the key and the answer.
Bounds: the lengths of a user's name and a path, the weight, the asks of a batch, open leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    Gate,
    LeaseResponse,
    Ledger,
    MaybeAwaitable,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.resources.leases import (
    LEASE_US_MAX_DEFAULT,
    LEASES_MAX,
    NOT_KEPT,
    LeasePart,
    OpenLease,
    OpenLeases,
    ladder,
)
from sluicegate.rules.resources.paths import Rules, plain_path
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET, ResourceRuleSet
from sluicegate.stores.memory.joint import binding
from sluicegate.system import SystemChance

USER_CHARS_MAX: Final = 1_024
PATH_CHARS_MAX: Final = 2_048
WEIGHT_MAX_DEFAULT: Final = (1 << 32) - 1
ASKS_MAX_DEFAULT: Final = 1_000
NO_LIMIT: Final = -1
OF_THE_ASK: Final = -1


@final
class Settled:
    """An ask that may be asked, and what applies to it: the rules, and its path as they see it.

    `cost` is what is counted: the weight, or more where the caller has a penalty.
    """

    __slots__ = ("cost", "path", "priority", "rules")

    def __init__(self, priority: Criticality, path: str, rules: Rules, cost: int) -> None:
        self.cost = cost
        self.priority = priority
        self.path = path
        self.rules = rules


@final
class Checker:
    """The native half of a rate-limit service, without who may ask it."""

    __slots__ = (
        "_asks_max",
        "_gate",
        "_lease_us_max",
        "_leases",
        "_ledger",
        "_limiter",
        "_local",
        "_weight_max",
        "book",
    )

    def __init__(
        self,
        limiter: Limiter,
        gate: Gate,
        ledger: Ledger,
        *,
        book: ResourceRuleSet = EMPTY_RULE_SET,
        weight_max: int = WEIGHT_MAX_DEFAULT,
        asks_max: int = ASKS_MAX_DEFAULT,
        lease_us_max: int = LEASE_US_MAX_DEFAULT,
        leases_max: int = LEASES_MAX,
        chance: Chance | None = None,
    ) -> None:
        for name, bound in (
            ("weight_max", weight_max),
            ("asks_max", asks_max),
            ("lease_us_max", lease_us_max),
        ):
            if bound < 1:
                raise BadValue(name, bound, "give a whole number, at least 1")
        if leases_max < 0:
            raise BadValue("leases_max", leases_max, "give a whole number, at least 0")
        self._limiter = limiter
        self._local = limiter.local
        self._gate = gate
        self._ledger = ledger
        self._weight_max = weight_max
        self._asks_max = asks_max
        self._lease_us_max = lease_us_max
        self._leases = OpenLeases(SystemChance() if chance is None else chance, leases_max)
        self.book = book

    # Check.

    def check(self, ask: CheckRequest, now_us: int) -> MaybeAwaitable[CheckResponse]:
        """Decide and count; a weight of 0 only looks whether one more unit would be admitted."""
        if ask.cost == 0:
            return self.peek(ask, now_us)
        settled = self.settle(ask)
        shed = self._gate.refusal(settled.priority, ask.user_id)
        if shed is not None:
            return self._told(ask, settled, None, shed, now_us)
        rules = settled.rules
        if not rules:
            return self._told(ask, settled, None, _unlimited(), now_us)
        if not self._local:
            return self._check_far(ask, settled, now_us)
        if len(rules) == 1:
            rule = rules[0]
            key = rule.key(ask.user_id, settled.path)
            decision = self._limiter.take(key, settled.cost, rule.kind.shared_id)
        else:
            judgement = self._limiter.judge(*claims_of(ask, settled))
            rule = bound(judgement, rules)
            decision = judgement.decision
        return self._told(ask, settled, rule, decision, now_us)

    async def _check_far(self, ask: CheckRequest, settled: Settled, now_us: int) -> CheckResponse:
        rules = settled.rules
        if len(rules) == 1:
            rule = rules[0]
            key = rule.key(ask.user_id, settled.path)
            decision = await self._limiter.atake(key, settled.cost, rule.kind.shared_id)
        else:
            judgement = await self._limiter.ajudge(*claims_of(ask, settled))
            rule = bound(judgement, rules)
            decision = judgement.decision
        return self._told(ask, settled, rule, decision, now_us)

    def check_each(
        self, asks: Sequence[CheckRequest], now_us: int
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        """Decide several, each by itself, in order; if one cannot be asked, none is counted."""
        self.examine(asks)
        answers = [self.check(ask, now_us) for ask in asks]
        ready = [answer for answer in answers if isinstance(answer, CheckResponse)]
        return ready if len(ready) == len(answers) else _all_of(answers)

    def examine(self, asks: Sequence[CheckRequest]) -> None:
        """A `BadValue` if one of them cannot be asked."""
        if len(asks) > self._asks_max:
            raise BadValue("asks", len(asks), f"give at most {self._asks_max:,} (asks_max)")
        for ask in asks:
            self._examine(ask)

    def peek(self, ask: CheckRequest, now_us: int) -> MaybeAwaitable[CheckResponse]:
        """What `check` would answer if nothing is shed; nothing is counted, nobody is told."""
        settled = self.settle(ask)
        if not settled.rules:
            return self._answer(settled.priority, NO_LIMIT, _unlimited())
        if not self._local:
            return self._peek_far(ask, settled)
        cost = settled.cost
        looks = [
            self._limiter.peek(rule.key(ask.user_id, settled.path), cost, rule.kind.shared_id)
            for rule in settled.rules
        ]
        return self._looked(settled, looks)

    async def _peek_far(self, ask: CheckRequest, settled: Settled) -> CheckResponse:
        cost = settled.cost
        looks = [
            self._limiter.apeek(rule.key(ask.user_id, settled.path), cost, rule.kind.shared_id)
            for rule in settled.rules
        ]
        return self._looked(settled, await asyncio.gather(*looks))

    def _looked(self, settled: Settled, decisions: Sequence[Decision]) -> CheckResponse:
        """The answer that these decisions amount to, each of one rule."""
        rules = settled.rules
        decision = binding([one for one in decisions if not one.shadow] or decisions)
        rule = next(rule for rule, one in zip(rules, decisions, strict=True) if one is decision)
        decision = self._named(decision, rule.rule_id)
        return self._answer(settled.priority, rule.kind.units, decision)

    async def reset(self, ask: CheckRequest) -> int:
        """Forget what the rules for this ask have counted; how many rules."""
        settled = self.settle(ask)
        rules = settled.rules
        keys = [rule.key(ask.user_id, settled.path) for rule in rules]
        self._leases.void({*keys})
        for rule, key in zip(rules, keys, strict=True):
            await self._limiter.areset(key, rule.kind.shared_id)
        self._leases.void({*keys})  # those that were taken meanwhile
        return len(rules)

    # Lease.

    @property
    def leases_open(self) -> int:
        """How many leases may still be given back, those that have just ended included."""
        return len(self._leases)

    async def lease(
        self, ask: CheckRequest, units: int, now_us: int, *, holder: str = ""
    ) -> LeaseResponse:
        """Take up to so many units in advance for `holder`; the weight of the ask says nothing.

        No units, though the decision is to admit: this cannot be leased now, ask for each.
        """
        if not 1 <= units <= self._weight_max:
            raise BadValue("units", units, f"give a whole number from 1 to {self._weight_max:,}")
        settled = self.settle(ask)
        shed = self._gate.refusal(settled.priority, ask.user_id)
        if shed is not None:
            return LeaseResponse(
                NOT_KEPT, 0, 0, self._told(ask, settled, None, shed, now_us, units)
            )
        if not settled.rules:
            answer = self._told(ask, settled, None, _unlimited(), now_us, units)
            return LeaseResponse(NOT_KEPT, units, self._lease_us_max, answer)
        left = units
        # What a penalty makes dear is asked for each time, so that it ends when the penalty does.
        penalized = settled.cost > (ask.cost or 1)
        for rung in () if penalized else _rungs(settled.rules, units):
            if left < rung > 1:
                continue  # no use in asking for more than was said to be there
            parts, refusing, decision = await self._reserve(ask.user_id, settled, rung)
            if refusing is None:
                return await self._leased(ask, settled, rung, parts, now_us, holder)
            if rung == 1:
                answer = self._told(ask, settled, refusing, decision, now_us, units)
                return LeaseResponse(NOT_KEPT, 0, 0, answer)
            left = decision.remaining - refusing.kind.surcharge
        return LeaseResponse(NOT_KEPT, 0, 0, await self._peek_far(ask, settled))

    async def give_back(self, lease_id: str, units: int, now_us: int, *, holder: str = "") -> int:
        """Give back what was not spent; how much was accepted, 0 if the lease is void."""
        if units < 0:
            raise BadValue("units", units, "give a whole number, 0 or more")
        lease = self._leases.end(lease_id, holder, now_us)
        if lease is None:
            return 0
        back = min(units, lease.units)
        for part in lease.parts:
            await part.reservation.asettle(part.cost - back)
        return back

    async def _reserve(
        self, user_id: str, settled: Settled, units: int
    ) -> tuple[list[LeasePart], ResourceRule | None, Decision]:
        """Take so many units of every rule, or of none; then which rule refused, and how."""
        parts: list[LeasePart] = []
        for rule in settled.rules:
            key, cost = rule.key(user_id, settled.path), units + rule.kind.surcharge
            reservation = await self._limiter.areserve(key, cost, rule.kind.shared_id)
            if not reservation:
                await _cancel(parts)
                return [], rule, reservation.decision
            parts.append(LeasePart(key, cost, reservation))
        return parts, None, parts[-1].reservation.decision

    async def _leased(
        self,
        ask: CheckRequest,
        settled: Settled,
        units: int,
        parts: list[LeasePart],
        now_us: int,
        holder: str,
    ) -> LeaseResponse:
        """The answer for units that are taken."""
        rules = settled.rules
        decisions = [part.reservation.decision for part in parts]
        answer = self._looked(settled, decisions)
        lives_us = self._lease_us_max
        kept: list[LeasePart] = []
        for rule, part in zip(rules, parts, strict=True):
            decision = part.reservation.decision
            if not rule.kind.shadow:
                lives_us = min(lives_us, rule.kind.lives_us(decision.reset_after_us))
            if decision.reason is None:  # what is only tried out and was refused took nothing
                kept.append(part)
        if lives_us <= 0:
            # Admitted without having been counted, as a failure policy or a broken glass does.
            await _cancel(kept)
            return LeaseResponse(NOT_KEPT, 0, 0, answer)
        self._ledger.record_decision(
            ask.user_id, answer.decision.rule_id, units, settled.priority, answer.decision, now_us
        )
        lease = OpenLease(holder, units, now_us + lives_us, kept)
        return LeaseResponse(self._leases.keep(lease, now_us), units, lives_us, answer)

    # Inside.

    def _examine(self, ask: CheckRequest) -> None:
        if not 1 <= len(ask.user_id) <= USER_CHARS_MAX:
            remedy = f"say whose work it is, in 1 to {USER_CHARS_MAX:,} characters"
            raise BadValue("user_id", ask.user_id, remedy)
        if len(ask.resource_path) > PATH_CHARS_MAX:
            remedy = f"give a path of up to {PATH_CHARS_MAX:,} characters"
            raise BadValue("resource_path", ask.resource_path, remedy)
        if not 0 <= ask.cost <= self._weight_max:
            remedy = f"give a whole number from 0 to {self._weight_max:,}"
            raise BadValue("weight", ask.cost, remedy)

    def settle(self, ask: CheckRequest) -> Settled:
        """What applies to an ask by the book in force; a `BadValue` if it cannot be asked."""
        self._examine(ask)
        book = self.book
        priorities = book.priorities
        headers = ask.headers
        priority = priorities.settle(ask.user_id, ask.priority, headers)
        client_type = headers.get(priorities.client_type_header) or ""
        path = plain_path(ask.resource_path)
        rules = book.find(path, client_type, priority)
        cost = ask.cost or 1
        callers = priorities.callers
        if callers.special:
            quota = callers.quotas.get(ask.user_id)
            if quota is not None:
                # What is enforced stands first, as a limiter tells what it has counted.
                rules = (*rules, quota) if quota.kind.shadow else (quota, *rules)
            cost = callers.price(ask.user_id, cost)
        return Settled(priority, path, rules, cost)

    def _told(
        self,
        ask: CheckRequest,
        settled: Settled,
        rule: ResourceRule | None,
        decision: Decision,
        now_us: int,
        units: int = OF_THE_ASK,
    ) -> CheckResponse:
        """The answer, after the ledger was told of it."""
        rule_id, units_max, limit = "", NO_LIMIT, None
        if rule is not None:
            units_max, rule_id, limit = rule.kind.units, rule.rule_id, rule.kind.limit
            decision = self._named(decision, rule_id)
        weight = ask.cost if units < 0 else units
        priority = settled.priority
        self._ledger.record_decision(
            ask.user_id, rule_id, weight, priority, decision, now_us, limit
        )
        return CheckResponse(decision, units_max, priority, self._gate.status())

    def _named(self, decision: Decision, rule_id: str) -> Decision:
        """The decision under the name of the rule; a limiter knows it by its shape."""
        return decision.with_rule(rule_id)

    def _answer(self, priority: Criticality, limit: int, decision: Decision) -> CheckResponse:
        return CheckResponse(decision, limit, priority, self._gate.status())


def _unlimited() -> Decision:
    return Decision(True, 0, 0, 0, None, "")


def claims_of(ask: CheckRequest, settled: Settled) -> list[Claim]:
    """What the rules of an ask claim together."""
    return [
        Claim(rule.key(ask.user_id, settled.path), rule.kind.shared_id, settled.cost)
        for rule in settled.rules
    ]


def bound(judgement: Judgement, rules: Rules) -> ResourceRule:
    """The rule whose decision binds; a limiter names the shape, and counts in the rules' order."""
    decision = judgement.decision
    shape = decision.rule_id
    same = [rule for rule in rules if rule.kind.shared_id == shape]
    if len(same) > 1:
        place = 0
        for counted in judgement.counted:
            if counted.decision is decision:
                return same[place]
            place += counted.name == shape
    return same[0]


def _rungs(rules: Rules, units: int) -> list[int]:
    """The ladder of a lease; empty where it cannot be leased at all."""
    most = units
    for rule in rules:
        kind = rule.kind
        if not kind.leasable:
            return []
        if not kind.shadow:
            most = min(most, kind.units - kind.surcharge)
    return ladder(units, most)


async def _cancel(parts: Sequence[LeasePart]) -> None:
    for part in parts:
        await part.reservation.acancel()


async def _all_of(answers: Sequence[MaybeAwaitable[CheckResponse]]) -> Sequence[CheckResponse]:
    """All of them, those that are still to come waited for together."""
    return await asyncio.gather(*[_one_of(answer) for answer in answers])


async def _one_of(answer: MaybeAwaitable[CheckResponse]) -> CheckResponse:
    return answer if isinstance(answer, CheckResponse) else await answer
