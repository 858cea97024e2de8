from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, KEYS_EXHAUSTED, RATE_LIMITED
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.kernels.gcra import Gcra
from sluicegate.kernels.sliding_window import CELLS_DEFAULT, SlidingCells, SlidingLog, cells_within
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.memory.table import KEY_CHARS_MAX, KeyTable, bounded_key
from sluicegate.stores.memory.tables import table_for

SECOND = 1_000_000
MINUTE = 60 * SECOND


class Bucket(Protocol):
    def take(self, cost: int, now_us: int) -> Verdict: ...


def by_default_cells(count: int, period_us: int) -> SlidingCells:
    return SlidingCells(count, period_us, cells_within(period_us, CELLS_DEFAULT))


KERNELS: dict[Algorithm, Callable[[int, int], Bucket]] = {
    Algorithm.GCRA: Gcra,
    Algorithm.TOKEN_BUCKET: TokenBucket,
    Algorithm.FIXED_WINDOW: FixedWindow,
    Algorithm.SLIDING_WINDOW: by_default_cells,
    Algorithm.SLIDING_LOG: SlidingLog,
}

every_algorithm = pytest.mark.parametrize("algorithm", list(Algorithm))


def table(
    count: int,
    period_us: int,
    algorithm: Algorithm = Algorithm.GCRA,
    keys_max: int = 1_000,
    burst: int | None = None,
) -> KeyTable[Any]:
    return table_for(
        "r", Limit(count, period_us=period_us, burst=burst, algorithm=algorithm), keys_max
    )


@every_algorithm
@settings(max_examples=60)
@given(
    count=st.sampled_from([1, 3, 7, 50, 1_000]),
    period_us=st.sampled_from([1, 999, SECOND, MINUTE]),
    arrivals=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 40 * SECOND), st.integers(0, 9)),
        max_size=60,
    ),
)
def test_each_key_is_decided_as_its_kernel_decides(
    algorithm: Algorithm,
    count: int,
    period_us: int,
    arrivals: list[tuple[str, int, int]],
) -> None:
    keys = table(count, period_us, algorithm)
    kernels = {key: KERNELS[algorithm](count, period_us) for key in "abc"}
    now_us = 10**15
    for key, gap_us, cost in arrivals:
        now_us += gap_us
        decision = keys.take(key, cost, now_us)
        verdict = kernels[key].take(cost, now_us)
        assert (
            decision.allowed,
            decision.remaining,
            decision.retry_after_us,
            decision.reset_after_us,
        ) == (verdict.allowed, verdict.remaining, verdict.retry_after_us, verdict.reset_after_us)
        if decision:
            assert decision.reason is None
        else:
            assert decision.reason is (COST_ABOVE_LIMIT if cost > count else RATE_LIMITED)


@every_algorithm
def test_a_look_at_a_new_key_keeps_nothing(algorithm: Algorithm) -> None:
    keys = table(5, SECOND, algorithm)
    keys.take("a", 0, 0)
    keys.take("a", 6, 0)
    assert len(keys) == 0


@every_algorithm
def test_keys_at_rest_are_forgotten_as_new_ones_come(algorithm: Algorithm) -> None:
    keys = table(5, SECOND, algorithm, keys_max=1_000_000)
    for n in range(40_000):
        # A new key each 10 ms: a few hundred at most are not at rest at any time.
        keys.take(f"user:{n}", 1, n * 10_000)
    # 256 shards that are swept from 64 keys on.
    assert len(keys) < 256 * 64


@every_algorithm
def test_a_full_table_forgets_keys_at_rest_before_any_other(algorithm: Algorithm) -> None:
    keys = table(5, SECOND, algorithm, keys_max=100)
    for n in range(99):
        keys.take(f"old:{n}", 1, 0)
    keys.take("spent", 5, 10 * SECOND)
    for n in range(500):
        keys.take(f"new:{n}", 1, 10 * SECOND)
        assert len(keys) <= 100
    assert keys.take("spent", 1, 10 * SECOND).reason is RATE_LIMITED


