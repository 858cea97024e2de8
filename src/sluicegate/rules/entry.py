"""Entry: one rule of a book as it was written, checked and complete.

It is a plain value: what it matches, whose requests it counts together, and the limits with their
terms. How it is found and run is the rulebook's business.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.limits.rule import Rule
from sluicegate.rules.conditions import Condition
from sluicegate.rules.keys import Key
from sluicegate.rules.paths import EVERY_PATH, Pattern

COST_MAX_DEFAULT: Final = 1_000_000


class HeaderCost(NamedTuple):
    """A cost that a header says: `default` where it says none, and never above `most`."""

    header: str
    default: int = 1
    most: int = COST_MAX_DEFAULT

    def of(self, said: str) -> int:
        """The cost of a request whose header says this; at least 1."""
        # Only digits: int() would take signs, spaces and underscores, and texts without an end.
        if not (said.isascii() and said.isdigit()):
            return self.default
        if len(said) > 18:
            return self.most
        return min(max(int(said), 1), self.most)

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


class Entry(NamedTuple):
    """One rule. `rule` and `key` are None for an exemption."""

    name: str
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


def _covers_paths(ours: tuple[Pattern, ...], theirs: tuple[Pattern, ...]) -> bool:
    if not ours:
        return True
    return all(any(mine.covers(one) for mine in ours) for one in theirs or (EVERY_PATH,))
