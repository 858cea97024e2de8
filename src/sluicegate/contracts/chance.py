"""Chance: where draws come from, for the few that need them.

A kernel takes a draw as an argument. The real source is in `sluicegate.system`, a seeded one in
`sluicegate.testing`.
"""

from __future__ import annotations

from typing import Protocol


class Chance(Protocol):
    """Independent draws."""

    def draw(self) -> float:
        """A number from 0 up to, but not including, 1; all equally likely."""
        ...
