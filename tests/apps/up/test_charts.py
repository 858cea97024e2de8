from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.up.charts import (
    bar,
    columns,
    count_text,
    latency_text,
    levels,
    share_text,
    uptime_text,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0k"),
        (99_949, "99.9k"),
        (99_951, "100k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (12_345_678, "12.3M"),
        (3e9, "3.00G"),
    ],
)
def test_a_count_is_short(count: float, text: str) -> None:
    assert count_text(count) == text


@given(st.integers(0, 10**14))
def test_no_count_is_longer_than_its_column(count: int) -> None:
    assert len(count_text(count)) <= 5


def test_nothing_and_everything_are_said_only_of_themselves() -> None:
    assert share_text(0, 0) == "-"
    assert share_text(0, 9) == "0%"
    assert share_text(1, 10_000) == "<1%"
    assert share_text(9_999, 10_000) == ">99%"
    assert share_text(9, 9) == "100%"


def test_latencies_and_uptimes_are_read_at_a_glance() -> None:
    assert [latency_text(us) for us in (None, 0, 1.0, 999.4, 999.6, 25_000)] == [
        "-",
        "<1 µs",
        "1 µs",
        "999 µs",
        "1.0 ms",
        "25.0 ms",
    ]
    assert [uptime_text(s * 1_000_000) for s in (0, 61, 3_600)] == ["0:00", "1:01", "1:00:00"]


def test_columns_stand_still_while_time_passes() -> None:
    seconds = list(range(100, 160))
    before = columns(seconds, 160, 20)
    after = columns([*seconds[1:], 160], 161, 20)
    later = columns([*seconds[3:], 160, 161, 162], 163, 20)
    # 159, 160 and 161 make a column, the mean of those that have come.
    assert before[-2:] == [157, 159]
    assert after[-2:] == [157, 159.5]
    assert later[-3:] == [157, 160, 162]
    assert before[:-1] == after[:-1]
    assert before[1:-1] == later[:-2]


@given(st.lists(st.integers(0, 9), min_size=60, max_size=60), st.integers(0, 200))
def test_a_column_a_second_hides_nothing(seconds: list[int], end_s: int) -> None:
    assert columns(seconds, end_s, 60) == [float(value) for value in seconds]


def test_what_is_not_nothing_is_seen() -> None:
    assert levels([0, 0.001, 5, 10], 10) == [0, 1, 4, 8]
    assert levels([0, 0], 0) == [0, 0]
    assert bar(0, 10) == ""
    assert bar(0.0001, 10) == "╸"
    assert bar(0.3, 5) == "━╸"
    assert bar(1.5, 4) == "━━━━"
