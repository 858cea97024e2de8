"""CL.THROTTLE in this process: the kernel's answers, bounded, from any thread."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.cell_throttle import quota, seconds, step
from sluicegate.stores.memory.throttle import MemoryThrottle
from sluicegate.testing import HandClock

SECOND = 1_000_000


def five(answer: ThrottleResponse) -> tuple[int, int, int, int, int]:
    return (
        int(answer.limited),
        answer.limit,
        answer.remaining,
        answer.retry_after_s,
        answer.reset_after_s,
    )


def test_it_answers_as_the_kernel_does() -> None:
    clock, rng = HandClock(), random.Random(7)
    throttle, tats = MemoryThrottle(clock.now_us), dict.fromkeys("abc", 0)
    limited = 0
    for _ in range(3_000):
        clock.advance(us=rng.choice([0, 1, 999, SECOND // 3, 5 * SECOND]))
        key = rng.choice("abc")
        rate = rng.choice([(0, 1, 1), (4, 3, 1), (20, 7, 60), (2, 10**6, 1)])
        quantity = rng.choice([0, 1, 1, 1, 2, 6, -1])
        answer = throttle.throttle(ThrottleRequest(key, *rate, quantity))
        tats[key], refused, left, retry, reset = step(
            tats[key], clock.now_us() * 1_000, *quota(*rate, quantity)
        )
        assert five(answer) == (
            int(refused), rate[0] + 1, left, seconds(retry), seconds(reset)
        )  # fmt: skip
        limited += refused
    assert 300 < limited < 2_700


def test_the_instant_may_be_said() -> None:
    throttle = MemoryThrottle(lambda: 0)
    ask = ThrottleRequest("ann", 0, 1, 10)
    assert not throttle.throttle(ask, 10**15).limited
    assert throttle.throttle(ask, 10**15 + 9 * SECOND).retry_after_s == 1
    assert not throttle.throttle(ask, 10**15 + 10 * SECOND).limited


def test_what_is_no_rate_is_refused_and_named() -> None:
    throttle = MemoryThrottle(HandClock().now_us)
    for ask, why in (
        (ThrottleRequest("ann", 1, 0, 1), "Zero rates"),
        (ThrottleRequest("ann", 1 << 62, 1, 60), "too large"),
    ):
        with pytest.raises(BadValue, match=why):
            throttle.throttle(ask)
    assert not throttle.throttle(ThrottleRequest("ann", 0, 1, 1)).limited  # the turn was given back


def test_a_look_and_a_limited_ask_keep_nothing() -> None:
    throttle = MemoryThrottle(HandClock().now_us)
    assert throttle.throttle(ThrottleRequest("ann", 4, 1, 1, 0)).remaining == 5
    assert throttle.throttle(ThrottleRequest("ann", 4, 1, 1, 9)).limited
    assert throttle.throttle(ThrottleRequest("ann", 4, 1, 1, -3)).remaining == 5
    assert len(throttle) == 0
    throttle.throttle(ThrottleRequest("ann", 4, 1, 1))
    assert len(throttle) == 1
    throttle.reset("ann")
    assert len(throttle) == 0


def test_keys_at_rest_are_swept_and_no_limited_key_is_ever_forgotten() -> None:
    clock = HandClock()
    throttle = MemoryThrottle(clock.now_us, keys_max=100)
    for n in range(80):
        throttle.throttle(ThrottleRequest(f"limited {n}", 0, 1, 60))
    for n in range(10_000):
        clock.advance(us=10)
        throttle.throttle(ThrottleRequest(f"other {n}", 9, 1_000, 1))
        assert len(throttle) <= 100
    for n in range(80):
        assert throttle.throttle(ThrottleRequest(f"limited {n}", 0, 1, 60)).limited
    clock.advance(s=61)
    for n in range(80):
        assert not throttle.throttle(ThrottleRequest(f"limited {n}", 0, 1, 60)).limited


def test_if_every_key_is_limited_new_ones_share_what_is_left() -> None:
    clock = HandClock()
    throttle = MemoryThrottle(clock.now_us, keys_max=10)
    for n in range(10):
        throttle.throttle(ThrottleRequest(f"limited {n}", 0, 1, 60))
    limits = [throttle.throttle(ThrottleRequest(f"new {n}", 2, 1, 60)).limited for n in range(5)]
    assert limits == [False, False, False, True, True]
    assert len(throttle) == 10


def test_those_with_the_most_left_go_first() -> None:
    clock = HandClock()
    throttle = MemoryThrottle(clock.now_us, keys_max=16)
    for n in range(16):
        # The later ones have less left; none is limited, none is at rest.
        throttle.throttle(ThrottleRequest(f"k{n}", 99, 1, 1, 10 + n))
    throttle.throttle(ThrottleRequest("new", 99, 1, 1))
    left = [throttle.throttle(ThrottleRequest(f"k{n}", 99, 1, 1, 0)).remaining for n in range(16)]
    assert left[0] == 100
    assert left[8:] == [100 - 10 - n for n in range(8, 16)]


def test_threads_take_no_more_than_there_is() -> None:
    throttle = MemoryThrottle(HandClock().now_us)

    def many(_: int) -> int:
        ask = ThrottleRequest("ann", 999, 1, 3_600)
        return sum(not throttle.throttle(ask).limited for _ in range(500))

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(many, range(8))) == 1_000


@pytest.mark.parametrize("rate", [(-1, -1, -1, -1), (0, 0, 0, 0), (1, 0, 1, 1)])
def test_what_is_no_rate_is_refused_at_first_and_after_a_good_one(
    rate: tuple[int, int, int, int],
) -> None:
    throttle = MemoryThrottle(HandClock().now_us)
    for _ in range(2):
        with pytest.raises(BadValue, match="Zero rates"):
            throttle.throttle(ThrottleRequest("k", *rate))
        assert not throttle.throttle(ThrottleRequest("k", 5, 1, 1, 1)).limited
