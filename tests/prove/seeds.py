"""Seeds: which ones a proof walks through in this run. Nothing here is a test."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any, Final

import pytest

DRAWN: Final = 4


def seeds(full: int, part: int) -> range:
    """All `full` seeds, or `part` of them from SLUICEGATE_PROVE_SEED on; none if not asked."""
    wish = os.environ.get("SLUICEGATE_PROVE", "")
    start = int(os.environ.get("SLUICEGATE_PROVE_SEED", "0"))
    if wish == "full":
        return range(start, start + full)
    return range(start, start + part) if wish == "slice" else range(0)


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters: the first `count` of them are tested in every run, and the others are proofs.

    A tuple is a value for each of several names.
    """
    every = [one if isinstance(one, tuple) else (one,) for one in values]
    proofs = [pytest.param(*one, marks=pytest.mark.prove) for one in every[count:]]
    return [pytest.param(*one) for one in every[:count]] + proofs


def is_drawn(name: str) -> bool:
    """Whether a proof next to its feature is played in this run: in CI one in `DRAWN`, at random.

    The draw is random, because the parameters of some proofs depend on the seed too.
    """
    if os.environ.get("SLUICEGATE_PROVE", "") != "slice":
        return True
    seed = os.environ.get("SLUICEGATE_PROVE_SEED", "0")
    return random.Random(f"{seed} {name}").randrange(DRAWN) == 0


def whole() -> bool:
    """Whether the proofs are wanted in full."""
    return os.environ.get("SLUICEGATE_PROVE", "") == "full"


def in_slice(number: int, parts: int) -> bool:
    """Whether the thing of this number is looked at in this run: all are, in `parts` slices."""
    start = int(os.environ.get("SLUICEGATE_PROVE_SEED", "0"))
    return whole() or number % parts == start % parts
