"""Memory: stores that forget whom they limit, that stall or burn a core to forget, or only grow.

throttled-py keeps 1,024 keys and forgets the oldest, limited or not. The memory store of limits
looks at all its keys a hundred times a second: with 100,000 of them half a core is gone, and in an
event loop each look stalls it for 15 to 20 ms. Its exact log slows down with every entry.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterable

import pytest

from sluicegate import BadValue, Limiter
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX, log_step
from sluicegate.testing import HandClock

MANY = 300_000


def costs_s(limiter: Limiter, keys: Iterable[str]) -> list[float]:
    """What each take costs this thread, in seconds of CPU; to be compared with one another."""
    take, spent, costs = limiter.take, time.thread_time, []
    gc.collect()
    gc.disable()  # a collection visits what other tests have left, too
    try:
        for key in keys:
            began_s = spent()
            take(key)
            costs.append(spent() - began_s)
    finally:
        gc.enable()
    return costs


def test_a_spent_limit_is_not_forgotten_for_a_thousand_other_keys() -> None:
    # throttled-py: its default store admits the key again after 1,024 others.
    limiter = Limiter("5/hour", clock=HandClock())
    assert [limiter.take("ann").allowed for _ in range(6)] == [True] * 5 + [False]
    for number in range(1_100):
        limiter.take(f"other {number}")
    assert not limiter.take("ann")


@pytest.mark.parametrize("spent", [1, 5])
def test_a_spent_limit_is_not_forgotten_by_a_store_that_is_full(spent: int) -> None:
    limiter = Limiter("5/hour", keys_max=100, clock=HandClock())
    assert [limiter.take("ann").allowed for _ in range(6)] == [True] * 5 + [False]
    for number in range(2_000):
        for _ in range(spent):
            limiter.take(f"other {number}")
    assert not limiter.take("ann")
    assert limiter.keys_tracked() <= 100


def test_keys_that_expire_together_cause_no_stall() -> None:
    # limits: 15 to 20 ms for 100,000 keys, 120 to 150 ms for 500,000, again and again.
    clock = HandClock()
    limiter = Limiter("2/minute", keys_max=MANY, clock=clock)
    take = limiter.take
    for number in range(MANY):
        take(f"{number}")
    assert limiter.keys_tracked() == MANY
    clock.advance(s=61)
    costs = costs_s(limiter, (f"new {number}" for number in range(20_000)))
    assert max(costs) < sum(costs) / 4  # a pass over all keys costs more than all of these
    assert limiter.keys_tracked() <= MANY


def test_a_store_full_of_limited_keys_does_not_spend_its_time_in_search_of_room() -> None:
    # By the real clock: a search that takes longer than it is believed would never end.
    limiter = Limiter("1/hour", keys_max=1 << 15)
    filling = costs_s(limiter, (f"{number}" for number in range(1 << 15)))
    refused = costs_s(limiter, (f"new {number}" for number in range(200)))
    # 200 passes over all keys cost many times that. On a busy machine a pass may be out of date
    # after a few calls, but not after each.
    assert sum(refused) < max(sum(filling), max(refused) * len(refused) / 2)


def test_a_store_at_rest_has_no_thread_that_could_burn_cpu() -> None:
    # limits: https://github.com/alisaifee/flask-limiter/issues/4
    before = {*threading.enumerate()}
    limiter = Limiter("1000/s")
    for number in range(100_000):
        limiter.take(f"{number}")
    assert not {*threading.enumerate()} - before


def test_a_hundred_thousand_live_keys_cost_nothing_while_others_are_asked_for() -> None:
    # limits: 50 % of a core at 80 hits a second.
    limiter = Limiter("1000/s")
    filling = costs_s(limiter, (f"{number}" for number in range(100_000)))
    assert sum(costs_s(limiter, (f"{number}" for number in range(80)))) < sum(filling) / 20


def test_a_log_holds_no_more_than_its_limit_and_says_so_of_a_limit_too_large() -> None:
    # limits, moving-window: 6 us a hit at 1,000 entries, 25 us at 100,000.
    with pytest.raises(BadValue, match="use sliding_window, whose memory does not grow"):
        Limiter(f"{LOG_ENTRIES_MAX + 1}/hour", algorithm="sliding_log")
    log: tuple[int, ...] = ()
    for now_us in range(5_000):  # a refusal is not written down
        log = log_step(log, now_us, 1, 3_600_000_000, 100)[0]
    assert len(log) == 1 + 2 * 100  # what is used, and an instant and a cost each


def test_a_refused_key_takes_no_room_at_all() -> None:
    limiter = Limiter("3/minute", clock=HandClock())
    for number in range(1_000):
        assert not limiter.take(f"{number}", cost=4)
    assert limiter.keys_tracked() == 0
