"""Paths: which rules an ask falls under, however many rules there are.

Of all rules that fit an ask the most specific applies: the path decides first, then the client
type, then the priority. Rules that are the same in all three apply together, all or none.

Paths go before each other as in the kernels' path index (an exact one, a template with the earlier
literal, the longest prefix), and rules without a path come last. That index answers with the one
path that fits best. Here the next best is wanted too, where the rules of the best are for other
clients; so the same walk goes on until some rules fit. It is bounded alike: for one path it cannot
visit more places than there are *shapes*, the ways in which literals and names alternate.

A cell holds the rules that apply together. Nearly every path has one rule, and then the rule stands
in the index itself: a million of them are a million rules and one dict.

Cost: one dict look-up where an exact path has rules that fit; else a split and at most `shapes_max`
steps. Bounds: `SEGMENTS_MAX` a rule, `SHAPES_MAX`, `CELL_MAX` rules that apply together.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from sluicegate.kernels.native import mypyc_attr
from sluicegate.rules.resources.rule import ANY_PRIORITY, ResourceRule

SEGMENTS_MAX: Final = 32
SHAPES_MAX: Final = 1_024
CELL_MAX: Final = 16
PATTERN_CHARS_MAX: Final = 1_024

Rules: TypeAlias = tuple[ResourceRule, ...]
NO_RULES: Final[Rules] = ()


def plain_pattern(text: str) -> str:
    """A rule's path as the index spells it; a `ValueError` has the remedy."""
    if not text.startswith("/"):
        raise ValueError("start it with a slash")
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError(f"it is longer than {PATTERN_CHARS_MAX:,} characters")
    if "?" in text or "#" in text:
        raise ValueError("a path has no query; take out what follows '?' or '#'")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("give text that UTF-8 can hold") from None
    segments = [segment for segment in text.split("/") if segment]
    if len(segments) > SEGMENTS_MAX:
        raise ValueError(f"it has more than {SEGMENTS_MAX} segments")
    if not _has_marks(text):
        return "/" + "/".join(segments)
    if segments[-1] == "**":
        raise ValueError("write '/*' for all below, as in /api/*")
    last = len(segments) - 1
    for at, segment in enumerate(segments):
        named = segment[0] == "{" and segment[-1] == "}" and not _has_marks(segment[1:-1])
        if named and len(segment) > 2:
            segments[at] = "{}"
        elif _has_marks(segment) and not (at == last and segment == "*"):
            raise ValueError("{name} stands for a whole segment, and '*' only at the end, for all")
    return "/" + "/".join(segments)


def plain_path(path: str) -> str:
    """A path that is asked for, as rules are kept: no query, no empty segment."""
    if "?" in path:
        path = path[: path.index("?")]
    if "#" in path:
        path = path[: path.index("#")]
    if path.startswith("/") and "//" not in path and (not path.endswith("/") or path == "/"):
        return path
    return "/" + "/".join([segment for segment in path.split("/") if segment])


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


def _with(stand: Stand | None, rule: ResourceRule) -> Stand:
    if stand is None:
        return rule
    if isinstance(stand, ResourceRule):
        path_rules = PathRules()
        path_rules.add(stand)
        stand = path_rules
    stand.add(rule)
    return stand


# A tree has no way back: the garbage collector need not look at a million places.
@final
@mypyc_attr(acyclic=True)
class _Place:
    """Where some segments have led: what is here, what is for all below, and the ways on."""

    __slots__ = ("below", "here", "literals", "template")

    def __init__(self) -> None:
        self.here: Stand | None = None
        self.below: Stand | None = None
        self.literals: dict[str, _Place] | None = None
        self.template: _Place | None = None


@final
class ResourceIndex:
    """All rules of a version. It is filled once with `add`, and then only asked."""

    __slots__ = ("_everywhere", "_exact", "_root", "_shapes", "_shapes_max")

    def __init__(self, *, shapes_max: int = SHAPES_MAX) -> None:
        self._exact: dict[str, Stand] = {}
        self._root: _Place | None = None
        self._everywhere: Stand | None = None
        self._shapes: set[str] = set()
        self._shapes_max = shapes_max

    def add(self, rule: ResourceRule) -> None:
        """Have one more rule; a `ValueError` says what is wrong with it beside the others."""
        path = rule.path
        if not path:
            self._everywhere = _with(self._everywhere, rule)
        elif path.endswith("/*"):
            place = self._place(path[:-2])
            place.below = _with(place.below, rule)
        elif "{" in path:
            place = self._place(path)
            place.here = _with(place.here, rule)
        else:
            self._exact[path] = _with(self._exact.get(path), rule)

    def find(self, path: str, client_type: str, priority: int) -> Rules:
        """The rules that apply to a plain path, this kind of client and this priority."""
        stand = self._exact.get(path)
        if stand is not None:
            found = _matching(stand, client_type, priority)
            if found:
                return found
        if self._root is not None:
            found = self._walk(self._root, path, client_type, priority)
            if found:
                return found
        stand = self._everywhere
        return NO_RULES if stand is None else _matching(stand, client_type, priority)

    def _walk(self, place: _Place, path: str, client_type: str, priority: int) -> Rules:
        """The most literal branch first; a prefix counts only when no whole path has fitted."""
        segments = path[1:].split("/") if len(path) > 1 else []
        longest = -1
        below = NO_RULES
        waiting: list[tuple[_Place, int]] = [(place, 0)]
        while waiting:
            place, depth = waiting.pop()
            if place.below is not None and depth > longest:
                found = _matching(place.below, client_type, priority)
                if found:
                    longest = depth
                    below = found
            if depth < len(segments):
                if place.template is not None:
                    waiting.append((place.template, depth + 1))
                if place.literals is not None:
                    following = place.literals.get(segments[depth])
                    if following is not None:
                        waiting.append((following, depth + 1))
            elif place.here is not None:
                found = _matching(place.here, client_type, priority)
                if found:
                    return found
        return below

    def _place(self, path: str) -> _Place:
        """Where a pattern leads, made if it is not there."""
        if self._root is None:
            self._root = _Place()
        place = self._root
        shape = ""
        for segment in path.split("/")[1:]:
            if segment == "{}":
                shape += "{"
                if place.template is None:
                    place.template = _Place()
                place = place.template
            else:
                shape += "/"
                if place.literals is None:
                    place.literals = {}
                following = place.literals.get(segment)
                if following is None:
                    following = place.literals[segment] = _Place()
                place = following
            if shape not in self._shapes:
                self._shapes.add(shape)
                if len(self._shapes) > self._shapes_max:
                    raise ValueError(
                        f"names in braces stand at more than {self._shapes_max:,} different places"
                    )
        return place


def _has_marks(segment: str) -> bool:
    return "{" in segment or "}" in segment or "*" in segment


def _twins(one: ResourceRule, other: ResourceRule) -> bool:
    """Whether one of the two can never matter."""
    mine, theirs = one.kind, other.kind
    return (
        mine.per is theirs.per
        and mine.shadow is theirs.shadow
        and mine.limit.algorithm is theirs.limit.algorithm
        and mine.limit.period_us == theirs.limit.period_us
    )
