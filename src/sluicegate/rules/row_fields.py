"""Row fields: reads rows, the rules of which the most specific applies, and what limits they say.

The tables of names below are the format of a row; the terms are read by `rule_fields.py`. A file
may have hundreds of thousands of rows, so a good row costs little: its fields are read once, and
rows that say the same share one kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.path_index import plain_pattern
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX
from sluicegate.limits.rates import parse_rate
from sluicegate.limits.rule import Mode, Rule
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.resources.rule import ANY_PRIORITY, EVERY_PATH, LimitKind, Per, ResourceRule
from sluicegate.rules.rule_fields import RuleFields, lease_remedy
from sluicegate.rules.shared_limits import SharedLimits

LIMIT_MAX: Final = 1 << 48  # times the largest burst it is still less than any store can count
WINDOW_S_MAX: Final = 366 * 86_400
TEXT_CHARS_MAX: Final = 256

# The terms of rows, of one or as defaults of a file.
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

_WINDOW: Final = re.compile(r"[1-9][0-9]{0,15}[a-z]+")
_CLASSES: Final = {member.name: member for member in Criticality}
# The terms that a limiter has to know.
_OF_LIMITER: Final = ("failure", "local_share", "lease", "mode", "count_refused")
_LIMIT_REMEDY: Final = "give a whole number from 1 to 2^48"
_WINDOW_REMEDY: Final = "write it as 90s, 5m, 1h or 1d, up to 366 days"


class RowFields(RuleFields):
    """Reads rows; `defaults` are the terms of those that do not say their own."""

    def __init__(self, problems: Problems, shared_limits: SharedLimits) -> None:
        super().__init__(problems)
        self._shared_limits = shared_limits
        self.defaults: dict[str, Any] = {}
        self._known: dict[object, tuple[int, dict[str, Any]]] = {}
        self._kinds: dict[tuple[int, int, int], LimitKind | None] = {}
        self._windows: dict[str, int] = {}

    def row(self, at: FieldPath, rule_id: str, value: dict[str, Any]) -> ResourceRule | None:
        """The row of this name that the fields say."""
        path = self._path(at, value.get("resource_path"))
        bucket = value.get("priority_bucket")
        priority = ANY_PRIORITY
        if bucket is not None:
            found = self.criticality((*at, "priority_bucket"), bucket)
            priority = ANY_PRIORITY if found is None else int(found)
        client_type = value.get("client_type")
        if client_type is None:
            client_type = ""
        elif not is_text(client_type):
            self.refuse((*at, "client_type"), client_type, text_remedy(client_type))
            client_type = ""
        kind = self.kind_of(at, value)
        if kind is None or path is None or not rule_id:
            return None
        return ResourceRule(rule_id, kind, path, client_type, priority)

    def kind_of(self, at: FieldPath, fields: Mapping[str, Any]) -> LimitKind | None:
        """Read the limit and the terms of these fields."""
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
        """Return the terms of a row or its defaults, and a number that equal terms share."""
        values = tuple([fields.get(name) for name in TERMS])
        # 1, 1.0 and true are alike in Python, and not in a file.
        key = (values, tuple([type(one) for one in values]))
        try:
            found = self._known.get(key)
        except TypeError:  # not hashable, as a list: `terms` notes the problem
            return 0, self.terms(at, fields, TERMS)
        if found is None:
            before = len(self._problems)
            found = len(self._known) + 1, self._with_defaults(self.terms(at, fields, TERMS))
            if len(self._problems) == before:
                self._known[key] = found
        return found

    def _with_defaults(self, own: dict[str, Any]) -> dict[str, Any]:
        """A rule's own terms before those of the file, which are only for those they suit."""
        terms = {**self.defaults, **own}
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
        """Return the kind of these numbers and terms; None if it is off or invalid."""
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

    def criticality(self, at: FieldPath, value: object) -> Criticality | None:
        """A class, by its name."""
        found = _CLASSES.get(value) if isinstance(value, str) else None
        if found is None:
            self.refuse(at, value, f"give one of {', '.join(_CLASSES)}")
        return found


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a name of a caller, a client type or a switch."""
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_CHARS_MAX:
        return False
    return value.isascii() or value.isprintable()


def text_remedy(value: object) -> str:
    """Return the remedy for an invalid text."""
    hint = ""
    if isinstance(value, str) and not value.isascii():
        hint = "; beyond ASCII, none that cannot be seen, as marks of direction or of joining"
    return f"give a text of 1 to {TEXT_CHARS_MAX} characters{hint}{quote_remedy(value)}"


def quote_remedy(value: object) -> str:
    """Return the rest of the remedy for a number instead of a text."""
    return "; put it in quotes" if isinstance(value, int | float) else ""
