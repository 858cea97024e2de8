"""CL.THROTTLE's arithmetic: against an oracle in fractions, and worked examples."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.cell_throttle import NOT_SAID, SPAN_NS_MAX, quota, seconds, step

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


def ask(
    tat: int, now: int, max_burst: int, count: int, period_s: int, quantity: int = 1
) -> tuple[int, tuple[int, int, int, int, int]]:
    """As the command answers it."""
    after, limited, left, retry, reset = step(
        tat, now, *quota(max_burst, count, period_s, quantity)
    )
    return after, (int(limited), max_burst + 1, left, seconds(retry), seconds(reset))


def test_a_fresh_key_has_max_burst_and_one() -> None:
    tat, replies = 0, []
    for _ in range(4):
        tat, reply = ask(tat, NOW, 2, 30, 60)
        replies.append(reply)
    assert replies == [(0, 3, 2, -1, 2), (0, 3, 1, -1, 4), (0, 3, 0, -1, 6), (1, 3, 0, 2, 6)]


def test_a_schedule_comes_back_as_time_passes() -> None:
    # limit 5, one a second; (seconds passed, quantity) -> (limited, left, reset, retry)
    story = [
        ((0, 6), (1, 5, 0, -1)),  # more than ever fits: no wait will help
        ((0, 1), (0, 4, 1, -1)),
        ((0, 1), (0, 3, 2, -1)),
        ((0, 1), (0, 2, 3, -1)),
        ((0, 1), (0, 1, 4, -1)),
        ((0, 1), (0, 0, 5, -1)),
        ((0, 1), (1, 0, 5, 1)),
        ((3, 1), (0, 2, 3, -1)),
        ((8, 1), (0, 4, 1, -1)),
        ((8, 0), (0, 4, 1, -1)),  # a look
        ((8, 2), (0, 2, 3, -1)),
        ((8, 5), (1, 2, 3, 3)),
    ]
    tat = 0
    for (passed, quantity), (limited, left, reset, retry) in story:
        tat, reply = ask(tat, NOW + passed * SECOND, 4, 1, 1, quantity)
        assert reply == (limited, 5, left, retry, reset), (passed, quantity)


def test_seconds_are_cut_and_a_whole_millisecond_makes_one_more() -> None:
    spans = {0: 0, -1: -1, 999_999: 0, 1_000_000: 1, SECOND: 1, SECOND + 999_999: 1}
    spans |= {SECOND + 1_000_000: 2, 2 * SECOND - 1: 2, 2 * SECOND: 2}
    assert {span: seconds(span) for span in spans} == spans


def test_another_rate_goes_on_from_what_was_taken() -> None:
    tat, _ = ask(0, NOW, 9, 1, 1, 10)
    assert tat == NOW + 10 * SECOND
    _, reply = ask(tat, NOW, 99, 10, 1)
    assert reply == (1, 100, 0, 1, 10)  # ten seconds ahead are 100 units at this rate
    _, reply = ask(tat, NOW, 199, 10, 1)
    assert reply == (0, 200, 99, -1, 11)


def test_a_negative_quantity_gives_back_but_never_more_than_was_taken() -> None:
    tat, _ = ask(0, NOW, 4, 1, 1, 3)
    tat, reply = ask(tat, NOW, 4, 1, 1, -2)
    assert reply == (0, 5, 4, -1, 1)
    tat, reply = ask(tat, NOW, 4, 1, 1, -2)
    assert reply == (0, 5, 5, -1, 0)
    assert tat == 0  # as if it had never asked, by any clock


def test_without_a_burst_nothing_ever_passes() -> None:
    assert ask(0, NOW, -1, 1, 1)[1] == (1, 0, 0, -1, 0)
    assert ask(0, NOW, -5, 1, 1, 0)[1] == (1, -4, 0, -1, 0)


@pytest.mark.parametrize(
    ("count", "period_s"), [(0, 1), (1, 0), (-1, 1), (1, -1), (10**9 + 1, 1), (1 << 62, 2)]
)
def test_what_is_no_rate_is_called_a_zero_rate(count: int, period_s: int) -> None:
    with pytest.raises(ValueError, match=r"^Zero rates are not supported$"):
        quota(1, count, period_s, 1)


def test_a_nanosecond_is_the_finest_interval() -> None:
    assert quota(0, 10**9, 1, 1) == (1, 1, 1)
    assert quota(0, (1 << 62) + 7, (1 << 62) // 10**9 + 1, 1)[0] == 1


@pytest.mark.parametrize(
    ("max_burst", "period_s", "quantity"),
    [
        (1 << 62, 1, 1),
        (0, 1, 1 << 40),
        (0, 10_000_000_000, 1),
        (-(1 << 62), 1, 1),
        (0, 1, -(1 << 60)),
    ],
)
def test_what_64_bits_cannot_hold_is_refused(max_burst: int, period_s: int, quantity: int) -> None:
    with pytest.raises(ValueError, match="too large"):
        quota(max_burst, 1, period_s, quantity)


def test_the_largest_span_is_still_counted() -> None:
    interval, tolerance, charge = quota(0, 1, SPAN_NS_MAX // SECOND, 1)
    tat, limited, left, _, reset = step(0, NOW, interval, tolerance, charge)
    assert (limited, left, reset) == (False, 0, interval)
    assert step(tat, NOW, interval, tolerance, charge)[1:4] == (True, 0, charge)


asks = st.tuples(
    st.integers(-2, 50),  # max_burst
    st.integers(1, 10**10),  # count
    st.integers(1, 10**6),  # period_s
    st.integers(-5, 60),  # quantity
    st.integers(-SECOND, 100 * SECOND),  # nanoseconds passed: a clock may go back
)


@given(st.lists(asks, max_size=30))
def test_it_is_the_textbook_schedule_in_fractions(
    story: list[tuple[int, int, int, int, int]],
) -> None:
    tat, due, now = 0, Fraction(0), NOW
    for max_burst, count, period_s, quantity, passed in story:
        now += passed
        if count > period_s * SECOND:
            continue
        interval = Fraction(period_s * SECOND // count)
        bucket = interval * (max_burst + 1)
        ahead = max(due - now, Fraction(0))
        fits = ahead + interval * quantity <= bucket
        wait = ahead + interval * quantity - bucket
        if fits and quantity:
            owed = ahead + interval * quantity
            due = now + owed if owed > 0 else Fraction(0)
        left = max((bucket - max(due - now, Fraction(0))) // interval, 0)
        tat, limited, told_left, retry, reset = step(
            tat, now, *quota(max_burst, count, period_s, quantity)
        )
        assert limited is not fits
        assert told_left == left
        assert reset == max(due - now, Fraction(0))
        if fits or interval * quantity > bucket:
            assert retry == NOT_SAID
        else:
            assert retry == wait
            # Exact: then it passes, and a nanosecond earlier it does not.
            quotas = quota(max_burst, count, period_s, quantity)
            assert not step(tat, now + retry, *quotas)[1]
            assert step(tat, now + retry - 1, *quotas)[1]
