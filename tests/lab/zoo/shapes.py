"""Small shapes for the tests of the zoo. Nothing here is a test."""

from __future__ import annotations

from typing import Any

from sluicegate.lab.zoo.draw import Draw
from sluicegate.lab.zoo.outcome import ShapeOutcome
from sluicegate.lab.zoo.play import Outcomes, Play, play
from sluicegate.lab.zoo.shape import SECOND_US, SERVICE, ZooShape

SEED = 7
BRIEF: dict[str, Any] = {"until_us": 4 * SECOND_US, "drain_us": 2 * SECOND_US}


def station(load: float, family: str = SERVICE, **fields: Any) -> ZooShape:
    """Return four slots of about 40 ms for four seconds."""
    given = {"slots": 4, "ms": 40, **BRIEF, **fields}
    return Draw(SEED, family).station("small", load=load, **given)


def outcomes(shape: ZooShape, *names: str) -> Outcomes:
    """Play some candidates."""
    return play(Play(SEED, shape, names))


def as_product(found: Outcomes, name: str) -> dict[str, ShapeOutcome]:
    """Return the outcomes with one candidate as the product with its limit known."""
    return {**found, "known": found[name]}
