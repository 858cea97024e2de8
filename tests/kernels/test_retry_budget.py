from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.retry_budget import RetryBudget, RetryShareSettings

SECOND = 1_000_000


class SlowBudget:
    """The oracle: all deposits and withdrawals ever made, summed over the window when asked."""

    def __init__(self, deposit: Fraction, reserve: Fraction, slice_us: int, slices: int) -> None:
        self.deposit_of_one = deposit
        self.reserve = reserve
        self.slice_us = slice_us
        self.slices = slices
        self.slice_deposit_max = Fraction(10**9)
        self.slice = 0
        self.paid: list[tuple[int, Fraction]] = []
        self.taken: list[int] = []

    def at(self, now_us: int) -> None:
        self.slice = max(self.slice, now_us // self.slice_us)

    def left(self) -> Fraction:
        oldest = self.slice - self.slices + 1
        paid = sum((amount for when, amount in self.paid if when >= oldest), Fraction(0))
        return self.reserve + paid - sum(1 for when in self.taken if when >= oldest)

    def deposit(self, now_us: int, requests: int) -> None:
        self.at(now_us)
        already = sum((amount for when, amount in self.paid if when == self.slice), Fraction(0))
        amount = min(requests * self.deposit_of_one, self.slice_deposit_max - already)
        self.paid.append((self.slice, amount))

    def withdraw(self, now_us: int) -> bool:
        self.at(now_us)
        if self.left() < 1:
            return False
        self.taken.append(self.slice)
        return True


def granted(budget: RetryBudget, now_us: int) -> int:
    count = 0
    while budget.withdraw(now_us):
        count += 1
    return count


def test_ten_requests_pay_for_one_retry() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0))
    budget.deposit(0, 9)
    assert not budget.withdraw(0)
    budget.deposit(0)
    assert budget.withdraw(0)
    assert not budget.withdraw(0)


def test_a_reserve_lets_a_quiet_caller_retry() -> None:
    budget = RetryBudget(RetryShareSettings(deposit_milli=0, reserve_milli_per_s=500))
    assert budget.balance(0) == 5
    assert granted(budget, 0) == 5
    assert granted(budget, 10 * SECOND - 1) == 0
    assert granted(budget, 10 * SECOND) == 5


def test_the_default_grants_one_retry_in_ten_and_one_a_second() -> None:
    budget = RetryBudget()
    budget.deposit(0, 1_000)
    assert budget.balance(0) == 110
    assert granted(budget, 0) == 110


def test_what_was_paid_in_is_forgotten_after_the_window() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0))
    budget.deposit(SECOND, 100)
    assert budget.balance(11 * SECOND - 1) == 10
    assert budget.balance(11 * SECOND) == 0


def test_a_retry_is_forgotten_after_the_window_too() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0))
    budget.deposit(0, 10)
    assert budget.withdraw(9 * SECOND)
    assert budget.balance(10 * SECOND) == 0  # the deposit has gone, the retry is still remembered
    budget.deposit(10 * SECOND, 19)
    assert not budget.withdraw(10 * SECOND)
    assert budget.withdraw(19 * SECOND)


def test_a_long_silence_forgets_everything_at_once() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=100))
    budget.deposit(0, 1_000)
    granted(budget, 0)
    assert budget.balance(10**15) == 1


def test_a_silence_longer_than_the_window_leaves_nothing_to_expire_later() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0))
    budget.deposit(0, 1_000)
    assert budget.balance(50 * SECOND) == 0
    budget.deposit(51 * SECOND, 10)
    assert budget.balance(60 * SECOND) == 1  # slice 60 takes the place that slice 0 had
    assert budget.balance(61 * SECOND) == 0


@pytest.mark.parametrize("start_us", [0, 50 * SECOND])
def test_a_thousandth_of_a_token_decides(start_us: int) -> None:
    budget = RetryBudget(RetryShareSettings(deposit_milli=1, reserve_milli_per_s=0))
    budget.deposit(start_us, 999)
    assert not budget.withdraw(start_us)
    budget.deposit(start_us, 1)
    assert budget.withdraw(start_us)


def test_the_balance_is_bounded_and_the_bound_does_not_spoil_the_window() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0, balance_max=50))
    for second in range(30):
        budget.deposit(second * SECOND, 10**9)
        assert budget.balance(second * SECOND) == min(second + 1, 10) * 5