def test_a_key_at_rest_in_another_shard_goes_before_a_key_in_use_in_this_one() -> None:
    keys = table(5, MINUTE, keys_max=8_192)  # two shards, told apart by the hash's last bit
    in_first = [f"used:{n}" for n in range(20_000) if hash(f"used:{n}") & 1 == 0][:5_192]
    in_second = [f"old:{n}" for n in range(20_000) if hash(f"old:{n}") & 1][:3_000]
    for key in in_second:
        keys.take(key, 1, 0)
    for key in in_first:
        keys.take(key, 3, 2 * MINUTE)
    for n in range(300):
        keys.take(f"new:{n}", 1, 2 * MINUTE)
    assert all(keys.take(key, 0, 2 * MINUTE).remaining == 2 for key in in_first)


@every_algorithm
def test_a_limited_key_is_never_forgotten_while_it_is_limited(algorithm: Algorithm) -> None:
    keys = table(2, MINUTE, algorithm, keys_max=50)
    limited = [f"limited:{n}" for n in range(40)]
    for key in limited:
        keys.take(key, 2, MINUTE)
    for n in range(5_000):
        keys.take(f"flood:{n}", 1, MINUTE)
    assert len(keys) <= 50
    assert all(keys.take(key, 1, MINUTE).reason is RATE_LIMITED for key in limited)


@every_algorithm
def test_when_every_key_is_limited_new_ones_share_one_limit(algorithm: Algorithm) -> None:
    keys = table(2, MINUTE, algorithm, keys_max=3)
    for key in "abc":
        keys.take(key, 2, MINUTE)
    decisions = [keys.take(f"new:{n}", 1, MINUTE) for n in range(5)]
    assert [decision.allowed for decision in decisions] == [True, True, False, False, False]
    assert decisions[-1].reason is KEYS_EXHAUSTED
    assert decisions[-1].retry_after_us > 0
    assert keys.take("new", 3, MINUTE).retry_after_us == NEVER
    assert len(keys) == 3


@every_algorithm
def test_a_table_of_one_key_serves_one_key_at_a_time(algorithm: Algorithm) -> None:
    keys = table(1, SECOND, algorithm, keys_max=1)
    assert keys.take("a", 1, 10 * SECOND)
    assert not keys.take("a", 1, 10 * SECOND)
    assert keys.take("b", 1, 10 * SECOND)  # from the limit that untracked keys share
    assert not keys.take("c", 1, 10 * SECOND)
    assert keys.take("b", 1, 30 * SECOND)
    assert not keys.take("b", 1, 30 * SECOND)
    assert len(keys) == 1


@every_algorithm
def test_a_clock_that_goes_back_stands_still_and_tells_the_wait_from_there(
    algorithm: Algorithm,
) -> None:
    keys = table(1, SECOND, algorithm)
    keys.take("a", 1, 100 * SECOND)
    still = keys.take("a", 1, 100 * SECOND)
    back = keys.take("a", 1, 90 * SECOND)
    assert not back
    assert back.retry_after_us == still.retry_after_us + 10 * SECOND
    assert keys.take("a", 1, 90 * SECOND + back.retry_after_us)


@pytest.mark.parametrize("count", [7, 300_000, 5_000_000, 999_983, (1 << 53) - 1])
def test_rates_finer_than_a_microsecond_and_huge_counts_are_exact(count: int) -> None:
    now_us = 1_790_000_000_000_000
    keys = table(count, SECOND)
    assert keys.take("a", count, now_us)
    refused = keys.take("a", count, now_us)
    assert refused.retry_after_us == SECOND
    assert not keys.take("a", count, now_us + SECOND - 1)
    assert keys.take("a", count, now_us + SECOND)


def test_a_burst_of_its_own_is_kept_apart_from_the_rate() -> None:
    keys = table(10, SECOND, burst=20)
    assert sum(bool(keys.take("a", 1, 0)) for _ in range(100)) == 20
    assert sum(bool(keys.take("a", 1, SECOND)) for _ in range(100)) == 10


