"""Limiter: the everyday entrance. Ask it for each unit of work; it answers with a decision.

    limiter = Limiter("100/minute")
    if not limiter.take("user:42"):
        ...

It parses each rule once, keeps a table for it, and calls it with the clock's instant. It is safe to
share between threads, and never waits for anything but their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, SupportsIndex, final

from headgate.contracts.clock import Clock
from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue
from headgate.contracts.rule import Algorithm, Limit
from headgate.limits.rates import format_rate, parse_rate
from headgate.stores.memory import KEYS_MAX_DEFAULT, RULES_MAX_DEFAULT, Keys, MemoryStore
from headgate.system import now_us as system_now_us

KEY_CHARS_MAX: Final = 4_096
COST_MAX: Final = 1 << 53
_NO_RULES: Final[Mapping[str, str | Limit]] = {}


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
        rule: str | Limit | None = None,
        *,
        rules: Mapping[str, str | Limit] = _NO_RULES,
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
        self._tables: dict[str | Limit, Keys] = {}
        for name, named in rules.items():
            if not name or "/" in name:
                raise BadValue("rules", name, "give a name without a slash, so it is not a rate")
            limit = self._limit_of(named, f"rules.{name}")
            self._tables[name] = self._store.table(name, limit)
        self._table: Keys | None = None if rule is None else self._table_of(rule)

    def take(self, key: str, cost: SupportsIndex = 1, rule: str | Limit | None = None) -> Decision:
        """Decide whether `key` may spend `cost` now; a refusal takes nothing."""
        if len(key) > KEY_CHARS_MAX:
            raise BadValue("key", key, f"at most {KEY_CHARS_MAX:,} characters; use a hash of it")
        units = cost if isinstance(cost, int) else _whole(cost)
        if not 0 <= units <= COST_MAX:
            raise BadValue("cost", cost, "give a whole number from 0 to 2^53")
        table = self._table if rule is None else self._tables.get(rule)
        if table is None:
            table = self._table_of(rule)
        clock = self._clock
        return table.take(key, units, system_now_us() if clock is None else clock.now_us())

    def keys_tracked(self, rule: str | Limit | None = None) -> int:
        """How many keys of a rule are tracked now; some may be at rest and not swept yet."""
        if rule is None and self._table is not None:
            return len(self._table)
        return len(self._table_of(rule))

    def _limit_of(self, rule: str | Limit, field: str) -> Limit:
        if isinstance(rule, Limit):
            return rule
        return parse_rate(rule, algorithm=self.algorithm, field=field)

    def _table_of(self, rule: str | Limit | None) -> Keys:
        if rule is None:
            raise BadValue("rule", rule, 'give one, here or to Limiter(): rule="100/minute"')
        table = self._tables.get(rule)
        if table is None:
            limit = (
                rule
                if isinstance(rule, Limit)
                else parse_rate(rule, algorithm=self.algorithm, field="rule")
            )
            # Two spellings of one limit share its state, and are reported as one rule.
            table = self._store.table(_rule_id(limit), limit)
            if len(self._tables) < 2 * self._store.rules_max:
                self._tables[rule] = table
        return table


def _rule_id(limit: Limit) -> str:
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


def _whole(cost: SupportsIndex) -> int:
    try:
        return cost.__index__()
    except AttributeError:
        raise BadValue("cost", cost, "give a whole number from 0 to 2^53") from None
