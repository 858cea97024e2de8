"""Remote keys: rules whose state is in a store that answers later, or does not answer.

Three things spare a request to the store, or replace it. A *denial*: a key that was refused is
refused here until the instant the refusal named. A *lease*: a block of units that was taken in
advance is spent here. A *failure policy*: when the store does not answer, the rule says whether to
admit, to refuse, or to count here against a share of the limit; such a decision is marked degraded.

Each operation is written once, as a coroutine over the store it is given. A task gives it the store
of its event loop; a thread gives it one that blocks, and steps the coroutine to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Charge, Key, Ruling, Store
from sluicegate.limits.lease import FILL_US_MAX, EndedBlock, KeyBlock, Leases
from sluicegate.limits.rule import Failure, Mode
from sluicegate.limits.terms import Terms, as_trial, off_decision
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.memory.joint import binding, take_all
from sluicegate.stores.memory.refusal_cache import Denials
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.memory.table import Estimate, LimitKeys, TableCharge

if TYPE_CHECKING:
    from sluicegate.limits.stores import LimitStores


@final
class RemoteKeys(LimitKeys):
    """The keys of one rule in a remote store."""

    __slots__ = (
        "_clock",
        "_denials",
        "_leases",
        "_local",
        "_observer",
        "_record_lag",
        "_store_limits",
        "stores",
        "terms",
    )

    def __init__(
        self,
        stores: LimitStores,
        terms: Terms,
        local: MemoryStore,
        clock: Callable[[], int],
        observer: Observer | None = None,
    ) -> None:
        self.terms: Final = terms
        self.stores = stores
        self._local = local
        self._clock = clock
        self._observer = observer
        # Few observers ask how stale it is what is decided here; those have a method for it.
        self._record_lag: Callable[[str, int], None] | None = getattr(
            observer, "record_lease_lag", None
        )
        self._denials = Denials()
        self._leases: Leases | None = None
        self._store_limits = terms.limits  # as the store is to count them
        if terms.lease is not None and terms.mode is Mode.ENFORCE:
            self._leases = Leases(*terms.limits[0], terms.lease)
            if self._leases.block_max:
                self._store_limits = [(self._leases.rule_id, self._leases.limit)]
            else:
                self._leases = None

    # What a thread calls.

    def take(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if every limit has it."""
        decision = self.take_here(key, cost, now_us)
        if decision is None:
            decision = finish(self.take_from(self.stores.blocking, key, cost, now_us))
        return decision

    def peek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would decide; nothing is taken."""
        return finish(self.peek_from(self.stores.blocking, key, cost, now_us))

    def estimate(self, key: Key, cost: int, now_us: int) -> Estimate:
        """Take `cost` as an estimate."""
        return finish(self.estimate_from(self.stores.blocking, key, cost, now_us))

    def settle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge more, or give back; `taken_us` is the store's time, and `now_us` is not."""
        finish(self.settle_in(self.stores.blocking, key, correction, taken_us))

    def reset(self, key: Key) -> None:
        """Forget what `key` has taken."""
        finish(self.reset_in(self.stores.blocking, key))

    # What a task awaits: the coroutine itself, and not one around it, which would cost a step.

    def atake(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Decision]:
        """`take`, for asyncio."""
        return self.take_from(self.stores.here(), key, cost, now_us)

    def aestimate(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Estimate]:
        """`estimate`, for asyncio."""
        return self.estimate_from(self.stores.here(), key, cost, now_us)

    def apeek(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Decision]:
        """`peek`, for asyncio."""
        return self.peek_from(self.stores.here(), key, cost, now_us)

    def asettle(
        self, key: Key, correction: int, now_us: int, taken_us: int | None
    ) -> Coroutine[Any, Any, None]:
        """`settle`, for asyncio."""
        return self.settle_in(self.stores.here(), key, correction, taken_us)

    def areset(self, key: Key) -> Coroutine[Any, Any, None]:
        """`reset`, for asyncio."""
        return self.reset_in(self.stores.here(), key)

    def limits(self) -> list[Limit]:
        """Return the limits of the rule."""
        return [limit for _, limit in self.terms.limits]

    # The same for whoever has a store at hand.

    def take_here(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Decide without the store; None if it must be asked."""
        if self.terms.mode is Mode.OFF:
            return off_decision(self.terms)
        decision = self._denials.refusal(key, cost, now_us)
        if decision is not None:
            return self._apply_mode(decision)
        return None if self._leases is None else self._leases.spend(key, cost, now_us)

    def refusal_here(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Return the refusal that still holds for this key; None if there is none."""
        return self._denials.refusal(key, cost, now_us)

    async def take_from(self, store: Store, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key`."""
        leases = self._leases
        if leases is not None:
            block = leases.block_for(key, now_us)
            if block is not None:
                return await self._take_from_block(store, leases, block, key, cost)
        return self._apply_mode(
            binding((await self.request_ruling(store, key, cost, now_us)).decisions)
        )

    async def request_ruling(self, store: Store, key: Key, cost: int, now_us: int) -> Ruling:
        """Take `cost` in the store; return each limit's decision, and the store's instant."""
        charges = self.charges(key, cost)
        try:
            ruling = await store.take(charges, count_refused=self.terms.count_refused)
        except Unavailable as error:
            return self.decide_without_store(charges, now_us, error)
        if self.stores.watch.away:
            self.stores.watch.answer()
        if not ruling.allowed:
            self.remember(key, cost, binding(ruling.decisions), now_us)
        return ruling

    async def estimate_from(self, store: Store, key: Key, cost: int, now_us: int) -> Estimate:
        """Take `cost` as an estimate, to be settled. It is never taken from a lease."""
        here = off_decision(self.terms) if self.terms.mode is Mode.OFF else None
        here = here or self._denials.refusal(key, cost, now_us)
        if here is not None:
            return self._apply_mode(here), None
        ruling = await self.request_ruling(store, key, cost, now_us)
        return self._apply_mode(binding(ruling.decisions)), ruling.at_us

    async def peek_from(self, store: Store, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take_from` would decide."""
        if self.terms.mode is Mode.OFF:
            return off_decision(self.terms)
        leases = self._leases
        left = 0 if leases is None else leases.left(key, now_us)
        charges = self.charges(key, max(cost - left, 0))
        try:
            ruling = await store.take(charges, keep=False)
        except Unavailable as error:
            ruling = self.decide_without_store(charges, now_us, error, keep=False)
        decision = binding(ruling.decisions)
        if left and decision.allowed:
            decision = decision.with_more(max(left - cost, 0))
        return self._apply_mode(decision)

    async def settle_in(
        self, store: Store, key: Key, correction: int, taken_us: int | None
    ) -> None:
        """Charge more than was taken at `taken_us`, or give back, if that can be done now.

        If not, the estimate stands: a correction is worth no error in the work it belongs to.
        """
        if self.terms.mode is Mode.OFF:
            return
        if correction < 0:
            self._denials.forget(key)
        with suppress(Unavailable):
            await store.settle(self.charges(key, correction), taken_us)

    async def reset_in(self, store: Store, key: Key) -> None:
        """Forget what `key` has taken; `Unavailable` if that cannot be done now."""
        self._denials.forget(key)
        if self._leases is not None:
            self._leases.forget(key)
        await store.reset(self.charges(key, 0))

    def charges(self, key: Key, cost: int) -> list[Charge]:
        """Return a charge of this key in each limit of the rule."""
        return [Charge(rule_id, limit, key, cost) for rule_id, limit in self._store_limits]

    def remember(self, key: Key, cost: int, decision: Decision, asked_us: int) -> None:
        """Keep a refusal, unless the store must count those that follow."""
        if not self.terms.count_refused:
            self._denials.remember(key, cost, decision, asked_us)

    @property
    def lease_count(self) -> int:
        """How many keys have a lease here now."""
        return 0 if self._leases is None else len(self._leases)

    async def give_back(self, store: Store, *, every: bool = False) -> bool:
        """Give back the blocks of idle keys, or of all; whether there are others."""
        leases = self._leases
        if leases is None:
            return False
        for ended in leases.take_idle(self._clock(), every=every):
            await self._end_block(store, ended)
        return len(leases) > 0

    def decide_without_store(
        self,
        charges: Sequence[Charge],
        now_us: int,
        error: Unavailable | None,
        *,
        keep: bool = True,
    ) -> Ruling:
        """Decide as the failure policy says, since the store did not."""
        if error is not None:
            self.stores.watch.fail(error, self.terms.failure)
        cause = "" if error is None else str(error)
        decisions = failure_decisions(self.terms, charges, self._local, now_us, keep=keep)
        return Ruling(
            0, [decision.with_marks(degraded=True, cause=cause) for decision in decisions]
        )

    # Inside.

    def _apply_mode(self, decision: Decision) -> Decision:
        return as_trial(decision) if self.terms.mode is Mode.SHADOW else decision

    async def _take_from_block(
        self, store: Store, leases: Leases, block: KeyBlock, key: Key, cost: int
    ) -> Decision:
        """Fill the key's block and take `cost` of it, or wait for whoever is filling it."""
        while True:
            ticket = self.stores.ticket(store)
            failures = block.failures
            if leases.start_fill(block, ticket, cost, self._clock()):
                break
            await ticket.pause(FILL_US_MAX)
            now_us = self._clock()
            decision = self.take_here(key, cost, now_us)
            if decision is not None:
                return decision
            if block.failures != failures:
                charges = self.charges(key, cost)
                return binding(self.decide_without_store(charges, now_us, None).decisions)
        return await self._fill(store, leases, block, key, cost)

    async def _fill(
        self, store: Store, leases: Leases, block: KeyBlock, key: Key, cost: int
    ) -> Decision:
        sent_us = self._clock()
        charge = Charge(leases.rule_id, leases.limit, key, cost)
        try:
            grant = await store.take_some(charge, leases.ladder(block, cost, sent_us))
        except Unavailable as error:
            leases.end_fill(block, failed=True)
            return binding(self.decide_without_store([charge], sent_us, error).decisions)
        except BaseException:
            # Cancelled, say: that is no failure of the store, and one of those who wait goes on.
            leases.end_fill(block, failed=False)
            raise
        if self.stores.watch.away:
            self.stores.watch.answer()
        decision = grant.decision
        before = None
        if decision.allowed:
            before = leases.fill(key, block, cost, sent_us, grant)
            decision = decision.with_more(block.units.left)
            if self._observer is not None and block.units.left:
                self._observer.record_lease(self.terms.name, "taken", block.units.left)
        else:
            self.remember(key, cost, decision, sent_us)
        leases.end_fill(block, failed=False)
        self.stores.sweep(store, self.give_back)
        if before is not None:
            await self._end_block(store, before)
        return decision

    async def _end_block(self, store: Store, block: EndedBlock) -> None:
        """Report how a block ended, and give back what is left of it."""
        observer, name = self._observer, self.terms.name
        if observer is not None:
            if block.spent:
                observer.record_lease(name, "spent", block.spent)
                if self._record_lag is not None:
                    self._record_lag(name, block.age_us)
            if block.lapsed:
                observer.record_lease(name, "lapsed", block.lapsed)
            if block.left:
                observer.record_lease(name, "returned", block.left)
        if block.left:
            await self.settle_in(store, block.key, -block.left, block.taken_us)


def failure_decisions(
    terms: Terms, charges: Sequence[Charge], local: MemoryStore, now_us: int, *, keep: bool
) -> list[Decision]:
    """Decide as a rule's failure policy says."""
    if terms.failure is Failure.LOCAL:
        shares = [
            TableCharge(
                local.table(charge.rule_id, share_of(charge.limit, terms.local_share)),
                charge.key,
                charge.cost,
            )
            for charge in charges
        ]
        return take_all(shares, now_us, keep=keep)
    reason = STORE_UNAVAILABLE if terms.failure is Failure.CLOSED else None
    return [
        Decision(reason is None, 0, 0, 0, reason, rule_id, True, limit=limit.burst)
        for rule_id, limit, _, _ in charges
    ]


def share_of(limit: Limit, share: float) -> Limit:
    """Return the part of a limit that one process may admit by itself; at least one unit."""
    return Limit(
        max(1, int(limit.count * share)),
        period_us=limit.period_us,
        burst=max(1, int(limit.burst * share)) if limit.algorithm in BURSTING else None,
        cells=limit.cells if limit.algorithm is Algorithm.SLIDING_WINDOW else None,
        algorithm=limit.algorithm,
    )
