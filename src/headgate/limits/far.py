"""Far: rules whose state is in a store that answers later, or does not answer.

Around each ask of the store stand three things that spare it or replace it. A *denial*: a key that
was refused is refused here until the instant the refusal named, without asking again. A *lease*: a
block of units that was taken in advance is spent here. A *failure policy*: when the store does not
answer, the rule says whether to admit, to refuse, or to count here against a share of the limit;
such a decision is marked as degraded.

Each operation is written once, as a coroutine over the store it is handed. A task hands it the
store of its event loop; a thread hands it one that blocks, and steps the coroutine to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue, Unavailable
from headgate.contracts.reasons import STORE_UNAVAILABLE
from headgate.contracts.rule import BURSTING, Limit
from headgate.contracts.store import Charge, Ruling, Store
from headgate.limits.reservation import Reservation, Settling
from headgate.limits.rule import Failure, Mode
from headgate.limits.terms import Terms, tried_out, unasked
from headgate.limits.waiting import finish
from headgate.stores.memory.store import MemoryStore
from headgate.stores.memory.table import Ask, Keys
from headgate.stores.memory.together import binding, take_all

if TYPE_CHECKING:
    from headgate.limits.stores import Stores

# How long a refused key may be refused without asking again, and how many keys at once.
DENIAL_US_MAX: Final = 10_000_000
DENIALS_MAX: Final = 100_000


@final
class Denial:
    """A refusal that is believed until an instant, for whoever asks for as much or more."""

    __slots__ = ("asked_us", "cost", "decision", "until_us")

    def __init__(self, asked_us: int, until_us: int, cost: int, decision: Decision) -> None:
        self.asked_us = asked_us
        self.until_us = until_us
        self.cost = cost
        self.decision = decision


@final
class FarKeys(Keys):
    """The keys of one rule in a far store."""

    __slots__ = ("_denials", "_local", "stores", "terms")

    def __init__(self, stores: Stores, terms: Terms, local: MemoryStore) -> None:
        self.terms: Final = terms
        self.stores = stores
        self._local = local
        self._denials: dict[str, Denial] = {}

    # What a thread calls.

    def take(self, key: str, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if every limit has it."""
        decision = self.known(key, cost, now_us)
        if decision is None:
            decision = finish(self.ask(self.stores.blocking, key, cost, now_us))
        return decision

    def peek(self, key: str, cost: int, now_us: int) -> Decision:
        """What `take` would answer; nothing is taken."""
        return finish(self.look(self.stores.blocking, key, cost, now_us))

    def settle(self, key: str, correction: int, now_us: int, taken_us: int) -> None:
        """Charge more, or give back, at the store's own instant; `now_us` is not its time."""
        finish(self.correct(self.stores.blocking, key, correction, None))

    def reset(self, key: str) -> None:
        """Forget what `key` has taken."""
        finish(self.forget(self.stores.blocking, key))

    def asks(self, key: str, cost: int) -> list[Ask]:
        """Tables are near; a far rule has charges."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise BadValue("keys_tracked", self.terms.name, "ask the store: its keys are not here")

    # The same for whoever has a store at hand.

    def known(self, key: str, cost: int, now_us: int) -> Decision | None:
        """What can be decided without the store; None if it must be asked."""
        if self.terms.mode is not Mode.ENFORCE:
            if self.terms.mode is Mode.OFF:
                return unasked(self.terms)
            decision = self.denied(key, cost, now_us)
            return None if decision is None else tried_out(decision)
        return self.denied(key, cost, now_us)

    def denied(self, key: str, cost: int, now_us: int) -> Decision | None:
        """The refusal that still holds for this key; None if there is none."""
        denial = self._denials.get(key)
        if denial is None or cost < denial.cost:
            return None
        if now_us >= denial.until_us:
            self._denials.pop(key, None)
            return None
        was, passed_us = denial.decision, max(now_us - denial.asked_us, 0)
        return Decision(
            False,
            was.remaining,
            max(was.retry_after_us - passed_us, 1),
            max(was.reset_after_us - passed_us, 1),
            was.reason,
            was.rule_id,
        )

    async def ask(self, store: Store, key: str, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key`."""
        ruling = await self.rule(store, key, cost, now_us)
        decision = binding(ruling.decisions)
        return tried_out(decision) if self.terms.mode is Mode.SHADOW else decision

    async def rule(self, store: Store, key: str, cost: int, now_us: int) -> Ruling:
        """Take `cost` for `key`; every limit's decision, and the store's instant."""
        terms = self.terms
        charges = self.charges(key, cost)
        try:
            ruling = await store.take(charges, count_refused=terms.count_refused)
        except Unavailable:
            return self.without_store(charges, now_us)
        if not ruling.allowed:
            self.remember(key, cost, binding(ruling.decisions), now_us)
        return ruling

    async def reserve(self, store: Store, key: str, cost: int, now_us: int) -> Reservation:
        """Take `cost` as an estimate, to be settled."""
        known = self.known(key, cost, now_us)
        if known is not None:
            return Reservation(known, cost, FarSettling(self, key, None))
        ruling = await self.rule(store, key, cost, now_us)
        decision = binding(ruling.decisions)
        if self.terms.mode is Mode.SHADOW:
            decision = tried_out(decision)
        return Reservation(decision, cost, FarSettling(self, key, ruling.at_us))

    async def look(self, store: Store, key: str, cost: int, now_us: int) -> Decision:
        """What `ask` would answer."""
        if self.terms.mode is Mode.OFF:
            return unasked(self.terms)
        charges = self.charges(key, cost)
        try:
            ruling = await store.take(charges, keep=False)
        except Unavailable:
            ruling = self.without_store(charges, now_us, keep=False)
        decision = binding(ruling.decisions)
        return tried_out(decision) if self.terms.mode is Mode.SHADOW else decision

    async def correct(self, store: Store, key: str, correction: int, taken_us: int | None) -> bool:
        """Charge more than was taken at `taken_us`, or give back; False if it cannot be now.

        None is the store's now, which it alone knows.
        The estimate then stands: a correction is worth no error in the work it belongs to.
        """
        if self.terms.mode is Mode.OFF:
            return True
        if correction < 0:
            self._denials.pop(key, None)
        try:
            await store.settle(self.charges(key, correction), taken_us)
        except Unavailable:
            return False
        return True

    async def forget(self, store: Store, key: str) -> None:
        """Forget what `key` has taken; `Unavailable` if that cannot be done now."""
        self._denials.pop(key, None)
        await store.reset(self.charges(key, 0))

    def charges(self, key: str, cost: int) -> list[Charge]:
        """This key in each limit of the rule."""
        return [Charge(limit_id, limit, key, cost) for limit_id, limit in self.terms.limits]

    def remember(self, key: str, cost: int, decision: Decision, asked_us: int) -> None:
        """Believe a refusal until the instant it named, as seen from before the store was asked."""
        retry_us = decision.retry_after_us
        if retry_us <= 0 or self.terms.count_refused:
            # Never is said by the cost alone; and who is charged for refusals must be heard.
            return
        denials = self._denials
        if len(denials) >= DENIALS_MAX and key not in denials:
            denials.pop(next(iter(denials)), None)
        until_us = asked_us + min(retry_us, DENIAL_US_MAX)
        denials[key] = Denial(asked_us, until_us, cost, decision)

    def without_store(self, charges: Sequence[Charge], now_us: int, *, keep: bool = True) -> Ruling:
        """Decide as the failure policy says."""
        decisions = failed(self.terms, charges, self._local, now_us, keep=keep)
        return Ruling(0, [decision.marked(degraded=True) for decision in decisions])


