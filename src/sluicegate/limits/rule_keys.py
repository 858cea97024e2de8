"""Rule keys: the keys of each rule of a limiter, made once, and how rules are replaced.

A rule is read into its terms, every one of them said or a default; the limiter makes keys for the
terms. Nothing here decides, and nothing here is on the way of a decision but one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from sluicegate.contracts.edge import flag, share, text
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.pace import COUNT_MAX
from sluicegate.limits.lease import block_max
from sluicegate.limits.rates import RATE_REMEDY, format_rate, parse_rates
from sluicegate.limits.rule import LEASE_REMEDY, RULE_REMEDY, Failure, Rule, RuleLike
from sluicegate.limits.terms import Terms
from sluicegate.stores.memory.store import too_many_rules
from sluicegate.stores.memory.table import LimitKeys

_NAMES_LISTED: Final = 10
_BOOKED_US_MAX: Final = 365 * 86_400 * 1_000_000  # how far ahead a unit may be booked


@final
class Defaults:
    """The terms of rules that do not say their own."""

    __slots__ = ("algorithm", "count_refused", "failure", "lease", "local_share")

    def __init__(
        self,
        algorithm: Algorithm,
        failure: Failure,
        local_share: float,
        lease: str | int | None,
        count_refused: bool,
    ) -> None:
        share("local_share", local_share)
        flag("count_refused", count_refused)
        if lease is not None and not isinstance(lease, str | int):
            raise BadValue("lease", lease, LEASE_REMEDY)
        if isinstance(lease, str):
            block_max(Limit(1, period_us=1), lease)  # a bad one is told here
        self.algorithm = algorithm
        self.failure = failure
        self.local_share = local_share
        self.lease = lease
        self.count_refused = count_refused


@final
class RuleKeys:
    """The keys of each rule, by every spelling of it that was asked for."""

    def __init__(
        self, defaults: Defaults, make: Callable[[Terms], LimitKeys], rules_max: int
    ) -> None:
        self._defaults = defaults
        self._make = make
        self._rules_max = rules_max
        self._named: dict[str, tuple[Terms, LimitKeys]] = {}
        self._sources: dict[str, RuleLike] = {}
        self._unnamed: dict[Terms, LimitKeys] = {}
        self._names: dict[LimitKeys, str] = {}
        self._rated: dict[tuple[LimitKeys, str], LimitKeys] = {}
        self._booked: dict[RuleLike, tuple[LimitKeys, list[int]]] = {}
        self.keys: dict[RuleLike, LimitKeys] = {}

    def keys_of(self, rule: RuleLike | None) -> LimitKeys:
        """Return the keys of a rule, made when first asked for."""
        if rule is None:
            raise BadValue("rule", rule, 'give one, here or to Limiter(): rule="100/minute"')
        if not isinstance(rule, str | Limit | Rule):
            raise BadValue("rule", rule, RULE_REMEDY)
        keys = self.keys.get(rule)
        if keys is None:
            if isinstance(rule, str) and "/" not in rule and not rule.strip()[:1].isdigit():
                raise self._unknown(rule)
            terms = self._terms(rule, None, "rule")
            keys = self._unnamed.get(terms)
            if keys is None:
                if len(self._unnamed) >= self._rules_max:
                    raise too_many_rules(terms.name, self._rules_max)
                keys = self._unnamed[terms] = self._make(terms)
                self._names[keys] = terms.name
            # Two spellings of one rule share its keys, and there is no end of spellings.
            if len(self.keys) < 2 * self._rules_max:
                self.keys[rule] = keys
        return keys

    def with_rate(self, keys: LimitKeys, rate: str) -> LimitKeys:
        """Return keys of their own for a rule that has another rate for some key."""
        rated = self._rated.get((keys, rate))
        if rated is None:
            name = self.name_of(keys)
            terms = self._terms(rate, f"{name} override {rate}", "rate")
            rated = self._unnamed.get(terms)
            if rated is None:
                if len(self._unnamed) >= self._rules_max:
                    raise too_many_rules(terms.name, self._rules_max)
                rated = self._unnamed[terms] = self._make(terms)
                self._names[rated] = name  # so that break-glass applies to overrides
            self._rated[keys, rate] = rated
        return rated

    def booked(self, rule: RuleLike) -> tuple[LimitKeys, list[int]] | None:
        """Return keys that may be taken ahead of time, and each limit's burst in microseconds.

        None for a rule with a window, which has no instant at which its next unit is free.
        """
        found = self._booked.get(rule)
        if found is not None:
            return found
        self.keys_of(rule)  # an unknown name is an error
        named = self._named.get(rule) if isinstance(rule, str) else None
        terms = self._terms(rule, None, "rule") if named is None else named[0]
        if any(limit.algorithm not in BURSTING for _, limit in terms.limits):
            return None
        ahead_us = [-(-limit.burst * limit.period_us // limit.count) for _, limit in terms.limits]
        wide = Terms(
            f"{terms.name} (booked)",
            [(f"{rule_id} (booked)", _widened(limit)) for rule_id, limit in terms.limits],
            failure=terms.failure,
            local_share=terms.local_share,
            lease=None,
            mode=terms.mode,
            count_refused=False,
        )
        keys = self._unnamed.get(wide)
        if keys is None:
            if len(self._unnamed) >= self._rules_max:
                raise too_many_rules(terms.name, self._rules_max)
            keys = self._unnamed[wide] = self._make(wide)
            self._names[keys] = terms.name  # so that break-glass applies to booked units
        if len(self._booked) < 2 * self._rules_max:
            self._booked[rule] = keys, ahead_us
        return keys, ahead_us

    def _unknown(self, name: str) -> BadValue:
        """Return the error about a text that is no rate: most likely the name of a rule."""
        names = sorted(self._named)
        listed = ", ".join(map(repr, names[:_NAMES_LISTED])) or "none"
        more = len(names) - _NAMES_LISTED
        listed += f" and {more:,} more" if more > 0 else ""
        return BadValue("rule", name, f"no rule has this name (there are: {listed}); {RATE_REMEDY}")

    def name_of(self, keys: LimitKeys) -> str:
        """Return the name of the rule whose keys these are."""
        return self._names.get(keys, "")

    def replace(self, rules: Mapping[str, RuleLike]) -> set[str]:
        """Have these named rules and no others; the ids of limits that nobody names any more.

        If one is bad, nothing changes.
        """
        if not isinstance(rules, Mapping):
            raise BadValue("rules", rules, 'give names and rules, as {"login": "5/minute"}')
        built: dict[str, tuple[Terms, LimitKeys]] = {}
        for name, rule in rules.items():
            text("rules", name, "give a name as a text")
            before = self._named.get(name)
            if before is not None and self._sources.get(name) is rule:
                built[name] = before  # nobody has to read it again
                continue
            if not name or "/" in name:
                raise BadValue("rules", name, "give a name without a slash, so it is not a rate")
            if not isinstance(rule, str | Limit | Rule):
                raise BadValue(f"rules.{name}", rule, RULE_REMEDY)
            terms = self._terms(rule, name, f"rules.{name}")
            # What stays as it is keeps all it has: counts, leases, denials.
            same = before is not None and before[0] == terms
            built[name] = before if before is not None and same else (terms, self._make(terms))
        for name, (_, keys) in self._named.items():
            self._names.pop(keys, None)
            del self.keys[name]
        for name, (_, keys) in built.items():
            self.keys[name] = keys
            self._names[keys] = name
        self._booked.clear()  # a name may mean another rule now
        self._rated.clear()
        dropped = _limit_ids(self._named) - _limit_ids(built)
        self._named = built
        self._sources = dict(rules)
        return dropped

    def _terms(self, source: RuleLike, name: str | None, field: str) -> Terms:
        rule = source if isinstance(source, Rule) else Rule(source)
        defaults = self._defaults
        algorithm = rule.algorithm or defaults.algorithm
        limits: list[Limit] = []
        for one in rule.limits:
            if isinstance(one, Limit):
                limits.append(one)
            else:
                limits += parse_rates(one, algorithm=algorithm, field=field)
        harsh = defaults.count_refused if rule.count_refused is None else rule.count_refused
        whole = name or "; ".join([_rate_text(limit) for limit in limits])
        alone = len(limits) == 1
        return Terms(
            whole,
            [(whole if alone else f"{whole}: {_rate_text(limit)}", limit) for limit in limits],
            failure=rule.failure or defaults.failure,
            local_share=rule.local_share or defaults.local_share,
            lease=self._lease(rule, limits, harsh=harsh),
            mode=rule.mode,
            count_refused=harsh,
        )

    def _lease(self, rule: Rule, limits: list[Limit], *, harsh: bool) -> str | int | None:
        if rule.lease is not None:
            if len(limits) > 1:
                raise BadValue("rule.lease", rule.lease, "leave it out, or say one limit only")
            if harsh:
                raise BadValue("rule.lease", rule.lease, "leave it out, or count_refused")
            block_max(limits[0], rule.lease)
            return rule.lease
        # A default is for the rules that it suits.
        if harsh or len(limits) > 1 or limits[0].algorithm is Algorithm.SLIDING_LOG:
            return None
        return self._defaults.lease


def _widened(limit: Limit) -> Limit:
    """Return this limit with a burst that reaches `_BOOKED_US_MAX` ahead."""
    more = limit.count * _BOOKED_US_MAX // limit.period_us
    burst = min(limit.burst + more, COUNT_MAX)
    return Limit(limit.count, period_us=limit.period_us, burst=burst)


def _limit_ids(named: Mapping[str, tuple[Terms, LimitKeys]]) -> set[str]:
    return {rule_id for terms, _ in named.values() for rule_id, _ in terms.limits}


def _rate_text(limit: Limit) -> str:
    rate = format_rate(limit)
    if limit.algorithm is Algorithm.GCRA:
        return rate
    return f"{rate} by {limit.algorithm.value}"
