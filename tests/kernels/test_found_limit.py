"""Found limit: none where work is carried, and near the slots where there is too much."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

import pytest

from sluicegate.kernels.found_limit import LIMIT_MAX, FoundLimit, Window

SECOND_US = 1_000_000
WORK_US = 127_000  # of the windows made by hand


class Played(NamedTuple):
    """What a run brought."""

    limits: list[int]  # at each end
    good: int  # ended in time
    sent: int


def play(
    load: Callable[[float], float],
    slots: int,
    work_us: int,
    patience_us: int,
    *,
    exponential: bool = False,
    span_s: float = 30.0,
    told: bool = True,
    stall_us: tuple[int, int] = (0, 0),
    dear: int = 1,
) -> Played:
    """Serve arrivals by `slots` in arrival order, behind a queue that serves the newest first.

    `load(at_s)` is the rate over what the slots can do. What waits longer than the patience leaves.
    In the time from `stall_us[0]` to `stall_us[1]` nothing begins. Every tenth takes `dear` times
    as long as the others; `work_us` is the mean.
    """
    random, found = Random(3), FoundLimit()
    free_us = [0] * slots  # when each slot is free
    # end, arrived, sent, in flight, number, window
    flying: list[tuple[int, int, int, int, int, int]] = []
    waiting: list[int] = []
    played = Played([], 0, 0)
    good = sent = inflight = number = 0
    now_us = next_us = 0
    while next_us < span_s * SECOND_US or flying:
        if flying and (flying[0][0] <= next_us or next_us >= span_s * SECOND_US):
            now_us, arrived_us, sent_us, beside, _, window = heappop(flying)
            inflight -= 1
            late = now_us - arrived_us > patience_us
            good += not late
            found.record(
                window, now_us - sent_us, now_us, beside, work_us, late and told, bool(waiting),
            )  # fmt: skip
            if late and not told:
                found.record_hung_up(patience_us)
            played.limits.append(found.limit)
        else:
            now_us = next_us
            waiting.append(now_us)
            per_s = load(now_us / SECOND_US) * slots * SECOND_US / work_us
            next_us = now_us + int(random.expovariate(per_s / SECOND_US)) + 1
        while waiting and inflight < found.limit:
            arrived_us = waiting.pop()
            if now_us - arrived_us > patience_us - work_us:
                continue
            took_us = int(random.expovariate(1 / work_us)) if exponential else work_us
            if dear > 1:
                took_us = int(took_us * (dear if number % 10 == 0 else 1) * 10 / (9 + dear))
            if stall_us[0] <= now_us < stall_us[1]:
                free_us = [max(stall_us[1], at_us) for at_us in free_us]
            slot = min(range(slots), key=free_us.__getitem__)
            free_us[slot] = max(free_us[slot], now_us) + took_us
            inflight += 1
            sent += 1
            number += 1
            flight = (
                free_us[slot],
                arrived_us,
                now_us,
                inflight,
                number,
                found.send(
                    now_us, arrived_us + patience_us if told else 0, patience_us if told else 0
                ),
            )
            heappush(flying, flight)
    return played._replace(good=good, sent=sent)


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("work_us", [2_000, 100_000])
def test_load_that_is_carried_has_no_limit(work_us: int, told: bool, exponential: bool) -> None:
    played = play(
        lambda at_s: 0.7, 16, work_us, 20 * work_us, exponential=exponential, told=told, span_s=10
    )
    assert set(played.limits) == {LIMIT_MAX}


@pytest.mark.parametrize("told", [False, True])
def test_overload_is_limited_near_the_slots_and_serves_them_full(told: bool) -> None:
    slots, work_us = 16, 20_000
    played = play(lambda at_s: 2.0, slots, work_us, 200_000, told=told)
    limits = played.limits[len(played.limits) // 3 :]
    assert slots <= sorted(limits)[len(limits) // 2] <= 5 * slots
    assert played.good >= 0.8 * 30 * slots * SECOND_US / work_us


def test_limit_is_gone_once_the_load_is_carried_again() -> None:
    played = play(lambda at_s: 2.0 if at_s < 10 else 0.5, 16, 20_000, 200_000)
    assert min(played.limits) < LIMIT_MAX
    assert played.limits[-1] == LIMIT_MAX


def test_stall_sends_no_more_than_callers_are_patient() -> None:
    patience_us, stall_s = 650_000, 8
    stall_us = (10 * SECOND_US, (10 + stall_s) * SECOND_US)
    played = play(lambda at_s: 0.5, 8, 150_000, patience_us, stall_us=stall_us)
    per_s = 0.5 * 8 * SECOND_US / 150_000
    late = played.sent - played.good  # without a limit, nearly all of the stall
    assert late <= 4 * per_s * patience_us / SECOND_US
    assert played.good >= 0.99 * per_s * (30 - stall_s - 1)
    assert played.limits[-1] == LIMIT_MAX


@pytest.mark.parametrize(("work_us", "patience_us"), [(127_000, 590_000), (169_000, 907_000)])
def test_stall_longer_than_callers_are_patient_leaves_no_limit(
    work_us: int, patience_us: int
) -> None:
    """The patience is a few times the work: a limit of two would look right."""
    stall_us = (10 * SECOND_US, 12 * SECOND_US)
    played = play(lambda at_s: 0.5, 8, work_us, patience_us, stall_us=stall_us)
    assert set(played.limits) == {LIMIT_MAX}
    assert played.good >= 0.98 * 0.5 * 8 * 28 * SECOND_US / work_us


def test_limit_far_too_low_grows_until_slots_are_full() -> None:
    found = FoundLimit()
    found.patience_us = 590_000
    found.judge(window(WORK_US, 4.1), 0)  # the load before there was a limit
    for _ in range(2):
        found.judge(window(15 * WORK_US, 10, late=True), 0)
    assert found.limit == 2
    for _ in range(8):
        found.judge(window(WORK_US, found.limit, queued=True), 0)
    assert found.limit >= 8


def test_limit_close_to_its_target_grows_by_at_least_one() -> None:
    found = FoundLimit()
    found.patience_us = 590_000
    found.follow(4)
    found.judge(window(WORK_US, found.limit, queued=True), 0)
    assert found.limit == 5


def test_slots_filled_together_are_limited_before_their_queue_takes_all_patience() -> None:
    """They end together as well, so a few ends are no measure of what an end takes."""
    slots, work_us, patience_us = 64, 930_000, 8_772_000
    played = play(lambda at_s: 2.1, slots, work_us, patience_us, span_s=25)
    ended = next(index for index, limit in enumerate(played.limits) if limit < LIMIT_MAX)
    assert ended * work_us / slots < 0.6 * patience_us


def window(mean_us: float, inflight: float, *, late: bool = False, queued: bool = False) -> Window:
    """The measures of units that took `mean_us`, with `inflight` in flight."""
    here = int(inflight)
    times, each_us = mean_us / WORK_US, mean_us / inflight
    return Window(mean_us, late, inflight, times, late, each_us, here, False, queued)


def test_stall_that_ends_in_overload_is_limited() -> None:
    slots, work_us = 8, 50_000
    played = play(lambda at_s: 2.0, slots, work_us, 650_000, stall_us=(0, SECOND_US))
    limits = played.limits[len(played.limits) // 3 :]
    assert slots <= sorted(limits)[len(limits) // 2] <= 8 * slots


@pytest.mark.parametrize("times", [3, 5, 10])
def test_sudden_overload_is_limited_within_a_fifth_of_a_second(times: int) -> None:
    """Without a limit, the engine holds seconds of work before the first answer is late."""
    played = play(lambda at_s: times if at_s >= 2 else 0.5, 8, 10_000, 500_000, span_s=6)
    assert played.good >= 0.98 * 800 * (2 * 0.5 + 4)


def test_sudden_rise_of_work_that_does_not_queue_has_no_limit() -> None:
    played = play(lambda at_s: 0.4 if at_s >= 5 else 0.02, 1_000, 500_000, SECOND_US, span_s=15)
    assert set(played.limits) == {LIMIT_MAX}


@pytest.mark.parametrize("dear", [10, 20])
def test_unequal_costs_in_overload_keep_slots_full(dear: int) -> None:
    slots, work_us = 8, 50_000
    played = play(lambda at_s: 2.0, slots, work_us, 1_000_000, dear=dear)
    limits = played.limits[len(played.limits) // 3 :]
    assert slots / 2 <= sorted(limits)[len(limits) // 2] <= 8 * slots
    assert played.good >= 0.7 * 30 * slots * SECOND_US / work_us


def test_slow_work_that_fewer_in_flight_do_not_shorten_has_no_lasting_limit() -> None:
    """More slots than are ever used, and work that takes longer than callers wait."""
    played = play(lambda at_s: 0.02, 2_000, 500_000, 400_000)
    limited = sum(limit < LIMIT_MAX for limit in played.limits)
    assert limited <= 0.1 * len(played.limits)


def test_without_patience_there_is_never_a_limit() -> None:
    found = FoundLimit()
    for number in range(1_000):
        now_us = number * 2_000
        window = found.send(now_us, 0, 0)
        found.record(window, number * 1_000, now_us, number, 1_000, False, True)
    assert found.limit == LIMIT_MAX
