"""Bounds: how a setting declares its range, and how a kernel refuses one that is out of it.

For constructors and settings. What runs for every unit of work makes its own comparison and pays
for no call.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Final

RANGE: Final = "range"
_SHOWN_AS_POWER: Final = 1 << 20


def ranged(default: object, least: object, most: object) -> Any:
    """Declare a field of a settings dataclass: its default, and its least and greatest value.

    They are objects, because a compiled function would make a float of an int.
    """
    return field(default=default, metadata={RANGE: (least, most)})


def check_ranges(settings: Any) -> None:
    """Refuse settings of which a field is out of its range."""
    for one in fields(settings):
        bounds = one.metadata.get(RANGE)
        value = getattr(settings, one.name)
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            least, most = _shown(bounds[0]), _shown(bounds[1])
            raise ValueError(f"{one.name} must be from {least} to {most}, not {value}")


def within(name: str, value: int, least: int, most: int) -> None:
    """Refuse a value that is not from `least` to `most`."""
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {_shown(least)} to {_shown(most)}, not {value}")


def _shown(bound: object) -> str:
    """The bound as a person reads it: 2^53 instead of sixteen digits."""
    if isinstance(bound, int) and bound >= _SHOWN_AS_POWER and bound & (bound - 1) == 0:
        return f"2^{bound.bit_length() - 1}"
    return str(bound)
