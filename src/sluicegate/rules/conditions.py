"""Conditions: what a rule asks of an arrival beside its path and method.

    header: {x-plan: free}             this value
    header: {x-plan: [free, trial-*]}  one of these; `*` stands for any run of characters
    header: {x-api-key: true}          there is one; false: there is none
    user: ...                          likewise, of who is authenticated
    address: [10.0.0.0/8]              the caller's address is in one of these networks

A condition is a value that can say itself in words; `test_of` makes the function that is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.arrival import Arrival
from sluicegate.kernels.glob_index import GlobIndex
from sluicegate.rules.addresses import Networks
from sluicegate.rules.keys import KeyOf

Test: TypeAlias = Callable[[Arrival], bool]

VALUES_MAX: Final = 1_000
VALUE_CHARS_MAX: Final = 1_024


class Condition(NamedTuple):
    """What is read ("user", "address" or "header:NAME"), and what it must be."""

    what: str
    wanted: bool | tuple[str, ...]

    @property
    def exact_values(self) -> tuple[str, ...]:
        """The values one of which it must have; empty if that is not how it is said."""
        if isinstance(self.wanted, bool) or self.what == "address":
            return ()
        return () if any("*" in value for value in self.wanted) else self.wanted

    def __str__(self) -> str:
        if isinstance(self.wanted, bool):
            return f"{'with' if self.wanted else 'without'} {_named(self.what)}"
        values = " or ".join(self.wanted)
        if self.what == "address":
            return f"from {values}"
        return f"with {_named(self.what)} {values}"


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
    read, wanted = reader_of(condition.what), condition.wanted
    if wanted is True:
        return lambda arrival: read(arrival) != ""
    if wanted is False:
        return lambda arrival: read(arrival) == ""
    if condition.what == "address":
        networks = Networks(wanted)
        return lambda arrival: networks.holds(read(arrival))
    values = frozenset(value for value in wanted if "*" not in value)
    patterns = [value for value in wanted if "*" in value]
    if not patterns:
        return lambda arrival: read(arrival) in values
    globs = GlobIndex(patterns)

    def fits(arrival: Arrival) -> bool:
        value = read(arrival)
        # Nothing is not a value, not even for `*`.
        return value != "" and (value in values or globs.find(value) >= 0)

    return fits


def _named(what: str) -> str:
    return f"header {what.removeprefix('header:')}" if what.startswith("header:") else f"a {what}"
