"""Service: Envoy's question, answered. Look up the rules, ask the limiter, say what came of it.

A request has several descriptors, each with a rule or none. What that means depends on the
semantics in force:

    ENVOY      each counter by itself, and what is refused is counted all the same: exactly what
               envoyproxy/ratelimit does
    SLUICEGATE   every counter or none: a refused request has taken nothing from anyone

The book is swapped whole: a request sees one version of it from its beginning to its end. With
counts in this process an answer is there at once; one descriptor with one limit has a way of its
own, because nearly all requests are like that. Everything else is written once, as a coroutine,
which is stepped to its end where nothing in it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.checks import (
    Gate,
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
from sluicegate.contracts.guard import Counted
from sluicegate.contracts.store import SHARED, shared_key
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.wait_lines import finish
from sluicegate.rules.mesh.answer import NO_LIMIT, degraded, limit_headers, metadata, shed, stressed
from sluicegate.rules.mesh.asked import REMAINING_UNLIMITED, Asked, Part, asked
from sluicegate.rules.mesh.identity import entity_of, tally_key
from sluicegate.rules.mesh.over_cache import OverCache
from sluicegate.rules.mesh.overrides import Overrides
from sluicegate.rules.mesh.rule import MeshRule, Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.mesh.tally import Tallies, Tally, TallyNow

HITS_MAX: Final = 1 << 53
_UNMATCHED: Final = MeshResponse(False, (NO_LIMIT,))
_UNLIMITED: Final = MeshStatus(False, None, REMAINING_UNLIMITED)


@final
class Mesh:
    """Answers for a mesh. `book` is what is in force; None is none yet."""

    __slots__ = (
        "_cache",
        "_each",
        "_gate",
        "_ledger",
        "_limiter",
        "_local",
        "_overrides",
        "_short",
        "_tallies",
        "book",
        "domains_not_found",
        "globally_shadowed",
        "settings",
    )

    def __init__(
        self,
        limiter: Limiter,
        gate: Gate,
        ledger: Ledger,
        *,
        settings: MeshSettings | None = None,
        book: MeshRuleSet | None = None,
    ) -> None:
        self.settings: Final = settings or MeshSettings()
        self.book = book
        self.domains_not_found = 0
        self.globally_shadowed = 0
        self._limiter: Final = limiter
        self._gate: Final = gate
        self._ledger: Final = ledger
        self._local: Final = limiter.local
        self._each: Final = self.settings.semantics is Semantics.ENVOY
        self._cache: OverCache | None = None
        if self._each and self.settings.local_cache_max:
            self._cache = OverCache(self.settings.local_cache_max)
        # Whether nothing but the limiter has a say in how one counter is decided.
        self._short: Final = self._cache is None and not self.settings.global_shadow
        self._overrides: Final = Overrides(self.settings.semantics, self.settings.overrides_max)
        self._tallies: Final = Tallies(self.settings.tallies_max)

    def tallies(self) -> list[TallyNow]:
        """What each rule has seen."""
        return self._tallies.now()

    def should_rate_limit(self, ask: MeshRequest, now_us: int) -> MaybeAwaitable[MeshResponse]:
        """Decide and count; at once if counts are kept in this process."""
        book, descriptors = self.book, ask.descriptors
        if not ask.domain:
            raise BadValue("domain", ask.domain, "rate limit domain must not be empty")
        count = len(descriptors)
        if count == 0:
            raise BadValue("descriptors", [], "rate limit descriptor list must not be empty")
        if book is None:
            raise Unavailable("the rulebook", "no rate limit configuration loaded")
        if count == 1 and self._short and descriptors[0].override is None:
            descriptor = descriptors[0]
            index = book.index(ask.domain)
            if index is None:
                self.domains_not_found += 1
                rule = None
            else:
                rule = index.find(descriptor.entries)
            if rule is None:
                return self._unmatched(ask)
            hits = hits_of(descriptor.cost, ask.cost)
            counting = rule.form.only
            if counting is not None and hits > 0 and not counting.blocks:
                entity = entity_of(rule.form, descriptor.entries)
                refusal = None
                if self._sheds(rule):
                    refusal = self._gate.refusal(self.priority_of(rule), entity)
                if refusal is not None:
                    return self._shed(ask, refusal, [rule], [asked_of(rule, entity, hits)], now_us)
                part = Part(counting, shared_key(entity, rule.rule_id), hits)
                if self._local:
                    part.decision = self._limiter.take(part.key, hits, counting.rule)
                    return self._one(ask, rule, entity, part, now_us)
                return self._one_later(ask, rule, entity, part, now_us)
        if count > self.settings.descriptors_max:
            remedy = f"send at most {self.settings.descriptors_max} (descriptors_max)"
            raise BadValue("descriptors", count, remedy)
        answering = self._several(ask, book, now_us)
        return finish(answering) if self._local else answering

    # One descriptor with one limit.

    async def _one_later(
        self, ask: MeshRequest, rule: MeshRule, entity: str, part: Part, now_us: int
    ) -> MeshResponse:
        part.decision = await self._limiter.atake(part.key, part.hits, part.counting.rule)
        return self._one(ask, rule, entity, part, now_us)

    def _one(
        self, ask: MeshRequest, rule: MeshRule, entity: str, part: Part, now_us: int
    ) -> MeshResponse:
        """The answer to what was asked of one counter."""
        part.settle()
        form, settings = rule.form, self.settings
        status = part.status(form.shadow, now_us)
        told = part.told(rule.rule_id, form.shadow, now_us)
        self._ledger.record_decision(
            entity,
            rule.rule_id,
            part.hits,
            self.priority_of(rule),
            told,
            now_us,
            part.counting.limit,
        )
        tally = self._tally(rule, ask.descriptors[0].entries)
        part.count(tally, settings.near_ratio)
        if part.over and form.shadow:
            tally.shadow_mode += part.hits
        if settings.header_names is None and not settings.metadata:
            answer = MeshResponse(status.over, (status,))
        else:
            answer = self._worded(ask, status.over, [status], [rule])
        return degraded(answer, closed=status.over) if told.degraded else answer

    def _unmatched(self, ask: MeshRequest) -> MeshResponse:
        if not self.settings.metadata:
            return _UNMATCHED
        return self._worded(ask, False, [NO_LIMIT], [None])

    # Any request.

    async def _several(self, ask: MeshRequest, book: MeshRuleSet, now_us: int) -> MeshResponse:
        rules = self.rules_of(ask, book)
        asking: list[Asked] = []
        places: list[Asked | None] = []
        for descriptor, rule in zip(ask.descriptors, rules, strict=True):
            one = None
            if rule is not None and not rule.form.unlimited:
                one = asked(rule, descriptor.entries, hits_of(descriptor.cost, ask.cost))
                asking.append(one)
            places.append(one)
        sheds = [one for one in asking if self._sheds(one.rule)]
        if sheds and not self.settings.global_shadow:
            priority = min([self.priority_of(one.rule) for one in asking])
            refusal = self._gate.refusal(priority, asking[0].entity)
            if refusal is not None:
                return self._shed(ask, refusal, rules, asking, now_us)
        if self._each:
            await self._decide_each(asking, now_us)
        else:
            await self._decide_together(asking)
        return self._answered(ask, rules, places, now_us)

    def rules_of(self, ask: MeshRequest, book: MeshRuleSet) -> list[MeshRule | None]:
        """The rule of each descriptor; those that another replaces are none."""
        index = book.index(ask.domain)
        if index is None:
            self.domains_not_found += 1
        rules: list[MeshRule | None] = []
        replaced: set[str] = set()
        for at, descriptor in enumerate(ask.descriptors):
            override = descriptor.override
            rule: MeshRule | None = None
            if override is not None:
                if index is not None:
                    rule = self._overridden(ask.domain, at, override, descriptor.entries)
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

    def _overridden(
        self, domain: str, at: int, override: Override, entries: Sequence[tuple[str, str]]
    ) -> MeshRule:
        field = f"descriptors[{at}].limit"
        return self._overrides.rule(domain, field, override, entries)

    async def _decide_each(self, asking: Sequence[Asked], now_us: int) -> None:
        """Each counter by itself."""
        parts = [part for one in asking for part in one.parts if part.decision is None]
        cache = self._cache
        if cache is not None:
            for part in parts:
                part.cached = part.counting.above and cache.knows(_counter_of(part), now_us)
            parts = [part for part in parts if not part.cached]
        if self.settings.stop_when_over and len(parts) > 1:
            await self._ask_each(parts, keep=False)
            for part in parts:
                part.settle()
            if any(part.over for part in parts):
                for part in parts:
                    if not part.over:
                        part.cost = 0
        await self._ask_each(parts, keep=True)
        if cache is not None:
            for part in parts:
                part.settle()
                if part.over and part.counting.above and not part.uncounted:
                    period_us = part.counting.period_us
                    cache.add(_counter_of(part), now_us - now_us % period_us + period_us)

    async def _ask_each(self, parts: Sequence[Part], *, keep: bool) -> None:
        if self._local or len(parts) < 2:
            for part in parts:
                part.decision = await self._ask(part, keep)
            return
        decisions = await asyncio.gather(*[self._ask(part, keep) for part in parts])
        for part, decision in zip(parts, decisions, strict=True):
            part.decision = decision

    async def _ask(self, part: Part, keep: bool) -> Decision:
        limiter, counting = self._limiter, part.counting
        if not keep:
            return await limiter.apeek(part.key, part.cost, counting.rule)
        if part.cost == 0 and not counting.above:
            return await self._looked(part)
        return await limiter.atake(part.key, part.cost, counting.rule)

    async def _looked(self, part: Part) -> Decision:
        """Whether one unit more would be refused; nothing is taken."""
        decision = await self._limiter.apeek(part.key, 1, part.counting.rule)
        if decision.allowed and decision.reason is None and not decision.degraded:
            return decision.with_more(1)
        return decision

    async def _decide_together(self, asking: Sequence[Asked]) -> None:
        """Every counter or none. Of quotas it is enough that one has room: it alone is charged."""
        still = [one for one in asking if await self._enters(one)]
        refused = [one for one in asking if one.over]
        while still and not _refuses(asking, refused):
            parts = [part for one in still for part in one.parts if part.cost > 0]
            if not parts:
                return
            await self._ask_together(parts)
            for part in parts:
                part.settle()
            newly = [one for one in still if one.over]
            if not newly:
                return
            for part in parts:
                part.spared = True
            refused += newly
            still = [one for one in still if not one.over]

    async def _enters(self, one: Asked) -> bool:
        """Whether a descriptor is still to be decided, after what needs no counting."""
        for part in one.parts:
            if part.hits == 0 and part.decision is None:
                part.decision = await self._looked(part)
            if part.decision is not None:
                part.cost = 0
                part.settle()
        return not one.over

    async def _ask_together(self, parts: Sequence[Part]) -> None:
        claims = [Claim(part.key, part.counting.rule, part.cost) for part in parts]
        judgement = await self._limiter.ajudge(*claims)
        _hand_out(parts, judgement.counted)
        if judgement.decision.allowed or any(_is_refused(part) for part in parts[1:]):
            return
        # A refusal that was remembered is told of one counter only, by the name of its shape.
        shape = judgement.decision.rule_id
        alike = [part for part in parts if part.counting.rule == shape]
        if len(judgement.counted) == 1 and len(alike) > 1:
            for part in alike:
                part.decision = await self._limiter.apeek(part.key, part.cost, shape)
            if not any(_is_refused(part) for part in alike):
                alike[0].decision = judgement.decision

    # What is told.

    def _answered(
        self,
        ask: MeshRequest,
        rules: Sequence[MeshRule | None],
        places: Sequence[Asked | None],
        now_us: int,
    ) -> MeshResponse:
        statuses: list[MeshStatus] = []
        marked = closed = False
        over, quotas, quotas_over = False, 0, 0
        for at, one in enumerate(places):
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
        for at, one in enumerate(places):
            # Where all or none are taken, a refused request is told of those that refuse it.
            if one is not None and (self._each or not over or one.over):
                self._tell(one, ask.descriptors[at].entries, now_us)
        if over and self.settings.global_shadow:
            self.globally_shadowed += 1
            over = False
        answer = self._worded(ask, over, statuses, rules)
        return degraded(answer, closed=over and closed) if marked else answer

    def _tell(self, one: Asked, entries: Sequence[tuple[str, str]], now_us: int) -> None:
        """Tell the ledger and the statistics."""
        rule = one.rule
        binding = one.binding()
        if binding is None or (binding.decision is None and not binding.cached):
            return
        told = binding.told(rule.rule_id, rule.form.shadow, now_us)
        self._ledger.record_decision(
            one.entity,
            rule.rule_id,
            one.hits,
            self.priority_of(rule),
            told,
            now_us,
            binding.counting.limit,
        )
        tally = self._tally(rule, entries)
        binding.count(tally, self.settings.near_ratio)
        if binding.over and rule.form.shadow:
            tally.shadow_mode += one.hits

    def _shed(
        self,
        ask: MeshRequest,
        refusal: Decision,
        rules: Sequence[MeshRule | None],
        asking: Sequence[Asked],
        now_us: int,
    ) -> MeshResponse:
        """Turned away before anything was counted."""
        for one in asking:
            self._ledger.record_decision(
                one.entity, one.rule.rule_id, one.hits, self.priority_of(one.rule), refusal, now_us
            )
        statuses = [
            NO_LIMIT if rule is None else MeshStatus(True) if rule.form.countings else _UNLIMITED
            for rule in rules
        ]
        told = metadata(ask, statuses, rules) if self.settings.metadata else None
        return shed(refusal, self._gate.status(), statuses, told)

    def _worded(
        self,
        ask: MeshRequest,
        over: bool,
        statuses: Sequence[MeshStatus],
        rules: Sequence[MeshRule | None],
    ) -> MeshResponse:
        settings = self.settings
        names = settings.header_names
        told = None
        if settings.metadata:
            told = stressed(metadata(ask, statuses, rules), self._gate.status())
        return MeshResponse(
            over,
            statuses,
            response_headers=() if names is None else limit_headers(names, statuses, rules),
            metadata=told,
        )

    def _sheds(self, rule: MeshRule) -> bool:
        """Whether the gate has a say; where all is as Envoy has it, only if the rule says so."""
        return not self._each or rule.form.priority is not None

    def priority_of(self, rule: MeshRule) -> Criticality:
        """How much the work under a rule matters."""
        said = rule.form.priority
        return self.settings.priority if said is None else said

    def _tally(self, rule: MeshRule, entries: Sequence[tuple[str, str]]) -> Tally:
        form = rule.form
        if form.real:
            return self._tallies.of(tally_key(rule.rule_id, form, entries))
        tally = rule.tally
        if tally is None:
            tally = rule.tally = self._tallies.of(tally_key(rule.rule_id, form, entries))
        return tally


def asked_of(rule: MeshRule, entity: str, hits: int) -> Asked:
    """A descriptor whose entity is known."""
    return Asked(rule, entity, hits)


def _counter_of(part: Part) -> str:
    """What tells a counter from all others: limits that descriptors bring along have their own."""
    counting = part.counting
    if isinstance(counting.rule, str):
        return part.key
    return shared_key(part.key, f"{counting.count}/{counting.period_us}")


def hits_of(own: int, whole: int) -> int:
    """What a descriptor weighs: what it says itself, also nothing; else what the request says."""
    if own < 0:
        return whole or 1
    return own if own < HITS_MAX else HITS_MAX


def _refuses(asking: Sequence[Asked], refused: Sequence[Asked]) -> bool:
    """Whether these refusals settle it: one that is no quota's, or those of all quotas."""
    if not refused:
        return False
    if any(not one.rule.form.quota for one in refused):
        return True
    return len(refused) == sum(one.rule.form.quota for one in asking)


def _is_refused(part: Part) -> bool:
    return part.decision is not None and not part.decision.allowed


def _hand_out(parts: Sequence[Part], counted: Sequence[Counted]) -> None:
    """Give each part its decision: they come in the order of the claims, trials last."""
    for part in parts:
        part.decision = None
        part.spared = False
    for _, _, decision in counted:
        for part in parts:
            if part.decision is None and _is_of(part, decision.rule_id):
                part.decision = decision
                break


def _is_of(part: Part, name: str) -> bool:
    shape = part.counting.rule
    if isinstance(shape, str):
        return shape == name
    return not name.startswith(SHARED)  # a limit that a descriptor brought along has no shape
