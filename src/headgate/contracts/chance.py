"""Chance: where draws come from, for the few that must ask.

A kernel takes a draw as an argument. The real source is in `headgate.system`, a seeded one in
`headgate.testing`.
"""

from __future__ import annotations

from typing import Protocol


class Chance(Protocol):
    """Independent draws."""

    def draw(self) -> float:
        """A number from 0 up to, but not including, 1; all equally likely."""
        ...
