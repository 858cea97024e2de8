"""Claims: several limits charged together, and the decision of each.

Enforced rules decide as one, all or nothing. Those in shadow mode are charged afterwards, each by
itself and only if the request is admitted, so a trial refuses nobody; those that are off are not
charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex, TypeAlias

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.edge import Given
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.store import Key, Store
from sluicegate.limits.remote_keys import RemoteKeys
from sluicegate.limits.rule import Mode, RuleLike
from sluicegate.limits.terms import KeysWithTerms, as_trial, off_decision
from sluicegate.stores.memory.joint import binding, charge_all, take_all
from sluicegate.stores.memory.table import LimitKeys, LocalKeys

AnyClaim: TypeAlias = "tuple[LimitKeys, Key, int]"


class Claim(NamedTuple):
    """One of several things asked for together: a key, the rule for it, and what it costs."""

    key: Given[Key]
    rule: Given[RuleLike | None] = None
    cost: SupportsIndex = 1


def judgement_of(counted: Sequence[RuleDecision]) -> Judgement:
    """Return the judgement that these decisions amount to."""
    enforced = [one.decision for one in counted if not one.decision.shadow]
    return Judgement(binding(enforced or [one.decision for one in counted]), counted)


def judge_local(
    claims: Sequence[AnyClaim], now_us: int, overridden: Sequence[RuleDecision] = ()
) -> Judgement:
    """Decide claims on tables of this process; `overridden` are those that are admitted already."""
    resolved = [(keys, key, cost) for keys, key, cost in claims if isinstance(keys, LocalKeys)]
    enforced = [one for one in resolved if _mode(one[0]) is Mode.ENFORCE]
    charges = [charge for keys, key, cost in enforced for charge in keys.charges(key, cost)]
    decisions = take_all(charges, now_us) if charges else []
    counted = [
        *overridden,
        *[
            RuleDecision(decision.rule_id, charge.table.limit, decision)
            for charge, decision in zip(charges, decisions, strict=True)
        ],
    ]
    admitted = all(decision.allowed for decision in decisions)
    if not admitted:
        for keys, key, cost in enforced:
            if isinstance(keys, KeysWithTerms) and keys.terms.count_refused:
                charge_all(keys.charges(key, cost), now_us)
    for keys, key, cost in resolved:
        if not isinstance(keys, KeysWithTerms) or keys.terms.mode is Mode.ENFORCE:
            continue
        if keys.terms.mode is Mode.OFF:
            counted.append(
                RuleDecision(keys.terms.name, keys.terms.limits[0][1], off_decision(keys.terms))
            )
        elif admitted:
            tables = keys.charges(key, cost)
            trials = take_all(tables, now_us)
            counted += [
                RuleDecision(decision.rule_id, charge.table.limit, as_trial(decision))
                for charge, decision in zip(tables, trials, strict=True)
            ]
    return judgement_of(counted)


async def judge_remote(
    store: Store,
    claims: Sequence[AnyClaim],
    now_us: int,
    overridden: Sequence[RuleDecision] = (),
    instants: list[int] | None = None,
) -> Judgement:
    """Decide claims on a remote store; `overridden` are those that are admitted already.

    With `instants`, nothing is taken from a lease, and the store's instant of the take is added.
    """
    resolved = [(keys, key, cost) for keys, key, cost in claims if isinstance(keys, RemoteKeys)]
    counted = [*overridden]
    enforced = [one for one in resolved if one[0].terms.mode is Mode.ENFORCE]
    refusal = _refusal_here(enforced, now_us)
    if refusal is not None:
        counted.append(refusal)
    elif enforced:
        counted += await _enforced(store, enforced, now_us, instants)
    admitted = all(one.decision.allowed for one in counted)
    for keys, key, cost in resolved:
        terms = keys.terms
        if terms.mode is Mode.OFF:
            counted.append(RuleDecision(terms.name, terms.limits[0][1], off_decision(terms)))
        elif terms.mode is Mode.SHADOW and admitted:
            ruling = await keys.request_ruling(store, key, cost, now_us)
            counted += [
                RuleDecision(decision.rule_id, limit, as_trial(decision))
                for (_, limit), decision in zip(terms.limits, ruling.decisions, strict=True)
            ]
    return judgement_of(counted)


def _refusal_here(
    enforced: Sequence[tuple[RemoteKeys, Key, int]], now_us: int
) -> RuleDecision | None:
    """Return a refusal that can be told without the store."""
    for keys, key, cost in enforced:
        decision = keys.refusal_here(key, cost, now_us)
        if decision is not None:
            limits = dict(keys.terms.limits)
            return RuleDecision(decision.rule_id, limits[decision.rule_id], decision)
    return None


async def _enforced(
    store: Store,
    enforced: Sequence[tuple[RemoteKeys, Key, int]],
    now_us: int,
    instants: list[int] | None,
) -> list[RuleDecision]:
    """Take from all of them or from none."""
    if len(enforced) == 1 and instants is None:
        keys, key, cost = enforced[0]
        if len(keys.terms.limits) == 1:
            # One limit alone may be spent from a lease.
            refusal = keys.take_here(key, cost, now_us)
            decision = (
                await keys.take_from(store, key, cost, now_us) if refusal is None else refusal
            )
            return [RuleDecision(decision.rule_id, keys.terms.limits[0][1], decision)]
        ruling = await keys.request_ruling(store, key, cost, now_us)
        decisions = list(ruling.decisions)
    else:
        decisions = await rule_together(store, enforced, now_us, instants)
    limits = [limit for keys, _, _ in enforced for _, limit in keys.terms.limits]
    return [
        RuleDecision(decision.rule_id, limit, decision)
        for limit, decision in zip(limits, decisions, strict=True)
    ]


async def rule_together(
    store: Store,
    enforced: Sequence[tuple[RemoteKeys, Key, int]],
    now_us: int,
    instants: list[int] | None = None,
) -> list[Decision]:
    """One group of several rules: every charge or none, each rule's terms respected."""
    charges = [charge for keys, key, cost in enforced for charge in keys.charges(key, cost)]
    harsh = [keys.terms.count_refused for keys, _, _ in enforced]
    try:
        ruling = await store.take(charges, count_refused=all(harsh))
    except Unavailable as error:
        # Looked at first, so that one rule's refusal takes nothing from another's local share.
        peeked = _decide_without_store(enforced, now_us, error, keep=False)
        admitted = all(decision.allowed for decision in peeked)
        return _decide_without_store(enforced, now_us, error, keep=True) if admitted else peeked
    watch = enforced[0][0].stores.watch
    if watch.away:
        watch.answer()
    if instants is not None:
        instants.append(ruling.at_us)
    decisions = list(ruling.decisions)
    if not ruling.allowed:
        at = 0
        for keys, key, cost in enforced:
            own = decisions[at : at + len(keys.terms.limits)]
            at += len(own)
            refusal = binding(own)
            if not refusal.allowed:
                keys.remember(key, cost, refusal, now_us)
            if keys.terms.count_refused and not all(harsh):
                await keys.settle_in(store, key, cost, ruling.at_us)
    return decisions


def _decide_without_store(
    enforced: Sequence[tuple[RemoteKeys, Key, int]], now_us: int, error: Unavailable, *, keep: bool
) -> list[Decision]:
    return [
        decision
        for keys, key, cost in enforced
        for decision in keys.decide_without_store(
            keys.charges(key, cost), now_us, error, keep=keep
        ).decisions
    ]


def _mode(keys: LocalKeys) -> Mode:
    return keys.terms.mode if isinstance(keys, KeysWithTerms) else Mode.ENFORCE
