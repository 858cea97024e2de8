"""Parser of a service's rules file: from plain values to rules, with every problem noted.

The tables of names below are the format; the terms are read by `rule_fields.py`. A file may have
hundreds of thousands of rules, so a good rule costs little: its fields are read once, and rules
that say the same share one kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX
from sluicegate.limits.rates import parse_rate
from sluicegate.limits.rule import Mode, Rule
from sluicegate.policies.admission.degradation import LEVEL_REMEDY, LEVELS, SWITCHES_MAX
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
from sluicegate.rules.rule_fields import RuleFields, fraction_of, lease_remedy
from sluicegate.rules.shared_limits import SharedLimits

RULES_MAX: Final = 1_000_000
LIMIT_MAX: Final = 1 << 48  # times the largest burst it is still less than any store can count
WINDOW_S_MAX: Final = 366 * 86_400
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
TOP: Final = (
    "version",
    "defaults",
    "priorities",
    "callers",
    "client_type_header",
    "degrade",
    "rules",
)
_WITHOUT_RULES: Final = ("callers", "degrade")  # what a file may say that has no rules
PRIORITIES: Final = ("header", "names", "default")
CALLERS: Final = ("names", "strangers", "quotas", "penalties", "pins")
QUOTA: Final = ("limit", "window_seconds", "window", *TERMS)

_RULE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}")
_WINDOW: Final = re.compile(r"[1-9][0-9]{0,15}[a-z]+")
_FIELDS: Final = frozenset(FIELDS)
_CLASSES: Final = {member.name: member for member in Criticality}
# The terms that a limiter has to know.
_OF_LIMITER: Final = ("failure", "local_share", "lease", "mode", "count_refused")
_LIMIT_REMEDY: Final = "give a whole number from 1 to 2^48"
_WINDOW_REMEDY: Final = "write it as 90s, 5m, 1h or 1d, up to 366 days"


class NativeFile(NamedTuple):
    """What one file says. `rules_count` has the rules that are off, too."""

    rules: list[ResourceRule]
    rule_ids: list[str]
    names: PriorityNames | None
    callers: CallerRules | None
    client_type_header: str | None
    degrade: Mapping[str, str] | None
    rules_count: int


def is_native(value: object) -> bool:
    """Whether a file means to be of the native format."""
    return isinstance(value, Mapping) and any(
        field in value for field in ("rules", *_WITHOUT_RULES)
    )


def parse_native(
    value: object, problems: Problems, shared_limits: SharedLimits, *, rules_max: int = RULES_MAX
) -> NativeFile | None:
    """What a whole file says; None, or less than all, if something was wrong with it."""
    return _Parser(problems, shared_limits, rules_max).file(value)


@final
class _Parser(RuleFields):
    """Reads a file, and knows where it is."""

    def __init__(self, problems: Problems, shared_limits: SharedLimits, rules_max: int) -> None:
        super().__init__(problems)
        self._shared_limits = shared_limits
        self._rules_max = rules_max
        self._defaults: dict[str, Any] = {}
        self._known: dict[object, tuple[int, dict[str, Any]]] = {}
        self._kinds: dict[tuple[int, int, int], LimitKind | None] = {}
        self._windows: dict[str, int] = {}

    # The file.

    def file(self, value: object) -> NativeFile | None:
        """All of it."""
        frame = self.frame(value, TOP, TERMS)
        if frame is None:
            return None
        top, defaults = frame
        # First, for whatever has terms has these where it does not say its own.
        self._defaults = self.terms(("defaults",), defaults, TERMS)
        names = self._names(top.get("priorities"))
        callers = self._callers(top.get("callers"))
        header = top.get("client_type_header")
        if header is not None:
            header = self._header(("client_type_header",), header, CLIENT_TYPE_HEADER_DEFAULT)
        degrade = self._degrade(top.get("degrade"))
        values = top.get("rules", [] if any(name in top for name in _WITHOUT_RULES) else None)
        if not isinstance(values, list):
            self.refuse(("rules",), values, "give a list of rules, each with a rule_id and a limit")
            return None
        if len(values) > self._rules_max:
            remedy = f"give at most {self._rules_max:,} (rules_max)"
            self.refuse(("rules",), f"{len(values):,} rules", remedy)
            return None
        rules: list[ResourceRule] = []
        rule_ids: list[str] = []
        for place, one in enumerate(values):
            rule = self._rule(place, one, rule_ids)
            if rule is not None:
                rules.append(rule)
        return NativeFile(rules, rule_ids, names, callers, header, degrade, len(values))

    # A rule.

    def _rule(self, place: int, value: object, rule_ids: list[str]) -> ResourceRule | None:
        at: FieldPath = ("rules", place)
        if not isinstance(value, dict):
            self.refuse(at, value, f"give fields of {', '.join(FIELDS)}, each with its value")
            return None
        for name in value:
            if name not in _FIELDS:
                self._problems.add_unknown((*at, str(name)), value[name], FIELDS)
        rule_id = value.get("rule_id")
        if not isinstance(rule_id, str) or not _RULE_ID.fullmatch(rule_id):
            remedy = "name it with up to 128 letters, digits, '_', '-', '.', ':', '@' and '/'"
            self.refuse((*at, "rule_id"), rule_id, remedy + _quote(rule_id))
            rule_id = ""
        elif rule_id.startswith(QUOTA_MARK):
            remedy = f"begin it otherwise: {QUOTA_MARK}NAME is what the quota of a caller is called"
            self.refuse((*at, "rule_id"), rule_id, remedy)
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
            self.refuse((*at, "client_type"), client_type, _text_remedy(client_type))
            client_type = ""
        kind = self._parse_kind(at, value)
        if kind is None or path is None or not rule_id:
            return None
        return ResourceRule(rule_id, kind, path, client_type, priority)

    def _parse_kind(self, at: FieldPath, fields: Mapping[str, Any]) -> LimitKind | None:
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
            self.refuse((*at, "resource_path"), value, "give a path, as /api/v1/playback")
            return None
        try:
            return plain_pattern(value)
        except ValueError as error:
            self.refuse((*at, "resource_path"), value, str(error))
            return None

    def _count(self, at: FieldPath, value: object) -> int:
        if type(value) is int and 1 <= value <= LIMIT_MAX:
            return value
        hint = "; to let nobody in, close the door instead" if value == 0 else ""
        self.refuse((*at, "limit"), value, _LIMIT_REMEDY + hint)
        return 0

    def _window(self, at: FieldPath, fields: Mapping[str, object]) -> int:
        seconds, text = fields.get("window_seconds"), fields.get("window")
        if text is None:
            if type(seconds) is int and 1 <= seconds <= WINDOW_S_MAX:
                return seconds * 1_000_000
            remedy = f"give whole seconds from 1 to {WINDOW_S_MAX:,}, or window: 90s"
            self.refuse((*at, "window_seconds"), seconds, remedy)
            return 0
        if seconds is not None:
            self.refuse((*at, "window"), text, "leave it out, or window_seconds: one says it all")
            return 0
        if not isinstance(text, str):
            self.refuse((*at, "window"), text, _WINDOW_REMEDY)
            return 0
        window_us = self._windows.get(text)
        if window_us is None:
            try:
                window_us = parse_rate(f"1/{text}").period_us if _WINDOW.fullmatch(text) else 0
            except BadValue:
                window_us = 0
            if not 1 <= window_us <= WINDOW_S_MAX * 1_000_000:
                self.refuse((*at, "window"), text, _WINDOW_REMEDY)
                return 0
            self._windows[text] = window_us
        return window_us

    # Its terms.

    def _all_terms(self, at: FieldPath, fields: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The terms that a rule says or has by default, with a number for what is the same."""
        values = tuple([fields.get(name) for name in TERMS])
        # 1, 1.0 and true are alike in Python, and not in a file.
        key = (values, tuple([type(one) for one in values]))
        try:
            found = self._known.get(key)
        except TypeError:  # a list, say: it is told what is wrong with that
            return 0, self.terms(at, fields, TERMS)
        if found is None:
            before = len(self._problems)
            found = len(self._known) + 1, self._with_defaults(self.terms(at, fields, TERMS))
            if len(self._problems) == before:
                self._known[key] = found
        return found

    def _with_defaults(self, own: dict[str, Any]) -> dict[str, Any]:
        """A rule's own terms before those of the file, which are only for those they suit."""
        terms = {**self._defaults, **own}
        algorithm = terms.get("algorithm")
        if "cells" not in own and algorithm not in {None, Algorithm.SLIDING_WINDOW}:
            terms.pop("cells", None)
        if "lease" not in own and (
            terms.get("count_refused") or algorithm is Algorithm.SLIDING_LOG
        ):
            terms.pop("lease", None)
        return terms

    def _kind(
        self, at: FieldPath, count: int, window_us: int, number: int, terms: dict[str, Any]
    ) -> LimitKind | None:
        """The kind that these numbers and terms are; None for one that is off, or is wrong."""
        key = (count, window_us, number)
        if key in self._kinds:
            return self._kinds[key]
        limit = self._limit(at, count, window_us, terms)
        if limit is None:
            return None
        mode = terms.get("mode", Mode.ENFORCE)
        kind: LimitKind | None = None
        if mode is not Mode.OFF:
            rule = Rule(limit, **{name: terms[name] for name in _OF_LIMITER if name in terms})
            try:
                shared_id = self._shared_limits.name(rule)
            except BadValue as error:
                self.refuse((*at, "limit"), error.value, error.remedy)
                return None
            kind = LimitKind(
                shared_id, limit, terms.get("per", Per.USER), shadow=mode is Mode.SHADOW
            )
        self._kinds[key] = kind
        return kind

    def _limit(
        self, at: FieldPath, count: int, window_us: int, terms: dict[str, Any]
    ) -> Limit | None:
        algorithm = terms.get("algorithm", Algorithm.SLIDING_WINDOW)
        most = int(count * terms.get("burst_capacity", 1))
        cells: int | None = terms.get("cells")
        if algorithm is Algorithm.SLIDING_WINDOW:
            cells = cells or 1
        elif cells is not None:
            remedy = f"leave it out: only sliding_window has cells, {algorithm.value} has none"
            self.refuse((*at, "cells"), cells, remedy)
            return None
        if algorithm is Algorithm.SLIDING_LOG and most > LOG_ENTRIES_MAX:
            remedy = f"a sliding_log holds at most {LOG_ENTRIES_MAX:,}; choose another algorithm"
            self.refuse((*at, "limit"), most, remedy)
            return None
        if algorithm in BURSTING:
            limit = Limit(count, period_us=window_us, burst=most, algorithm=algorithm)
        else:
            limit = Limit(most, period_us=window_us, cells=cells, algorithm=algorithm)
        if "lease" in terms:
            remedy = lease_remedy(limit, terms["lease"], count_refused=terms.get("count_refused"))
            if remedy:
                self.refuse((*at, "lease"), terms["lease"], remedy)
                return None
        return limit

    # Who matters how much.

    def _names(self, value: object) -> PriorityNames | None:
        if value is None:
            return None
        at: FieldPath = ("priorities",)
        fields = self.mapping(at, value, PRIORITIES) or {}
        header = self._header((*at, "header"), fields.get("header"), NAME_HEADER_DEFAULT)
        table = self._table((*at, "names"), fields.get("names"), NAMES_MAX)
        default = self._common((*at, "default"), fields.get("default"))
        try:
            return PriorityNames(table, header=header, default=default)
        except ValueError as error:
            self.refuse((*at, "names"), f"{len(table):,} names", str(error))
            return None

    def _callers(self, value: object) -> CallerRules | None:
        if value is None:
            return None
        at: FieldPath = ("callers",)
        fields = self.mapping(at, value, CALLERS) or {}
        return CallerRules(
            self._table((*at, "names"), fields.get("names"), CALLERS_MAX),
            strangers=self._common((*at, "strangers"), fields.get("strangers")),
            quotas=self._quotas((*at, "quotas"), fields.get("quotas")),
            penalties=self._penalties((*at, "penalties"), fields.get("penalties")),
            pins=self._pins((*at, "pins"), fields.get("pins")),
        )

    def _quotas(self, at: FieldPath, value: object) -> dict[str, ResourceRule]:
        found: dict[str, ResourceRule] = {}
        for name, one in self._by_caller(at, value).items():
            here: FieldPath = (*at, name)
            fields = self.mapping(here, _expand_rate(one), QUOTA)
            if fields is None:
                continue
            if fields.get("per") is not None:
                self.refuse((*here, "per"), fields["per"], "leave it out: it counts this caller")
                continue
            kind = self._parse_kind(here, {**fields, "per": Per.USER.value})
            if kind is not None:
                rule_id = f"{QUOTA_MARK}{name}"
                found[name] = ResourceRule(rule_id, kind, EVERY_PATH, "", ANY_PRIORITY)
        return found

    def _penalties(self, at: FieldPath, value: object) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        for name, one in self._by_caller(at, value).items():
            factor = fraction_of(one, PENALTY_MAX)
            if factor is None:
                remedy = f"give a number from 1 to {PENALTY_MAX:,}: everything costs so many times"
                self.refuse((*at, name), one, remedy)
            else:
                found[name] = factor
        return found

    def _pins(self, at: FieldPath, value: object) -> frozenset[str]:
        values = [] if value is None else value
        if not isinstance(values, list) or len(values) > CALLERS_MAX:
            self.refuse(at, value, f"give a list of callers, at most {CALLERS_MAX:,}")
            return frozenset()
        found: set[str] = set()
        for place, name in enumerate(values):
            if _is_text(name):
                found.add(name)
            else:
                self.refuse((*at, place), name, _text_remedy(name))
        return frozenset(found)

    def _by_caller(self, at: FieldPath, value: object) -> dict[str, object]:
        """What is said of each caller, of those whose names are names."""
        values = self.mapping(at, {} if value is None else value) or {}
        if len(values) > CALLERS_MAX:
            self.refuse(at, f"{len(values):,} callers", f"give at most {CALLERS_MAX:,}")
            return {}
        for name in values:
            if not _is_text(name):
                self.refuse((*at, name), name, _text_remedy(name))
        return {name: one for name, one in values.items() if _is_text(name)}

    def _table(self, at: FieldPath, value: object, many_max: int) -> dict[str, Criticality]:
        by_name = self.mapping(at, {} if value is None else value) or {}
        if len(by_name) > many_max:
            self.refuse(at, f"{len(by_name):,} names", f"give at most {many_max:,}")
            return {}
        found: dict[str, Criticality] = {}
        for name, one in by_name.items():
            if not _is_text(name):
                self.refuse((*at, name), name, _text_remedy(name))
            elif (criticality := self._class((*at, name), one)) is not None:
                found[name] = criticality
        return found

    def _common(self, at: FieldPath, value: object) -> Criticality:
        """A class for those who are not named: any but the highest."""
        found = Criticality.DEGRADED if value is None else self._class(at, value)
        if found is Criticality.CRITICAL:
            self.refuse(at, value, "give a lower class, and name those who are CRITICAL")
        return found or Criticality.DEGRADED

    # What a service leaves out under stress.

    def _degrade(self, value: object) -> dict[str, str] | None:
        if value is None:
            return None
        levels = self.mapping(("degrade",), value) or {}
        if len(levels) > SWITCHES_MAX:
            self.refuse(("degrade",), f"{len(levels):,} switches", f"name at most {SWITCHES_MAX}")
            return None
        for name, level in levels.items():
            if not _is_text(name):
                self.refuse(("degrade", name), name, _text_remedy(name))
            elif not isinstance(level, str) or level not in LEVELS:
                self.refuse(("degrade", name), level, LEVEL_REMEDY)
        return levels

    # Small things.

    def _header(self, at: FieldPath, value: object, default: str) -> str:
        return default if value is None else self.header_name(at, value, default) or default

    def _class(self, at: FieldPath, value: object) -> Criticality | None:
        found = _CLASSES.get(value) if isinstance(value, str) else None
        if found is None:
            self.refuse(at, value, f"give one of {', '.join(_CLASSES)}")
        return found


def _expand_rate(value: object) -> object:
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
    hint = ""
    if isinstance(value, str) and not value.isascii():
        hint = "; beyond ASCII, none that cannot be seen, as marks of direction or of joining"
    return f"give a text of 1 to {TEXT_CHARS_MAX} characters{hint}{_quote(value)}"


def _quote(value: object) -> str:
    return "; put it in quotes" if isinstance(value, int | float) else ""
