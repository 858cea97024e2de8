"""Match fields: reads the rules that say by `match` and `key` which requests they limit.

A reader notes what is wrong and returns what lets the others go on. The terms and the frame of a
file are read as those of all rules (`rule_fields.py`, `parser.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rates import RATES_MAX, parse_rates
from sluicegate.limits.rule import Mode, Rule
from sluicegate.rules.problems import FieldPath
from sluicegate.rules.rule_fields import RuleFields, is_count, lease_remedy
from sluicegate.rules.web.addresses import network_remedy
from sluicegate.rules.web.keys import KINDS, Key, parse_key
from sluicegate.rules.web.paths import Pattern, parse_pattern
from sluicegate.rules.web.rule import (
    COST_MAX_DEFAULT,
    VALUE_CHARS_MAX,
    VALUES_MAX,
    Condition,
    HeaderCost,
    Match,
    MatchRule,
)

METHODS_MAX: Final = 32
CONDITIONS_MAX: Final = 16

Plain: TypeAlias = Mapping[str, Any]

MATCH_TERMS: Final = ("algorithm", "failure", "local_share", "lease", "mode", "count_refused")
# Fields of match rules alone: a rule with any of them is a match rule.
MATCH_ONLY: Final = ("match", "key", "or_key", "cost", "stop", "exempt")
MATCH_FIELDS: Final = ("rule_id", "match", "key", "or_key", "limit", *MATCH_TERMS, *MATCH_ONLY[3:])
MATCH: Final = ("path", "method", "header", "address", "user")
COST: Final = ("header", "default", "max")
OF_EXEMPTIONS: Final = ("rule_id", "match", "exempt", "mode")

# It names a rule of the limiter, also in response headers.
MATCH_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_METHOD: Final = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_RATE_REMEDY: Final = 'write it as "100/minute"; several as "10/s; 1000/hour" or as a list'


class MatchFields(RuleFields):
    """Reads match rules."""

    def or_key_default(self, value: object) -> None:
        """Note what is wrong with an `or_key` for all match rules."""
        if value is not None:
            self._or_key(("defaults", "or_key"), value, Match())

    def match_rule(
        self, at: FieldPath, name: str, fields: Plain, defaults: Plain, or_default: object
    ) -> MatchRule | None:
        """The rule of this name that the fields say."""
        match = self._match((*at, "match"), fields.get("match"))
        if self.flag((*at, "exempt"), fields.get("exempt")):
            return self._exemption(at, name, fields, match)
        key = self._key((*at, "key"), fields.get("key"), match)
        or_key = self._or_key_of(at, fields, or_default, key, match)
        own = self.terms(at, fields, MATCH_TERMS)
        terms = {**defaults, **own}
        limits = self._limits((*at, "limit"), fields.get("limit"), terms)
        if limits and "lease" in terms and (wrong := _no_lease(limits, terms)):
            lease = terms.pop("lease")
            if "lease" in own:  # a default is only for those that can have it
                self.refuse((*at, "lease"), lease, wrong)
        cost = self._cost((*at, "cost"), fields.get("cost", 1))
        stop = self.flag((*at, "stop"), fields.get("stop")) is True
        if not limits or key is None:
            return None
        rule = Rule(limits, **terms)
        return MatchRule(name, match, key, or_key, rule, cost, stop, rule.mode is Mode.OFF)

    def _exemption(self, at: FieldPath, name: str, fields: Plain, match: Match) -> MatchRule:
        for field in fields:
            if field not in OF_EXEMPTIONS:
                self.refuse((*at, field), fields[field], "leave it out: an exemption has no limit")
        if match == Match():
            self.refuse((*at, "match"), fields.get("match"), "say what is exempt: not everything")
        mode = self.mode((*at, "mode"), fields.get("mode", "enforce"))
        if mode is Mode.SHADOW:
            self.refuse((*at, "mode"), "shadow", "an exemption is enforce or off")
        return MatchRule(name, match, off=mode is Mode.OFF)

    def _limits(self, at: FieldPath, value: object, terms: Plain) -> list[Limit]:
        values = value if isinstance(value, list) else [value]
        algorithm = terms.get("algorithm", Algorithm.GCRA)
        limits: list[Limit] = []
        if not values or len(values) > RATES_MAX:
            self.refuse(at, value, f"give from 1 to {RATES_MAX} limits; {_RATE_REMEDY}")
        for place, text in enumerate(values[:RATES_MAX]):
            limit_at = (*at, place) if isinstance(value, list) else at
            if isinstance(text, Limit):
                limits.append(text)
            elif not isinstance(text, str):
                self.refuse(limit_at, text, _RATE_REMEDY)
            else:
                try:
                    limits += parse_rates(text, algorithm=algorithm)
                except BadValue as error:
                    self.refuse(limit_at, text, error.remedy)
        if len(limits) > RATES_MAX:
            self.refuse(at, value, f"give at most {RATES_MAX} limits")
        return limits

    def _cost(self, at: FieldPath, value: object) -> int | HeaderCost:
        remedy = "give a whole number from 1 to 2^53, or header:NAME"
        if is_count(value):
            return value
        if isinstance(value, str) and value.startswith("header:"):
            value = {"header": value.removeprefix("header:")}
        if not isinstance(value, dict):
            self.refuse(at, value, remedy)
            return 1
        fields = self.mapping(at, value, COST) or {}
        name = self.header_name((*at, "header"), fields.get("header"), "x-api-key")
        default, most = fields.get("default", 1), fields.get("max", COST_MAX_DEFAULT)
        if not is_count(default):
            self.refuse((*at, "default"), default, "give a whole number from 1 to 2^53")
        elif not is_count(most) or most < default:
            self.refuse((*at, "max"), most, "give a whole number, not below the default")
        else:
            return HeaderCost(name or "", default, most)
        return 1

    # Whose requests.

    def _key(self, at: FieldPath, value: object, match: Match) -> Key | None:
        if value is None:
            self.refuse(at, value, f"say whose requests are counted together: {KINDS}")
            return None
        texts = self._texts(at, value, VALUE_CHARS_MAX)
        try:
            return parse_key(texts, lambda name: _place_of(name, match)) if texts else None
        except ValueError as error:
            self.refuse(at, value, str(error))
            return None

    def _or_key(self, at: FieldPath, value: object, match: Match) -> Key | None:
        return None if value == "skip" else self._key(at, value, match)

    def _or_key_of(
        self, at: FieldPath, fields: Plain, default: object, key: Key | None, match: Match
    ) -> Key | None:
        """What is counted instead where the key is missing: the address, if nothing is said."""
        values = fields.get("or_key")
        if values is not None:
            if key is not None and not key.may_miss:
                self.refuse((*at, "or_key"), values, "leave it out: the key is never missing")
            return self._or_key((*at, "or_key"), values, match)
        if key is None or not key.may_miss or all(_by_address(part.text) for part in key.parts):
            return None
        return self._or_key((*at, "key"), "address" if default is None else default, match)

    # What it matches.

    def _match(self, at: FieldPath, value: object) -> Match:
        fields = {} if value is None else self.mapping(at, value, MATCH) or {}
        conditions: list[Condition] = []
        headers = fields.get("header")
        if headers is not None:
            conditions_by_header = self.mapping((*at, "header"), headers) or {}
            for name, expected in conditions_by_header.items():
                header_at = (*at, "header", name)
                header = self.header_name(header_at, name, "x-api-key")
                conditions += self._condition(header_at, f"header:{header}", expected)
        if fields.get("address") is not None:
            texts = self._texts((*at, "address"), fields["address"], VALUES_MAX)
            wrong = [(text, remedy) for text in texts if (remedy := network_remedy(text))]
            for text, remedy in wrong:
                self.refuse((*at, "address"), text, remedy)
            if texts and not wrong:
                conditions.append(Condition("address", texts))
        if fields.get("user") is not None:
            conditions += self._condition((*at, "user"), "user", fields["user"])
        if len(conditions) > CONDITIONS_MAX:
            self.refuse(at, f"{len(conditions)} conditions", f"at most {CONDITIONS_MAX}")
        return Match(self._paths(at, fields), self._methods(at, fields), tuple(conditions))

    def _paths(self, at: FieldPath, fields: Plain) -> tuple[Pattern, ...]:
        value = fields.get("path")
        patterns: list[Pattern] = []
        for text in () if value is None else self._texts((*at, "path"), value, VALUES_MAX):
            try:
                patterns.append(parse_pattern(text))
            except ValueError as error:
                self.refuse((*at, "path"), text, str(error))
        return tuple(dict.fromkeys(patterns))

    def _methods(self, at: FieldPath, fields: Plain) -> tuple[str, ...]:
        value = fields.get("method")
        texts = () if value is None else self._texts((*at, "method"), value, METHODS_MAX)
        methods = [text.upper() for text in texts]
        for text, method in zip(texts, methods, strict=True):
            if not _METHOD.fullmatch(method):
                self.refuse((*at, "method"), text, "give a method, as GET, or a list of them")
        return tuple(dict.fromkeys(methods))

    def _condition(self, at: FieldPath, what: str, expected: object) -> list[Condition]:
        if isinstance(expected, bool):
            return [Condition(what, expected)]
        texts = self._texts(at, expected, VALUES_MAX)
        if "" in texts:
            self.refuse(at, "", "say false for one that is missing or empty")
            return []
        return [Condition(what, tuple(dict.fromkeys(texts)))] if texts else []

    # Small things.

    def _texts(self, at: FieldPath, value: object, many_max: int) -> tuple[str, ...]:
        """A text or a list of texts; empty if it is wrong."""
        values = value if isinstance(value, list | tuple) else [value]
        if not values:
            self.refuse(at, value, "give at least one, or leave it out")
        elif len(values) > many_max:
            self.refuse(at, f"{len(values):,} values", f"at most {many_max:,}")
        else:
            texts = [text for text in values if isinstance(text, str)]
            if len(texts) == len(values) and all(len(text) <= VALUE_CHARS_MAX for text in texts):
                return tuple(texts)
            remedy = f"give a text, or a list of them, of up to {VALUE_CHARS_MAX:,} characters"
            quote = "; put a number in quotes" if any(_is_number(one) for one in values) else ""
            self.refuse(at, value, remedy + quote)
        return ()


def _place_of(name: str, match: Match) -> int:
    """Where in the path the segment of this name stands, the same in every pattern."""
    places = {dict(pattern.names).get(name) for pattern in match.paths}
    if len(places) == 1 and (place := places.pop()) is not None:
        return place
    raise ValueError(f"each path of the match must have {{{name}}}, at the same place")


def _no_lease(limits: Sequence[Limit], terms: Mapping[str, Any]) -> str:
    """Why a rule cannot have its lease, empty if it can."""
    if len(limits) > 1:
        return "leave it out: only a rule with one limit can have a lease"
    return lease_remedy(limits[0], terms["lease"], count_refused=terms.get("count_refused"))


def _by_address(part: str) -> bool:
    return part == "address" or part.startswith("address/")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
