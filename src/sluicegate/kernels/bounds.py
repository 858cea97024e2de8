"""Bounds: how a kernel refuses a setting that is out of range, in one sentence for all of them.

For constructors and settings. What runs for every unit of work makes its own comparison and pays
for no call.
"""

from __future__ import annotations

from typing import Final

_SHOWN_AS_POWER: Final = 1 << 20


def within(field: str, value: int, least: int, most: int) -> None:
    """Refuse a value that is not from `least` to `most`."""
    if not least <= value <= most:
        raise ValueError(f"{field} must be from {_shown(least)} to {_shown(most)}, not {value}")


def _shown(bound: int) -> str:
    """The bound as a person reads it: 2^53 instead of sixteen digits."""
    if bound >= _SHOWN_AS_POWER and bound & (bound - 1) == 0:
        return f"2^{bound.bit_length() - 1}"
    return str(bound)
