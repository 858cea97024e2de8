"""Paths: finds the rows for a request, in a time that their number does not change.

Of all rows that fit a request the most specific applies: the path decides first, then the client
type, then the priority. Rows that are the same in all three apply together, all or none.

Paths go before each other as in the path index of the kernels, and rows without a path come last.
Where the rows of the best path are for other clients, the next best path is tried, and so on.

A cell holds the rows that apply together. Nearly every path has one row, which is then the payload
of the index itself: a million of them are a million rows and one dict.

Cost: that of the path index. Bounds: those of the path index, and `CELL_MAX` rows that apply
together.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from sluicegate.kernels.native import mypyc_attr
from sluicegate.kernels.path_index import PathIndex
from sluicegate.rules.resources.rule import ANY_PRIORITY, ResourceRule

SHAPES_MAX: Final = 1_024
CELL_MAX: Final = 16

Rules: TypeAlias = tuple[ResourceRule, ...]
NO_RULES: Final[Rules] = ()


@final
@mypyc_attr(acyclic=True)
class PathRules:
    """Several rules of one path, by client type and then by priority."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[str, list[Rules]] = {}

    def add(self, rule: ResourceRule) -> None:
        """Put a rule in its cell; a `ValueError` says what is wrong with that."""
        row = self._rows.get(rule.client_type)
        if row is None:
            row = self._rows[rule.client_type] = [NO_RULES] * (ANY_PRIORITY + 1)
        cell = row[rule.priority]
        if len(cell) >= CELL_MAX:
            raise ValueError(f"at most {CELL_MAX} rules can apply together")
        for other in cell:
            if _twins(other, rule):
                raise ValueError(
                    f"{other.rule_id!r} limits the same in the same window; keep one of them"
                )
        # What is enforced stands first, as a limiter tells what it has counted.
        together = [*cell, rule]
        row[rule.priority] = (
            *[one for one in together if not one.kind.shadow],
            *[one for one in together if one.kind.shadow],
        )

    def find(self, client_type: str, priority: int) -> Rules:
        """The rules of the most specific cell that fits."""
        row = self._rows.get(client_type)
        if row is not None:
            cell = row[priority] or row[ANY_PRIORITY]
            if cell or not client_type:
                return cell
        if client_type:
            row = self._rows.get("")
            if row is not None:
                return row[priority] or row[ANY_PRIORITY]
        return NO_RULES


# What stands at a place in the index: one rule alone, or several.
Stand: TypeAlias = "ResourceRule | PathRules"


def _matching(stand: Stand, client_type: str, priority: int) -> Rules:
    if isinstance(stand, ResourceRule):
        if stand.client_type and stand.client_type != client_type:
            return NO_RULES
        of_all = stand.priority == ANY_PRIORITY
        return (stand,) if of_all or stand.priority == priority else NO_RULES
    return stand.find(client_type, priority)


def _join(stand: Stand, rule: Stand) -> Stand:
    if isinstance(stand, ResourceRule):
        path_rules = PathRules()
        path_rules.add(stand)
        stand = path_rules
    if isinstance(rule, ResourceRule):
        stand.add(rule)
    return stand


@final
class ResourceIndex:
    """All rows of a version. It is filled once with `add`, and then only asked."""

    __slots__ = ("_everywhere", "_exact", "_paths")

    def __init__(self, *, shapes_max: int = SHAPES_MAX) -> None:
        self._everywhere: Stand | None = None
        self._paths: PathIndex[Stand] = PathIndex(shapes_max=shapes_max)
        self._exact = self._paths.exact

    def add(self, rule: ResourceRule) -> None:
        """Add a row; a `ValueError` has the remedy if it conflicts with another one."""
        if rule.path:
            self._paths.add(rule.path, rule, _join)
        elif self._everywhere is None:
            self._everywhere = rule
        else:
            self._everywhere = _join(self._everywhere, rule)

    def find(self, path: str, client_type: str, priority: int) -> Rules:
        """The rows that apply to a plain path, this kind of client and this priority."""
        stand = self._exact.get(path)
        if stand is not None:
            found = _matching(stand, client_type, priority)
            if found:
                return found
        for stand in self._paths.walk(path.split("/") if len(path) > 1 else [""]):
            found = _matching(stand, client_type, priority)
            if found:
                return found
        stand = self._everywhere
        return NO_RULES if stand is None else _matching(stand, client_type, priority)


def _twins(one: ResourceRule, other: ResourceRule) -> bool:
    """Whether one of the two can never matter."""
    mine, theirs = one.kind, other.kind
    return (
        mine.per is theirs.per
        and mine.shadow is theirs.shadow
        and mine.limit.algorithm is theirs.limit.algorithm
        and mine.limit.period_us == theirs.limit.period_us
    )