@pytest.mark.parametrize("count", [255, 256, 65_536, 1 << 32, 1 << 53])
@pytest.mark.parametrize("cells", [1, 2, 10, 60])
def test_counts_of_any_size_are_held_in_any_number_of_cells(count: int, cells: int) -> None:
    limit = Limit(count, period_us=MINUTE, cells=cells, algorithm=Algorithm.SLIDING_WINDOW)
    keys, now_us = table_for("r", limit, 10), 1_790_000_000_000_000
    kernel = SlidingCells(count, MINUTE, cells)
    for gap_us, cost in ((0, count - 1), (1, 1), (7 * SECOND, 1), (50 * SECOND, count // 2)):
        now_us += gap_us
        decision, verdict = keys.take("a", cost, now_us), kernel.take(cost, now_us)
        assert (decision.allowed, decision.remaining, decision.retry_after_us) == (
            verdict.allowed,
            verdict.remaining,
            verdict.retry_after_us,
        )
    keys.settle("a", 1 << 60, now_us, 0)
    kernel.settle(1 << 60, now_us, 0)
    assert keys.peek("a", 1, now_us).retry_after_us == kernel.take(1, now_us).retry_after_us


def test_what_a_stale_clock_takes_back_at_once_comes_from_where_it_stood() -> None:
    keys = table(5, SECOND, Algorithm.FIXED_WINDOW)
    keys.take("b", 1, 10 * SECOND)
    keys.take("a", 3, 9 * SECOND)
    keys.settle("a", -3, 9 * SECOND, 9 * SECOND)
    assert keys.take("a", 0, 10 * SECOND).remaining == 5


def test_a_log_too_large_to_be_exact_says_what_to_use() -> None:
    with pytest.raises(BadValue, match=r"limit\.count: 1001 .* use sliding_window"):
        table(1_001, SECOND, Algorithm.SLIDING_LOG)


def test_a_million_states_are_nothing_to_the_garbage_collector() -> None:
    keys = table(5, MINUTE, keys_max=100_000)
    gc.collect()
    before = len(gc.get_objects())
    for n in range(50_000):
        keys.take(str(n), 1, 0)
    gc.collect()
    assert len(gc.get_objects()) - before < 1_000


def test_the_store_keeps_one_table_a_rule_and_a_bound_on_rules() -> None:
    store = MemoryStore(lambda: 0, rules_max=2)
    first = store.table("a", Limit(1, period_us=SECOND))
    assert store.table("a", Limit(1, period_us=SECOND)) is first
    store.table("b", Limit(1, period_us=SECOND))
    with pytest.raises(BadValue, match="rule: 'c' cannot be used; 2 rules are in use already"):
        store.table("c", Limit(1, period_us=SECOND))


def test_the_store_decides_takes_in_their_order_and_refuses_once_closed() -> None:
    clock = random.Random(3)
    store = MemoryStore(lambda: clock.randrange(10))
    charge = Charge("r", Limit(2, period_us=MINUTE), "a")

    async def story() -> list[bool]:
        allowed = [(await store.take([charge])).allowed for _ in range(3)]
        await store.close()
        return allowed

    assert asyncio.run(story()) == [True, True, False]
    with pytest.raises(Unavailable, match="it is closed"):
        asyncio.run(story())


def test_long_keys_are_kept_short_and_apart() -> None:
    tracked = table(1, MINUTE)
    long = "k" * (KEY_CHARS_MAX - 2)
    keys = [long + tail for tail in ("", "1", "12", "123", "1234", "\ud800\ud800\ud800\ud800")]
    for key in keys:
        assert tracked.take(key, 1, 0).allowed
        assert not tracked.take(key, 1, 0).allowed
        # Who is named as what stands for another is somebody else.
        assert tracked.take(bounded_key(key) + "x", 1, 0).allowed
        assert len(bounded_key(key)) <= KEY_CHARS_MAX + 1
    tracked.reset(keys[-1])
    tracked.settle(keys[-2], -1, 0, 0)
    assert [tracked.peek(key, 1, 0).allowed for key in keys] == [False] * 4 + [True] * 2
