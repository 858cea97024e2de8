"""Remote: the store, as limiters elsewhere may use it: beside our own rules, and never on them.

They name their limits themselves. So whatever they name gets a mark in front, and no limiter that
keeps its counts here can charge, reset or read what our own rulebook counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.store import Charge, PartialTake, Ruling, SharedKey, Store

MARK: Final = "@"


@final
class NamespacedStore:
    """A `contracts.store.Store` over another, in a name space of its own."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        marked = [_marked(charge) for charge in charges]
        ruling = await self._store.take(marked, keep=keep, count_refused=count_refused)
        pairs = zip(ruling.decisions, charges, strict=True)
        return Ruling(
            ruling.at_us, [decision.with_rule(charge.rule_id) for decision, charge in pairs]
        )

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        grant = await self._store.take_some(_marked(charge), ladder)
        return PartialTake(grant.at_us, grant.units, grant.decision.with_rule(charge.rule_id))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        await self._store.settle([_marked(charge) for charge in charges], taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        await self._store.reset([_marked(charge) for charge in charges])

    async def close(self) -> None:
        """Nothing: the store is its owner's."""


def _marked(charge: Charge) -> Charge:
    rule_id, limit, key, cost = charge
    if not isinstance(key, str):
        key = SharedKey(key.entity, MARK + key.rule_id)
    return Charge(MARK + rule_id, limit, key, cost)
