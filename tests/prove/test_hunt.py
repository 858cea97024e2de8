"""The hunt over many seeds: 2,000 in `make prove`, other 40 for each seed of the slice in CI."""

from __future__ import annotations

import pytest

from sluicegate.lab.hunt import search
from sluicegate.lab.hunt.search import play_seed
from tests.prove.seeds import seeds

IN_CI = 40


def hunted() -> range:
    """A slice begins where the one before it ends."""
    wish = seeds(full=2_000, part=IN_CI)
    return wish if len(wish) != IN_CI else range(wish[0] * IN_CI, (wish[0] + 1) * IN_CI)


@pytest.mark.prove
@pytest.mark.parametrize("seed", hunted())
def test_no_seed_breaks_anything(seed: int) -> None:
    _, broken = play_seed(seed)
    assert broken == [], f"sluicegate lab hunt --seed {seed} --seeds 1"


@pytest.mark.prove
@pytest.mark.parametrize("first", hunted()[:1])
def test_two_processes_find_what_one_finds(first: int) -> None:
    some = range(first, first + 6)
    assert sorted(search.play_seeds(some, 2)) == list(search.play_seeds(some, 1))
