"""Path index: which rule a resource path falls under, however many rules there are.

Three forms, in this order of precedence:

    /api/v1/playback        exact      this path
    /users/{id}/orders      template   one segment, whatever it is, where a name stands in braces
    /api/*                  prefix     /api and everything under it

A path is its segments between slashes; empty ones do not count, so `/api//v1/` is `/api/v1` and a
doubled slash is no way around a limit. Of several templates the one with the earlier literal wins:
`/users/me/{x}` before `/users/{id}/orders`. Of several prefixes the longest wins, then likewise.
A prefix is asked only when no exact path and no template fits the whole.

What was changed, against the router tries one finds everywhere. Exact paths, most of all rules, are
one dict look-up and are not in the tree. In the tree, taking the literal branch and staying there
would make `/users/me/settings` silently take `/users/me/orders` away from `/users/{id}/orders`; so
the walk goes back. That is exponential in the worst case for many routers. Here it is bounded,
because for one path a place in the tree is fixed by which of its segments are literal and which are
not, its *shape*: the walk cannot visit more places than there are shapes. Rules have few, whatever
their number; more than `shapes_max` are refused when the index is built.

Not good at: what a path means. Letter case, `%2F`, `..`, `;parameters` and the query are the
caller's to settle before it asks. Names in braces are for people; the values are not given back.

Cost: one dict look-up for an exact path; else a split and at most `shapes_max` steps.
Bounds: `segments_max` segments a rule, `shapes_max` shapes; rules only by memory. A look-up is
linear in the path that is asked for; how long that may be is for the caller to bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar, final

from sluicegate.kernels.bounds import within

SEGMENTS_MAX: Final = 1_000
SHAPES_MAX: Final = 1_000_000

P = TypeVar("P")


@final
class _Place(Generic[P]):
    """Where some segments have led: the rule that ends here, the rule for all below, the ways on.

    A rule is kept with its number; 0 is none.
    """

    __slots__ = ("below", "below_rule", "here", "here_rule", "literals", "template")

    def __init__(self) -> None:
        self.here: P | None = None
        self.here_rule = 0
        self.below: P | None = None
        self.below_rule = 0
        self.literals: dict[str, _Place[P]] = {}
        self.template: _Place[P] | None = None


@final
class PathIndex(Generic[P]):
    """All path rules of one version, immutable; `find` answers the payload of the one that fits.

    A payload of None takes its paths out of broader rules: nothing applies to them.
    """

    __slots__ = ("_count", "_exact", "_root")

    def __init__(
        self,
        rules: Iterable[tuple[str, P | None]],
        *,
        segments_max: int = 32,
        shapes_max: int = 64,
    ) -> None:
        within("segments_max", segments_max, 1, SEGMENTS_MAX)
        within("shapes_max", shapes_max, 1, SHAPES_MAX)
        builder: _Builder[P] = _Builder(segments_max)
        for pattern, payload in rules:
            builder.add(pattern, payload)
        if len(builder.shapes) > shapes_max:
            raise ValueError(
                f"these rules have {len(builder.shapes)} shapes, more than shapes_max "
                f"({shapes_max}): put their {{names}} at fewer different places"
            )
        self._count = builder.count
        self._exact = builder.exact
        self._root = builder.root

    def __len__(self) -> int:
        return self._count

    def find(self, path: str) -> P | None:
        """The payload of the rule for this path, or None if no rule applies."""
        if path in self._exact:
            return self._exact[path]
        segments = path.split("/")
        first = segments.pop(0)
        if first or not segments or "" in segments:  # not as rules are kept
            segments = [segment for segment in path.split("/") if segment]
            plain = "/" + "/".join(segments)
            if plain in self._exact:
                return self._exact[plain]
        return self._find_in_tree(segments)

    def _find_in_tree(self, segments: list[str]) -> P | None:
        """Walk the most literal branch first; keep the longest prefix in case nothing fits."""
        place = self._root
        depth = 0
        longest = -1
        below: P | None = None
        waiting: list[tuple[_Place[P], int]] = []  # the templates passed by on the way
        while True:
            if place.below_rule and depth > longest:
                longest = depth
                below = place.below
            following: _Place[P] | None = None
            if depth < len(segments):
                following = place.literals.get(segments[depth])
                if following is None:
                    following = place.template
                elif place.template is not None:
                    waiting.append((place.template, depth + 1))
            elif place.here_rule:
                return place.here
            if following is not None:
                place = following
                depth += 1
            elif waiting:
                place, depth = waiting.pop()
            else:
                return below


@final
class _Builder(Generic[P]):
    """What is only needed while the index is made."""

    __slots__ = ("count", "exact", "numbers", "root", "segments_max", "shapes")

    def __init__(self, segments_max: int) -> None:
        self.segments_max = segments_max
        self.count = 0
        self.exact: dict[str, P | None] = {}
        self.numbers: dict[str, int] = {}  # of the exact rules
        self.root: _Place[P] = _Place()
        self.shapes: set[str] = set()

    def add(self, pattern: str, payload: P | None) -> None:
        self.count += 1
        segments = self.segments_of(pattern)
        prefix = bool(segments) and segments[-1] == "*"
        if not prefix and not any(map(_is_template, segments)):
            path = "/" + "/".join(segments)
            self.refuse_duplicate(self.numbers.setdefault(path, self.count), pattern)
            self.exact[path] = payload
            return
        place = self.place(segments[:-1] if prefix else segments)
        if prefix:
            self.refuse_duplicate(place.below_rule or self.count, pattern)
            place.below, place.below_rule = payload, self.count
        else:
            self.refuse_duplicate(place.here_rule or self.count, pattern)
            place.here, place.here_rule = payload, self.count

    def segments_of(self, pattern: str) -> list[str]:
        """The segments of a rule, or the error that says what is wrong with it."""
        if not pattern.startswith("/"):
            raise ValueError(f"rule {self.count} must start with '/', not {pattern!r}")
        segments = [segment for segment in pattern.split("/") if segment]
        if len(segments) > self.segments_max:
            raise ValueError(
                f"rule {self.count} must have at most {self.segments_max} segments, "
                f"not {len(segments)}: {pattern!r}"
            )
        for at, segment in enumerate(segments):
            last = at == len(segments) - 1
            if not (_is_literal(segment) or _is_template(segment) or (last and segment == "*")):
                raise ValueError(
                    f"rule {self.count} may have a {{name}} as a whole segment and a '*' as the "
                    f"last one, not {pattern!r}"
                )
        return segments

    def place(self, segments: list[str]) -> _Place[P]:
        """Where some segments lead, made if it is not there."""
        place = self.root
        shape = ""
        for segment in segments:
            if _is_template(segment):
                if place.template is None:
                    place.template = _Place()
                place = place.template
            else:
                place = place.literals.setdefault(segment, _Place())
            shape += "{" if _is_template(segment) else "/"
            self.shapes.add(shape)
        return place

    def refuse_duplicate(self, earlier: int, pattern: str) -> None:
        if earlier != self.count:
            raise ValueError(f"rule {self.count} repeats rule {earlier}: both match {pattern!r}")


def _is_literal(segment: str) -> bool:
    return not any(mark in segment for mark in "{}*")


def _is_template(segment: str) -> bool:
    return (
        segment[0] == "{" and segment[-1] == "}" and len(segment) > 2 and _is_literal(segment[1:-1])
    )
