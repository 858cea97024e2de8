"""Chance: draws from a seed, so that a test that throws dice throws the same ones every time."""

from __future__ import annotations

import random
from typing import final


@final
class SeededChance:
    """Draws that are the same for the same seed."""

    __slots__ = ("draw", "seed")

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.draw = random.Random(seed).random
