"""Parse: from the plain values of a native rules file to rules, with every problem noted.

The tables of names below are the format. A reader notes what is wrong and returns what lets the
others go on. A file may have hundreds of thousands of rules, so a good rule costs little: its
fields are read once, and rules that say the same share one kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeVar, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.sliding_window import CELLS_MAX, LOG_ENTRIES_MAX
from sluicegate.limits.lease import block_max
from sluicegate.limits.rates import parse_rate
from sluicegate.limits.rule import Failure, Mode, Rule
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.resources.callers import CALLERS_MAX, PENALTY_MAX, QUOTA_MARK, CallerRules
from sluicegate.rules.resources.paths import plain_pattern
from sluicegate.rules.resources.priorities import (
    CLIENT_TYPE_HEADER_DEFAULT,
    NAME_HEADER_DEFAULT,
    NAMES_MAX,
    PriorityNames,
)
from sluicegate.rules.resources.rule import ANY_PRIORITY, EVERY_PATH, LimitKind, Per, ResourceRule
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.rules.web.keys import header_name

VERSION: Final = 1
RULES_MAX: Final = 1_000_000
LIMIT_MAX: Final = 1 << 48  # times the largest burst it is still less than any store can count
WINDOW_S_MAX: Final = 366 * 86_400
BURST_CAPACITY_MAX: Final = 10
TEXT_CHARS_MAX: Final = 256

# What a rule may say and a file may say for all its rules.
TERMS: Final = (
    "algorithm",
    "cells",
    "burst_capacity",
    "failure",
    "local_share",
    "mode",
    "lease",
    "count_refused",
    "per",
)
FIELDS: Final = (
    "rule_id",
    "resource_path",
    "priority_bucket",
    "client_type",
    "limit",
    "window_seconds",
    "window",
    *TERMS,
)
TOP: Final = ("version", "defaults", "priorities", "callers", "client_type_header", "rules")
PRIORITIES: Final = ("header", "names", "default")
CALLERS: Final = ("names", "strangers", "quotas", "penalties", "pins")
QUOTA: Final = ("limit", "window_seconds", "window", *TERMS)

_RULE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}")
_PERCENT: Final = re.compile(r"[1-9][0-9]?%|100%")
_WINDOW: Final = re.compile(r"[1-9][0-9]{0,15}[a-z]+")
_FIELDS: Final = frozenset(FIELDS)
_CLASSES: Final = {member.name: member for member in Criticality}
_LIMIT_REMEDY: Final = "give a whole number from 1 to 2^48"
_WINDOW_REMEDY: Final = "write it as 90s, 5m, 1h or 1d, up to 366 days"

T = TypeVar("T")


class NativeFile(NamedTuple):
    """What one file says. `said` counts the rules that are off, too."""

    rules: list[ResourceRule]
    rule_ids: list[str]
    names: PriorityNames | None
    callers: CallerRules | None
    client_type_header: str | None
    said: int


class _Terms(NamedTuple):
    """What is said of how a limit is kept; None is not said."""

    algorithm: Algorithm | None = None
    cells: int | None = None
    burst_capacity: Fraction | None = None
    failure: Failure | None = None
    local_share: float | None = None
    mode: Mode | None = None
    lease: str | int | None = None
    count_refused: bool | None = None
    per: Per | None = None


_NO_TERMS: Final = _Terms()


def is_native(value: object) -> bool:
    """Whether a file means to be of the native format."""
    return isinstance(value, Mapping) and ("rules" in value or "callers" in value)


def parse_native(
    value: object, problems: Problems, shared_limits: SharedLimits, *, rules_max: int = RULES_MAX
) -> NativeFile | None:
    """What a whole file says; None, or less than all, if something was wrong with it."""
    return _Parser(problems, shared_limits, rules_max).file(value)


@final
class _Parser:
    """Reads fields, and knows where it is."""

    __slots__ = (
        "_defaults",
        "_kinds",
        "_known",
        "_problems",
        "_rules_max",
        "_shared_limits",
        "_windows",
    )

    def __init__(self, problems: Problems, shared_limits: SharedLimits, rules_max: int) -> None:
        self._problems = problems
        self._shared_limits = shared_limits
        self._rules_max = rules_max
        self._defaults = _NO_TERMS
        self._known: dict[object, tuple[int, _Terms]] = {}
        self._kinds: dict[tuple[int, int, int], LimitKind | None] = {}
        self._windows: dict[str, int] = {}

    # The file.

    def file(self, value: object) -> NativeFile | None:
        """All of it."""
        top = self._mapping((), value, TOP)
        if top is None:
            return None
        version = top.get("version")
        if type(version) is not int or version != VERSION:
            self._wrong(("version",), version, f"say which form this is: version: {VERSION}")
        # First, for whatever has terms has these where it does not say its own.
        defaults = self._mapping(("defaults",), top.get("defaults") or {}, TERMS) or {}
        self._defaults = self._terms(("defaults",), defaults)
        names = self._names(top.get("priorities"))
        callers = self._callers(top.get("callers"))
        header = top.get("client_type_header")
        if header is not None:
            header = self._header(("client_type_header",), header, CLIENT_TYPE_HEADER_DEFAULT)
        # A file may say nothing but who the callers are.
        said = top.get("rules", [] if "callers" in top else None)
        if not isinstance(said, list):
            self._wrong(("rules",), said, "give a list of rules, each with a rule_id and a limit")
            return None
        if len(said) > self._rules_max:
            remedy = f"give at most {self._rules_max:,} (rules_max)"
            self._wrong(("rules",), f"{len(said):,} rules", remedy)
            return None
        return self._rules(said, names, callers, header)

    def _rules(
        self,
        said: list[object],
        names: PriorityNames | None,
        callers: CallerRules | None,
        header: str | None,
    ) -> NativeFile:
        rules: list[ResourceRule] = []
        rule_ids: list[str] = []
        for place, one in enumerate(said):
            rule = self._rule(place, one, rule_ids)
            if rule is not None:
                rules.append(rule)
        return NativeFile(rules, rule_ids, names, callers, header, len(said))

    # A rule.

    def _rule(self, place: int, value: object, rule_ids: list[str]) -> ResourceRule | None:
        at: FieldPath = ("rules", place)
        if not isinstance(value, dict):
            self._wrong(at, value, f"give fields of {', '.join(FIELDS)}, each with its value")
            return None
        for name in value:
            if name not in _FIELDS:
                self._problems.add_unknown((*at, str(name)), value[name], FIELDS)
        rule_id = value.get("rule_id")
        if not isinstance(rule_id, str) or not _RULE_ID.fullmatch(rule_id):
            remedy = "name it with up to 128 letters, digits, '_', '-', '.', ':', '@' and '/'"
            self._wrong((*at, "rule_id"), rule_id, remedy + _quote(rule_id))
            rule_id = ""
        elif rule_id.startswith(QUOTA_MARK):
            remedy = f"begin it otherwise: {QUOTA_MARK}NAME is what the quota of a caller is called"
            self._wrong((*at, "rule_id"), rule_id, remedy)
        rule_ids.append(rule_id)  # also a bad one, so that places stay in step
        path = self._path(at, value.get("resource_path"))
        bucket = value.get("priority_bucket")
        priority = ANY_PRIORITY
        if bucket is not None:
            found = self._class((*at, "priority_bucket"), bucket)
            priority = ANY_PRIORITY if found is None else int(found)
        client_type = value.get("client_type")
        if client_type is None:
            client_type = ""
        elif not _is_text(client_type):
            self._wrong((*at, "client_type"), client_type, _text_remedy(client_type))
            client_type = ""
        kind = self._kind_said(at, value)
        if kind is None or path is None or not rule_id:
            return None
        return ResourceRule(rule_id, kind, path, client_type, priority)

    def _kind_said(self, at: FieldPath, fields: Mapping[str, Any]) -> LimitKind | None:
        before = len(self._problems)
        count = self._count(at, fields.get("limit"))
        window_us = self._window(at, fields)
        number, terms = self._all_terms(at, fields)
        if not count or not window_us or len(self._problems) > before:
            return None
        return self._kind(at, count, window_us, number, terms)

    def _path(self, at: FieldPath, value: object) -> str | None:
        if value is None:
            return EVERY_PATH
        if not isinstance(value, str):
            self._wrong((*at, "resource_path"), value, "give a path, as /api/v1/playback")
            return None
        try:
            return plain_pattern(value)
        except ValueError as error:
            self._wrong((*at, "resource_path"), value, str(error))
            return None

    def _count(self, at: FieldPath, value: object) -> int:
        if type(value) is int and 1 <= value <= LIMIT_MAX:
            return value
        hint = "; to let nobody in, close the door instead" if value == 0 else ""
        self._wrong((*at, "limit"), value, _LIMIT_REMEDY + hint)
        return 0

    def _window(self, at: FieldPath, fields: Mapping[str, object]) -> int:
        seconds, text = fields.get("window_seconds"), fields.get("window")
        if text is None:
            if type(seconds) is int and 1 <= seconds <= WINDOW_S_MAX:
                return seconds * 1_000_000
            remedy = f"give whole seconds from 1 to {WINDOW_S_MAX:,}, or window: 90s"
            self._wrong((*at, "window_seconds"), seconds, remedy)
            return 0
        if seconds is not None:
            self._wrong((*at, "window"), text, "leave it out, or window_seconds: one says it all")
            return 0
        if not isinstance(text, str):
            self._wrong((*at, "window"), text, _WINDOW_REMEDY)
            return 0
        window_us = self._windows.get(text)
        if window_us is None:
            try:
                window_us = parse_rate(f"1/{text}").period_us if _WINDOW.fullmatch(text) else 0
            except BadValue:
                window_us = 0
            if not 1 <= window_us <= WINDOW_S_MAX * 1_000_000:
                self._wrong((*at, "window"), text, _WINDOW_REMEDY)
                return 0
            self._windows[text] = window_us
        return window_us

    # Its terms.

    def _all_terms(self, at: FieldPath, fields: Mapping[str, Any]) -> tuple[int, _Terms]:
        """The terms that a rule says or has by default, with a number for what is the same."""
        said = tuple([fields.get(name) for name in TERMS])
        # 1, 1.0 and true are alike in Python, and not in a file.
        key = (said, tuple([type(one) for one in said]))
        try:
            known = self._known.get(key)
        except TypeError:  # a list, say: it is told what is wrong with that
            return 0, self._terms(at, fields)
        if known is None:
            before = len(self._problems)
            known = len(self._known) + 1, self._merged(self._terms(at, fields))
            if len(self._problems) == before:
                self._known[key] = known
        return known

    def _terms(self, at: FieldPath, fields: Mapping[str, Any]) -> _Terms:
        cells = fields.get("cells")
        if cells is not None and not (type(cells) is int and 1 <= cells <= CELLS_MAX):
            self._wrong((*at, "cells"), cells, f"give a whole number from 1 to {CELLS_MAX:,}")
            cells = None
        mode = fields.get("mode")
        # TOML has no bare word: `mode = false` says what `mode: off` does.
        mode = "off" if mode is False else mode
        return _Terms(
            self._term(Algorithm, (*at, "algorithm"), fields.get("algorithm")),
            cells,
            self._burst((*at, "burst_capacity"), fields.get("burst_capacity")),
            self._term(Failure, (*at, "failure"), fields.get("failure")),
            self._share((*at, "local_share"), fields.get("local_share")),
            self._term(Mode, (*at, "mode"), mode),
            self._lease((*at, "lease"), fields.get("lease")),
            self._flag((*at, "count_refused"), fields.get("count_refused")),
            self._term(Per, (*at, "per"), fields.get("per")),
        )

    def _merged(self, own: _Terms) -> _Terms:
        """A rule's own terms before those of the file, which are only for those they suit."""
        every = self._defaults
        algorithm = own.algorithm or every.algorithm
        cells, lease = own.cells, own.lease
        if cells is None and algorithm in {None, Algorithm.SLIDING_WINDOW}:
            cells = every.cells
        harsh = every.count_refused if own.count_refused is None else own.count_refused
        if lease is None and not harsh and algorithm is not Algorithm.SLIDING_LOG:
            lease = every.lease
        return _Terms(
            algorithm,
            cells,
            own.burst_capacity or every.burst_capacity,
            own.failure or every.failure,
            own.local_share or every.local_share,
            own.mode or every.mode,
            lease,
            harsh,
            own.per or every.per,
        )

    def _kind(
        self, at: FieldPath, count: int, window_us: int, number: int, terms: _Terms
    ) -> LimitKind | None:
        """The kind that these numbers and terms are; None for one that is off, or is wrong."""
        said = (count, window_us, number)
        if said in self._kinds:
            return self._kinds[said]
        limit = self._limit(at, count, window_us, terms)
        if limit is None:
            return None
        mode = terms.mode or Mode.ENFORCE
        kind: LimitKind | None = None
        if mode is not Mode.OFF:
            rule = Rule(
                limit,
                failure=terms.failure,
                local_share=terms.local_share,
                lease=terms.lease,
                mode=mode,
                count_refused=terms.count_refused,
            )
            try:
                shape = self._shared_limits.name(rule)
            except BadValue as error:
                self._wrong((*at, "limit"), error.value, error.remedy)
                return None
            kind = LimitKind(shape, limit, terms.per or Per.USER, shadow=mode is Mode.SHADOW)
        self._kinds[said] = kind
        return kind

    def _limit(self, at: FieldPath, count: int, window_us: int, terms: _Terms) -> Limit | None:
        algorithm = terms.algorithm or Algorithm.SLIDING_WINDOW
        most = count if terms.burst_capacity is None else int(count * terms.burst_capacity)
        cells: int | None = None
        if algorithm is Algorithm.SLIDING_WINDOW:
            cells = terms.cells or 1
        elif terms.cells is not None:
            remedy = f"leave it out: only sliding_window has cells, {algorithm.value} has none"
            self._wrong((*at, "cells"), terms.cells, remedy)
            return None
        if algorithm is Algorithm.SLIDING_LOG and most > LOG_ENTRIES_MAX:
            remedy = f"a sliding_log holds at most {LOG_ENTRIES_MAX:,}; choose another algorithm"
            self._wrong((*at, "limit"), most, remedy)
            return None
        if algorithm in BURSTING:
            limit = Limit(count, window_us, burst=most, algorithm=algorithm)
        else:
            limit = Limit(most, window_us, cells=cells, algorithm=algorithm)
        if terms.lease is None:
            return limit
        remedy = "leave it out, or count_refused: what is refused cannot be leased"
        if not terms.count_refused:
            try:
                block_max(limit, terms.lease)
            except BadValue as error:
                remedy = error.remedy
            else:
                return limit
        self._wrong((*at, "lease"), terms.lease, remedy)
        return None

    def _burst(self, at: FieldPath, value: object) -> Fraction | None:
        if value is None:
            return None
        found = _fraction(value, BURST_CAPACITY_MAX)
        if found is not None:
            return found
        self._wrong(at, value, f"give a number from 1 to {BURST_CAPACITY_MAX}, as 1.2")
        return None

    def _share(self, at: FieldPath, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
        self._wrong(at, value, "give a share above 0 and up to 1")
        return None

    def _lease(self, at: FieldPath, value: object) -> str | int | None:
        if value is None or (type(value) is int and value >= 1):
            return value
        if isinstance(value, str) and (value == "auto" or _PERCENT.fullmatch(value)):
            return value
        self._wrong(at, value, 'give "auto", a percentage as "10%", or a number of units')
        return None

    # Who matters how much.

    def _names(self, value: object) -> PriorityNames | None:
        if value is None:
            return None
        at: FieldPath = ("priorities",)
        fields = self._mapping(at, value, PRIORITIES) or {}
        header = self._header((*at, "header"), fields.get("header"), NAME_HEADER_DEFAULT)
        table = self._table((*at, "names"), fields.get("names"), NAMES_MAX)
        default = self._common((*at, "default"), fields.get("default"))
        try:
            return PriorityNames(table, header=header, default=default)
        except ValueError as error:
            self._wrong((*at, "names"), f"{len(table):,} names", str(error))
            return None

    def _callers(self, value: object) -> CallerRules | None:
        if value is None:
            return None
        at: FieldPath = ("callers",)
        fields = self._mapping(at, value, CALLERS) or {}
        return CallerRules(
            self._table((*at, "names"), fields.get("names"), CALLERS_MAX),
            strangers=self._common((*at, "strangers"), fields.get("strangers")),
            quotas=self._quotas((*at, "quotas"), fields.get("quotas")),
            penalties=self._penalties((*at, "penalties"), fields.get("penalties")),
            pins=self._pins((*at, "pins"), fields.get("pins")),
        )

    def _quotas(self, at: FieldPath, value: object) -> dict[str, ResourceRule]:
        found: dict[str, ResourceRule] = {}
        for name, said in self._by_caller(at, value).items():
            here: FieldPath = (*at, name)
            fields = self._mapping(here, _rate_said(said), QUOTA)
            if fields is None:
                continue
            if fields.get("per") is not None:
                self._wrong((*here, "per"), fields["per"], "leave it out: it counts this caller")
                continue
            kind = self._kind_said(here, {**fields, "per": Per.USER.value})
            if kind is not None:
                rule_id = f"{QUOTA_MARK}{name}"
                found[name] = ResourceRule(rule_id, kind, EVERY_PATH, "", ANY_PRIORITY)
        return found

    def _penalties(self, at: FieldPath, value: object) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        for name, said in self._by_caller(at, value).items():
            factor = _fraction(said, PENALTY_MAX)
            if factor is None:
                remedy = f"give a number from 1 to {PENALTY_MAX:,}: everything costs so many times"
                self._wrong((*at, name), said, remedy)
            else:
                found[name] = factor
        return found

    def _pins(self, at: FieldPath, value: object) -> frozenset[str]:
        said = [] if value is None else value
        if not isinstance(said, list) or len(said) > CALLERS_MAX:
            self._wrong(at, value, f"give a list of callers, at most {CALLERS_MAX:,}")
            return frozenset()
        found: set[str] = set()
        for place, name in enumerate(said):
            if _is_text(name):
                found.add(name)
            else:
                self._wrong((*at, place), name, _text_remedy(name))
        return frozenset(found)

    def _by_caller(self, at: FieldPath, value: object) -> dict[str, object]:
        """What is said of each caller, of those whose names are names."""
        said = self._mapping(at, {} if value is None else value, ()) or {}
        if len(said) > CALLERS_MAX:
            self._wrong(at, f"{len(said):,} callers", f"give at most {CALLERS_MAX:,}")
            return {}
        for name in said:
            if not _is_text(name):
                self._wrong((*at, name), name, _text_remedy(name))
        return {name: one for name, one in said.items() if _is_text(name)}

    def _table(self, at: FieldPath, value: object, many_max: int) -> dict[str, Criticality]:
        named = self._mapping(at, {} if value is None else value, ()) or {}
        if len(named) > many_max:
            self._wrong(at, f"{len(named):,} names", f"give at most {many_max:,}")
            return {}
        found: dict[str, Criticality] = {}
        for name, said in named.items():
            if not _is_text(name):
                self._wrong((*at, name), name, _text_remedy(name))
            elif (known := self._class((*at, name), said)) is not None:
                found[name] = known
        return found

    def _common(self, at: FieldPath, value: object) -> Criticality:
        """A class for those who are not named: any but the highest."""
        found = Criticality.DEGRADED if value is None else self._class(at, value)
        if found is Criticality.CRITICAL:
            self._wrong(at, value, "give a lower class, and name those who are CRITICAL")
        return found or Criticality.DEGRADED

    # Small things.

    def _class(self, at: FieldPath, value: object) -> Criticality | None:
        found = _CLASSES.get(value) if isinstance(value, str) else None
        if found is None:
            self._wrong(at, value, f"give one of {', '.join(_CLASSES)}")
        return found

    def _header(self, at: FieldPath, value: object, default: str) -> str:
        if value is None:
            return default
        name = header_name(value) if isinstance(value, str) else None
        if name is None:
            self._wrong(at, value, f"give a header's name, as {default}")
            return default
        return name

    def _mapping(
        self, at: FieldPath, value: object, known: tuple[str, ...]
    ) -> dict[str, object] | None:
        if not isinstance(value, Mapping):
            fields = f" of {', '.join(known)}" if known else ""
            self._wrong(at, value, f"give fields{fields}, each with its value")
            return None
        for name in value:
            if not isinstance(name, str):
                self._wrong((*at, str(name)), name, "a field's name is a text")
            elif known and name not in known:
                self._problems.add_unknown((*at, name), value[name], known)
        return {name: value[name] for name in value if isinstance(name, str)}

    def _flag(self, at: FieldPath, value: object) -> bool | None:
        if value is None or isinstance(value, bool):
            return value
        self._wrong(at, value, "give true or false")
        return None

    def _term(self, kind: type[T], at: FieldPath, value: object) -> T | None:
        if value is None:
            return None
        try:
            return kind(value)  # type: ignore[call-arg] # each is an enumeration
        except ValueError:
            self._wrong(at, value, f"give one of {_members(kind)}")
            return None

    def _wrong(self, at: FieldPath, value: object, remedy: str) -> None:
        self._problems.add(at, value, remedy)


def _members(kind: Any) -> str:
    members: Iterable[Any] = kind
    return ", ".join(str(member.value) for member in members)


def _fraction(value: object, most: int) -> Fraction | None:
    """A number from 1 on, as it is written: 1.15 is 115/100, which no binary fraction is."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return Fraction(str(value)) if math.isfinite(value) and 1 <= value <= most else None


def _rate_said(value: object) -> object:
    """The short form of a quota: "100/s" is a limit of 100 and a window of 1s."""
    if not isinstance(value, str):
        return value
    count, slash, window = value.partition("/")
    if not slash or not count.strip().isdecimal():
        return value
    window = window.strip()
    return {"limit": int(count), "window": window if window[:1].isdigit() else f"1{window}"}


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_CHARS_MAX:
        return False
    return value.isascii() or value.isprintable()


def _text_remedy(value: object) -> str:
    seen = ""
    if isinstance(value, str) and not value.isascii():
        seen = "; beyond ASCII, none that cannot be seen, as marks of direction or of joining"
    return f"give a text of 1 to {TEXT_CHARS_MAX} characters{seen}{_quote(value)}"


def _quote(value: object) -> str:
    return "; put it in quotes" if isinstance(value, int | float) else ""
