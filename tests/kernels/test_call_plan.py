from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.call_plan import (
    CallOdds,
    all_of,
    call_odds,
    worst_attempts,
    worst_time_us,
)
from sluicegate.kernels.retry_budget import RetryBudget, RetryShareSettings
from sluicegate.testing import SeededChance

shares = st.floats(0.0, 1.0)


def played(
    failure: float, attempts: int, lasting: float, budget: float, seed: int, calls: int = 60_000
) -> CallOdds:
    """The oracle: calls a millisecond apart with a real budget; a repeat waits up to a second."""
    draw = SeededChance(seed).draw
    settings = RetryShareSettings(deposit_milli=int(budget * 1_000), reserve_milli_per_s=0)
    retries = RetryBudget(settings)
    down = lasting * failure
    each = (failure - down) / (1.0 - down)
    failed = tried = asked = granted = 0
    # When, the number of the call, which attempt, whether its failure lasts.
    due = [(number * 1_000, number, 0, draw() < down) for number in range(calls)]
    while due:
        now_us, number, attempt, lasts = heappop(due)
        if attempt == 0:
            retries.deposit(now_us)
        tried += 1
        if not lasts and draw() >= each:
            continue
        if attempt + 1 < attempts:
            asked += 1
            if retries.withdraw(now_us):
                granted += 1
                wait_us = int(draw() * 1_000_000)
                heappush(due, (now_us + wait_us, number, attempt + 1, lasts))
                continue
        failed += 1
    return CallOdds(failed / calls, tried / calls, granted / asked if asked else 1.0)


@pytest.mark.parametrize(
    ("failure", "attempts", "lasting", "budget"),
    [
        (0.02, 3, 0.0, 0.1),  # well within the budget
        (0.05, 3, 0.5, 0.1),
        (0.3, 3, 0.0, 0.1),  # the budget binds
        (0.3, 4, 0.3, 0.2),
        (0.6, 3, 0.9, 0.1),
        (0.3, 3, 0.0, 10.0),  # as good as no budget
        (0.3, 1, 0.0, 0.1),
    ],
)
def test_the_odds_are_those_of_calls_that_are_played(
    failure: float, attempts: int, lasting: float, budget: float
) -> None:
    odds = call_odds(failure, attempts, lasting=lasting, budget=budget)
    found = played(failure, attempts, lasting, budget, seed=11)
    assert odds.failure == pytest.approx(found.failure, abs=0.008)
    assert odds.attempts == pytest.approx(found.attempts, abs=0.01)
    assert odds.granted == pytest.approx(found.granted, abs=0.03)


def test_the_oracle_tells_a_budget_from_none() -> None:
    """The control: calls that are repeated without a budget are others than those with one."""
    without = call_odds(0.3, 3, lasting=0.0, budget=10.0)
    assert abs(without.failure - played(0.3, 3, 0.0, 0.1, seed=11).failure) > 0.1


def test_twenty_dependencies_of_three_nines_leave_98_percent() -> None:
    alone = all_of([0.999] * 20)
    assert alone == pytest.approx(0.98019, abs=1e-5)
    assert (1 - alone) * 730.5 == pytest.approx(14.5, abs=0.05)  # hours a month, as the source says
    shown = {
        lasting: all_of([1.0 - call_odds(0.001, 3, lasting=lasting, budget=0.1).failure] * 20)
        for lasting in (0.0, 0.1, 0.5, 1.0)
    }
    assert [f"{share:.4%}" for share in shown.values()] == [
        "100.0000%",
        "99.8002%",
        "99.0047%",
        "98.0189%",
    ]


def test_three_layers_of_three_attempts_are_27_calls_of_the_lowest() -> None:
    assert worst_attempts([3, 3, 3]) == 27
    assert worst_attempts([]) == 1


def test_the_longest_call_is_every_attempt_and_every_wait_up_to_its_end() -> None:
    assert worst_time_us(100, [10, 20], 10_000) == 330
    assert worst_time_us(100, [10, 20], 200) == 200
    assert worst_time_us(100, [], 200) == 100


@given(failure=shares, attempts=st.integers(1, 20), lasting=shares, budget=st.floats(0, 5))
def test_repeats_never_pass_the_budget_nor_make_anything_worse(
    failure: float, attempts: int, lasting: float, budget: float
) -> None:
    odds = call_odds(failure, attempts, lasting=lasting, budget=budget)
    assert lasting * failure - 1e-12 <= odds.failure <= failure + 1e-12
    assert 1.0 <= odds.attempts <= min(attempts, 1.0 + budget) + 1e-9
    assert 0.0 <= odds.granted <= 1.0


@given(failure=shares, lasting=shares, attempts=st.integers(1, 10))
def test_without_a_budget_only_attempts_that_all_fail_fail(
    failure: float, lasting: float, attempts: int
) -> None:
    odds = call_odds(failure, attempts, lasting=lasting, budget=100.0)
    down = lasting * failure
    each = (failure - down) / (1 - down) if down < 1 else 0.0
    assert odds.failure == pytest.approx(down + (1 - down) * each**attempts)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: call_odds(1.5, 3, lasting=0, budget=0), "failure must be from 0 to 1"),
        (lambda: call_odds(0.5, 3, lasting=-1, budget=0), "lasting must be from 0 to 1"),
        (lambda: call_odds(0.5, 0, lasting=0, budget=0), "attempts must be from 1 to 100"),
        (lambda: call_odds(0.5, 1, lasting=0, budget=-1), "budget must be 0 or more"),
        (lambda: worst_attempts([3] * 11), "layers must be from 0 to 10"),
        (lambda: all_of([2.0]), "availability must be from 0 to 1"),
    ],
)
def test_what_is_out_of_range_is_refused(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
