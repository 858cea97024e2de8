from __future__ import annotations

from sluicegate.testing import SeededChance


def test_the_same_seed_draws_the_same() -> None:
    first, second = SeededChance(7), SeededChance(7)
    assert [first.draw() for _ in range(5)] == [second.draw() for _ in range(5)]
    assert SeededChance(8).draw() != SeededChance(7).draw()
    assert first.seed == 7


def test_draws_are_from_zero_up_to_one() -> None:
    chance = SeededChance(1)
    assert all(0 <= chance.draw() < 1 for _ in range(1_000))