def test_a_total_outage_is_amplified_by_no_more_than_the_ratio_and_the_reserve() -> None:
    budget, retries = (
        RetryBudget(RetryShareSettings(deposit_milli=200, reserve_milli_per_s=1_000)),
        0,
    )
    for request in range(100_000):  # 1000 requests a second for 100 s, every one fails
        budget.deposit(request * 1_000)
        while budget.withdraw(request * 1_000):
            retries += 1
    assert 20_000 <= retries <= 20_000 + 100 + 10


def test_a_reserve_is_granted_to_each_of_many_clients() -> None:
    # The pitfall: a small reserve times many clients is a storm.
    clients = [RetryBudget(RetryShareSettings(reserve_milli_per_s=10_000)) for _ in range(1_000)]
    assert sum(granted(client, 0) for client in clients) == 100_000


def test_a_clock_that_goes_back_grants_nothing_extra() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=100))
    assert granted(budget, 50 * SECOND) == 1
    assert granted(budget, 10 * SECOND) == 0
    assert granted(budget, -10 * SECOND) == 0
    assert granted(budget, 59 * SECOND) == 0
    assert granted(budget, 60 * SECOND) == 1


def test_a_deposit_by_a_clock_that_went_back_lives_in_the_current_slice() -> None:
    budget = RetryBudget(RetryShareSettings(reserve_milli_per_s=0))
    budget.deposit(50 * SECOND, 0)
    budget.deposit(3 * SECOND, 10)
    assert budget.balance(59 * SECOND) == 1


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"deposit_milli": -1}, "deposit_milli"),
        ({"deposit_milli": 10_001}, "deposit_milli"),
        ({"reserve_milli_per_s": -1}, "reserve_milli_per_s"),
        ({"reserve_milli_per_s": (1 << 40) + 1}, "reserve_milli_per_s"),
        ({"slices": 0}, "slices"),
        ({"slices": 1_001, "window_us": 1_001}, "slices"),
        ({"window_us": 0}, "window_us"),
        ({"window_us": 10_000_001}, "window_us"),
        ({"window_us": 86_400_000_010}, "window_us"),
        ({"balance_max": 0}, "balance_max"),
        ({"balance_max": (1 << 40) + 1}, "balance_max"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        RetryBudget(RetryShareSettings(**settings))


def test_settings_at_the_ends_of_their_ranges_are_allowed() -> None:
    RetryBudget(
        RetryShareSettings(deposit_milli=10_000, reserve_milli_per_s=1 << 40, balance_max=1 << 40)
    )
    RetryBudget(RetryShareSettings(window_us=86_400_000_000, slices=1_000))
    budget = RetryBudget(
        RetryShareSettings(window_us=1, slices=1, reserve_milli_per_s=0, balance_max=1)
    )
    budget.deposit(5, 10)
    assert (budget.balance(5), budget.balance(6)) == (1, 0)


def test_a_negative_number_of_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="requests"):
        RetryBudget().deposit(0, -1)


histories = st.lists(
    st.tuples(
        st.integers(-3_000, 12_000), st.sampled_from(["pay", "take", "look"]), st.integers(0, 40)
    ),
    max_size=80,
)


@given(st.integers(1, 6), st.integers(0, 1_000), st.integers(0, 500), st.integers(1, 9), histories)
def test_it_grants_what_the_list_of_all_events_grants(
    slices: int, deposit: int, reserve: int, most: int, history: list[tuple[int, str, int]]
) -> None:
    budget = RetryBudget(
        RetryShareSettings(
            deposit_milli=deposit,
            reserve_milli_per_s=reserve * 1_000,
            window_us=slices * 2_000,
            slices=slices,
            balance_max=most * slices,
        )
    )
    oracle = SlowBudget(
        Fraction(deposit, 1_000), Fraction(reserve * slices * 2, 1_000), 2_000, slices
    )
    oracle.slice_deposit_max = Fraction(most)
    now_us = 0
    for gap_us, action, requests in history:
        now_us += gap_us
        if action == "pay":
            budget.deposit(now_us, requests)
            oracle.deposit(now_us, requests)
        elif action == "take":
            assert budget.withdraw(now_us) == oracle.withdraw(now_us)
        else:
            oracle.at(now_us)
            assert budget.balance(now_us) == max(0, oracle.left() // 1)
