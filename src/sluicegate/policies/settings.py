"""Settings: the checks that the settings of all policies share.

A wrong setting is refused where it is made, by its field with the policy's name in front, with the
value, and with what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import RANGE


def within(field: str, value: int, least: int, most: int) -> None:
    """Refuse a value that is not from `least` to `most`."""
    if not least <= value <= most:
        raise BadValue(field, value, f"give a number from {least:,} to {most:,}")


def part_of(field: str, value: float, least: float, most: float) -> None:
    """Refuse a fraction that is not from `least` to `most`."""
    if not least <= value <= most:
        raise BadValue(field, value, f"give a number from {least:g} to {most:g}")


def micros_of(field: str, seconds: object) -> int:
    """Return seconds in microseconds."""
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not math.isfinite(seconds)
    ):
        raise BadValue(field, seconds, "give a number of seconds, as 0.5")
    return int(seconds * 1e6)


def check_type(field: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind):
        raise BadValue(field, value, remedy)


def one_of(field: str, value: str, choices: Collection[str]) -> None:
    """Refuse a word that is none of `choices`."""
    if value not in choices:
        raise BadValue(field, value, f"give one of {', '.join(choices)}")


def check_ranges(policy: str, settings: Any) -> None:
    """Refuse settings of which a field that is declared with `ranged` is out of its range."""
    for one in fields(settings):
        bounds = one.metadata.get(RANGE)
        if bounds is not None:
            value, (least, most) = getattr(settings, one.name), bounds
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not least <= value <= most:
                path = f"{policy}.{one.name}" if policy else one.name
                raise BadValue(path, value, f"give a number from {least:,} to {most:,}")


def wrong_setting(policy: str, error: ValueError) -> BadValue:
    """A kernel's refusal of a setting, with the path of the field in front."""
    field, _, rest = str(error).partition(" must be ")
    bounds, _, value = rest.rpartition(", not ")
    return BadValue(f"{policy}.{field}", _number(value), f"it must be {bounds or rest}")


def _number(text: str) -> float | str:
    """The number that a message has shown; the text, if it is none."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