@final
class FarSettling(Settling):
    """A far store."""

    __slots__ = ("_key", "_keys", "_taken_us")

    def __init__(self, keys: FarKeys, key: str, taken_us: int | None) -> None:
        self._keys = keys
        self._key = key
        self._taken_us = taken_us

    def now(self, correction: int) -> None:
        """Settle from a thread."""
        finish(
            self._keys.correct(self._keys.stores.blocking, self._key, correction, self._taken_us)
        )

    async def later(self, correction: int) -> None:
        """Settle from a task."""
        await self._keys.correct(self._keys.stores.here(), self._key, correction, self._taken_us)


def failed(
    terms: Terms, charges: Sequence[Charge], local: MemoryStore, now_us: int, *, keep: bool
) -> list[Decision]:
    """What a rule's failure policy decides."""
    if terms.failure is Failure.LOCAL:
        asks = [
            Ask(local.table(charge.limit_id, share_of(charge.limit, terms.local_share)), charge.key,
                charge.cost)
            for charge in charges
        ]  # fmt: skip
        return take_all(asks, now_us, keep=keep)
    reason = STORE_UNAVAILABLE if terms.failure is Failure.CLOSED else None
    return [Decision(reason is None, 0, 0, 0, reason, charge.limit_id) for charge in charges]


def share_of(limit: Limit, share: float) -> Limit:
    """The part of a limit that one process may admit by itself; at least one unit."""
    return Limit(
        max(1, int(limit.count * share)),
        limit.period_us,
        burst=max(1, int(limit.burst * share)) if limit.algorithm in BURSTING else None,
        algorithm=limit.algorithm,
    )
