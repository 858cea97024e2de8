"""Plain LIFO: the newest first, for ever.

It is the simplest order that survives overload. It is not bounded: who was unlucky stays, dead and
taking memory, and may be served hours later for nothing.
"""

from __future__ import annotations

from typing import final

from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig


@final
class PlainLifo:
    """A stack without a bottom."""

    __slots__ = ("_units",)

    def __init__(self) -> None:
        self._units: list[Unit] = []

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Everyone waits."""
        self._units.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The newest."""
        return self._units.pop() if self._units else None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def plain_lifo(rig: Rig) -> PlainLifo:
    """For any rig the same."""
    return PlainLifo()
