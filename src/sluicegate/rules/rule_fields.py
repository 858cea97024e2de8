"""Rule fields: the frame of a rules file and the terms of a rule, read alike for all rules.

Rows (`row_fields.py`) and match rules (`match_fields.py`) have the same terms: the algorithm, the
decision while the store does not answer, the lease. The table of terms below is their schema; each
kind of rule names those it has. A reader notes each problem and returns what lets the others go on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeGuard, TypeVar

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.kernels.sliding_window import CELLS_MAX
from sluicegate.limits.lease import block_max
from sluicegate.limits.rule import Failure, Mode
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.resources.rule import Per
from sluicegate.rules.web.keys import header_name

VERSION: Final = 1
BURST_CAPACITY_MAX: Final = 10
COUNT_MAX: Final = 1 << 53

_PERCENT: Final = re.compile(r"[1-9][0-9]?%|100%")

T = TypeVar("T")


class RuleFields:
    """Reads fields and notes their problems; the readers of rows and of match rules extend it."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def frame(
        self, value: object, top: tuple[str, ...], terms: tuple[str, ...]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The fields of a whole file, and its defaults; None if it has no fields."""
        fields = self.mapping((), value, top)
        if fields is None:
            return None
        version = fields.get("version")
        if type(version) is not int or version != VERSION:
            self.refuse(("version",), version, f"say which form this is: version: {VERSION}")
        return fields, self.mapping(("defaults",), fields.get("defaults") or {}, terms) or {}

    def terms(
        self, at: FieldPath, fields: Mapping[str, object], names: tuple[str, ...]
    ) -> dict[str, Any]:
        """The terms of these names that are given, and are right."""
        terms: dict[str, Any] = {}
        for name in names:
            value = fields.get(name)
            if value is not None:
                term = _TERM_READERS[name](self, (*at, name), value)
                if term is not None:
                    terms[name] = term
        return terms

    def mapping(
        self, at: FieldPath, value: object, allowed: tuple[str, ...] = ()
    ) -> dict[str, Any] | None:
        """Fields of these names, or of any; None if it is no mapping."""
        if not isinstance(value, Mapping):
            fields = f" of {', '.join(allowed)}" if allowed else ""
            self.refuse(at, value, f"give fields{fields}, each with its value")
            return None
        for name in value:
            if not isinstance(name, str):
                self.refuse((*at, str(name)), name, "a field's name is a text")
            elif allowed and name not in allowed:
                self._problems.add_unknown((*at, name), value[name], allowed)
        return {
            name: value[name]
            for name in value
            if isinstance(name, str) and (not allowed or name in allowed)
        }

    def flag(self, at: FieldPath, value: object) -> bool | None:
        """True, false or nothing."""
        if value is None or isinstance(value, bool):
            return value
        self.refuse(at, value, "give true or false")
        return None

    def member(self, kind: type[T], at: FieldPath, value: object) -> T | None:
        """A member of an enumeration, by its value."""
        try:
            return kind(value)  # type: ignore[call-arg] # each is an enumeration
        except ValueError:
            names = ", ".join(str(member.value) for member in kind)  # type: ignore[attr-defined]
            self.refuse(at, value, f"give one of {names}")
            return None

    def mode(self, at: FieldPath, value: object) -> Mode | None:
        """Enforce, shadow or off. TOML has no bare word: `false` is `off`."""
        return self.member(Mode, at, "off" if value is False else value)

    def share(self, at: FieldPath, value: object) -> float | None:
        """A part of one."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
        self.refuse(at, value, "give a share above 0 and up to 1")
        return None

    def lease(self, at: FieldPath, value: object) -> str | int | None:
        """How much of a limit a process takes at once."""
        if is_count(value):
            return value
        if isinstance(value, str) and (value == "auto" or _PERCENT.fullmatch(value)):
            return value
        self.refuse(at, value, 'give "auto", a percentage as "10%", or a number of units')
        return None

    def cells(self, at: FieldPath, value: object) -> int | None:
        """Into how many cells a window is divided."""
        if type(value) is int and 1 <= value <= CELLS_MAX:
            return value
        self.refuse(at, value, f"give a whole number from 1 to {CELLS_MAX:,}")
        return None

    def burst_capacity(self, at: FieldPath, value: object) -> Fraction | None:
        """How many times its count a limit admits at once."""
        capacity = fraction_of(value, BURST_CAPACITY_MAX)
        if capacity is None:
            self.refuse(at, value, f"give a number from 1 to {BURST_CAPACITY_MAX}, as 1.2")
        return capacity

    def header_name(self, at: FieldPath, value: object, example: str) -> str | None:
        """A header's name, as requests have it."""
        name = header_name(value) if isinstance(value, str) else None
        if name is None:
            self.refuse(at, value, f"give a header's name, as {example}")
        return name

    def refuse(self, at: FieldPath, value: object, remedy: str) -> None:
        """Note a problem, and go on."""
        self._problems.add(at, value, remedy)


_TERM_READERS: Final[dict[str, Callable[[RuleFields, FieldPath, object], object]]] = {
    "algorithm": lambda self, at, value: self.member(Algorithm, at, value),
    "cells": RuleFields.cells,
    "burst_capacity": RuleFields.burst_capacity,
    "failure": lambda self, at, value: self.member(Failure, at, value),
    "local_share": RuleFields.share,
    "mode": RuleFields.mode,
    "lease": RuleFields.lease,
    "count_refused": RuleFields.flag,
    "per": lambda self, at, value: self.member(Per, at, value),
}


def lease_remedy(limit: Limit, lease: str | int, *, count_refused: bool | None) -> str:
    """What to do about a lease that this limit cannot have; empty if it can."""
    if count_refused:
        return "leave it out, or count_refused: what is refused cannot be leased"
    try:
        block_max(limit, lease)
    except BadValue as error:
        return error.remedy
    return ""


def fraction_of(value: object, most: int) -> Fraction | None:
    """A number from 1 on, as it is written: 1.15 is 115/100, which no binary fraction is."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return Fraction(str(value)) if math.isfinite(value) and 1 <= value <= most else None


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number that a store can count to."""
    return type(value) is int and 1 <= value <= COUNT_MAX
