from __future__ import annotations

import pytest

from sluicegate import BadValue, Limiter
from sluicegate.contracts.clock import PausableClock
from sluicegate.testing import START_US, HandClock


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
    clock.go_back(s=0.000002)
    assert clock.now_us() == 4


def test_who_waits_on_a_hand_clock_moves_it() -> None:
    clock: PausableClock = HandClock(10)
    clock.pause(5)
    assert clock.now_us() == 15


def test_a_limiter_on_a_hand_clock_needs_no_waiting() -> None:
    clock = HandClock()
    limiter = Limiter("1/day", clock=clock)
    assert limiter.take("a")
    assert not limiter.take("a")
    clock.advance(s=86_400)
    assert limiter.take("a")
