"""Parse: from the plain values of a rules file to entries, with every problem noted.

The tables below are the format: which fields there are, and who reads each. A reader notes what is
wrong and returns what lets the others go on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard, TypeVar, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.lease import block_max
from sluicegate.limits.rates import RATES_MAX, parse_rates
from sluicegate.limits.rule import Failure, Mode, Rule
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.web.addresses import network_remedy
from sluicegate.rules.web.keys import KINDS, Key, header_name, parse_key
from sluicegate.rules.web.paths import Pattern, parse_pattern
from sluicegate.rules.web.rule import (
    COST_MAX_DEFAULT,
    VALUE_CHARS_MAX,
    VALUES_MAX,
    Condition,
    HeaderCost,
    Match,
    WebRule,
)

VERSION: Final = 1
RULES_MAX: Final = 1_000
METHODS_MAX: Final = 32
CONDITIONS_MAX: Final = 16

Plain: TypeAlias = Mapping[str, object]
T = TypeVar("T")

TERMS: Final = ("algorithm", "failure", "local_share", "lease", "mode", "count_refused")
FIELDS: Final = ("match", "key", "or_key", "limit", *TERMS, "cost", "stop", "exempt")
DEFAULTS: Final = (*TERMS, "or_key")
TOP: Final = ("version", "defaults", "limits")
MATCH: Final = ("path", "method", "header", "address", "user")
COST: Final = ("header", "default", "max")
OF_EXEMPTIONS: Final = ("match", "exempt", "mode")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_METHOD: Final = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_PERCENT: Final = re.compile(r"[1-9][0-9]?%|100%")
_RATE_REMEDY: Final = 'write it as "100/minute"; several as "10/s; 1000/hour" or as a list'


def parse_entries(
    value: object, problems: Problems, *, rules_max: int = RULES_MAX
) -> list[WebRule]:
    """The entries that a whole file says; what is wrong with it is in `problems`."""
    return _Parser(problems, rules_max).file(value)


@final
class _Parser:
    """Reads fields, and knows where it is."""

    __slots__ = ("_problems", "_rules_max")

    def __init__(self, problems: Problems, rules_max: int) -> None:
        self._problems = problems
        self._rules_max = rules_max

    # The file.

    def file(self, value: object) -> list[WebRule]:
        top = self._mapping((), value, TOP)
        if top is None:
            return []
        version = top.get("version")
        if type(version) is not int or version != VERSION:
            self._wrong(("version",), version, f"say which form this is: version: {VERSION}")
        defaults = self._mapping(("defaults",), top.get("defaults") or {}, DEFAULTS) or {}
        before = len(self._problems)
        terms = self._terms(("defaults",), defaults)
        or_key = defaults.get("or_key")
        if or_key is not None:
            self._or_key(("defaults", "or_key"), or_key, Match())
        if len(self._problems) > before:
            terms, or_key = {}, None  # said once, not once a rule
        return [
            entry
            for at, name, rule in self._named(top.get("limits"))
            if (entry := self._entry(at, name, rule, terms, or_key)) is not None
        ]

    def _named(self, value: object) -> list[tuple[FieldPath, str, object]]:
        """The rules with their places and names, from a mapping or from a list."""
        at: FieldPath = ("limits",)
        if not isinstance(value, dict | list) or not value:
            self._wrong(at, value, "give at least one rule, by its name")
            return []
        if len(value) > self._rules_max:
            self._wrong(at, f"{len(value):,} rules", f"at most {self._rules_max:,}")
            return []
        found: list[tuple[FieldPath, str, object]] = []
        names: set[str] = set()
        for place, item in enumerate(value):
            if isinstance(value, dict):
                here, name, rule = (*at, str(item)), item, value[item]
                named_at = here
            else:
                here, rule = (*at, place), item
                name = item.get("name") if isinstance(item, dict) else None
                rule = {k: item[k] for k in item if k != "name"} if isinstance(item, dict) else item
                named_at = (*here, "name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._wrong(named_at, name, "name it with letters, digits, '_', '-' and '.'")
            elif name in names:
                self._wrong(named_at, name, "another rule has this name; give it one of its own")
            else:
                names.add(name)
                found.append((here, name, rule))
        return found

    # A rule.

    def _entry(
        self, at: FieldPath, name: str, value: object, defaults: Plain, or_default: object
    ) -> WebRule | None:
        fields = self._mapping(at, value, FIELDS)
        if fields is None:
            return None
        match = self._match((*at, "match"), fields.get("match"))
        if self._flag((*at, "exempt"), fields.get("exempt")):
            return self._exemption(at, name, fields, match)
        key = self._key((*at, "key"), fields.get("key"), match)
        or_key = self._or_key_of(at, fields, or_default, key, match)
        own = self._terms(at, fields)
        terms = {**defaults, **own}
        limits = self._limits((*at, "limit"), fields.get("limit"), terms)
        if limits and "lease" in terms and (wrong := _no_lease(limits, terms)):
            lease = terms.pop("lease")
            if "lease" in own:  # a default is only for those that can have it
                self._wrong((*at, "lease"), lease, wrong)
        cost = self._cost((*at, "cost"), fields.get("cost", 1))
        stop = self._flag((*at, "stop"), fields.get("stop"))
        if not limits or key is None:
            return None
        rule = Rule(limits, **terms)  # type: ignore[arg-type] # each was read for its field
        return WebRule(name, match, key, or_key, rule, cost, stop, rule.mode is Mode.OFF)

    def _exemption(self, at: FieldPath, name: str, fields: Plain, match: Match) -> WebRule:
        for field in fields:
            if field not in OF_EXEMPTIONS:
                self._wrong((*at, field), fields[field], "leave it out: an exemption has no limit")
        if match == Match():
            self._wrong((*at, "match"), fields.get("match"), "say what is exempt: not everything")
        mode = self._mode((*at, "mode"), fields.get("mode", "enforce"))
        if mode is Mode.SHADOW:
            self._wrong((*at, "mode"), "shadow", "an exemption is enforce or off")
        return WebRule(name, match, off=mode is Mode.OFF)

    def _terms(self, at: FieldPath, fields: Plain) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, read in _TERM_READERS.items():
            if fields.get(name) is not None:
                found[name] = read(self, (*at, name), fields[name])
        return {name: value for name, value in found.items() if value is not None}

    def _limits(self, at: FieldPath, value: object, terms: Plain) -> list[Limit]:
        said = value if isinstance(value, list) else [value]
        algorithm = terms.get("algorithm", Algorithm.GCRA)
        limits: list[Limit] = []
        if not said or len(said) > RATES_MAX:
            self._wrong(at, value, f"give from 1 to {RATES_MAX} limits; {_RATE_REMEDY}")
        for place, text in enumerate(said[:RATES_MAX]):
            here = (*at, place) if isinstance(value, list) else at
            if isinstance(text, Limit):
                limits.append(text)
            elif not isinstance(text, str):
                self._wrong(here, text, _RATE_REMEDY)
            else:
                try:
                    limits += parse_rates(text, algorithm=algorithm)  # type: ignore[arg-type]
                except BadValue as error:
                    self._wrong(here, text, error.remedy)
        if len(limits) > RATES_MAX:
            self._wrong(at, value, f"give at most {RATES_MAX} limits")
        return limits

    def _cost(self, at: FieldPath, value: object) -> int | HeaderCost:
        remedy = "give a whole number from 1 to 2^53, or header:NAME"
        if _is_count(value):
            return value
        if isinstance(value, str) and value.startswith("header:"):
            value = {"header": value.removeprefix("header:")}
        if not isinstance(value, dict):
            self._wrong(at, value, remedy)
            return 1
        fields = self._mapping(at, value, COST) or {}
        name = self._header_name((*at, "header"), fields.get("header"))
        default, most = fields.get("default", 1), fields.get("max", COST_MAX_DEFAULT)
        if not _is_count(default):
            self._wrong((*at, "default"), default, "give a whole number from 1 to 2^53")
        elif not _is_count(most) or most < default:
            self._wrong((*at, "max"), most, "give a whole number, not below the default")
        else:
            return HeaderCost(name or "", default, most)
        return 1

    # Whose requests.

    def _key(self, at: FieldPath, value: object, match: Match) -> Key | None:
        if value is None:
            self._wrong(at, value, f"say whose requests are counted together: {KINDS}")
            return None
        texts = self._texts(at, value, VALUE_CHARS_MAX)
        try:
            return parse_key(texts, lambda name: _place_of(name, match)) if texts else None
        except ValueError as error:
            self._wrong(at, value, str(error))
            return None

    def _or_key(self, at: FieldPath, value: object, match: Match) -> Key | None:
        return None if value == "skip" else self._key(at, value, match)

    def _or_key_of(
        self, at: FieldPath, fields: Plain, default: object, key: Key | None, match: Match
    ) -> Key | None:
        """What is counted instead where the key is missing: the address, if nothing is said."""
        said = fields.get("or_key")
        if said is not None:
            if key is not None and not key.may_miss:
                self._wrong((*at, "or_key"), said, "leave it out: the key is never missing")
            return self._or_key((*at, "or_key"), said, match)
        if key is None or not key.may_miss or all(_by_address(part.text) for part in key.parts):
            return None
        return self._or_key((*at, "key"), "address" if default is None else default, match)

    # What it matches.

    def _match(self, at: FieldPath, value: object) -> Match:
        fields = {} if value is None else self._mapping(at, value, MATCH) or {}
        conditions: list[Condition] = []
        headers = fields.get("header")
        if headers is not None:
            named = self._mapping((*at, "header"), headers) or {}
            for name, wanted in named.items():
                here = (*at, "header", name)
                known = self._header_name(here, name)
                conditions += self._condition(here, f"header:{known}", wanted)
        if fields.get("address") is not None:
            texts = self._texts((*at, "address"), fields["address"], VALUES_MAX)
            wrong = [(text, remedy) for text in texts if (remedy := network_remedy(text))]
            for text, remedy in wrong:
                self._wrong((*at, "address"), text, remedy)
            if texts and not wrong:
                conditions.append(Condition("address", texts))
        if fields.get("user") is not None:
            conditions += self._condition((*at, "user"), "user", fields["user"])
        if len(conditions) > CONDITIONS_MAX:
            self._wrong(at, f"{len(conditions)} conditions", f"at most {CONDITIONS_MAX}")
        return Match(self._paths(at, fields), self._methods(at, fields), tuple(conditions))

    def _paths(self, at: FieldPath, fields: Plain) -> tuple[Pattern, ...]:
        value = fields.get("path")
        found: list[Pattern] = []
        for text in () if value is None else self._texts((*at, "path"), value, VALUES_MAX):
            try:
                found.append(parse_pattern(text))
            except ValueError as error:
                self._wrong((*at, "path"), text, str(error))
        return tuple(dict.fromkeys(found))

    def _methods(self, at: FieldPath, fields: Plain) -> tuple[str, ...]:
        value = fields.get("method")
        texts = () if value is None else self._texts((*at, "method"), value, METHODS_MAX)
        methods = [text.upper() for text in texts]
        for text, method in zip(texts, methods, strict=True):
            if not _METHOD.fullmatch(method):
                self._wrong((*at, "method"), text, "give a method, as GET, or a list of them")
        return tuple(dict.fromkeys(methods))

    def _condition(self, at: FieldPath, what: str, wanted: object) -> list[Condition]:
        if isinstance(wanted, bool):
            return [Condition(what, wanted)]
        texts = self._texts(at, wanted, VALUES_MAX)
        if "" in texts:
            self._wrong(at, "", "say false for one that is missing or empty")
            return []
        return [Condition(what, tuple(dict.fromkeys(texts)))] if texts else []

    # Small things.

    def _mapping(self, at: FieldPath, value: object, known: tuple[str, ...] = ()) -> Plain | None:
        if not isinstance(value, Mapping):
            fields = f" of {', '.join(known)}" if known else ""
            self._wrong(at, value, f"give fields{fields}, each with its value")
            return None
        for name in value:
            if not isinstance(name, str):
                self._wrong((*at, str(name)), name, "a field's name is a text")
            elif known and name not in known:
                self._problems.add_unknown((*at, name), value[name], known)
        return {name: value[name] for name in value if not known or name in known}

    def _texts(self, at: FieldPath, value: object, many_max: int) -> tuple[str, ...]:
        """A text or a list of texts; empty if it is wrong."""
        said = value if isinstance(value, list | tuple) else [value]
        if not said:
            self._wrong(at, value, "give at least one, or leave it out")
        elif len(said) > many_max:
            self._wrong(at, f"{len(said):,} values", f"at most {many_max:,}")
        else:
            texts = [text for text in said if isinstance(text, str)]
            if len(texts) == len(said) and all(len(text) <= VALUE_CHARS_MAX for text in texts):
                return tuple(texts)
            remedy = f"give a text, or a list of them, of up to {VALUE_CHARS_MAX:,} characters"
            quote = "; put a number in quotes" if any(_is_number(one) for one in said) else ""
            self._wrong(at, value, remedy + quote)
        return ()

    def _header_name(self, at: FieldPath, value: object) -> str | None:
        name = header_name(value) if isinstance(value, str) else None
        if name is None:
            self._wrong(at, value, "give a header's name, as x-api-key")
        return name

    def _flag(self, at: FieldPath, value: object) -> bool:
        if value is None or isinstance(value, bool):
            return value is True
        self._wrong(at, value, "give true or false")
        return False

    def _term(self, kind: type[T], at: FieldPath, value: object) -> T | None:
        try:
            return value if isinstance(value, kind) else kind(value)  # type: ignore[call-arg]
        except ValueError:
            names = ", ".join(member.value for member in kind)  # type: ignore[attr-defined]
            self._wrong(at, value, f"give one of {names}")
            return None

    def _mode(self, at: FieldPath, value: object) -> Mode | None:
        # TOML and Python have no bare word: `mode = false` says what `mode: off` does.
        return self._term(Mode, at, "off" if value is False else value)

    def _share(self, at: FieldPath, value: object) -> float | None:
        if _is_number(value) and math.isfinite(value) and 0 < value <= 1:
            return float(value)
        self._wrong(at, value, "give a share above 0 and up to 1")
        return None

    def _lease(self, at: FieldPath, value: object) -> str | int | None:
        if _is_count(value) or value == "auto":
            return value
        if isinstance(value, str) and _PERCENT.fullmatch(value):
            return value
        self._wrong(at, value, 'give "auto", a percentage as "10%", or a number of units')
        return None

    def _wrong(self, at: FieldPath, value: object, remedy: str) -> None:
        self._problems.add(at, value, remedy)


_TERM_READERS: Final[dict[str, Callable[[_Parser, FieldPath, object], object]]] = {
    "algorithm": lambda self, at, value: self._term(Algorithm, at, value),
    "failure": lambda self, at, value: self._term(Failure, at, value),
    "local_share": _Parser._share,
    "lease": _Parser._lease,
    "mode": _Parser._mode,
    "count_refused": _Parser._flag,
}


def _place_of(name: str, match: Match) -> int:
    """Where in the path the segment of this name stands, the same in every pattern."""
    places = {dict(pattern.names).get(name) for pattern in match.paths}
    if len(places) == 1 and (place := places.pop()) is not None:
        return place
    raise ValueError(f"each path of the match must have {{{name}}}, at the same place")


def _no_lease(limits: Sequence[Limit], terms: Plain) -> str:
    """Why a rule cannot have its lease, empty if it can."""
    if len(limits) > 1:
        return "leave it out: only a rule with one limit can have a lease"
    if terms.get("count_refused"):
        return "leave it out, or count_refused: what is refused cannot be charged to a lease"
    try:
        block_max(limits[0], terms["lease"])  # type: ignore[arg-type] # read as a lease
    except BadValue as error:
        return error.remedy
    return ""


def _by_address(part: str) -> bool:
    return part == "address" or part.startswith("address/")


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 1 <= value <= 1 << 53


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
