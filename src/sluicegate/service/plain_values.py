"""Plain values: what a part says of itself, as JSON can hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum


def plain(value: object) -> object:
    """A value as JSON can hold it: tuples with names and dataclasses by their fields."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Iterable):
        return [plain(one) for one in value]
    return str(value)
