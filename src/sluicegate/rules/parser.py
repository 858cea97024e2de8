"""Parser of our rules files: from plain values to rules, with every problem noted.

A rule is a row or a match rule. Of all rows that fit a request, the most specific applies; of the
match rules, each one that matches. A rule with `match`, `key` or a rate is a match rule, and read
by `match_fields.py`. Rows are read by `row_fields.py`, tables of callers and names by
`table_fields.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.rule import Limit
from sluicegate.rules.match_fields import (
    MATCH_FIELDS,
    MATCH_NAME,
    MATCH_ONLY,
    MATCH_TERMS,
    MatchFields,
)
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.resources.callers import QUOTA_MARK, CallerRules
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT, PriorityNames
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.row_fields import FIELDS, TERMS, quote_remedy
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.rules.table_fields import TableFields
from sluicegate.rules.web.rule import MatchRule

RULES_MAX: Final = 1_000_000

DEFAULTS: Final = (*TERMS, "or_key")
# Fields of rows alone.
ROW_ONLY: Final = tuple([name for name in FIELDS if name not in MATCH_FIELDS])
TOP: Final = (
    "version",
    "defaults",
    "priorities",
    "callers",
    "client_type_header",
    "degrade",
    "rules",
)
_WITHOUT_RULES: Final = ("callers", "degrade")  # a file with these needs no rules

_RULE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,127}")
_FIELDS: Final = frozenset(FIELDS)
_ALL_FIELDS: Final = tuple(dict.fromkeys((*FIELDS, *MATCH_FIELDS)))
_MATCH_ONLY: Final = frozenset(MATCH_ONLY)
_ROW_ONLY: Final = frozenset(ROW_ONLY)
OLD_FORMAT: Final = "a file with `limits:` is of the old format: `sluicegate rules convert` it"


class NativeFile(NamedTuple):
    """The content of one file: rows in `rules`, match rules in `matching`.

    `rule_ids` has the names of all, in order; `rules_count` has the rules that are off, too.
    """

    rules: list[ResourceRule]
    matching: list[MatchRule]
    rule_ids: list[str]
    by_name: bool  # whether the file is written as a mapping
    names: PriorityNames | None
    callers: CallerRules | None
    client_type_header: str | None
    degrade: Mapping[str, str] | None
    rules_count: int

    def field_of(self, rule_id: str) -> FieldPath:
        """Where the rule of that name stands."""
        return ("rules", rule_id if self.by_name else self.rule_ids.index(rule_id))


def is_match_rule(fields: Mapping[str, object]) -> bool:
    """Whether a rule is a match rule, and not a row."""
    if not _MATCH_ONLY.isdisjoint(fields):
        return True
    limit = fields.get("limit")
    if type(limit) is int:  # nearly all of a million
        return False
    return isinstance(limit, str | list | Limit) and _ROW_ONLY.isdisjoint(fields)


def rules_as_list(values: object) -> list[Any]:
    """The rules of a file as a list, whether it is written so or as a mapping by name."""
    if not isinstance(values, Mapping):
        return values if isinstance(values, list) else []
    return [
        {"rule_id": name, **fields} if isinstance(fields, Mapping) else fields
        for name, fields in values.items()
    ]


def is_native(value: object) -> bool:
    """Whether a file means to be of the native format."""
    return isinstance(value, Mapping) and any(
        field in value for field in ("rules", *_WITHOUT_RULES)
    )


def parse_native(
    value: object, problems: Problems, shared_limits: SharedLimits, *, rules_max: int = RULES_MAX
) -> NativeFile | None:
    """Read a whole file; return None, or a part of it, if it has problems."""
    return _Parser(problems, shared_limits, rules_max).file(value)


@final
class _Parser(TableFields, MatchFields):
    """Reads a file, and knows where it is."""

    def __init__(self, problems: Problems, shared_limits: SharedLimits, rules_max: int) -> None:
        super().__init__(problems, shared_limits)
        self._rules_max = rules_max
        self._match_defaults: dict[str, Any] = {}
        self._or_key_default: object = None

    # The file.

    def file(self, value: object) -> NativeFile | None:
        """All of it."""
        if isinstance(value, Mapping) and "limits" in value and "rules" not in value:
            self.refuse(("limits",), "limits", OLD_FORMAT)
            return None
        frame = self.frame(value, TOP, DEFAULTS)
        if frame is None:
            return None
        top, defaults = frame
        self._read_defaults(defaults)
        names = self.priority_names(top.get("priorities"))
        callers = self.caller_rules(top.get("callers"))
        header = top.get("client_type_header")
        if header is not None:
            header = self.header_or(("client_type_header",), header, CLIENT_TYPE_HEADER_DEFAULT)
        degrade = self.switches(top.get("degrade"))
        values = top.get("rules", [] if any(name in top for name in _WITHOUT_RULES) else None)
        if not isinstance(values, list | dict):
            remedy = "give rules by their names, or a list, each with a rule_id and a limit"
            self.refuse(("rules",), values, remedy)
            return None
        if len(values) > self._rules_max:
            remedy = f"give at most {self._rules_max:,} (rules_max)"
            self.refuse(("rules",), f"{len(values):,} rules", remedy)
            return None
        file = NativeFile(
            [], [], [], isinstance(values, dict), names, callers, header, degrade, len(values)
        )
        if isinstance(values, dict):
            for name, one in values.items():
                self._named_rule(name, one, file)
        else:
            for place, one in enumerate(values):
                self._any_rule(("rules", place), one, file)
        return file

    def _read_defaults(self, defaults: dict[str, Any]) -> None:
        """Read the defaults first: they are the terms of every rule that gives none."""
        before = len(self._problems)
        self.defaults = self.terms(("defaults",), defaults, TERMS)
        self._or_key_default = defaults.get("or_key")
        self.or_key_default(self._or_key_default)
        if len(self._problems) > before:
            self.defaults, self._or_key_default = {}, None  # reported once, not once a rule
        self._match_defaults = {
            name: self.defaults[name] for name in MATCH_TERMS if name in self.defaults
        }

    # A rule.

    def _named_rule(self, name: object, value: object, file: NativeFile) -> None:
        """Read a rule of a mapping by name."""
        at: FieldPath = ("rules", str(name))
        if not isinstance(value, dict):
            self._any_rule(at, value, file)
            return
        if "rule_id" in value:
            remedy = f"leave it out: this rule is called {name!r}"
            self.refuse((*at, "rule_id"), value["rule_id"], remedy)
        self._any_rule(at, {**value, "rule_id": name}, file, name_at=at)

    def _any_rule(
        self, at: FieldPath, value: object, file: NativeFile, *, name_at: FieldPath = ()
    ) -> None:
        if not isinstance(value, dict):
            self.refuse(at, value, f"give fields of {', '.join(_ALL_FIELDS)}, each with its value")
            return
        matching = is_match_rule(value)
        rule_id = value.get("rule_id")
        pattern = MATCH_NAME if matching else _RULE_ID
        if not isinstance(rule_id, str) or not pattern.fullmatch(rule_id):
            self._bad_name(name_at or (*at, "rule_id"), rule_id, matching=matching)
            rule_id = ""
        elif rule_id.startswith(QUOTA_MARK):
            remedy = f"begin it otherwise: {QUOTA_MARK}NAME is what the quota of a caller is called"
            self.refuse(name_at or (*at, "rule_id"), rule_id, remedy)
        file.rule_ids.append(rule_id)  # also a bad one, so that places stay in step
        if matching:
            self._match_rule(at, rule_id, value, file)
            return
        if not value.keys() <= _FIELDS:
            for name, said in value.items():
                if name not in _FIELDS:
                    self._unknown(at, name, said)
        rule = self.row(at, rule_id, value)
        if rule is not None:
            file.rules.append(rule)

    def _match_rule(
        self, at: FieldPath, rule_id: str, value: dict[str, Any], file: NativeFile
    ) -> None:
        for name, said in value.items():
            if name in _ROW_ONLY:
                remedy = "leave it out: a rule with `match` or `key` has a rate, and no window"
                self.refuse((*at, name), said, remedy)
            elif name not in MATCH_FIELDS:
                self._unknown(at, name, said)
        rule = self.match_rule(at, rule_id, value, self._match_defaults, self._or_key_default)
        if rule is not None and rule_id:
            file.matching.append(rule)

    def _bad_name(self, at: FieldPath, name: object, *, matching: bool) -> None:
        more, signs = (64, "'_', '-' and '.'")
        if not matching:
            more, signs = (128, "'_', '-', '.', ':', '@' and '/'")
        remedy = f"name it with up to {more} letters, digits, {signs}"
        self.refuse(at, name, remedy + quote_remedy(name))

    def _unknown(self, at: FieldPath, name: object, value: object) -> None:
        if not isinstance(name, str):
            self.refuse((*at, str(name)), name, "a field's name is a text")
        elif name == "name":
            self.refuse((*at, "name"), value, "write it as rule_id")
        else:
            self._problems.add_unknown((*at, str(name)), value, _ALL_FIELDS)
