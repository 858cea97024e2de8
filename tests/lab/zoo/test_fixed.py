"""A few shapes of one seed, with what ships, in every run of the tests; `make zoo` plays all."""

from __future__ import annotations

import pytest

from sluicegate.lab.zoo.bars import judge
from sluicegate.lab.zoo.play import Play, all_shapes, key_of, play

SEED = 20_786
CANDIDATES = ("known", "found", "nothing", "lifo", "oracle")
SHAPES = {key_of(shape): shape for shape in all_shapes(SEED)}


@pytest.mark.parametrize(
    "name",
    [
        "service: pool",
        "service: 2x",
        "service: io 500 ms",
        "service: stream",
        "engine: 2x, 4 slots",
        "engine: stalls",
    ],
)
def test_fixed_shape_meets_its_bars(name: str) -> None:
    shape = SHAPES[name]
    missed = [
        (row.mode, one)
        for row in judge(shape, play(Play(SEED, shape, CANDIDATES)))
        for one in row.missed()
    ]
    assert not missed
