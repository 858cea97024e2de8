"""A million interleavings of cache, write and shared read: no read is older than its own write."""

from __future__ import annotations

import pytest

from sluicegate.lab.scenarios.staleness import RaceRig, shield
from tests.prove.seeds import seeds

EPISODES = 2_000


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=500, part=8))
def test_no_read_is_older_than_a_write_that_its_node_has_acknowledged(seed: int) -> None:
    totals = RaceRig(episodes=EPISODES).play(shield, seed)
    assert (totals.stale_own, totals.stale_cached) == (0, 0), f"seed {seed}"
    assert totals.reads > 4 * EPISODES
    assert 0.3 < totals.served / totals.reads < 0.9, "the cache and the sharing are both at work"
