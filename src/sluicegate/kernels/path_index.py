"""Path index: finds the rules for a resource path, in a time that their number does not change.

Three forms, in this order of precedence:

    /api/v1/playback        exact      this path
    /users/{id}/orders      template   one segment, whatever it is, where a name stands in braces
    /api/**                 prefix     /api and everything under it; `/api/*` is the same

A path is its segments between slashes; empty ones do not count, so `/api//v1/` is `/api/v1` and a
doubled slash is no way around a limit. Of several templates the one with the earlier literal wins:
`/users/me/{x}` before `/users/{id}/orders`. Of several prefixes the longest wins, then likewise.
A prefix is tried only when no exact path and no template fits the whole.

What was changed, against the router tries one finds everywhere. Exact paths, most of all rules, are
one dict look-up and are not in the tree. In the tree, taking the literal branch and staying there
would make `/users/me/settings` silently take `/users/me/orders` away from `/users/{id}/orders`; so
the walk goes back. That is exponential in the worst case for many routers. Here it is bounded,
because for one path a place in the tree is fixed by which of its segments are literal and which are
not, its *shape*: the walk cannot visit more places than there are shapes. Rules have few, whatever
their number; more than `shapes_max` are rejected when they are added.

Not good at: what a path means. Letter case, `%2F`, `..`, `;parameters` and the query are the
caller's to settle before it asks. Names in braces are for people; the values are not given back.

Cost: one dict look-up for an exact path; else a split and at most `shapes_max` steps.
Bounds: `PATTERN_CHARS_MAX` characters and `segments_max` segments a rule, `shapes_max` shapes;
rules only by memory. A look-up is linear in the length of the path, which the caller bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.native import mypyc_attr

SEGMENTS_MAX: Final = 1_000
SHAPES_MAX: Final = 1_000_000
PATTERN_CHARS_MAX: Final = 1_024
ANY: Final = "{}"  # one segment, whatever it is, in a plain pattern
BELOW: Final = "*"  # all below, as the last segment of a plain pattern

P = TypeVar("P")


def plain_pattern(text: str, segments_max: int = 32) -> str:
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
    if len(segments) > segments_max:
        raise ValueError(f"it has more than {segments_max} segments")
    if not _has_marks(text):
        return "/" + "/".join(segments)
    last = len(segments) - 1
    for at, segment in enumerate(segments):
        if len(segment) > 2 and segment[0] == "{" and segment[-1] == "}":
            if not _has_marks(segment[1:-1]):
                segments[at] = ANY
                continue
        elif at == last and segment in {"*", "**"}:
            segments[at] = BELOW
            continue
        if _has_marks(segment):
            raise ValueError(
                "{name} stands for a whole segment, and '/**' at the end for all below"
            )
    return "/" + "/".join(segments)


def plain_path(path: str) -> str:
    """Return the path of a request as rules are kept: without a query or empty segments."""
    if "?" in path:
        path = path[: path.index("?")]
    if "#" in path:
        path = path[: path.index("#")]
    if path.startswith("/") and "//" not in path and (not path.endswith("/") or path == "/"):
        return path
    return "/" + "/".join([segment for segment in path.split("/") if segment])


# A tree has no cycles, so the garbage collector can ignore a million places. The compiler rejects
# `acyclic` for a generic class, so the payloads are typed by the index.
@final
@mypyc_attr(acyclic=True)
class _Place:
    """Where some segments lead: the rule that ends here, the rule for all below, the ways on."""

    __slots__ = ("below", "here", "literals", "template")

    def __init__(self) -> None:
        self.here: Any = None
        self.below: Any = None
        self.literals: dict[str, _Place] | None = None
        self.template: _Place | None = None


@final
class PathIndex(Generic[P]):
    """Path rules of one version. It is filled with `add`, and then only asked."""

    __slots__ = ("_count", "_root", "_shapes", "_shapes_max", "_walks", "exact")

    def __init__(
        self,
        rules: Iterable[tuple[str, P]] = (),
        *,
        segments_max: int = 32,
        shapes_max: int = 64,
    ) -> None:
        within("segments_max", segments_max, 1, SEGMENTS_MAX)
        within("shapes_max", shapes_max, 1, SHAPES_MAX)
        self._count = 0
        self.exact: Final[dict[str, P]] = {}  # to be read by plain paths
        self._root = _Place()
        self._shapes: set[str] = set()
        self._shapes_max = shapes_max
        self._walks = False
        for pattern, payload in rules:
            try:
                self.add(plain_pattern(pattern, segments_max), payload)
            except ValueError as error:
                raise ValueError(f"rule {self._count + 1}, {pattern!r}: {error}") from None

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: str, payload: P, join: Callable[[P, P], P] | None = None) -> None:
        """Add a rule by its plain pattern; `join` merges the payloads of two with the same one."""
        if pattern.endswith("/*"):
            place = self._place(pattern[:-2])
            before = place.below
            place.below = payload if before is None else _joined(before, payload, join)
        elif "{" in pattern:
            place = self._place(pattern)
            before = place.here
            place.here = payload if before is None else _joined(before, payload, join)
        else:
            before = self.exact.get(pattern)
            self.exact[pattern] = payload if before is None else _joined(before, payload, join)
        self._count += 1

    def find(self, path: str) -> P | None:
        """The payload of the rule that fits this path best, None if no rule fits."""
        found = self.exact.get(path)
        if found is not None:
            return found
        segments = path.split("/")
        if segments[0] or not path or segments.count("") > 1:  # not as rules are kept
            segments = ["", *[segment for segment in segments if segment]]
            found = self.exact.get("/".join(segments) or "/")
            if found is not None:
                return found
        walked = self.walk(segments)
        return walked[0] if walked else None

    def walk(self, segments: list[str]) -> list[P]:
        """The payloads of templates and prefixes that fit a path, the best first.

        The path is plain, and split: it begins with an empty segment, and has no other.
        """
        found: list[P] = []
        if not self._walks:
            return found
        end = len(segments)
        below: list[P] = []
        depths: list[int] = []
        place = self._root
        depth = 1
        straight = True
        waiting: list[tuple[_Place, int]] = []  # the templates passed by on the way
        while True:
            if place.below is not None:
                below.append(place.below)
                depths.append(depth)
            following: _Place | None = None
            if depth < end:
                if place.literals is not None:
                    following = place.literals.get(segments[depth])
                if following is None:
                    following = place.template
                elif place.template is not None:
                    waiting.append((place.template, depth + 1))
            elif place.here is not None:
                found.append(place.here)
            if following is not None:
                place = following
                depth += 1
            elif waiting:
                place, depth = waiting.pop()
                straight = False
            elif straight:
                below.reverse()
                return found + below if found else below
            else:
                return found + _longest_first(below, depths)

    def _place(self, pattern: str) -> _Place:
        """Where a pattern leads, made if it is not there."""
        self._walks = True
        place = self._root
        shape = ""
        for segment in pattern.split("/")[1:]:
            if segment == ANY:
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


def _joined(before: P, payload: P, join: Callable[[P, P], P] | None) -> P:
    if join is None:
        raise ValueError("another rule matches the same paths")
    return join(before, payload)


def _longest_first(below: list[P], depths: list[int]) -> list[P]:
    """Prefixes by their depths, and those of one depth as they were found."""
    order = sorted(range(len(depths)), key=depths.__getitem__, reverse=True)
    return [below[at] for at in order]


def _has_marks(segment: str) -> bool:
    return "{" in segment or "}" in segment or "*" in segment
