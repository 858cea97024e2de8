"""Service for resources: decides requests by the rules of the native format.

In this order: the request is checked, its priority resolved, the gate sheds what matters less, the
rule set finds the rules, those that the glass is broken for are left out, the limiter counts the
others, all or none, and the ledger records the decision once. Where counts are kept in this process
a response is there at once; only a remote store makes anybody wait.

The rule set is swapped by assigning `book`. A request goes by the one in force when it came.

Cost: a look-up in the rule set and one in the limiter; nothing is allocated but the key and the
response. Bounds: the lengths of a user's name and a path, beyond which they end in a digest; the
cost, the requests of a batch, open leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.checks import (
    CheckGate,
    CheckRequest,
    CheckResponse,
    LeaseResponse,
    Ledger,
    MaybeAwaitable,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.kernels.path_index import plain_path
from sluicegate.limits.claims import Claim
from sluicegate.limits.glass.break_glass import Glass, override_decision
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
from sluicegate.rules.resources.paths import Rules
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET, ResourceRuleSet
from sluicegate.rules.unmatched import UnmatchedRequests
from sluicegate.stores.memory.joint import binding
from sluicegate.system import SystemChance
from sluicegate.wire.text import shorten

USER_CHARS_MAX: Final = 1_024
PATH_CHARS_MAX: Final = 2_048
WEIGHT_MAX_DEFAULT: Final = (1 << 32) - 1
REQUESTS_MAX_DEFAULT: Final = 1_000
NO_LIMIT: Final = -1
OF_THE_REQUEST: Final = -1


@final
class ResolvedRequest:
    """A valid request, and what applies to it: the rules, its user and its path as they see them.

    `cost` is what is counted: that of the request, or more where the caller has a penalty.
    """

    __slots__ = ("cost", "path", "priority", "rules", "user")

    def __init__(
        self, priority: Criticality, user: str, path: str, rules: Rules, cost: int
    ) -> None:
        self.cost = cost
        self.priority = priority
        self.path = path
        self.rules = rules
        self.user = user


@final
class Checker:
    """The native half of a rate-limit service, without who may ask it.

    Where `glass` is broken a rule goes by its name, and a key is a user.
    """

    __slots__ = (
        "_gate",
        "_glass",
        "_lease_us_max",
        "_leases",
        "_ledger",
        "_limiter",
        "_local",
        "_requests_max",
        "_unmatched",
        "_weight_max",
        "book",
    )

    def __init__(
        self,
        limiter: Limiter,
        gate: CheckGate,
        ledger: Ledger,
        *,
        book: ResourceRuleSet = EMPTY_RULE_SET,
        weight_max: int = WEIGHT_MAX_DEFAULT,
        requests_max: int = REQUESTS_MAX_DEFAULT,
        lease_us_max: int = LEASE_US_MAX_DEFAULT,
        leases_max: int = LEASES_MAX,
        chance: Chance | None = None,
        glass: Glass | None = None,
        unmatched: UnmatchedRequests | None = None,
    ) -> None:
        for name, binding_rule in (
            ("weight_max", weight_max),
            ("requests_max", requests_max),
            ("lease_us_max", lease_us_max),
        ):
            if binding_rule < 1:
                raise BadValue(name, binding_rule, "give a whole number, at least 1")
        if leases_max < 0:
            raise BadValue("leases_max", leases_max, "give a whole number, at least 0")
        self._limiter = limiter
        self._local = limiter.local
        self._gate = gate
        self._glass = glass
        self._ledger = ledger
        self._unmatched = unmatched
        self._weight_max = weight_max
        self._requests_max = requests_max
        self._lease_us_max = lease_us_max
        self._leases = OpenLeases(SystemChance() if chance is None else chance, leases_max)
        self.book = book

    # Check.

    def check(self, request: CheckRequest, now_us: int) -> MaybeAwaitable[CheckResponse]:
        """Decide and count; a cost of 0 only looks whether one more unit would be admitted."""
        if request.cost == 0:
            return self.peek(request, now_us)
        resolved = self.resolve(request)
        shed = self._gate.refusal(resolved.priority, resolved.user)
        if shed is not None:
            return self._record(request, resolved, None, shed, now_us)
        overridden = self._leave_out_overridden(resolved, now_us)
        rules = resolved.rules
        if not rules:
            decision = self._admit(resolved) if overridden is None else _override(overridden)
            return self._record(request, resolved, overridden, decision, now_us)
        if not self._local:
            return self._check_remote(request, resolved, now_us)
        if len(rules) == 1:
            rule = rules[0]
            key = rule.key(resolved.user, resolved.path)
            decision = self._limiter.take(key, resolved.cost, rule.kind.shared_id)
        else:
            judgement = self._limiter.judge(*claims_of(request, resolved))
            rule = binding_rule(judgement, rules)
            decision = judgement.decision
        return self._record(request, resolved, rule, decision, now_us)

    async def _check_remote(
        self, request: CheckRequest, resolved: ResolvedRequest, now_us: int
    ) -> CheckResponse:
        rules = resolved.rules
        if len(rules) == 1:
            rule = rules[0]
            key = rule.key(resolved.user, resolved.path)
            decision = await self._limiter.atake(key, resolved.cost, rule.kind.shared_id)
        else:
            judgement = await self._limiter.ajudge(*claims_of(request, resolved))
            rule = binding_rule(judgement, rules)
            decision = judgement.decision
        return self._record(request, resolved, rule, decision, now_us)

    def check_each(
        self, requests: Sequence[CheckRequest], now_us: int
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        """Decide several, each by itself, in order; if one is invalid, none is counted."""
        self.examine(requests)
        responses = [self.check(request, now_us) for request in requests]
        ready = [response for response in responses if isinstance(response, CheckResponse)]
        return ready if len(ready) == len(responses) else _all_of(responses)

    def examine(self, requests: Sequence[CheckRequest]) -> None:
        """Raise `BadValue` if one of them is invalid."""
        if len(requests) > self._requests_max:
            raise BadValue(
                "requests", len(requests), f"give at most {self._requests_max:,} (requests_max)"
            )
        for request in requests:
            self._examine(request)

    def peek(self, request: CheckRequest, now_us: int) -> MaybeAwaitable[CheckResponse]:
        """What `check` would decide if nothing is shed; nothing is counted or recorded."""
        resolved = self.resolve(request)
        overridden = self._leave_out_overridden(resolved, now_us)
        if not resolved.rules:
            if overridden is not None:
                units = overridden.kind.units
                return self._respond(resolved.priority, units, _override(overridden))
            return self._respond(resolved.priority, NO_LIMIT, _admit_unlimited())
        if not self._local:
            return self._peek_remote(request, resolved)
        cost = resolved.cost
        peeks = [
            self._limiter.peek(rule.key(resolved.user, resolved.path), cost, rule.kind.shared_id)
            for rule in resolved.rules
        ]
        return self._combine(resolved, peeks)

    async def _peek_remote(self, request: CheckRequest, resolved: ResolvedRequest) -> CheckResponse:
        cost = resolved.cost
        peeks = [
            self._limiter.apeek(rule.key(resolved.user, resolved.path), cost, rule.kind.shared_id)
            for rule in resolved.rules
        ]
        return self._combine(resolved, await asyncio.gather(*peeks))

    def _combine(self, resolved: ResolvedRequest, decisions: Sequence[Decision]) -> CheckResponse:
        """The response that these decisions amount to, each of one rule."""
        rules = resolved.rules
        decision = binding([one for one in decisions if not one.shadow] or decisions)
        rule = next(rule for rule, one in zip(rules, decisions, strict=True) if one is decision)
        decision = decision.with_rule(rule.rule_id)
        return self._respond(resolved.priority, rule.kind.units, decision)

    async def reset(self, request: CheckRequest) -> int:
        """Forget what the rules for this request have counted; how many rules."""
        resolved = self.resolve(request)
        rules = resolved.rules
        keys = [rule.key(resolved.user, resolved.path) for rule in rules]
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
        self, request: CheckRequest, units: int, now_us: int, *, holder: str = ""
    ) -> LeaseResponse:
        """Take up to so many units in advance for `holder`; the cost of the request is ignored.

        No units, though the decision is to admit: this cannot be leased now, check each.
        """
        if not 1 <= units <= self._weight_max:
            raise BadValue("units", units, f"give a whole number from 1 to {self._weight_max:,}")
        resolved = self.resolve(request)
        shed = self._gate.refusal(resolved.priority, resolved.user)
        if shed is not None:
            return LeaseResponse(
                NOT_KEPT, 0, 0, self._record(request, resolved, None, shed, now_us, units)
            )
        if self._leave_out_overridden(resolved, now_us) is not None:
            # Each is checked, so that enforcement is back when the glass is whole again.
            return LeaseResponse(NOT_KEPT, 0, 0, await _one_of(self.peek(request, now_us)))
        if not resolved.rules:
            response = self._record(request, resolved, None, self._admit(resolved), now_us, units)
            return LeaseResponse(NOT_KEPT, units, self._lease_us_max, response)
        left = units
        # What a penalty makes dear is checked each time, so that it ends when the penalty does.
        penalized = resolved.cost > (request.cost or 1)
        for rung in () if penalized else _rungs(resolved.rules, units):
            if left < rung > 1:
                continue  # more than is left
            parts, refusing, decision = await self._reserve(resolved, rung)
            if refusing is None:
                return await self._open_lease(request, resolved, rung, parts, now_us, holder)
            if rung == 1:
                response = self._record(request, resolved, refusing, decision, now_us, units)
                return LeaseResponse(NOT_KEPT, 0, 0, response)
            left = decision.remaining - refusing.kind.surcharge
        return LeaseResponse(NOT_KEPT, 0, 0, await self._peek_remote(request, resolved))

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
        self, resolved: ResolvedRequest, units: int
    ) -> tuple[list[LeasePart], ResourceRule | None, Decision]:
        """Take so many units of every rule, or of none; then which rule refused, and how."""
        parts: list[LeasePart] = []
        for rule in resolved.rules:
            key, cost = rule.key(resolved.user, resolved.path), units + rule.kind.surcharge
            reservation = await self._limiter.areserve(key, cost, rule.kind.shared_id)
            if not reservation:
                await _cancel(parts)
                return [], rule, reservation.decision
            parts.append(LeasePart(key, cost, reservation))
        return parts, None, parts[-1].reservation.decision

    async def _open_lease(
        self,
        request: CheckRequest,
        resolved: ResolvedRequest,
        units: int,
        parts: list[LeasePart],
        now_us: int,
        holder: str,
    ) -> LeaseResponse:
        """The response for units that are taken."""
        rules = resolved.rules
        decisions = [part.reservation.decision for part in parts]
        response = self._combine(resolved, decisions)
        lives_us = self._lease_us_max
        to_return: list[LeasePart] = []
        for rule, part in zip(rules, parts, strict=True):
            decision = part.reservation.decision
            if not rule.kind.shadow:
                lives_us = min(lives_us, rule.kind.lives_us(decision.reset_after_us))
            if decision.reason is None:  # what is only tried out and was refused took nothing
                to_return.append(part)
        if lives_us <= 0:
            # Admitted without having been counted, by a failure policy or by break-glass.
            await _cancel(to_return)
            return LeaseResponse(NOT_KEPT, 0, 0, response)
        self._ledger.record_decision(
            resolved.user,
            response.decision.rule_id,
            units,
            resolved.priority,
            response.decision,
            now_us,
        )
        lease = OpenLease(holder, units, now_us + lives_us, to_return)
        return LeaseResponse(self._leases.keep(lease, now_us), units, lives_us, response)

    # Inside.

    def _examine(self, request: CheckRequest) -> None:
        if not 0 <= request.cost <= self._weight_max:
            remedy = f"give a whole number from 0 to {self._weight_max:,}"
            raise BadValue("weight", request.cost, remedy)

    def resolve(self, request: CheckRequest) -> ResolvedRequest:
        """What applies to a request by the rule set in force; `BadValue` if it is invalid."""
        self._examine(request)
        return resolve(self.book, request)

    def _admit(self, resolved: ResolvedRequest) -> Decision:
        """Admit what no rule applies to."""
        if self._unmatched is not None:
            self._unmatched.note_check(resolved.path, len(self.book))
        return _admit_unlimited()

    def _leave_out_overridden(self, resolved: ResolvedRequest, now_us: int) -> ResourceRule | None:
        """Leave out the rules that the glass is broken for, and return the first of them."""
        glass = self._glass
        if glass is None or not glass.broken:
            return None
        first = None
        enforced: list[ResourceRule] = []
        for rule in resolved.rules:
            if glass.opening_for(rule.rule_id, resolved.user, now_us) is None:
                enforced.append(rule)
            elif first is None:
                first = rule
        if first is not None:
            resolved.rules = tuple(enforced)
        return first

    def _record(
        self,
        request: CheckRequest,
        resolved: ResolvedRequest,
        rule: ResourceRule | None,
        decision: Decision,
        now_us: int,
        units: int = OF_THE_REQUEST,
    ) -> CheckResponse:
        """The response, after the decision is recorded in the ledger."""
        rule_id, units_max, limit = "", NO_LIMIT, None
        if rule is not None:
            units_max, rule_id, limit = rule.kind.units, rule.rule_id, rule.kind.limit
            decision = decision.with_rule(rule_id)
        weight = request.cost if units < 0 else units
        priority = resolved.priority
        self._ledger.record_decision(
            resolved.user, rule_id, weight, priority, decision, now_us, limit
        )
        gate = self._gate
        return CheckResponse(decision, units_max, priority, gate.status(), gate.node_status())

    def _respond(self, priority: Criticality, limit: int, decision: Decision) -> CheckResponse:
        gate = self._gate
        return CheckResponse(decision, limit, priority, gate.status(), gate.node_status())


def _admit_unlimited() -> Decision:
    return Decision(True, 0, 0, 0, None, "")


def _override(rule: ResourceRule) -> Decision:
    return override_decision(rule.rule_id, rule.kind.units)


def resolve(book: ResourceRuleSet, request: CheckRequest) -> ResolvedRequest:
    """What applies to a request by these rules."""
    priorities = book.priorities
    headers = request.headers
    user = shorten(request.user_id, USER_CHARS_MAX)
    priority = priorities.settle(user, request.priority, headers)
    client_type = headers.get(priorities.client_type_header) or ""
    path = plain_path(shorten(request.resource_path, PATH_CHARS_MAX))
    rules = book.find(path, client_type, priority)
    cost = request.cost or 1
    callers = priorities.callers
    if callers.special:
        quota = callers.quotas.get(user)
        if quota is not None:
            # What is enforced stands first, as a limiter reports what it has counted.
            rules = (*rules, quota) if quota.kind.shadow else (quota, *rules)
        cost = callers.price(user, cost)
    return ResolvedRequest(priority, user, path, rules, cost)


def claims_of(request: CheckRequest, resolved: ResolvedRequest) -> list[Claim]:
    """What the rules of a request claim together."""
    return [
        Claim(rule.key(resolved.user, resolved.path), rule.kind.shared_id, resolved.cost)
        for rule in resolved.rules
    ]


def binding_rule(judgement: Judgement, rules: Rules) -> ResourceRule:
    """The rule whose decision binds; a limiter names its shared limit, in the rules' order."""
    decision = judgement.decision
    shared_id = decision.rule_id
    alike = [rule for rule in rules if rule.kind.shared_id == shared_id]
    if len(alike) > 1:
        place = 0
        for counted in judgement.decisions:
            if counted.decision is decision:
                return alike[place]
            place += counted.name == shared_id
    return alike[0]


def _rungs(rules: Rules, units: int) -> list[int]:
    """The ladder of a lease; empty where nothing can be leased."""
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


async def _all_of(responses: Sequence[MaybeAwaitable[CheckResponse]]) -> Sequence[CheckResponse]:
    """All of them, those that are still to come waited for together."""
    return await asyncio.gather(*[_one_of(response) for response in responses])


async def _one_of(response: MaybeAwaitable[CheckResponse]) -> CheckResponse:
    return response if isinstance(response, CheckResponse) else await response
