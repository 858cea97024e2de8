"""Several collectors beside writers and readers: no live blob is deleted, whatever the order."""

from __future__ import annotations

import pytest

from tests.apps.images.collector_world import LostError, World
from tests.prove.seeds import seeds

ORDINARY = 30
CONTROLS = 200
AT_ONCE = 100


def test_collectors_and_kills_delete_no_live_blob() -> None:
    removed = served = 0
    for seed in range(ORDINARY):
        world = World(seed)
        world.play()
        assert world.leftovers() == set(), seed
        removed, served = removed + world.removed, served + world.served
    assert removed > ORDINARY // 2  # it is no law about collectors that remove nothing
    assert served > ORDINARY


@pytest.mark.prove
@pytest.mark.parametrize("part", seeds(100, 2))
def test_collectors_and_kills_delete_no_live_blob_in_any_seed(part: int) -> None:
    for seed in range(part * AT_ONCE, (part + 1) * AT_ONCE):
        world = World(seed)
        world.play()
        assert world.leftovers() == set(), seed


def _first_loss(rules: dict[str, bool]) -> int | None:
    for seed in range(CONTROLS):
        try:
            World(seed, **rules).play()
        except LostError:
            return seed
    return None


@pytest.mark.parametrize("rules", [{"swaps": False}, {"checks": False}, {"reuses": True}])
def test_control_that_lacks_one_rule_loses_live_blob(rules: dict[str, bool]) -> None:
    assert _first_loss(rules) is not None
