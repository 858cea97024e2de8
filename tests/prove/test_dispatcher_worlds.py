"""The dispatcher's defence does no harm: what ships, on virtual time, over many seeds.

A slow engine with capacity to spare refuses nobody (10,000 seeds in `make prove`), nor does a
dispatcher that begins with nothing learned (1,000), and a stall of 1 to 30 s is over half a second
after its end (1,000). Where there is room for all, whatever else a world has,
CRITICAL is never refused (1,000). CI plays other slices of them, by its seed.
"""

from __future__ import annotations

import pytest

from sluicegate.lab.rigs.dispatcher import play
from tests.lab.dispatcher_worlds import (
    STALL_OVER_US_MAX,
    cold,
    harm_of_beginning,
    harm_of_slowness,
    recovery_us,
    slow_down,
    stall,
)
from tests.lab.harmless_worlds import harmless
from tests.prove.seeds import seeds


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=10_000, part=40))
def test_what_is_slow_and_has_room_refuses_nobody(seed: int) -> None:
    assert harm_of_slowness(play(slow_down(seed), seed)) == []


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1_000, part=20))
def test_a_stall_is_over_half_a_second_after_its_end(seed: int) -> None:
    assert recovery_us(play(stall(seed), seed)) <= STALL_OVER_US_MAX


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1_000, part=20))
def test_a_dispatcher_that_begins_refuses_nobody(seed: int) -> None:
    assert harm_of_beginning(play(cold(seed), seed)) == []


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1_000, part=20))
def test_where_there_is_room_for_all_nobody_is_refused(seed: int) -> None:
    world = harmless(seed)
    assert world.harm(world.play(seed)) == []
