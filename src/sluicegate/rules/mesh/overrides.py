"""Overrides: limits that descriptors bring along, in place of what any rule says.

Such a limit applies whatever the files say of these keys. Different limits are few in practice, and
each takes a table, so their number is bounded; one more is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.checks import MeshLimit, Override
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rule import Rule
from sluicegate.rules.mesh.identity import rule_id
from sluicegate.rules.mesh.rule import (
    COUNT_MAX,
    UNIT_US,
    VARYING,
    Counting,
    Form,
    MeshRule,
    Semantics,
    default_algorithm,
)

FORMS_MAX: Final = 4  # so many depths of descriptors a limit on average


@final
class Overrides:
    """The different limits that came so far."""

    __slots__ = ("_countings", "_forms", "_semantics", "overrides_max")

    def __init__(self, semantics: Semantics, overrides_max: int) -> None:
        self._semantics = semantics
        self._countings: dict[tuple[int, int], Counting] = {}
        self._forms: dict[tuple[int, int, int], Form] = {}
        self.overrides_max = overrides_max

    def rule(
        self, domain: str, field: str, override: Override, entries: Sequence[tuple[str, str]]
    ) -> MeshRule:
        """A rule for these keys and values alone."""
        count, unit, depth = override.requests_per_unit, override.unit, len(entries)
        form = self._forms.get((count, unit, depth))
        if form is None:
            if not 1 <= unit < len(UNIT_US):
                raise BadValue(f"{field}.unit", unit, "give one of the protocol's units, 1 to 7")
            if not 0 <= count <= COUNT_MAX:
                raise BadValue(f"{field}.requests_per_unit", count, "give what 32 bits hold")
            counting = self._counting(field, count, unit)
            form = Form((counting,), (VARYING,) * depth, real=tuple(range(depth)))
            if len(self._forms) < FORMS_MAX * self.overrides_max:
                self._forms[count, unit, depth] = form
        return MeshRule(form, rule_id(domain, tuple([(key, None) for key, _ in entries])))

    def _counting(self, field: str, count: int, unit: int) -> Counting:
        found = self._countings.get((count, unit))
        if found is None:
            if len(self._countings) >= self.overrides_max:
                remedy = f"{self.overrides_max:,} different ones are in use (overrides_max)"
                raise BadValue(field, f"{count} per unit {unit}", remedy)
            found = self._countings[count, unit] = _build_counting(self._semantics, count, unit)
        return found


def _build_counting(semantics: Semantics, count: int, unit: int) -> Counting:
    algorithm = default_algorithm(semantics)
    above = algorithm is Algorithm.FIXED_WINDOW
    wire_limit = MeshLimit(count, unit)
    if count == 0 and not above:
        return Counting("", None, wire_limit, above=False, suffix="")
    limit = Limit(count + 1 if above else count, period_us=UNIT_US[unit], algorithm=algorithm)
    return Counting(Rule(limit, count_refused=above), limit, wire_limit, above=above, suffix="")
