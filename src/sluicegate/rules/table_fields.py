"""Table fields: reads what a rules file says once, of requests, of callers and of its switches."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.degradation import LEVEL_REMEDY, LEVELS, SWITCHES_MAX
from sluicegate.rules.problems import FieldPath
from sluicegate.rules.resources.callers import CALLERS_MAX, PENALTY_MAX, QUOTA_MARK, CallerRules
from sluicegate.rules.resources.priorities import (
    NAME_HEADER_DEFAULT,
    NAMES_MAX,
    PriorityNames,
)
from sluicegate.rules.resources.rule import ANY_PRIORITY, EVERY_PATH, Per, ResourceRule
from sluicegate.rules.row_fields import TERMS, RowFields, is_text, text_remedy
from sluicegate.rules.rule_fields import fraction_of

PRIORITIES: Final = ("header", "names", "default")
CALLERS: Final = ("names", "strangers", "quotas", "penalties", "pins")
QUOTA: Final = ("limit", "window_seconds", "window", *TERMS)


class TableFields(RowFields):
    """Reads tables; a quota is a row of a caller."""

    def priority_names(self, value: object) -> PriorityNames | None:
        """The table of request names."""
        if value is None:
            return None
        at: FieldPath = ("priorities",)
        fields = self.mapping(at, value, PRIORITIES) or {}
        header = self.header_or((*at, "header"), fields.get("header"), NAME_HEADER_DEFAULT)
        table = self._table((*at, "names"), fields.get("names"), NAMES_MAX)
        default = self._common((*at, "default"), fields.get("default"))
        try:
            return PriorityNames(table, header=header, default=default)
        except ValueError as error:
            self.refuse((*at, "names"), f"{len(table):,} names", str(error))
            return None

    def caller_rules(self, value: object) -> CallerRules | None:
        """The tables of callers."""
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
            kind = self.kind_of(here, {**fields, "per": Per.USER.value})
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
            if is_text(name):
                found.add(name)
            else:
                self.refuse((*at, place), name, text_remedy(name))
        return frozenset(found)

    def _by_caller(self, at: FieldPath, value: object) -> dict[str, object]:
        """Return the values by caller, without invalid names."""
        values = self.mapping(at, {} if value is None else value) or {}
        if len(values) > CALLERS_MAX:
            self.refuse(at, f"{len(values):,} callers", f"give at most {CALLERS_MAX:,}")
            return {}
        for name in values:
            if not is_text(name):
                self.refuse((*at, name), name, text_remedy(name))
        return {name: one for name, one in values.items() if is_text(name)}

    def _table(self, at: FieldPath, value: object, many_max: int) -> dict[str, Criticality]:
        by_name = self.mapping(at, {} if value is None else value) or {}
        if len(by_name) > many_max:
            self.refuse(at, f"{len(by_name):,} names", f"give at most {many_max:,}")
            return {}
        found: dict[str, Criticality] = {}
        for name, one in by_name.items():
            if not is_text(name):
                self.refuse((*at, name), name, text_remedy(name))
            elif (criticality := self.criticality((*at, name), one)) is not None:
                found[name] = criticality
        return found

    def _common(self, at: FieldPath, value: object) -> Criticality:
        """Read a class for unnamed callers or requests: any but the highest."""
        found = Criticality.DEGRADED if value is None else self.criticality(at, value)
        if found is Criticality.CRITICAL:
            self.refuse(at, value, "give a lower class, and list the CRITICAL callers by name")
        return found or Criticality.DEGRADED

    def switches(self, value: object) -> dict[str, str] | None:
        """Read the degradation switches."""
        if value is None:
            return None
        levels = self.mapping(("degrade",), value) or {}
        if len(levels) > SWITCHES_MAX:
            self.refuse(("degrade",), f"{len(levels):,} switches", f"name at most {SWITCHES_MAX}")
            return None
        for name, level in levels.items():
            if not is_text(name):
                self.refuse(("degrade", name), name, text_remedy(name))
            elif not isinstance(level, str) or level not in LEVELS:
                self.refuse(("degrade", name), level, LEVEL_REMEDY)
        return levels

    def header_or(self, at: FieldPath, value: object, default: str) -> str:
        """A header's name, or the usual one."""
        return default if value is None else self.header_name(at, value, default) or default


def _expand_rate(value: object) -> object:
    """The short form of a quota: "100/s" is a limit of 100 and a window of 1s."""
    if not isinstance(value, str):
        return value
    count, slash, window = value.partition("/")
    if not slash or not count.strip().isdecimal():
        return value
    window = window.strip()
    return {"limit": int(count), "window": window if window[:1].isdigit() else f"1{window}"}
