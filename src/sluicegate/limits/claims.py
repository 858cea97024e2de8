"""Claims: several things asked for together, and what each limit said of them.

Enforced rules decide as one, all or nothing. Those that are tried out are asked afterwards,
each by itself and only if the request enters, so a trial can hold nobody up; those that are off are
not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex, TypeAlias

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Counted, Judgement
from sluicegate.contracts.store import Store
from sluicegate.limits.remote_keys import RemoteKeys
from sluicegate.limits.rule import Mode, RuleLike
from sluicegate.limits.terms import KeysWithTerms, tried_out, unasked
from sluicegate.stores.memory.joint import binding, charge_all, take_all
from sluicegate.stores.memory.table import LocalKeys

LocalClaim: TypeAlias = "tuple[LocalKeys, str, int]"


class Claim(NamedTuple):
    """One of several things asked for together: a key, the rule for it, and what it costs."""

    key: str
    rule: RuleLike | None = None
    cost: SupportsIndex = 1


def judged(counted: Sequence[Counted]) -> Judgement:
    """The judgement that these decisions amount to."""
    enforced = [one.decision for one in counted if not one.decision.shadow]
    return Judgement(binding(enforced or [one.decision for one in counted]), counted)


def judge_local(
    asked: Sequence[LocalClaim], now_us: int, opened: Sequence[Counted] = ()
) -> Judgement:
    """Decide claims on tables of this process; `opened` are those that are admitted already."""
    enforced = [one for one in asked if _mode(one[0]) is Mode.ENFORCE]
    asks = [ask for keys, key, cost in enforced for ask in keys.asks(key, cost)]
    decisions = take_all(asks, now_us) if asks else []
    counted = [
        *opened,
        *[
            Counted(decision.rule_id, ask.table.limit, decision)
            for ask, decision in zip(asks, decisions, strict=True)
        ],
    ]
    entered = all(decision.allowed for decision in decisions)
    if not entered:
        for keys, key, cost in enforced:
            if isinstance(keys, KeysWithTerms) and keys.terms.count_refused:
                charge_all(keys.asks(key, cost), now_us)
    for keys, key, cost in asked:
        if not isinstance(keys, KeysWithTerms) or keys.terms.mode is Mode.ENFORCE:
            continue
        if keys.terms.mode is Mode.OFF:
            counted.append(Counted(keys.terms.name, keys.terms.limits[0][1], unasked(keys.terms)))
        elif entered:
            tables = keys.asks(key, cost)
            tried = take_all(tables, now_us)
            counted += [
                Counted(decision.rule_id, ask.table.limit, tried_out(decision))
                for ask, decision in zip(tables, tried, strict=True)
            ]
    return judged(counted)


async def judge_remote(
    store: Store,
    asked: Sequence[tuple[RemoteKeys, str, int]],
    now_us: int,
    opened: Sequence[Counted] = (),
) -> Judgement:
    """Decide claims on a remote store; `opened` are those that are admitted already."""
    counted = [*opened]
    enforced = [one for one in asked if one[0].terms.mode is Mode.ENFORCE]
    known = _known(enforced, now_us)
    if known is not None:
        counted.append(known)
    elif enforced:
        counted += await _enforced(store, enforced, now_us)
    entered = all(one.decision.allowed for one in counted)
    for keys, key, cost in asked:
        terms = keys.terms
        if terms.mode is Mode.OFF:
            counted.append(Counted(terms.name, terms.limits[0][1], unasked(terms)))
        elif terms.mode is Mode.SHADOW and entered:
            ruling = await keys.rule(store, key, cost, now_us)
            counted += [
                Counted(decision.rule_id, limit, tried_out(decision))
                for (_, limit), decision in zip(terms.limits, ruling.decisions, strict=True)
            ]
    return judged(counted)


def _known(enforced: Sequence[tuple[RemoteKeys, str, int]], now_us: int) -> Counted | None:
    """A refusal that can be told without the store."""
    for keys, key, cost in enforced:
        decision = keys.denied(key, cost, now_us)
        if decision is not None:
            limits = dict(keys.terms.limits)
            return Counted(decision.rule_id, limits[decision.rule_id], decision)
    return None


async def _enforced(
    store: Store, enforced: Sequence[tuple[RemoteKeys, str, int]], now_us: int
) -> list[Counted]:
    """Take from all of them or from none."""
    if len(enforced) == 1:
        keys, key, cost = enforced[0]
        if len(keys.terms.limits) == 1:
            # One limit alone may be spent from a lease.
            known = keys.known(key, cost, now_us)
            decision = await keys.ask(store, key, cost, now_us) if known is None else known
            return [Counted(decision.rule_id, keys.terms.limits[0][1], decision)]
        ruling = await keys.rule(store, key, cost, now_us)
        decisions = list(ruling.decisions)
    else:
        decisions = await rule_together(store, enforced, now_us)
    limits = [limit for keys, _, _ in enforced for _, limit in keys.terms.limits]
    return [
        Counted(decision.rule_id, limit, decision)
        for limit, decision in zip(limits, decisions, strict=True)
    ]


async def rule_together(
    store: Store, enforced: Sequence[tuple[RemoteKeys, str, int]], now_us: int
) -> list[Decision]:
    """One group of several rules: every charge or none, each rule's terms respected."""
    charges = [charge for keys, key, cost in enforced for charge in keys.charges(key, cost)]
    harsh = [keys.terms.count_refused for keys, _, _ in enforced]
    try:
        ruling = await store.take(charges, count_refused=all(harsh))
    except Unavailable:
        # Looked at first, so that one rule's refusal takes nothing from another's local share.
        looked = _without_store(enforced, now_us, keep=False)
        entered = all(decision.allowed for decision in looked)
        return _without_store(enforced, now_us, keep=True) if entered else looked
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
                await keys.correct(store, key, cost, ruling.at_us)
    return decisions


def _without_store(
    enforced: Sequence[tuple[RemoteKeys, str, int]], now_us: int, *, keep: bool
) -> list[Decision]:
    return [
        decision
        for keys, key, cost in enforced
        for decision in keys.without_store(keys.charges(key, cost), now_us, keep=keep).decisions
    ]


def _mode(keys: LocalKeys) -> Mode:
    return keys.terms.mode if isinstance(keys, KeysWithTerms) else Mode.ENFORCE
