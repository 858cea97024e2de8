"""Edge: what callers hand in, and how a value of the wrong type is refused.

A compiled function turns an argument of another type away before its first line, by a TypeError
that names neither the field nor a remedy. So an argument that a user gives is declared as
`Given[...]`: the type itself to a type checker, and open in a build, which sets `OPEN_EDGES`. Then
the function checks it by what is below, and a wrong one is a `BadValue`, alike in both builds.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from sluicegate.contracts.errors import BadValue

T = TypeVar("T")

# The compiler alone takes this for true (`setup.py`).
OPEN_EDGES = False
if not OPEN_EDGES:
    Given: TypeAlias = Annotated[T, "checked here"]
else:
    Given: TypeAlias = T | Any

_SHARE_REMEDY: Final = "give a share above 0 and up to 1"


def text(field: str, value: object, remedy: str) -> str:
    """Return a text as it is."""
    if not isinstance(value, str):
        raise BadValue(field, value, remedy)
    return value


def whole(field: str, value: object, least: int, most: int, remedy: str) -> int:
    """Return a whole number within these bounds."""
    if not isinstance(value, int) or not least <= value <= most:
        raise BadValue(field, value, remedy)
    return value


def share(field: str, value: object) -> float:
    """Return a share above 0 and up to 1."""
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadValue(field, value, _SHARE_REMEDY)
    return value


def flag(field: str, value: object) -> bool:
    """Return True or False as it is."""
    if not isinstance(value, bool):
        raise BadValue(field, value, "give True or False")
    return value


def seconds(
    field: str, value: object, remedy: str, *, least: float = 0.0, most: float = inf
) -> float:
    """Return seconds within these bounds."""
    if not isinstance(value, int | float) or not least <= value <= most:
        raise BadValue(field, value, remedy)
    return value
