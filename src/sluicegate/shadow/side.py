"""Side: one rule set in a replay. A production limiter, checker and mesh, on virtual time.

What can be known of a query is worked out once, by the production code itself: which rules apply,
what they count it under, what it costs and how much it matters. After that the usual query, of one
rule, is one call of the limiter; several native rules are one judgement, decided by their tables
where nothing but tables has a say in it. Whatever is less usual (a peek, several descriptors) goes
through the checker or the mesh each time. The limiter decides in all cases, so the outcome is that
of the checker or the mesh; the tests hold both beside each other.

A decision is a code: 0 is admitted, k is refused by the k-th rule of the query, -1 is invalid.

Bounds: the limiter has room for every counter of the capture, so nothing is forgotten for want of
room, whatever the order in which a dict keeps its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast, final

from sluicegate.contracts.checks import CheckRequest, CheckResponse, MeshRequest, MeshResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.store import Key
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rule import RuleLike
from sluicegate.rules.mesh.descriptor_state import CounterState, state_of
from sluicegate.rules.mesh.rule import MeshRule
from sluicegate.rules.mesh.service import Mesh, cost_of
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.resources.service import Checker, binding_rule, claims_of
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.shadow.replay_parts import CalmGate, DecisionLedger, VirtualClock
from sluicegate.stores.memory.joint import binding, take_all
from sluicegate.stores.memory.store import RULES_MAX_DEFAULT
from sluicegate.stores.memory.table import KeyTable, TableCharge

Query: TypeAlias = CheckRequest | MeshRequest
AnyRule: TypeAlias = ResourceRule | MeshRule

ADMIT: Final = 0
INVALID: Final = -1

# How a query is decided.
FREE: Final = 0  # no rule applies, or one without a limit
ONE: Final = 1  # one native rule
TOGETHER: Final = 2  # several
TABLES: Final = 6  # several, all simply enforced: their tables are known
DESCRIPTOR: Final = 3  # one descriptor of one limit
IN_FULL: Final = 4  # by the checker or the mesh themselves
NEVER: Final = 5  # it is invalid


@final
class PreparedQuery:
    """What is known of a query before it is decided."""

    __slots__ = (
        "_counters",
        "claims",
        "cost",
        "key",
        "part",
        "priority",
        "queries",
        "query",
        "rule",
        "rules",
        "trial",
        "way",
    )

    def __init__(self, query: Query, way: int, priority: Criticality) -> None:
        self.query = query
        self.way = way
        self.priority = priority
        self.rules: tuple[AnyRule, ...] = ()
        self._counters: tuple[tuple[int, Key], ...] = ()  # where nothing else says them
        self.key: Key = ""
        self.cost = 0
        self.rule: RuleLike = ""
        self.claims: tuple[Claim, ...] = ()
        self.queries: list[TableCharge] = []
        self.part: CounterState | None = None
        self.trial = False

    def counters(self) -> Sequence[tuple[int, Key]]:
        """What it is counted under: the place of the rule, and the key."""
        if self.way == ONE:
            return ((0, self.key),)
        if self.claims:
            return [(at, claim.key) for at, claim in enumerate(self.claims)]
        return self._counters

    def keep(self, counters: Sequence[tuple[int, Key]]) -> None:
        """Have these counters."""
        self._counters = tuple(counters)


@final
class ReplaySide:
    """One rule set. `trials` counts what rules that are tried out would have refused, by query."""

    __slots__ = (
        "_book",
        "_checker",
        "_clock",
        "_ledger",
        "_limiter",
        "_mesh",
        "_rules",
        "_settings",
        "prepared",
        "trials",
    )

    def __init__(self, book: ServiceRuleSet, clock: VirtualClock, mesh: MeshSettings) -> None:
        self._book = book
        self._clock = clock
        self._settings = mesh
        self._ledger = DecisionLedger()
        self._equip(Limiter(keys_max=1, clock=clock))
        # A rule set may make a rule anew for each look-up; here one of each is enough.
        self._rules: dict[str, ResourceRule] = {}
        self.prepared: list[PreparedQuery] = []
        self.trials: dict[tuple[int, str], int] = {}

    def _equip(self, limiter: Limiter) -> None:
        gate, book = CalmGate(), self._book
        self._limiter = limiter
        self._checker = Checker(limiter, gate, self._ledger, book=book.resources)
        self._mesh = Mesh(limiter, gate, self._ledger, settings=self._settings, book=book.mesh)

    def begin(self) -> None:
        """After the last `prepare`: make a limiter with room for all that the queries count."""
        counters = {key for found in self.prepared for _, key in found.counters()}
        rules = self._book.rules
        limiter = Limiter(
            rules=rules,
            keys_max=max(1, len(counters)),
            rules_max=max(RULES_MAX_DEFAULT, len(rules)),
            clock=self._clock,
        )
        self._equip(limiter)
        for found in self.prepared:
            if found.way == TOGETHER:
                tables = [limiter.keys_of(claim.rule) for claim in found.claims]
                if all(isinstance(table, KeyTable) for table in tables):
                    found.way = TABLES
                    found.queries = [
                        TableCharge(cast("KeyTable[Any]", table), claim.key, found.cost)
                        for table, claim in zip(tables, found.claims, strict=True)
                    ]

    def prepare(self, query: Query) -> PreparedQuery:
        """Add the next query; it is known by its place from now on."""
        if isinstance(query, CheckRequest):
            found = self._native(query)
        else:
            found = self._envoy(query)
        self.prepared.append(found)
        return found

    def decide(self, place: int, now_us: int) -> int:
        """Decide and count; the clock stands there already."""
        found = self.prepared[place]
        way = found.way
        if way == ONE:
            decision = self._limiter.take(found.key, found.cost, found.rule)
            if not decision.allowed:
                return 1
            if decision.reason is not None:
                self._count_trial(place, found.rules[0].rule_id)
            return ADMIT
        if way == DESCRIPTOR:
            part = found.part
            assert part is not None
            part.decision = self._limiter.take(part.key, part.cost, found.rule)
            part.settle()
            if not part.over:
                return ADMIT
            if not found.trial:
                return 1
            self._count_trial(place, found.rules[0].rule_id)
            return ADMIT
        if way == FREE:
            return ADMIT
        if way == TABLES:
            decisions = take_all(found.queries, now_us)
            for decision in decisions:
                if not decision.allowed:
                    return decisions.index(binding(decisions)) + 1
            return ADMIT
        if way == TOGETHER:
            return self._together(place, found)
        if way == IN_FULL:
            return self._in_full(place, found, now_us)
        return INVALID

    # Preparation.

    def _native(self, query: CheckRequest) -> PreparedQuery:
        try:
            resolved = self._checker.resolve(query)
        except BadValue:
            return PreparedQuery(query, NEVER, Criticality.DEGRADED)
        rules = tuple([self._rules.setdefault(rule.rule_id, rule) for rule in resolved.rules])
        found = PreparedQuery(query, ONE, resolved.priority)
        found.rules = rules
        keys = [rule.key(resolved.user, resolved.path) for rule in rules]
        found.trial = any(rule.kind.shadow for rule in rules)
        if not rules:
            found.way = FREE
        elif query.cost == 0:
            found.way = IN_FULL
            found.keep([*enumerate(keys)])
        elif len(rules) == 1:
            found.key, found.cost, found.rule = keys[0], resolved.cost, rules[0].kind.shared_id
        else:
            found.way, found.cost = TOGETHER, resolved.cost
            found.claims = tuple(claims_of(query, resolved))
        return found

    def _envoy(self, query: MeshRequest) -> PreparedQuery:
        mesh, settings = self._mesh, self._mesh.settings
        book, descriptors = mesh.book, query.descriptors
        assert book is not None
        if not query.domain or not 0 < len(descriptors) <= settings.descriptors_max:
            return PreparedQuery(query, NEVER, settings.priority)
        try:
            matches = mesh.rules_of(query, book)
        except BadValue:
            return PreparedQuery(query, NEVER, settings.priority)
        rules: list[MeshRule] = []
        counters: list[tuple[int, Key]] = []
        for at, rule in enumerate(matches):
            if rule is not None and not rule.form.unlimited:
                one = state_of(
                    rule, descriptors[at].entries, cost_of(descriptors[at].cost, query.cost)
                )
                counters += [(len(rules), part.key) for part in one.parts]
                rules.append(rule)
        priority = min([mesh.priority_of(rule) for rule in rules], default=settings.priority)
        found = PreparedQuery(query, IN_FULL if rules else FREE, priority)
        found.rules = tuple(rules)
        found.keep(counters)
        found.trial = any(rule.form.shadow for rule in rules)
        if len(descriptors) == 1 and rules and self._is_short(query, rules[0]):
            found.way = DESCRIPTOR
            found.part = one.parts[0]
            found.rule = one.parts[0].counting.rule
        return found

    def _is_short(self, query: MeshRequest, rule: MeshRule) -> bool:
        """Whether nothing but the limiter has a say in it, as the mesh itself sees it."""
        descriptor, counting, settings = query.descriptors[0], rule.form.only, self._mesh.settings
        if counting is None or counting.blocks or descriptor.override is not None:
            return False
        if settings.global_shadow or settings.local_cache_max:
            return False
        return cost_of(descriptor.cost, query.cost) > 0

    # Decisions.

    def _together(self, place: int, found: PreparedQuery) -> int:
        judgement = self._limiter.judge(*found.claims)
        if judgement.decision.allowed:
            if found.trial:
                # Decisions come in the order of the rules, those that are tried out last.
                for at, counted in enumerate(judgement.decisions):
                    if counted.decision.shadow and counted.decision.reason is not None:
                        self._count_trial(place, found.rules[at].rule_id)
            return ADMIT
        rules = cast("tuple[ResourceRule, ...]", found.rules)
        return self._place_of(found, binding_rule(judgement, rules).rule_id)

    def _in_full(self, place: int, found: PreparedQuery, now_us: int) -> int:
        query, ledger = found.query, self._ledger
        ledger.begin()
        try:
            if isinstance(query, CheckRequest):
                decision = cast("CheckResponse", self._checker.check(query, now_us)).decision
                if decision.allowed:
                    return ADMIT
                return self._place_of(found, decision.rule_id)
            answer = cast("MeshResponse", self._mesh.should_rate_limit(query, now_us))
        except (BadValue, Unavailable):
            return INVALID
        for rule_id in ledger.trials:
            self._count_trial(place, rule_id)
        return self._place_of(found, ledger.refusing) if answer.over else ADMIT

    def _count_trial(self, place: int, rule_id: str) -> None:
        self.trials[place, rule_id] = self.trials.get((place, rule_id), 0) + 1

    def _place_of(self, found: PreparedQuery, rule_id: str) -> int:
        for at, rule in enumerate(found.rules):
            if rule.rule_id == rule_id:
                return at + 1
        return 1
