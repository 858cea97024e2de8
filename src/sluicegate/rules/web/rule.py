"""Web rule: one rule of a rules file as it was written, checked and complete.

It is a plain value: what it matches, whose requests it counts together, and the limits with their
terms. How it is found and run is up to the rule set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.arrival import Arrival
from sluicegate.kernels.glob_index import GlobIndex
from sluicegate.limits.rule import Rule
from sluicegate.rules.web.addresses import Networks
from sluicegate.rules.web.keys import Key, KeyOf
from sluicegate.rules.web.paths import EVERY_PATH, Pattern

Test: TypeAlias = Callable[[Arrival], bool]

VALUES_MAX: Final = 1_000
VALUE_CHARS_MAX: Final = 1_024


class Condition(NamedTuple):
    """What is read ("user", "address" or "header:NAME"), and what it must be."""

    what: str
    expected: bool | tuple[str, ...]

    @property
    def exact_values(self) -> tuple[str, ...]:
        """The values one of which it must have; empty if it names none."""
        if isinstance(self.expected, bool) or self.what == "address":
            return ()
        return () if any("*" in value for value in self.expected) else self.expected

    def __str__(self) -> str:
        if isinstance(self.expected, bool):
            return f"{'with' if self.expected else 'without'} {_describe(self.what)}"
        values = " or ".join(self.expected)
        if self.what == "address":
            return f"from {values}"
        return f"with {_describe(self.what)} {values}"


def reader_of(what: str) -> KeyOf:
    """The function that reads a thing off an arrival."""
    if what == "user":
        return lambda arrival: arrival.user()
    if what == "address":
        return lambda arrival: arrival.address()
    name = what.removeprefix("header:")
    return lambda arrival: arrival.header(name)


def test_of(condition: Condition) -> Test:
    """The function that says whether an arrival meets a condition."""
    read, expected = reader_of(condition.what), condition.expected
    if expected is True:
        return lambda arrival: read(arrival) != ""
    if expected is False:
        return lambda arrival: read(arrival) == ""
    if condition.what == "address":
        networks = Networks(expected)
        return lambda arrival: networks.holds(read(arrival))
    values = frozenset(value for value in expected if "*" not in value)
    patterns = [value for value in expected if "*" in value]
    if not patterns:
        return lambda arrival: read(arrival) in values
    globs = GlobIndex(patterns)

    def fits(arrival: Arrival) -> bool:
        value = read(arrival)
        # Nothing is not a value, not even for `*`.
        return value != "" and (value in values or globs.find(value) >= 0)

    return fits


def _describe(what: str) -> str:
    return f"header {what.removeprefix('header:')}" if what.startswith("header:") else f"a {what}"


COST_MAX_DEFAULT: Final = 1_000_000


class HeaderCost(NamedTuple):
    """A cost that a header says: `default` where it says none, and never above `most`."""

    header: str
    default: int = 1
    most: int = COST_MAX_DEFAULT

    def of(self, text: str) -> int:
        """The cost of a request whose header says this; at least 1."""
        # Only digits: int() would take signs, spaces and underscores, and texts without an end.
        if not (text.isascii() and text.isdigit()):
            return self.default
        if len(text) > 18:
            return self.most
        return min(max(int(text), 1), self.most)

    def __str__(self) -> str:
        return f"header {self.header}, at most {self.most:,}"


class Match(NamedTuple):
    """What an arrival must be; empty is any. All parts must hold."""

    paths: tuple[Pattern, ...] = ()
    methods: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def covers(self, other: Match) -> bool:
        """Whether all that `other` matches is surely matched by this too."""
        return (
            _covers_paths(self.paths, other.paths)
            and (not self.methods or bool(other.methods))
            and (not self.methods or set(other.methods) <= set(self.methods))
            and set(self.conditions) <= set(other.conditions)
        )

    def __str__(self) -> str:
        words = " or ".join(self.methods)
        paths = " or ".join(map(str, self.paths)) or "every path"
        return " ".join([*([words] if words else []), paths, *map(str, self.conditions)])


class MatchRule(NamedTuple):
    """One rule. `rule` and `key` are None for an exemption."""

    rule_id: str
    match: Match
    key: Key | None = None
    or_key: Key | None = None
    rule: Rule | None = None
    cost: int | HeaderCost = 1
    stop: bool = False
    off: bool = False

    @property
    def exempt(self) -> bool:
        """Whether what it matches is not limited at all."""
        return self.rule is None


def _covers_paths(outer: tuple[Pattern, ...], inner: tuple[Pattern, ...]) -> bool:
    if not outer:
        return True
    return all(any(pattern.covers(one) for pattern in outer) for one in inner or (EVERY_PATH,))
