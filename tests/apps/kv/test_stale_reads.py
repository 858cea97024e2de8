"""No read that begins after a write was acknowledged is told what was there before it.

`stale_world.py` has the world and what is held against it. Small plans are walked through whole,
each order of events once; larger ones by seeds: a few thousand here, a million in `make prove`.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.apps.kv.stale_world import Plan, Stale, by_chance, every
from tests.prove.seeds import first, seeds

A_BLOCK = 1_000
CACHED = ("fresh", "refresh", "stale", "negative", "nothing")


@pytest.mark.parametrize("cached", CACHED)
def test_two_readers_and_a_writer_in_every_order(cached: str) -> None:
    runs = sum(1 for _ in every(Plan(readers=2, writers=1, cached=cached)))
    assert runs >= 178  # 1,680 if nothing were ever answered at once or together


def test_two_readers_and_a_writer_in_every_order_of_single_callbacks() -> None:
    runs = sum(1 for _ in every(Plan(readers=1, writers=1, cached="stale"), by_steps=True))
    assert runs > 250


def test_three_readers_and_a_writer_in_every_order() -> None:
    assert sum(1 for _ in every(Plan(readers=3, writers=1, cached="fresh"))) > 3_000


def test_a_read_of_many_places_beside_others_in_every_order() -> None:
    assert sum(1 for _ in every(Plan(readers=1, each=1, writers=1, cached="nothing"))) > 500


def test_an_upload_that_turns_the_table_while_a_place_is_written_in_every_order() -> None:
    assert sum(1 for _ in every(Plan(readers=1, writers=1, uploads=1))) > 500


def test_clients_who_leave_and_writers_whose_outcome_is_unknown_in_every_order() -> None:
    for cached in ("fresh", "nothing"):
        assert sum(1 for _ in every(Plan(readers=1, writers=1, cancels=1, cached=cached))) > 50


def test_engines_that_fail_in_every_order() -> None:
    for cached in ("stale", "nothing"):
        plan = Plan(readers=1, writers=1, faults=1, cached=cached)
        assert sum(1 for _ in every(plan)) > 50


def test_rows_that_expire_and_a_clock_that_leaps_in_every_order() -> None:
    plan = Plan(readers=1, writers=1, leaps=1, expiring=True, cached="stale")
    assert sum(1 for _ in every(plan)) > 500


def run_block(first_seed: int) -> tuple[int, int]:
    """Run a block of worlds, none of which may serve anything stale.

    Return how many reads were answered in them, and how many of these from the cache.
    """
    answers = from_cache = 0
    for seed in range(first_seed, first_seed + A_BLOCK):
        try:
            world = by_chance(seed)
        except Exception as error:
            error.add_note(f"by_chance({seed})")
            raise
        answers += world.answers
        from_cache += world.from_cache
    return answers, from_cache


@pytest.mark.parametrize("block", first(1, range(4)))
def test_thousands_of_interleavings_by_chance(block: int) -> None:
    answers, from_cache = run_block(10_000_000 + block * A_BLOCK)
    assert answers > 2 * A_BLOCK  # the worlds are no empty ones
    assert from_cache > A_BLOCK // 4


@pytest.mark.prove
@pytest.mark.parametrize("block", seeds(full=1_000, part=20))
def test_a_million_interleavings(block: int) -> None:
    answers, from_cache = run_block(block * A_BLOCK)
    assert answers > 2 * A_BLOCK
    assert from_cache > A_BLOCK // 4


# What is left out is missed: each part of the discipline is there for a reason.


@pytest.mark.parametrize(
    ("without", "plan"),
    [
        ("epoch", Plan(readers=1, each=1, writers=1, cached="nothing")),
        ("writing", Plan(readers=2, writers=1, cached="fresh")),
        ("wrote", Plan(readers=2, writers=1, cached="nothing")),
        ("order", Plan(readers=2, writers=1, cached="nothing")),
        ("turned", Plan(readers=1, writers=0, uploads=1, cached="fresh")),
    ],
)
def test_whoever_leaves_out_a_part_serves_something_stale(without: str, plan: Plan) -> None:
    plan.without = frozenset({without})
    with pytest.raises(Stale):
        list(every(plan))


@pytest.mark.parametrize("without", first(2, ["epoch", "writing", "wrote", "order", "turned"]))
def test_chance_finds_it_too(without: str) -> None:
    with pytest.raises(Stale):
        list(map(partial(by_chance, without=frozenset({without})), range(4_000)))
