"""Limiter: the everyday entrance. Ask it for each unit of work; it answers with a decision.

    limiter = Limiter("100/minute")
    if not limiter.take("user:42"):
        ...

It parses each rule once, keeps a table for each of its limits, and calls it with the clock's
instant. It is safe to share between threads, and never waits for anything but their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, SupportsIndex, TypeAlias, final

from headgate.contracts.clock import Clock
from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue
from headgate.contracts.rule import Algorithm, Limit
from headgate.limits.limited import Cost, Key, Limited
from headgate.limits.rates import format_rate, parse_rates
from headgate.stores.memory.store import KEYS_MAX_DEFAULT, RULES_MAX_DEFAULT, MemoryStore
from headgate.stores.memory.table import Ask, Keys
from headgate.stores.memory.together import AllOf, binding, take_all
from headgate.system import now_us as system_now_us

# A rule: the name of one, a rate string (several with `;` between), or a limit.
Rule: TypeAlias = str | Limit

KEY_CHARS_MAX: Final = 4_096
COST_MAX: Final = 1 << 53
CLAIMS_MAX: Final = 64
_NO_RULES: Final[Mapping[str, Rule]] = {}
_COST_REMEDY: Final = "give a whole number from 0 to 2^53"


class Claim(NamedTuple):
    """One of several things asked for together: a key, the rule for it, and what it costs."""

    key: str
    rule: Rule | None = None
    cost: SupportsIndex = 1


@final
class Limiter:
    """Limits by key, kept in this process.

    `rule` is a rate string or a `Limit`, used by every `take` that names no rule of its own.
    `rules` gives names to more of them: `take(key, rule="login")`. Each name has keys of its own.
    `algorithm` says how rate strings are counted. `keys_max` bounds the keys tracked for each rule
    and `rules_max` the rules.
    """

    __slots__ = ("_clock", "_store", "_table", "_tables", "algorithm")

    def __init__(
        self,
        rule: Rule | None = None,
        *,
        rules: Mapping[str, Rule] = _NO_RULES,
        algorithm: str | Algorithm = Algorithm.GCRA,
        keys_max: int = KEYS_MAX_DEFAULT,
        rules_max: int = RULES_MAX_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        if keys_max < 1:
            raise BadValue("keys_max", keys_max, "give the number of keys to track, at least 1")
        if rules_max < 1:
            raise BadValue("rules_max", rules_max, "give the number of rules to keep, at least 1")
        self.algorithm = _algorithm(algorithm)
        self._clock = clock
        self._store = MemoryStore(
            system_now_us if clock is None else clock.now_us,
            keys_max=keys_max,
            rules_max=rules_max,
        )
        self._tables: dict[Rule, Keys] = {}
        for name, named in rules.items():
            if not name or "/" in name:
                raise BadValue("rules", name, "give a name without a slash, so it is not a rate")
            self._tables[name] = self._make(self._limits_of(named, f"rules.{name}"), name)
        self._table: Keys | None = None if rule is None else self._table_of(rule)

    def take(self, key: str, cost: SupportsIndex = 1, rule: Rule | None = None) -> Decision:
        """Decide whether `key` may spend `cost` now; a refusal takes nothing from any limit."""
        if len(key) > KEY_CHARS_MAX:
            raise _key_too_long(key)
        units = cost if isinstance(cost, int) else _whole(cost)
        if not 0 <= units <= COST_MAX:
            raise BadValue("cost", cost, _COST_REMEDY)
        table = self._table if rule is None else self._tables.get(rule)
        if table is None:
            table = self._table_of(rule)
        clock = self._clock
        return table.take(key, units, system_now_us() if clock is None else clock.now_us())

    def peek(self, key: str, cost: SupportsIndex = 1, rule: Rule | None = None) -> Decision:
        """What `take` would decide now; nothing is taken."""
        return self._asked(rule).peek(_checked(key), _units(cost), self._now_us())

    def take_all(self, *claims: Claim) -> Decision:
        """Take every claim or none: different keys, rules and costs, decided as one.

        The decision is the binding one: the refusal that lasts longest, or the least that is left.
        """
        if not 1 <= len(claims) <= CLAIMS_MAX:
            raise BadValue("claims", len(claims), f"give from 1 to {CLAIMS_MAX}")
        asks: list[Ask] = []
        for claim in claims:
            asks += self._asked(claim.rule).asks(_checked(claim.key), _units(claim.cost))
        return binding(take_all(asks, self._now_us()))

    def limit(self, rule: Rule | None = None, *, key: Key, cost: Cost = 1) -> Limited:
        """Put a limit around a function or a block; what is refused raises `Refused`."""
        self._asked(rule)  # a bad rule is told here, not at the first call
        return Limited(partial(self.take, rule=rule), key, cost)

    def reserve(self, key: str, cost: SupportsIndex = 1, rule: Rule | None = None) -> Reservation:
        """Take an estimate now, to be settled when the true cost is known."""
        table, units, now_us = self._asked(rule), _units(cost), self._now_us()
        decision = table.take(_checked(key), units, now_us)
        return Reservation(self, table, key, units, decision, now_us)

    def refund(self, key: str, cost: SupportsIndex = 1, rule: Rule | None = None) -> None:
        """Give back what was taken and not used; a limit is never fuller than full."""
        now_us = self._now_us()
        self._asked(rule).settle(_checked(key), -_units(cost), now_us, now_us)

    def charge(self, key: str, cost: SupportsIndex = 1, rule: Rule | None = None) -> None:
        """Take `cost` whether it is there or not: for work that is done already.

        A window fills up to its limit; the others go into debt by one burst at most.
        """
        now_us = self._now_us()
        self._asked(rule).settle(_checked(key), _units(cost), now_us, now_us)

    def reset(self, key: str, rule: Rule | None = None) -> None:
        """Forget what `key` has taken under this rule."""
        self._asked(rule).reset(_checked(key))

    def keys_tracked(self, rule: Rule | None = None) -> int:
        """How many keys of a rule are tracked now; some may be at rest and not swept yet."""
        return len(self._asked(rule))

    def _now_us(self) -> int:
        clock = self._clock
        return system_now_us() if clock is None else clock.now_us()

    def _asked(self, rule: Rule | None) -> Keys:
        if rule is None and self._table is not None:
            return self._table
        return self._table_of(rule)

    def _table_of(self, rule: Rule | None) -> Keys:
        if rule is None:
            raise BadValue("rule", rule, 'give one, here or to Limiter(): rule="100/minute"')
        table = self._tables.get(rule)
        if table is None:
            # Two spellings of one rule share its state, and are reported as one.
            table = self._make(self._limits_of(rule, "rule"), None)
            if len(self._tables) < 2 * self._store.rules_max:
                self._tables[rule] = table
        return table

    def _limits_of(self, rule: Rule, field: str) -> list[Limit]:
        if isinstance(rule, Limit):
            return [rule]
        return parse_rates(rule, algorithm=self.algorithm, field=field)

    def _make(self, limits: list[Limit], name: str | None) -> Keys:
        if len(limits) == 1:
            return self._store.table(_written(limits[0]) if name is None else name, limits[0])
        whole = "; ".join([_written(limit) for limit in limits]) if name is None else name
        return AllOf([self._store.table(f"{whole}: {_written(limit)}", limit) for limit in limits])


@final
class Reservation:
    """An estimate that was taken. Settle it once, with what the work truly cost.

    Used in a `with`, it gives everything back if the block fails before it was settled.
    """

    __slots__ = ("_key", "_limiter", "_open", "_reserved", "_table", "_taken_us", "decision")

    def __init__(
        self,
        limiter: Limiter,
        table: Keys,
        key: str,
        reserved: int,
        decision: Decision,
        taken_us: int,
    ) -> None:
        self._limiter = limiter
        self._table = table
        self._key = key
        self._reserved = reserved
        self._open = decision.allowed
        self._taken_us = taken_us
        self.decision = decision

    def settle(self, cost: SupportsIndex) -> bool:
        """Charge the true cost in place of the estimate; False if it was settled before."""
        units = _units(cost)
        if not self._open:
            return False
        self._open = False
        if units != self._reserved:
            correction, now_us = units - self._reserved, self._limiter._now_us()
            self._table.settle(self._key, correction, now_us, self._taken_us)
        return True

    def cancel(self) -> bool:
        """Give the estimate back: the work was not done. False if it was settled before."""
        return self.settle(0)

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            self.cancel()


def _written(limit: Limit) -> str:
    rate = format_rate(limit)
    if limit.algorithm is Algorithm.GCRA:
        return rate
    return f"{rate} by {limit.algorithm.value}"


def _algorithm(name: str | Algorithm) -> Algorithm:
    if isinstance(name, Algorithm):
        return name
    try:
        return Algorithm(name)
    except ValueError:
        names = ", ".join(member.value for member in Algorithm)
        raise BadValue("algorithm", name, f"give one of {names}") from None


def _checked(key: str) -> str:
    if len(key) > KEY_CHARS_MAX:
        raise _key_too_long(key)
    return key


def _key_too_long(key: str) -> BadValue:
    return BadValue("key", key, f"at most {KEY_CHARS_MAX:,} characters; use a hash of it")


def _units(cost: SupportsIndex) -> int:
    units = cost if isinstance(cost, int) else _whole(cost)
    if not 0 <= units <= COST_MAX:
        raise BadValue("cost", cost, _COST_REMEDY)
    return units


def _whole(cost: SupportsIndex) -> int:
    try:
        return cost.__index__()
    except AttributeError:
        raise BadValue("cost", cost, _COST_REMEDY) from None
