from __future__ import annotations

import pytest

from headgate import BadValue, Limiter
from headgate.testing import START_US, HandClock, SeededChance


def test_a_hand_clock_stands_still_until_it_is_moved() -> None:
    clock = HandClock()
    assert clock.now_us() == clock.now_us() == START_US
    clock.advance(s=1.5, ms=2, us=3)
    assert clock.now_us() == START_US + 1_502_003


def test_a_hand_clock_goes_back_only_on_purpose() -> None:
    clock = HandClock(10)
    with pytest.raises(BadValue, match="go_back"):
        clock.advance(us=-1)
    clock.go_back(us=4)
    assert clock.now_us() == 6


def test_the_same_seed_draws_the_same() -> None:
    first, second = SeededChance(7), SeededChance(7)
    assert [first.draw() for _ in range(5)] == [second.draw() for _ in range(5)]
    assert SeededChance(8).draw() != SeededChance(7).draw()


def test_a_limiter_on_a_hand_clock_needs_no_waiting() -> None:
    clock = HandClock()
    limiter = Limiter("1/day", clock=clock)
    assert limiter.take("a")
    assert not limiter.take("a")
    clock.advance(s=86_400)
    assert limiter.take("a")
