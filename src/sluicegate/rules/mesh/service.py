"""Service for a mesh: look up the rules of a request, ask the limiter, and respond as Envoy wants.

A request has several descriptors, each with a rule or none. What that means depends on the
semantics in force:

    ENVOY      each counter by itself, and what is refused is counted all the same: exactly what
               envoyproxy/ratelimit does
    SLUICEGATE   every counter or none: a refused request has taken nothing from anyone

The rule set is swapped whole: a request sees one version of it from its beginning to its end. With
counts in this process a response is there at once; one descriptor with one limit has a path of its
own, because nearly all requests are like that. Everything else is written once, as a coroutine,
which is stepped to its end where nothing in it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.checks import (
    CheckGate,
    Ledger,
    MaybeAwaitable,
    MeshRequest,
    MeshResponse,
    MeshStatus,
    Override,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.guard import RuleDecision
from sluicegate.contracts.store import SHARED, SharedKey
from sluicegate.limits.claims import Claim
from sluicegate.limits.glass.break_glass import Glass, override_decision
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.wait_lines import finish
from sluicegate.rules.mesh.descriptor_state import (
    REMAINING_UNLIMITED,
    CounterState,
    DescriptorState,
    state_of,
)
from sluicegate.rules.mesh.identity import entity_of, stats_key
from sluicegate.rules.mesh.over_limit_cache import OverLimitCache
from sluicegate.rules.mesh.overrides import Overrides
from sluicegate.rules.mesh.responses import (
    NO_LIMIT,
    limit_headers,
    mark_degraded,
    mark_stressed,
    metadata,
    shed_response,
)
from sluicegate.rules.mesh.rule import Counting, MeshRule, Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.rule_stats import RuleStats, RuleStatsTable, RuleStatsValues
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.unmatched import UnmatchedRequests

COST_MAX: Final = 1 << 53
_UNMATCHED: Final = MeshResponse(False, (NO_LIMIT,))
_UNLIMITED: Final = MeshStatus(False, None, REMAINING_UNLIMITED)


@final
class Mesh:
    """Decides requests of a mesh. `book` is the rule set in force; None is none yet.

    Where `glass` is broken a rule and a key go by the two halves of a counter's name.
    """

    __slots__ = (
        "_cache",
        "_each",
        "_gate",
        "_glass",
        "_ledger",
        "_limiter",
        "_local",
        "_overrides",
        "_short",
        "_stats_table",
        "_unmatched",
        "book",
        "domains_not_found",
        "globally_shadowed",
        "settings",
    )

    def __init__(
        self,
        limiter: Limiter,
        gate: CheckGate,
        ledger: Ledger,
        *,
        settings: MeshSettings | None = None,
        book: MeshRuleSet | None = None,
        glass: Glass | None = None,
        unmatched: UnmatchedRequests | None = None,
    ) -> None:
        self.settings: Final = settings or MeshSettings()
        self.book = book
        self.domains_not_found = 0
        self.globally_shadowed = 0
        self._limiter: Final = limiter
        self._gate: Final = gate
        self._glass: Final = glass
        self._ledger: Final = ledger
        self._unmatched: Final = unmatched
        self._local: Final = limiter.local
        self._each: Final = self.settings.semantics is Semantics.ENVOY
        self._cache: OverLimitCache | None = None
        if self._each and self.settings.local_cache_max:
            self._cache = OverLimitCache(self.settings.local_cache_max)
        self._short: Final = self._cache is None and not self.settings.global_shadow
        self._overrides: Final = Overrides(self.settings.semantics, self.settings.overrides_max)
        self._stats_table: Final = RuleStatsTable(self.settings.tallies_max)

    def stats(self) -> list[RuleStatsValues]:
        """Return the statistics of each rule."""
        return self._stats_table.now()

    def should_rate_limit(self, request: MeshRequest, now_us: int) -> MaybeAwaitable[MeshResponse]:
        """Decide and count; at once if counts are kept in this process."""
        book, descriptors = self.book, request.descriptors
        if not request.domain:
            raise BadValue("domain", request.domain, "rate limit domain must not be empty")
        count = len(descriptors)
        if count == 0:
            raise BadValue("descriptors", [], "rate limit descriptor list must not be empty")
        if book is None:
            raise Unavailable("the rulebook", "no rate limit configuration loaded")
        if count == 1 and self._is_short() and descriptors[0].override is None:
            descriptor = descriptors[0]
            index = book.index(request.domain)
            if index is None:
                self.domains_not_found += 1
                rule = None
            else:
                rule = index.find(descriptor.entries)
            if rule is None:
                return self._respond_unmatched(request)
            cost = cost_of(descriptor.cost, request.cost)
            counting = rule.form.only
            if counting is not None and cost > 0 and not counting.blocks:
                entity = entity_of(rule.form, descriptor.entries)
                refusal = None
                if self._sheds(rule):
                    refusal = self._gate.refusal(self.priority_of(rule), entity)
                if refusal is not None:
                    return self._shed(
                        request, refusal, [rule], [DescriptorState(rule, entity, cost)], now_us
                    )
                part = CounterState(counting, SharedKey(entity, rule.rule_id), cost)
                if self._local:
                    part.decision = self._limiter.take(part.key, cost, counting.rule)
                    return self._respond_one(request, rule, entity, part, now_us)
                return self._take_one(request, rule, entity, part, now_us)
        if count > self.settings.descriptors_max:
            remedy = f"send at most {self.settings.descriptors_max} (descriptors_max)"
            raise BadValue("descriptors", count, remedy)
        deciding = self._decide_several(request, book, now_us)
        return finish(deciding) if self._local else deciding

    # One descriptor with one limit.

    def _is_short(self) -> bool:
        """Whether nothing but the limiter has a say just now in how one counter is decided."""
        glass = self._glass
        return self._short and (glass is None or not glass.broken)

    async def _take_one(
        self, request: MeshRequest, rule: MeshRule, entity: str, part: CounterState, now_us: int
    ) -> MeshResponse:
        part.decision = await self._limiter.atake(part.key, part.cost, part.counting.rule)
        return self._respond_one(request, rule, entity, part, now_us)

    def _respond_one(
        self, request: MeshRequest, rule: MeshRule, entity: str, part: CounterState, now_us: int
    ) -> MeshResponse:
        """The response for one counter."""
        part.settle()
        form, settings = rule.form, self.settings
        status = part.status(form.shadow, now_us)
        decision = part.final_decision(rule.rule_id, form.shadow, now_us)
        self._ledger.record_decision(
            entity,
            rule.rule_id,
            part.cost,
            self.priority_of(rule),
            decision,
            now_us,
            part.counting.limit,
        )
        stats = self._stats_of(rule, request.descriptors[0].entries)
        part.count(stats, settings.near_ratio)
        if part.over and form.shadow:
            stats.shadow_mode += part.cost
        if settings.header_names is None and not settings.metadata:
            response = MeshResponse(status.over, (status,))
        else:
            response = self._response_of(request, status.over, [status], [rule])
        return mark_degraded(response, closed=status.over) if decision.degraded else response

    def _respond_unmatched(self, request: MeshRequest) -> MeshResponse:
        self._note_unmatched(request)
        if not self.settings.metadata:
            return _UNMATCHED
        return self._response_of(request, False, [NO_LIMIT], [None])

    def _note_unmatched(self, request: MeshRequest) -> None:
        if self._unmatched is not None:
            self._unmatched.note_mesh(request.domain, request.descriptors[0].entries)

    # Any request.

    async def _decide_several(
        self, request: MeshRequest, book: MeshRuleSet, now_us: int
    ) -> MeshResponse:
        rules = self.rules_of(request, book)
        if rules.count(None) == len(rules):
            self._note_unmatched(request)
        states: list[DescriptorState] = []
        state_by_place: list[DescriptorState | None] = []
        for descriptor, rule in zip(request.descriptors, rules, strict=True):
            one = None
            if rule is not None and not rule.form.unlimited:
                one = state_of(rule, descriptor.entries, cost_of(descriptor.cost, request.cost))
                states.append(one)
            state_by_place.append(one)
        sheds = [one for one in states if self._sheds(one.rule)]
        if sheds and not self.settings.global_shadow:
            priority = min([self.priority_of(one.rule) for one in states])
            refusal = self._gate.refusal(priority, states[0].entity)
            if refusal is not None:
                return self._shed(request, refusal, rules, states, now_us)
        for one in states:
            if self._is_overridden(one.rule, one.entity, now_us):
                for part in one.parts:
                    part.decision = _override(one.rule, part.counting)
        if self._each:
            await self._decide_each(states, now_us)
        else:
            await self._decide_together(states)
        return self._respond(request, rules, state_by_place, now_us)

    def _is_overridden(self, rule: MeshRule, entity: str, now_us: int) -> bool:
        """Whether somebody has stopped enforcement of this rule for this entity."""
        glass = self._glass
        if glass is None or not glass.broken:
            return False
        return glass.opening_for(rule.rule_id, entity, now_us) is not None

    def rules_of(self, request: MeshRequest, book: MeshRuleSet) -> list[MeshRule | None]:
        """The rule of each descriptor; those that another replaces are none."""
        index = book.index(request.domain)
        if index is None:
            self.domains_not_found += 1
        rules: list[MeshRule | None] = []
        replaced: set[str] = set()
        for at, descriptor in enumerate(request.descriptors):
            override = descriptor.override
            rule: MeshRule | None = None
            if override is not None:
                if index is not None:
                    rule = self._override_rule(request.domain, at, override, descriptor.entries)
            elif index is not None:
                rule = index.find(descriptor.entries)
            if rule is not None:
                replaced |= rule.form.replaces
            rules.append(rule)
        if replaced:
            for at, found in enumerate(rules):
                if found is not None and not replaced.isdisjoint(found.form.names):
                    rules[at] = None
        return rules

    def _override_rule(
        self, domain: str, at: int, override: Override, entries: Sequence[tuple[str, str]]
    ) -> MeshRule:
        field = f"descriptors[{at}].limit"
        return self._overrides.rule(domain, field, override, entries)

    async def _decide_each(self, states: Sequence[DescriptorState], now_us: int) -> None:
        """Each counter by itself."""
        parts = [part for one in states for part in one.parts if part.decision is None]
        cache, known_over = self._cache, False
        if cache is not None:
            for part in parts:
                part.cached = part.counting.above and cache.has(_counter_of(part), now_us)
                known_over = known_over or part.cached
            parts = [part for part in parts if not part.cached]
        if self.settings.stop_when_over and (known_over or len(parts) > 1):
            if not known_over:
                await self._take_each(parts, keep=False)
                for part in parts:
                    part.settle()
            if known_over or any(part.over for part in parts):
                for part in parts:
                    if not part.over:
                        part.to_take = 0
        await self._take_each(parts, keep=True)
        if cache is not None:
            for part in parts:
                part.settle()
                if part.over and part.counting.above and not part.uncounted:
                    period_us = part.counting.period_us
                    cache.add(_counter_of(part), now_us - now_us % period_us + period_us)

    async def _take_each(self, parts: Sequence[CounterState], *, keep: bool) -> None:
        if self._local or len(parts) < 2:
            for part in parts:
                part.decision = await self._take_or_peek(part, keep)
            return
        decisions = await asyncio.gather(*[self._take_or_peek(part, keep) for part in parts])
        for part, decision in zip(parts, decisions, strict=True):
            part.decision = decision

    async def _take_or_peek(self, part: CounterState, keep: bool) -> Decision:
        limiter, counting = self._limiter, part.counting
        if not keep:
            return await limiter.apeek(part.key, part.to_take, counting.rule)
        if part.to_take == 0 and not counting.above:
            return await self._peek_one(part)
        return await limiter.atake(part.key, part.to_take, counting.rule)

    async def _peek_one(self, part: CounterState) -> Decision:
        """Whether one unit more would be refused; nothing is taken."""
        decision = await self._limiter.apeek(part.key, 1, part.counting.rule)
        if decision.allowed and decision.reason is None and not decision.degraded:
            return decision.with_more(1)
        return decision

    async def _decide_together(self, states: Sequence[DescriptorState]) -> None:
        """Every counter or none. Of quotas it is enough that one has room: it alone is charged."""
        undecided = [one for one in states if await self._needs_decision(one)]
        refused = [one for one in states if one.over]
        while undecided and not _refuses(states, refused):
            parts = [part for one in undecided for part in one.parts if part.to_take > 0]
            if not parts:
                return
            await self._take_together(parts)
            for part in parts:
                part.settle()
            newly = [one for one in undecided if one.over]
            if not newly:
                return
            for part in parts:
                part.not_taken = True
            refused += newly
            undecided = [one for one in undecided if not one.over]

    async def _needs_decision(self, one: DescriptorState) -> bool:
        """Whether a descriptor is still to be decided, after what needs no counting."""
        for part in one.parts:
            if part.cost == 0 and part.decision is None:
                part.decision = await self._peek_one(part)
            if part.decision is not None:
                part.to_take = 0
                part.settle()
        return not one.over

    async def _take_together(self, parts: Sequence[CounterState]) -> None:
        claims = [Claim(part.key, part.counting.rule, part.to_take) for part in parts]
        judgement = await self._limiter.ajudge(*claims)
        _assign_decisions(parts, judgement.decisions)
        if judgement.decision.allowed or any(_is_refused(part) for part in parts[1:]):
            return
        # A remembered refusal comes for one counter only, under the rule_id of its shared limit.
        rule_id = judgement.decision.rule_id
        alike = [part for part in parts if part.counting.rule == rule_id]
        if len(judgement.decisions) == 1 and len(alike) > 1:
            for part in alike:
                part.decision = await self._limiter.apeek(part.key, part.to_take, rule_id)
            if not any(_is_refused(part) for part in alike):
                alike[0].decision = judgement.decision

    # Responses, ledger and statistics.

    def _respond(
        self,
        request: MeshRequest,
        rules: Sequence[MeshRule | None],
        state_by_place: Sequence[DescriptorState | None],
        now_us: int,
    ) -> MeshResponse:
        statuses: list[MeshStatus] = []
        marked = closed = False
        over, quotas, quotas_over = False, 0, 0
        for at, one in enumerate(state_by_place):
            rule = rules[at]
            if rule is None or one is None:
                statuses.append(NO_LIMIT if rule is None else _UNLIMITED)
                if rule is not None and rule.form.quota:
                    quotas += 1
                continue
            for part in one.parts:
                part.settle()
                if part.decision is not None and part.decision.degraded:
                    marked = True
                    closed = closed or part.over
            binding = one.binding()
            status = NO_LIMIT if binding is None else binding.status(rule.form.shadow, now_us)
            statuses.append(status)
            if rule.form.quota:
                quotas += 1
                quotas_over += status.over
            elif status.over:
                over = True
        over = over or (quotas > 0 and quotas_over == quotas)
        for at, one in enumerate(state_by_place):
            # Where all or none are taken, only those that refuse a request are recorded.
            if one is not None and (self._each or not over or one.over):
                self._record(one, request.descriptors[at].entries, now_us)
        if over and self.settings.global_shadow:
            self.globally_shadowed += 1
            over = False
        response = self._response_of(request, over, statuses, rules)
        return mark_degraded(response, closed=over and closed) if marked else response

    def _record(
        self, one: DescriptorState, entries: Sequence[tuple[str, str]], now_us: int
    ) -> None:
        """Record the decision in the ledger and the statistics."""
        rule = one.rule
        binding = one.binding()
        if binding is None or (binding.decision is None and not binding.cached):
            return
        decision = binding.final_decision(rule.rule_id, rule.form.shadow, now_us)
        self._ledger.record_decision(
            one.entity,
            rule.rule_id,
            one.cost,
            self.priority_of(rule),
            decision,
            now_us,
            binding.counting.limit,
        )
        stats = self._stats_of(rule, entries)
        binding.count(stats, self.settings.near_ratio)
        if binding.over and rule.form.shadow:
            stats.shadow_mode += one.cost

    def _shed(
        self,
        request: MeshRequest,
        refusal: Decision,
        rules: Sequence[MeshRule | None],
        states: Sequence[DescriptorState],
        now_us: int,
    ) -> MeshResponse:
        """Refuse before anything is counted."""
        for one in states:
            self._ledger.record_decision(
                one.entity, one.rule.rule_id, one.cost, self.priority_of(one.rule), refusal, now_us
            )
        statuses = [
            NO_LIMIT if rule is None else MeshStatus(True) if rule.form.countings else _UNLIMITED
            for rule in rules
        ]
        found = metadata(request, statuses, rules) if self.settings.metadata else None
        return shed_response(refusal, self._gate.status(), statuses, found)

    def _response_of(
        self,
        request: MeshRequest,
        over: bool,
        statuses: Sequence[MeshStatus],
        rules: Sequence[MeshRule | None],
    ) -> MeshResponse:
        settings = self.settings
        names = settings.header_names
        found = None
        if settings.metadata:
            found = mark_stressed(metadata(request, statuses, rules), self._gate.status())
        return MeshResponse(
            over,
            statuses,
            response_headers=() if names is None else limit_headers(names, statuses, rules),
            metadata=found,
        )

    def _sheds(self, rule: MeshRule) -> bool:
        """Whether the gate has a say; where all is as Envoy has it, only if the rule says so."""
        return not self._each or rule.form.priority is not None

    def priority_of(self, rule: MeshRule) -> Criticality:
        """The criticality of work under a rule."""
        priority = rule.form.priority
        return self.settings.priority if priority is None else priority

    def _stats_of(self, rule: MeshRule, entries: Sequence[tuple[str, str]]) -> RuleStats:
        form = rule.form
        if form.real:
            return self._stats_table.of(stats_key(rule.rule_id, form, entries))
        stats = rule.stats
        if stats is None:
            stats = rule.stats = self._stats_table.of(stats_key(rule.rule_id, form, entries))
        return stats


def _override(rule: MeshRule, counting: Counting) -> Decision:
    return override_decision(rule.rule_id, counting.room + counting.above)


def _counter_of(part: CounterState) -> SharedKey:
    """What tells a counter from all others: limits that descriptors bring along have their own."""
    counting = part.counting
    if isinstance(counting.rule, str):
        return part.key
    return SharedKey(str(part.key), f"{counting.count}/{counting.period_us}")


def cost_of(own: int, whole: int) -> int:
    """The cost of a descriptor: its own, also 0; else that of the request."""
    if own < 0:
        return whole or 1
    return own if own < COST_MAX else COST_MAX


def _refuses(states: Sequence[DescriptorState], refused: Sequence[DescriptorState]) -> bool:
    """Whether these refusals suffice: one that is no quota's, or those of all quotas."""
    if not refused:
        return False
    if any(not one.rule.form.quota for one in refused):
        return True
    return len(refused) == sum(one.rule.form.quota for one in states)


def _is_refused(part: CounterState) -> bool:
    return part.decision is not None and not part.decision.allowed


def _assign_decisions(parts: Sequence[CounterState], counted: Sequence[RuleDecision]) -> None:
    """Give each part its decision: they come in the order of the claims, trials last."""
    for part in parts:
        part.decision = None
        part.not_taken = False
    for _, _, decision in counted:
        for part in parts:
            if part.decision is None and _is_of(part, decision.rule_id):
                part.decision = decision
                break


def _is_of(part: CounterState, name: str) -> bool:
    rule_id = part.counting.rule
    if isinstance(rule_id, str):
        return rule_id == name
    return not name.startswith(SHARED)  # a limit of the descriptor itself is not shared
