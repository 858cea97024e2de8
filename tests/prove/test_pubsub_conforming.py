"""An account at 99% of its limit is never refused, for an hour of virtual time.

Whatever its shape: constant, by chance, in bursts, moving between nodes. In CI a slice of a minute.
The control is over the limit, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.cluster.world import STEP_US, L, Nodes, S
from tests.prove.seeds import seeds, whole

HOUR_S = 3_600
SLICE_S = 60
STEPS_S = S // STEP_US
RATE = 0.99 * L
Shape = Callable[[Nodes, int], float]  # attempts of a step, and a part of one by chance


def constant(nodes: Nodes, step: int) -> float:
    return RATE / STEPS_S


def poisson(nodes: Nodes, step: int) -> float:
    most, count, product = math.exp(-RATE / STEPS_S), 0, nodes.rng.random()
    while product > most:
        count += 1
        product *= nodes.rng.random()
    return count


def on_and_off(nodes: Nodes, step: int) -> float:
    """A second at twice the rate, then nothing for one: within a burst of a second."""
    return 2 * RATE / STEPS_S if step // STEPS_S % 2 == 0 else 0.0


def above(nodes: Nodes, step: int) -> float:
    return 1.5 * L / STEPS_S


def refused(shape: Shape, seconds: int, seed: int, *, moving: bool = False) -> int:
    nodes = Nodes(seed=seed)
    for step in range(seconds * STEPS_S):
        spread = [nodes.names[step // (3 * STEPS_S) % len(nodes.names)]] if moving else ()
        nodes.run(STEP_US / S, {"a": shape(nodes, step) * STEPS_S}, spread=spread)
        nodes.admitted.clear()
    return nodes.suppressed.total()


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1, part=1))
@pytest.mark.parametrize(
    ("shape", "moving"),
    [(constant, False), (poisson, False), (on_and_off, False), (constant, True)],
    ids=["constant", "poisson", "on-and-off", "moving"],
)
def test_who_conforms_is_never_refused(shape: Shape, moving: bool, seed: int) -> None:
    assert refused(shape, HOUR_S if whole() else SLICE_S, seed, moving=moving) == 0


@pytest.mark.prove
def test_the_control_is_refused() -> None:
    assert refused(above, 20, 1) > 0
