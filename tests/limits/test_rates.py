from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rates import format_rate, parse_rate, parse_rates

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "count", "period_us", "burst"),
    [
        ("100/minute", 100, 60 * SECOND, 100),
        ("100/m", 100, 60 * SECOND, 100),
        ("10/s burst 20", 10, SECOND, 20),
        ("100/5m", 100, 300 * SECOND, 100),
        ("100/5 minutes", 100, 300 * SECOND, 100),
        ("10 per 2 hours", 10, 7_200 * SECOND, 10),
        ("  10PER2Hours  ", 10, 7_200 * SECOND, 10),
        ("10/500ms", 10, 500_000, 10),
        ("5/week", 5, 604_800 * SECOND, 5),
        ("1_000_000/day", 1_000_000, 86_400 * SECOND, 1_000_000),
        ("1/us", 1, 1, 1),
        ("3/mo", 3, 30 * 86_400 * SECOND, 3),
        ("3/year", 3, 365 * 86_400 * SECOND, 3),
    ],
)
def test_the_spellings_people_know_are_understood(
    text: str, count: int, period_us: int, burst: int
) -> None:
    limit = parse_rate(text)
    assert (limit.count, limit.period_us, limit.burst) == (count, period_us, burst)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "write it as"),
        ("fast", "write it as"),
        ("10", "write it as"),
        ("10/", "write it as"),
        ("/s", "write it as"),
        ("10/s burst", "write it as"),
        ("10/s20", "write it as"),
        ("10/minute;100/hour", "write it as"),
        ("10/fortnight", "'fortnight' is no unit; use us, ms, s, m, h, d, w"),
        ("0/s", "a rate has no zeros"),
        ("1/0s", "a rate has no zeros"),
        ("1/s burst 0", "a rate has no zeros"),
        ("0.5/s", "numbers are whole; for half a unit a second say 1/2s"),
        ("-5/s", "a rate cannot be negative"),
        ("1/s" + " " * 300, "longer than 200 characters"),
        ("٣/s", "write it as"),
    ],
)
def test_a_string_that_is_no_rate_says_what_would_be(text: str, remedy: str) -> None:
    with pytest.raises(BadValue) as error:
        parse_rate(text, field="rules[3].rate")
    assert str(error.value).startswith("rules[3].rate: ")
    assert remedy in str(error.value)


def test_numbers_past_two_to_the_53_are_refused_by_name() -> None:
    with pytest.raises(BadValue, match=r"limit\.count"):
        parse_rate(f"{(1 << 53) + 1}/s")
    with pytest.raises(BadValue, match=r"limit\.period_us"):
        parse_rate(f"1/{1 << 53}s")


def test_a_window_takes_no_burst() -> None:
    with pytest.raises(BadValue, match="fixed_window has no burst"):
        parse_rate("10/s burst 20", algorithm=Algorithm.FIXED_WINDOW)


@pytest.mark.parametrize(
    ("text", "cells"),
    [("60/m", 10), ("60/m cells 1", 1), ("60/mCELLS 2_0", 20), ("60/s cells 30", 25)],
)
def test_a_sliding_window_may_say_its_cells(text: str, cells: int) -> None:
    assert parse_rate(text, algorithm=Algorithm.SLIDING_WINDOW).cells == cells


@pytest.mark.parametrize(
    ("text", "algorithm", "remedy"),
    [
        ("60/m cells 4", Algorithm.GCRA, "leave it out: only sliding_window has cells"),
        ("60/m cells 4", Algorithm.SLIDING_LOG, "leave it out: only sliding_window has cells"),
        ("60/m cells 1001", Algorithm.SLIDING_WINDOW, "from 1 to 1,000"),
        ("60/m cells 0", Algorithm.SLIDING_WINDOW, "a rate has no zeros"),
        ("60/m cells", Algorithm.SLIDING_WINDOW, "write it as"),
        ("60/m burst 9 cells 4", Algorithm.SLIDING_WINDOW, "sliding_window has no burst"),
    ],
)
def test_cells_where_there_are_none_say_why(text: str, algorithm: Algorithm, remedy: str) -> None:
    with pytest.raises(BadValue, match=remedy):
        parse_rate(text, algorithm=algorithm)


@given(st.integers(1, 1 << 53), st.one_of(st.none(), st.integers(1, 1_000)))
def test_cells_that_are_written_are_read_back(period_us: int, cells: int | None) -> None:
    limit = Limit(5, period_us=period_us, cells=cells, algorithm=Algorithm.SLIDING_WINDOW)
    assert parse_rate(format_rate(limit), algorithm=Algorithm.SLIDING_WINDOW) == limit


def test_the_default_number_of_cells_is_not_written() -> None:
    way = Algorithm.SLIDING_WINDOW
    assert format_rate(Limit(5, period_us=SECOND, algorithm=way)) == "5/second"
    assert format_rate(Limit(5, period_us=7, algorithm=way)) == "5/7 us"
    assert format_rate(Limit(5, period_us=SECOND, cells=20, algorithm=way)) == "5/second cells 20"


@given(st.text(max_size=40))
def test_any_text_is_a_rate_or_a_bad_value(text: str) -> None:
    try:
        limit = parse_rate(text)
    except BadValue:
        return
    assert limit.count >= 1


@given(
    st.integers(1, 1 << 53),
    st.integers(1, 1 << 53),
    st.one_of(st.none(), st.integers(1, 1 << 53)),
)
def test_what_is_written_is_read_back(count: int, period_us: int, burst: int | None) -> None:
    limit = Limit(count, period_us=period_us, burst=burst)
    assert parse_rate(format_rate(limit)) == limit


@pytest.mark.parametrize("text", ["10/s; 1000/hour", "10/s,1000/h", " 10/s ;1000 per hour "])
def test_several_rates_stand_in_one_string(text: str) -> None:
    assert parse_rates(text) == [
        Limit(10, period_us=SECOND),
        Limit(1_000, period_us=3_600 * SECOND),
    ]


def test_a_bad_rate_among_several_is_the_one_that_is_named() -> None:
    with pytest.raises(BadValue, match="rule: ' often' cannot be used"):
        parse_rates("10/s; often", field="rule")
    with pytest.raises(BadValue, match="at most 16"):
        parse_rates(";".join(["1/s"] * 17))


def test_several_rates_may_be_split_as_other_libraries_do() -> None:
    assert parse_rates("10/sec|100/mins,1000/hrs; 5000/wk") == parse_rates(
        "10/second; 100/minute; 1000/hour; 5000/week"
    )
