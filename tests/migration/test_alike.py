"""What the guides for those who come from elsewhere claim over time: theirs and ours, one clock.

Theirs ask the module `time`, each in a file of its own, so there it is a clock that is moved by
hand. It moves by 64ths of a second, which their floating point holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace

import pytest
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    RateLimiter,
    SlidingWindowCounterRateLimiter,
)
from throttled import MemoryStore, Throttled

from sluicegate import Limiter
from sluicegate.testing import HandClock

START_US = 1_000_000_020_000_000  # a minute begins
TICK_US = 15_625

Take = Callable[[int], bool]


class QuietStorage(MemoryStorage):
    """Without the thread that sweeps: it would meet a clock that is moved, at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.timer.cancel()

    def _MemoryStorage__schedule_expiry(self) -> None:  # noqa: N802 - their private name
        return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    hand = HandClock(START_US)

    def seconds() -> float:
        return hand.now_us() / 1e6

    fake_time = SimpleNamespace(time=seconds, monotonic=seconds, perf_counter_ns=lambda: 0)
    for place in ("limits.storage.memory.time", "limits.strategies.time", "throttled.utils.time"):
        monkeypatch.setattr(place, fake_time)
    return hand


def by_limits(kind: type[RateLimiter], rate: str) -> Take:
    strategy, item = kind(QuietStorage()), parse(rate)
    return lambda cost: strategy.hit(item, "ann", cost=cost)


def by_throttled(using: str, quota: str) -> Take:
    throttle = Throttled("ann", using=using, quota=quota, store=MemoryStore())
    return lambda cost: not throttle.limit(cost=cost).limited


def by_sluicegate(rate: str, algorithm: str, clock: HandClock) -> Take:
    limiter = Limiter(rate, algorithm=algorithm, clock=clock)
    return lambda cost: limiter.take("ann", cost).allowed


def decisions_of(take: Take, clock: HandClock, asks: list[tuple[int, int]]) -> Iterator[bool]:
    for ticks, cost in asks:
        clock.advance(us=ticks * TICK_US)
        yield take(cost)


def alike(one: Take, other: Take, clock: HandClock, asks: list[tuple[int, int]]) -> list[bool]:
    """What both have answered to each ask, which must be the same."""
    answers = []
    for ticks, cost in asks:
        clock.advance(us=ticks * TICK_US)
        answers.append(one(cost))
        assert other(cost) == answers[-1], f"ask {len(answers)}, at {clock.now_us()}"
    assert True in answers
    assert False in answers
    return answers


def walk(seed: int, step: int, costs: int) -> list[tuple[int, int]]:
    """Asks at random, at distances that are multiples of `step` ticks."""
    draw = Random(seed)
    return [(step * draw.choice((0, 0, 1, 5, 40, 200)), draw.randint(1, costs)) for _ in range(400)]


seeds = pytest.mark.parametrize("seed", range(5))


@seeds
def test_a_moving_window_is_a_sliding_log(seed: int, clock: HandClock) -> None:
    # By sevenths no two asks are a minute apart: at that very instant theirs counts the unit still.
    theirs = by_limits(MovingWindowRateLimiter, "8/minute")
    alike(theirs, by_sluicegate("8/minute", "sliding_log", clock), clock, walk(seed, 7, 3))


def test_a_fixed_window_is_one_where_its_first_hit_is_at_the_edge(clock: HandClock) -> None:
    minute = [(0, 1), (64, 1), (64, 1), (64, 1), (60 * 64 - 3 * 64, 1)]
    theirs = by_limits(FixedWindowRateLimiter, "2/minute")
    answers = alike(theirs, by_sluicegate("2/minute", "fixed_window", clock), clock, minute * 3)
    assert answers[:7] == [True, True, False, False, True, True, False]


def test_two_counters_are_two_counters_but_for_their_rounding(clock: HandClock) -> None:
    kind, rate = SlidingWindowCounterRateLimiter, "64/minute"
    theirs, ours = by_limits(kind, rate), by_sluicegate(f"{rate} cells 1", "sliding_window", clock)
    half = [(0, 1)] * 70 + [(90 * 64, 1)] + [(0, 1)] * 40
    answers = alike(theirs, ours, clock, half)
    assert answers.count(True) == 64 + 32  # half of the minute before counts still
    clock.advance(us=TICK_US)  # a 3840th later the estimate is 63.98...
    assert theirs(1)
    assert not ours(1)


@seeds
def test_a_gcra_is_a_gcra(seed: int, clock: HandClock) -> None:
    theirs = by_throttled("gcra", "8/m burst 5")
    alike(theirs, by_sluicegate("8/m burst 5", "gcra", clock), clock, walk(seed, 3, 3))


@seeds
def test_a_fixed_window_of_the_clock_is_one(seed: int, clock: HandClock) -> None:
    theirs = by_throttled("fixed_window", "8/m")
    alike(theirs, by_sluicegate("8/m", "fixed_window", clock), clock, walk(seed, 3, 1))


@seeds
@pytest.mark.parametrize("algorithm", ["token_bucket", "gcra"])
def test_a_bucket_is_a_bucket_where_whole_tokens_come_each_second(
    seed: int, algorithm: str, clock: HandClock
) -> None:
    theirs = by_throttled(algorithm.replace("gcra", "leaking_bucket"), "1/s burst 8")
    alike(theirs, by_sluicegate("1/s burst 8", algorithm, clock), clock, walk(seed, 64, 8))


@pytest.mark.parametrize("algorithm", ["token_bucket", "gcra"])
def test_a_bucket_of_theirs_loses_the_halves_of_tokens(algorithm: str, clock: HandClock) -> None:
    each_second, rate = [(64, 1)] * 601, "30/m burst 30"
    theirs = by_throttled(algorithm.replace("gcra", "leaking_bucket"), rate)
    ours = by_sluicegate(rate, algorithm, clock)
    assert sum(decisions_of(theirs, clock, each_second)) == 315
    assert sum(decisions_of(ours, clock, each_second)) == 330
