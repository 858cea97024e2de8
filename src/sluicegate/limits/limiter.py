"""Limiter: asked before each unit of work, it returns a decision.

    limiter = Limiter("100/minute")
    if not limiter.take("user:42"):
        ...

It reads each rule once, keeps its keys (tables in this process, or names in a remote store), and
asks them with the clock's instant. It is safe to share between threads and event loops. In this
process it never waits for anything but a table's lock; `take` on a remote store blocks its thread
for a round trip, `atake` its task. The a-names are the same operations for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.edge import Given, flag, seconds, text, whole
from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.must_await import AwaitedBlock, must_await
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Key, SharedKey, Store
from sluicegate.limits.claims import AnyClaim, Claim, judge_local, judge_remote, judgement_of
from sluicegate.limits.glass.break_glass import ALL, Glass, Opening, override_decision
from sluicegate.limits.remote_keys import RemoteKeys
from sluicegate.limits.reservation import Reservation, Reservations
from sluicegate.limits.rule import Failure, Mode, Rule, RuleLike, term
from sluicegate.limits.rule_keys import Defaults, RuleKeys
from sluicegate.limits.terms import KeysWithTerms, Terms
from sluicegate.limits.wait_lines import (
    WAITERS_MAX_DEFAULT,
    ThreadTicket,
    Ticket,
    WaitLines,
    finish,
    task_ticket,
    ticket_on,
)
from sluicegate.limits.wrapper import CallCost, CallKey, LimitWrapper
from sluicegate.stores.memory.joint import AllOf
from sluicegate.stores.memory.store import (
    KEYS_MAX_DEFAULT,
    RULES_MAX_DEFAULT,
    MemoryStore,
)
from sluicegate.stores.memory.table import Estimate, KeyTable, LimitKeys, LocalKeys
from sluicegate.system import now_us as system_now_us
from sluicegate.wire.text import shorten

if TYPE_CHECKING:
    from sluicegate.limits.glass.follower import GlassFollower
    from sluicegate.limits.glass.sources import GlassSource
    from sluicegate.limits.stores import LimitStores

T = TypeVar("T")

MEMORY_URLS: Final = frozenset({"memory:", "memory://", "async+memory://"})
KEY_CHARS_MAX: Final = 4_096
COST_MAX: Final = 1 << 53
GLASS_S_MAX: Final = 10.0  # for a change of overrides
CLAIMS_MAX: Final = 64
_NO_RULES: Final[Mapping[str, RuleLike]] = {}
_COST_REMEDY: Final = "give a whole number from 0 to 2^53"


@final
class Limiter:
    """Limits by key, in this process or in a store that several share.

    `rule` is a rate string, a `Limit` or a `Rule`, used by every `take` that names no rule of its
    own. `rules` gives names to more of them: `take(key, rule="login")`; each name has keys of its
    own. `store_url` says where the counts are: `memory:`, `redis://...`, `redis+cluster://...`,
    `redis+sentinel://...`, `sluicegate://...`. `algorithm` says how rate strings are counted.

    `failure`, `local_share`, `lease` and `count_refused` are the terms of rules that do not say
    their own; see `Rule`. `keys_max` bounds the keys tracked here for each rule, `rules_max` the
    rules, `waiters_max` the line for one key. `prefix` begins every key in a remote store.

    `observer` is told of every decision. `glass` says where it is looked up whether the glass is
    broken (`redis://...`, `file:/path`, or True for the Redis of `store_url`): then rules or
    callers are admitted without asking. With `open_store`, a store of yours takes the place of a
    URL: it is called once an event loop.
    With `require_store`, `Unavailable` is raised here if the store does not answer now.
    """

    __slots__ = (
        "_clock",
        "_follower",
        "_glass",
        "_guard_observer",
        "_lines",
        "_observer",
        "_remote",
        "_rule",
        "_rule_keys",
        "_store",
        "_table",
        "_tables",
    )

    def __init__(
        self,
        rule: Given[RuleLike | None] = None,
        *,
        store_url: Given[str] = "memory:",
        rules: Given[Mapping[str, RuleLike]] = _NO_RULES,
        algorithm: Given[str | Algorithm] = Algorithm.GCRA,
        failure: Given[str | Failure] = Failure.OPEN,
        local_share: Given[float] = 1.0,
        lease: Given[str | int | None] = None,
        count_refused: Given[bool] = False,
        keys_max: Given[int] = KEYS_MAX_DEFAULT,
        rules_max: Given[int] = RULES_MAX_DEFAULT,
        waiters_max: Given[int] = WAITERS_MAX_DEFAULT,
        prefix: Given[str] = "rate_limit",
        observer: Given[Observer | None] = None,
        glass: Given[Glass | str | bool | None] = None,
        open_store: Given[Callable[[], Store] | None] = None,
        require_store: Given[bool] = False,
        clock: Given[Clock | None] = None,
    ) -> None:
        for name, bound, of in (
            ("keys_max", keys_max, "keys to track"),
            ("rules_max", rules_max, "rules to keep"),
            ("waiters_max", waiters_max, "waiters to hold"),
        ):
            whole(name, bound, 1, COST_MAX, f"give the number of {of}, at least 1")
        check_store(store_url, prefix)
        _check_parts(observer, glass, open_store, clock)
        defaults = Defaults(
            term(Algorithm, "algorithm", algorithm),
            term(Failure, "failure", failure),
            local_share,
            lease,
            count_refused,
        )
        self._clock: Clock | None = clock
        self._store = MemoryStore(
            system_now_us if clock is None else clock.now_us,
            keys_max=keys_max,
            rules_max=rules_max,
        )
        guarded_observer = None if observer is None else _guard_observer(observer)
        self._guard_observer = guarded_observer
        # One that counts round trips alone is not told of decisions: each would cost a call.
        self._observer = guarded_observer if getattr(observer, "wants_decisions", True) else None
        self._follower: GlassFollower | None = None
        if glass is True:
            glass = store_url
        if isinstance(glass, str):
            self._follower = _follow(glass, prefix, clock)
            glass = self._follower.glass
        self._glass: Glass | None = glass if isinstance(glass, Glass) else None
        self._remote: LimitStores | None = None
        if open_store is not None or store_url not in MEMORY_URLS:
            self._remote = _open_remote(
                store_url, prefix, open_store, guarded_observer, self._now_us
            )
        self._lines = WaitLines(self._now_us, waiters_max)
        self._rule_keys = RuleKeys(defaults, self._make, rules_max)
        self._tables = self._rule_keys.keys
        self._rule_keys.replace(rules)
        self._table: LimitKeys | None = None if rule is None else self._rule_keys.keys_of(rule)
        self._rule: RuleLike | None = rule  # after `keys_of`, which says what is wrong with it
        if flag("require_store", require_store) and self._remote is not None:
            self._remote.check()

    # Ask.

    def take(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Decision:
        """Decide whether `key` may spend `cost` now; a refusal takes nothing from any limit."""
        # One by one: compiled, a check against a union makes the union first.
        if not isinstance(key, str) and not isinstance(key, SharedKey):
            raise _not_a_key(key)
        if len(key) > KEY_CHARS_MAX:
            key = _short(key)
        cost_units = cost if isinstance(cost, int) else _whole(cost)
        if not 0 <= cost_units <= COST_MAX:
            raise BadValue("cost", cost, _COST_REMEDY)
        table = self.keys_of(rule)
        clock = self._clock
        now_us = system_now_us() if clock is None else clock.now_us()
        if self._glass is None and self._observer is None:
            return table.take(key, cost_units, now_us)
        decision = self._overridden(table, key, now_us)
        if decision is None:
            decision = self._rated(table, key, now_us).take(key, cost_units, now_us)
        return self._record(decision, key, now_us)

    def atake(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, Decision]:
        """`take`, for asyncio."""
        return must_await(self._atake(key, cost, rule), "Limiter.atake")

    async def _atake(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Decision:
        table, cost_units, now_us = self.keys_of(rule), _units(cost), self._now_us()
        key = check_key(key)
        decision = self._overridden(table, key, now_us)
        if decision is None:
            table = self._rated(table, key, now_us)
            decision = table.take_here(key, cost_units, now_us)
        if decision is None:
            decision = await table.atake(key, cost_units, now_us)
        return decision if self._observer is None else self._record(decision, key, now_us)

    def peek(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Decision:
        """Return what `take` would decide now; nothing is taken."""
        key, now_us = check_key(key), self._now_us()
        return self._rated(self.keys_of(rule), key, now_us).peek(key, _units(cost), now_us)

    def apeek(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, Decision]:
        """`peek`, for asyncio."""
        return must_await(self._apeek(key, cost, rule), "Limiter.apeek")

    async def _apeek(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Decision:
        key, now_us = check_key(key), self._now_us()
        return await self._rated(self.keys_of(rule), key, now_us).apeek(key, _units(cost), now_us)

    def wait(
        self,
        key: Given[Key],
        cost: SupportsIndex = 1,
        rule: Given[RuleLike | None] = None,
        *,
        timeout_s: Given[float | None] = None,
    ) -> Decision:
        """Wait until `key` may spend `cost`, for at most `timeout_s`; first come, first served.

        The answer is a refusal as soon as it is clear that the wait would be too long.
        """
        keys, cost_units, began_us = self.keys_of(rule), _units(cost), self._now_us()
        key = check_key(key)
        rated = self._rated(keys, key, began_us)

        async def take() -> Decision:
            now_us = self._now_us()
            return self._overridden(keys, key, now_us) or rated.take(key, cost_units, now_us)

        async def look() -> Decision:
            return rated.peek(key, cost_units, self._now_us())

        ticket, timeout_us = ticket_on(self._clock, ThreadTicket()), _timeout_us(timeout_s)
        decision = finish(self._lines.wait((rated, key), ticket, take, look, timeout_us))
        return self._record(decision, key, began_us)

    def await_(
        self,
        key: Given[Key],
        cost: SupportsIndex = 1,
        rule: Given[RuleLike | None] = None,
        *,
        timeout_s: Given[float | None] = None,
    ) -> Coroutine[Any, Any, Decision]:
        """`wait`, for asyncio."""
        return must_await(self._await_(key, cost, rule, timeout_s=timeout_s), "Limiter.await_")

    async def _await_(
        self,
        key: Given[Key],
        cost: SupportsIndex = 1,
        rule: Given[RuleLike | None] = None,
        *,
        timeout_s: Given[float | None] = None,
    ) -> Decision:
        keys, cost_units, began_us = self.keys_of(rule), _units(cost), self._now_us()
        key = check_key(key)
        rated = self._rated(keys, key, began_us)

        async def take() -> Decision:
            now_us = self._now_us()
            decision = self._overridden(keys, key, now_us)
            decision = decision or rated.take_here(key, cost_units, now_us)
            return await rated.atake(key, cost_units, now_us) if decision is None else decision

        async def look() -> Decision:
            return await rated.apeek(key, cost_units, self._now_us())

        ticket, timeout_us = ticket_on(self._clock, task_ticket()), _timeout_us(timeout_s)
        decision = await self._lines.wait((rated, key), ticket, take, look, timeout_us)
        return self._record(decision, key, began_us)

    def book(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Decision | None:
        """Take `cost` at the next instant at which it is free, up to a year ahead.

        The decision is allowed, and its `retry_after_us` is how long to wait before the work may
        start. Booked units cannot be given back, and have a bucket separate from that of `take`.
        Returns None for a rule with a window, which has no such instant.
        """
        began_us = self._now_us()
        booked = self._booked(key, rule, began_us)
        if booked is None:
            return None
        keys, ahead_us = booked
        store = None if self._remote is None else self._remote.blocking
        judging = self._judge_in(store, [(keys, check_key(key), _units(cost))], began_us)
        return _with_wait(finish(judging)[0], ahead_us)

    def abook(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, Decision | None]:
        """`book`, for asyncio."""
        return must_await(self._abook(key, cost, rule), "Limiter.abook")

    async def _abook(
        self, key: Given[Key], cost: SupportsIndex, rule: Given[RuleLike | None]
    ) -> Decision | None:
        began_us = self._now_us()
        booked = self._booked(key, rule, began_us)
        if booked is None:
            return None
        keys, ahead_us = booked
        store = None if self._remote is None else self._remote.here()
        claims: list[AnyClaim] = [(keys, check_key(key), _units(cost))]
        return _with_wait((await self._judge_in(store, claims, began_us))[0], ahead_us)

    # Several at once.

    def judge(self, *claims: Given[Claim]) -> Judgement:
        """Take every claim or none; what binds, and what each limit said."""
        if len(claims) == 1 and self._remote is None and self._glass is None:
            # The way of most web requests: one rule, one limit, in this process.
            key, rule, cost = _claim(claims[0])
            table = self.keys_of(rule)
            if isinstance(table, KeyTable) and self._observer is None:
                decision = table.take(check_key(key), _units(cost), self._now_us())
                return Judgement(decision, (RuleDecision(decision.rule_id, table.limit, decision),))
        store = None if self._remote is None else self._remote.blocking
        resolved, began_us = self._resolve(claims), self._now_us()
        return finish(self._judge_in(store, resolved, began_us))[0]

    def ajudge(self, *claims: Given[Claim]) -> Coroutine[Any, Any, Judgement]:
        """`judge`, for asyncio."""
        return must_await(self._ajudge(*claims), "Limiter.ajudge")

    async def _ajudge(self, *claims: Given[Claim]) -> Judgement:
        if self._remote is None:
            return self.judge(*claims)
        resolved, began_us = self._resolve(claims), self._now_us()
        return (await self._judge_in(self._remote.here(), resolved, began_us))[0]

    async def _judge_in(
        self,
        store: Store | None,
        resolved: list[AnyClaim],
        began_us: int,
        instants: list[int] | None = None,
    ) -> tuple[Judgement, list[AnyClaim]]:
        """Return the judgement, and the claims that no broken glass has admitted."""
        undecided, overridden = self._split_overridden(resolved, began_us)
        if not undecided:
            judgement = judgement_of(overridden)
        elif store is None:
            judgement = judge_local(undecided, began_us, overridden)
            if instants is not None:
                instants.append(began_us)
        else:
            judgement = await judge_remote(store, undecided, began_us, overridden, instants)
        return self._record_judgement(judgement, resolved, began_us), undecided

    def take_all(self, *claims: Given[Claim]) -> Decision:
        """Take every claim or none: different keys, rules and costs, decided as one.

        The decision is the binding one: the refusal that lasts longest, or the least that is left.
        """
        return self.judge(*claims).decision

    def atake_all(self, *claims: Given[Claim]) -> Coroutine[Any, Any, Decision]:
        """`take_all`, for asyncio."""
        return must_await(self._atake_all(*claims), "Limiter.atake_all")

    async def _atake_all(self, *claims: Given[Claim]) -> Decision:
        return (await self.ajudge(*claims)).decision

    # Around work.

    def limit(
        self,
        rule: Given[RuleLike | None] = None,
        *,
        key: Given[CallKey],
        cost: CallCost = 1,
        wait_s: Given[float | None] = None,
    ) -> LimitWrapper:
        """Put a limit around a function or a block; what is refused raises `Refused`.

        With `wait_s`, a call waits up to so long for its turn before it is refused.
        """
        self.keys_of(rule)  # a bad rule is told here, not at the first call
        if wait_s is not None:
            wait = partial(self.wait, rule=rule, timeout_s=wait_s)
            return LimitWrapper(wait, partial(self.await_, rule=rule, timeout_s=wait_s), key, cost)
        return LimitWrapper(
            partial(self.take, rule=rule), partial(self.atake, rule=rule), key, cost
        )

    def reserve(
        self,
        key: Given[Key],
        cost: SupportsIndex = 1,
        rule: Given[RuleLike | None] = None,
        *,
        wait_s: Given[float | None] = None,
    ) -> Reservation:
        """Take an estimate now, to be settled when the true cost is known.

        With `wait_s`, wait up to so long for it, in the line of those that `wait`.
        """
        cost_units, key = _units(cost), check_key(key)
        keys = self._rated(self.keys_of(rule), key, self._now_us())

        async def estimate() -> Estimate:
            return keys.estimate(key, cost_units, self._now_us())

        async def look() -> Decision:
            return keys.peek(key, cost_units, self._now_us())

        if wait_s is None:
            return self._reservation(keys, key, cost_units, finish(estimate()))
        line = (ticket_on(self._clock, ThreadTicket()), _timeout_us(wait_s, "wait_s"))
        return finish(self._reserve_in_line(keys, key, cost_units, line, estimate, look))

    def areserve(
        self,
        key: Given[Key],
        cost: SupportsIndex = 1,
        rule: Given[RuleLike | None] = None,
        *,
        wait_s: Given[float | None] = None,
    ) -> AwaitedBlock[Reservation]:
        """`reserve`, for asyncio: `async with limiter.areserve(...)`; settle it with `asettle`."""
        return AwaitedBlock(self._areserve(key, cost, rule, wait_s), "Limiter.areserve")

    async def _areserve(
        self,
        key: Given[Key],
        cost: SupportsIndex,
        rule: Given[RuleLike | None],
        wait_s: Given[float | None],
    ) -> Reservation:
        cost_units, key = _units(cost), check_key(key)
        keys = self._rated(self.keys_of(rule), key, self._now_us())

        def estimate() -> Coroutine[Any, Any, Estimate]:
            return keys.aestimate(key, cost_units, self._now_us())

        def look() -> Coroutine[Any, Any, Decision]:
            return keys.apeek(key, cost_units, self._now_us())

        if wait_s is None:
            return self._reservation(keys, key, cost_units, await estimate())
        line = (ticket_on(self._clock, task_ticket()), _timeout_us(wait_s, "wait_s"))
        return await self._reserve_in_line(keys, key, cost_units, line, estimate, look)

    async def _reserve_in_line(
        self,
        keys: LimitKeys,
        key: Key,
        cost_units: int,
        line: tuple[Ticket, int | None],
        estimate: Callable[[], Coroutine[Any, Any, Estimate]],
        look: Callable[[], Coroutine[Any, Any, Decision]],
    ) -> Reservation:
        estimates: list[Estimate] = []

        async def take() -> Decision:
            estimates[:] = [await estimate()]
            return estimates[0][0]

        decision = await self._lines.wait((keys, key), line[0], take, look, line[1])
        # Who has never been first has never asked.
        if estimates and estimates[0][0] is decision:
            return self._reservation(keys, key, cost_units, estimates[0])
        return self._reservation(keys, key, 0, (decision, None))

    def _reservation(
        self, keys: LimitKeys, key: Key, cost_units: int, estimate: Estimate
    ) -> Reservation:
        decision, taken_us = estimate
        return Reservation(decision, cost_units, keys, key, taken_us, self._now_us)

    def reserve_all(self, *claims: Given[Claim]) -> Reservations:
        """Take every claim's estimate or none, as requests and tokens a minute together."""
        store = None if self._remote is None else self._remote.blocking
        return finish(self._reserve_all_in(store, claims))

    def areserve_all(self, *claims: Given[Claim]) -> AwaitedBlock[Reservations]:
        """`reserve_all`, for asyncio: await it or enter it; settle it with `asettle`."""
        return AwaitedBlock(self._areserve_all(*claims), "Limiter.areserve_all")

    async def _areserve_all(self, *claims: Given[Claim]) -> Reservations:
        store = None if self._remote is None else self._remote.here()
        return await self._reserve_all_in(store, claims)

    async def _reserve_all_in(
        self, store: Store | None, claims: tuple[Given[Claim], ...]
    ) -> Reservations:
        """Return what there is to settle; what was let through by a broken glass is not charged."""
        resolved, began_us = self._resolve(claims), self._now_us()
        instants: list[int] = []
        judgement, undecided = await self._judge_in(store, resolved, began_us, instants)
        taken_us = instants[0] if instants else None
        parts = [
            Reservation(
                judgement.decision,
                cost_units,
                keys,
                key,
                taken_us,
                self._now_us,
                charged=any(other is keys and name == key for other, name, _ in undecided),
            )
            for keys, key, cost_units in resolved
        ]
        return Reservations(judgement.decision, parts)

    # Exceptions.

    def override(
        self,
        key: Given[str],
        rate: Given[str],
        rule: Given[str | None] = None,
        *,
        ttl_s: Given[float],
        by: Given[str] = "program",
        why: Given[str] = "Limiter.override",
    ) -> Opening:
        """Hold `key` to another rate for `ttl_s` seconds, in every process that follows `glass`.

        Without a rule, the rate holds under every rule of this limiter. It replaces an earlier
        override of the key under the same rule. This process follows it on return, others within a
        second. The key begins with a full limit of the
        new rate. Pass the `id` of the result to `end_override`. `sluicegate limits glass` lists and
        audits overrides.
        """
        return self._change_glass(_overriding(key, rate, self._name_of(rule), ttl_s, by, why))

    async def aoverride(
        self,
        key: Given[str],
        rate: Given[str],
        rule: Given[str | None] = None,
        *,
        ttl_s: Given[float],
        by: Given[str] = "program",
        why: Given[str] = "Limiter.override",
    ) -> Opening:
        """`override`, for asyncio."""
        return await self._achange_glass(
            _overriding(key, rate, self._name_of(rule), ttl_s, by, why)
        )

    def end_override(self, override_id: Given[str], *, by: Given[str] = "program") -> None:
        """End an override before its time."""
        self._change_glass(lambda source: source.mend(override_id, by=by))

    async def aend_override(self, override_id: Given[str], *, by: Given[str] = "program") -> None:
        """`end_override`, for asyncio."""
        await self._achange_glass(lambda source: source.mend(override_id, by=by))

    def overrides(self) -> list[Opening]:
        """Return the overrides in force in this process, oldest first."""
        glass = self._glass
        standing = [] if glass is None else glass.standing(self._now_us())
        return [one for one in standing if one.rate]

    def _name_of(self, rule: Given[str | None]) -> str:
        return ALL if rule is None else self._rule_keys.name_of(self.keys_of(rule))

    def _change_glass(self, change: Callable[[GlassSource], Coroutine[Any, Any, T]]) -> T:
        return self._followed().change(change).result(GLASS_S_MAX)

    async def _achange_glass(self, change: Callable[[GlassSource], Coroutine[Any, Any, T]]) -> T:
        from asyncio import wrap_future  # noqa: PLC0415 - see above

        return await wrap_future(self._followed().change(change))

    def _followed(self) -> GlassFollower:
        if self._follower is None:
            remedy = "give Limiter(glass=True) in each process to keep overrides in its Redis"
            raise BadValue("glass", self._glass, remedy)
        return self._follower

    # Correct.

    def refund(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> None:
        """Give back what was taken just now and not used; a limit is never fuller than full."""
        self.keys_of(rule).settle(check_key(key), -_units(cost), self._now_us(), None)

    def arefund(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, None]:
        """`refund`, for asyncio."""
        return must_await(self._acorrect(key, -_units(cost), rule), "Limiter.arefund")

    def charge(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> None:
        """Take `cost` whether it is there or not: for work that is done already.

        A window fills up to its limit; the others go into debt by one burst at most.
        """
        self.keys_of(rule).settle(check_key(key), _units(cost), self._now_us(), None)

    def acharge(
        self, key: Given[Key], cost: SupportsIndex = 1, rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, None]:
        """`charge`, for asyncio."""
        return must_await(self._acorrect(key, _units(cost), rule), "Limiter.acharge")

    def reset(self, key: Given[Key], rule: Given[RuleLike | None] = None) -> None:
        """Forget what `key` has taken under this rule."""
        self.keys_of(rule).reset(check_key(key))

    def areset(
        self, key: Given[Key], rule: Given[RuleLike | None] = None
    ) -> Coroutine[Any, Any, None]:
        """`reset`, for asyncio."""
        return must_await(self._areset(key, rule), "Limiter.areset")

    async def _areset(self, key: Given[Key], rule: Given[RuleLike | None]) -> None:
        await self.keys_of(rule).areset(check_key(key))

    # Rules, and the end.

    def replace_rules(self, rules: Given[Mapping[str, RuleLike]]) -> None:
        """Have these named rules instead of the ones there are.

        A rule that stays as it is keeps its counts. Where limits are kept in this process, one
        whose limit has changed starts afresh.
        """
        self._store.drop(self._rule_keys.replace(rules))

    def ready(self) -> Coroutine[Any, Any, None]:
        """Return when the store answers this event loop; raise `Unavailable` if it does not."""
        return must_await(self._ready(), "Limiter.ready")

    async def _ready(self) -> None:
        if self._remote is not None:
            await self._remote.ready()

    def pin(self) -> None:
        """Say that nobody but the running event loop will ever ask; it spares a look at each."""
        if self._remote is not None:
            self._remote.pin()

    @property
    def local(self) -> bool:
        """Whether counts are kept in this process, so that nothing here ever waits for them."""
        return self._remote is None

    def limits_of(self, rule: Given[RuleLike | None] = None) -> list[Limit]:
        """Return the limits of a rule."""
        return self.keys_of(rule).limits()

    def keys_tracked(self, rule: Given[RuleLike | None] = None) -> int:
        """Return how many keys of a rule are tracked now; some may be at rest and not swept yet."""
        keys = self.keys_of(rule)
        if not isinstance(keys, LocalKeys):
            raise BadValue("keys_tracked", rule, "ask the store: its keys are not here")
        return len(keys)

    def close(self) -> None:
        """Give back what is leased, and what threads have opened.

        A loop's own connections want `aclose`.
        """
        if self._follower is not None:
            self._follower.close()
        remote = self._remote
        if remote is not None:
            for keys in self._keys_with_leases():
                finish(keys.give_back(remote.blocking, every=True))
            remote.close()

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Give back what is leased, and what this event loop and threads have opened."""
        return must_await(self._aclose(), "Limiter.aclose")

    async def _aclose(self) -> None:
        remote = self._remote
        if remote is not None:
            for keys in self._keys_with_leases():
                await keys.give_back(remote.here(), every=True)
            await remote.aclose()
            remote.close()
        if self._follower is not None:
            self._follower.close()

    def _keys_with_leases(self) -> list[RemoteKeys]:
        return [
            keys
            for keys in {*self._rule_keys.keys.values()}
            if isinstance(keys, RemoteKeys) and keys.lease_count
        ]

    async def __aenter__(self) -> Limiter:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.aclose()

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    # Inside.

    def _now_us(self) -> int:
        clock = self._clock
        return system_now_us() if clock is None else clock.now_us()

    def _overridden(self, keys: LimitKeys, key: Key, now_us: int) -> Decision | None:
        """Return the decision where the glass is broken; None where it is whole."""
        glass = self._glass
        if glass is None or not glass.broken:
            return None
        name = self._rule_keys.name_of(keys)
        if glass.opening_for(name, str(key), now_us) is None:
            return None
        return override_decision(name, min(limit.burst for limit in keys.limits()))

    def _rated(self, keys: LimitKeys, key: Key, now_us: int) -> LimitKeys:
        """Return the keys of the override's rate if `key` has an override, else `keys`."""
        rate = self._rate_of(keys, key, now_us)
        return self._rule_keys.with_rate(keys, rate) if rate else keys

    def _rate_of(self, keys: LimitKeys, key: Key, now_us: int) -> str:
        glass = self._glass
        if glass is None or not glass.broken:
            return ""
        return glass.rate_for(self._rule_keys.name_of(keys), str(key), now_us)

    def _split_overridden(
        self, resolved: list[AnyClaim], now_us: int
    ) -> tuple[list[AnyClaim], list[RuleDecision]]:
        """Return the claims that are to be decided, and those that a broken glass admits."""
        if self._glass is None or not self._glass.broken:
            return resolved, []
        undecided: list[AnyClaim] = []
        overridden: list[RuleDecision] = []
        for one in resolved:
            decision = self._overridden(one[0], one[1], now_us)
            if decision is None:
                undecided.append(one)
            else:
                overridden.append(RuleDecision(decision.rule_id, one[0].limits()[0], decision))
        return undecided, overridden

    def _record(self, decision: Decision, key: Key, began_us: int) -> Decision:
        observer = self._observer
        if observer is not None:
            observer.record_decision(decision, str(key), began_us, self._now_us())
        return decision

    def _record_judgement(
        self, judgement: Judgement, resolved: list[AnyClaim], began_us: int
    ) -> Judgement:
        if self._observer is not None:
            self._record(judgement.decision, resolved[0][1], began_us)
            for one in judgement.decisions:
                if one.decision.shadow and one.decision is not judgement.decision:
                    self._record(one.decision, resolved[0][1], began_us)
        return judgement

    async def _acorrect(
        self, key: Given[Key], correction: int, rule: Given[RuleLike | None]
    ) -> None:
        await self.keys_of(rule).asettle(check_key(key), correction, self._now_us(), None)

    def _resolve(self, claims: tuple[Given[Claim], ...]) -> list[AnyClaim]:
        if not 1 <= len(claims) <= CLAIMS_MAX:
            raise BadValue("claims", len(claims), f"give from 1 to {CLAIMS_MAX}")
        resolved: list[AnyClaim] = []
        for given, rule, cost in map(_claim, claims):
            keys, key = self.keys_of(rule), check_key(given)
            resolved.append((self._rated(keys, key, self._now_us()), key, _units(cost)))
        return resolved

    def keys_of(self, rule: Given[RuleLike | None]) -> LimitKeys:
        """Return the keys under a rule, by its name or itself; for who asks them more than once."""
        table: LimitKeys | None = None
        if rule is None:
            table = self._table
        elif isinstance(rule, (str, Limit, Rule)):  # compiled, a union would be made each time
            table = self._tables.get(rule)
        return self._rule_keys.keys_of(rule) if table is None else table

    def _booked(
        self, key: Given[Key], rule: Given[RuleLike | None], now_us: int
    ) -> tuple[LimitKeys, list[int]] | None:
        rate = self._rate_of(self.keys_of(rule), check_key(key), now_us)
        rule = rate or (self._rule if rule is None else rule)
        assert isinstance(rule, (str, Limit, Rule)), "keys_of raises for anything else"
        return self._rule_keys.booked(rule)

    def _make(self, terms: Terms) -> LimitKeys:
        if self._remote is not None:
            return RemoteKeys(self._remote, terms, self._store, self._now_us, self._guard_observer)
        tables = [self._store.table(rule_id, limit) for rule_id, limit in terms.limits]
        keys: LocalKeys = tables[0] if len(tables) == 1 else AllOf(tables)
        if terms.mode is Mode.ENFORCE and not terms.count_refused:
            return keys
        return KeysWithTerms(keys, terms)


# What needs asyncio or logging is imported when it is wanted: it would double the time of
# `import sluicegate`.


def _open_remote(
    store_url: str,
    prefix: str,
    open_store: Callable[[], Store] | None,
    observer: Observer | None,
    clock: Callable[[], int],
) -> LimitStores:
    from sluicegate.limits.stores import open_stores  # noqa: PLC0415

    try:
        return open_stores(store_url, prefix, open_store, observer, clock)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sluicegate"):
            raise
        raise MissingPackage(error.name, "redis") from None


def _follow(url: str, prefix: str, clock: Clock | None) -> GlassFollower:
    from sluicegate.limits.glass.follower import follow  # noqa: PLC0415

    return follow(url, clock=clock, prefix=prefix)


def _guard_observer(observer: Observer) -> Observer:
    """One that raises must not fail the decision it is told of."""
    from sluicegate.telemetry.observer_group import ObserverGroup  # noqa: PLC0415

    return ObserverGroup(observer)


def _overriding(
    key: str, rate: str, rule: str, ttl_s: float, by: str, why: str
) -> Callable[[GlassSource], Coroutine[Any, Any, Opening]]:
    def change(source: GlassSource) -> Coroutine[Any, Any, Opening]:
        return source.break_(rule=rule, key=key, for_s=ttl_s, by=by, why=why, rate=rate)

    return change


def _with_wait(judgement: Judgement, ahead_us: list[int]) -> Decision:
    """Return the decision with the longest wait of its limits in `retry_after_us`."""
    decision = judgement.decision
    if not decision.allowed or len(judgement.decisions) != len(ahead_us):
        return decision
    wait_us = 0
    for one, may_us in zip(judgement.decisions, ahead_us, strict=True):
        said = one.decision
        if not (said.shadow or said.degraded or said.overridden):
            wait_us = max(wait_us, said.reset_after_us - may_us)
    return Decision(
        True,
        decision.remaining,
        wait_us,
        decision.reset_after_us,
        decision.reason,
        decision.rule_id,
        decision.degraded,
        decision.shadow,
        decision.overridden,
        decision.limit,
        decision.cause,
    )


def check_store(store_url: Given[str], prefix: Given[str]) -> None:
    """Refuse what is no place of counts."""
    text("store_url", store_url, "give the URL of a store, as redis://localhost:6379/0")
    text("prefix", prefix, "give a text")


def _check_parts(
    observer: Given[Observer | None],
    glass: Given[Glass | str | bool | None],
    open_store: Given[Callable[[], Store] | None],
    clock: Given[Clock | None],
) -> None:
    """Refuse what would fail at the first decision only."""
    if observer is not None and not callable(getattr(observer, "record_decision", None)):
        raise BadValue("observer", observer, "give an object with the methods of an Observer")
    if glass is not None and not isinstance(glass, str | bool | Glass):
        raise BadValue("glass", glass, "give True for the store, the URL of a place, or a Glass")
    if open_store is not None and not callable(open_store):
        raise BadValue("open_store", open_store, "give a function that returns a store")
    if clock is not None and not callable(getattr(clock, "now_us", None)):
        raise BadValue("clock", clock, "give an object with a method now_us, or leave it out")


def _claim(claim: Any) -> Claim:
    if isinstance(claim, Claim):
        return claim
    if not isinstance(claim, tuple) or len(claim) != len(Claim._fields):
        raise BadValue("claims", claim, "give a Claim(key, rule, cost)")
    return Claim(*claim)


def _timeout_us(timeout_s: Given[float | None], field: str = "timeout_s") -> int | None:
    if timeout_s is None:
        return None
    seconds(field, timeout_s, "give seconds, 0 or more; None waits for ever")
    return int(min(timeout_s, 1e9) * 1e6)


def check_key(key: Given[Key]) -> Key:
    """Return a key as it is counted, or refuse what is no text."""
    if not isinstance(key, str) and not isinstance(key, SharedKey):
        raise _not_a_key(key)
    return _short(key) if len(key) > KEY_CHARS_MAX else key


def _short(key: Key) -> Key:
    """Return the beginning of a long key and a digest of all, so that it is limited as any other.

    An error instead would let pass whoever sends a long header, wherever errors let pass.
    """
    if isinstance(key, str):
        return shorten(key, KEY_CHARS_MAX)
    return SharedKey(shorten(key.entity, KEY_CHARS_MAX), key.rule_id)


def _not_a_key(key: object) -> BadValue:
    if isinstance(key, bytes):
        return BadValue("key", key, "give a text: key.decode(), or key.hex() of any bytes")
    return BadValue("key", key, 'give a text, as f"user:{user_id}"')


def _units(cost: SupportsIndex) -> int:
    cost_units = cost if isinstance(cost, int) else _whole(cost)
    if not 0 <= cost_units <= COST_MAX:
        raise BadValue("cost", cost, _COST_REMEDY)
    return cost_units


def _whole(cost: SupportsIndex) -> int:
    try:
        return cost.__index__()
    except AttributeError:
        raise BadValue("cost", cost, _COST_REMEDY) from None
