from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.wire.timestamps import date_of_day, day_of_date, parse_instant, rfc3339, utc_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATES = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1))  # noqa: DTZ001
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(DATES, OFFSETS)
def test_a_date_is_read_as_python_reads_it(date: datetime, offset: timezone) -> None:
    aware = date.replace(tzinfo=offset)
    right = (aware - EPOCH) // timedelta(microseconds=1)
    assert parse_instant(aware.isoformat()) == right
    assert parse_instant(aware.isoformat(" ").replace(".", ",")) == right


@pytest.mark.parametrize(
    ("text", "unit", "us"),
    [
        ("1.5", "s", 1_500_000),
        ("1700000000.123456789", "s", 1_700_000_000_123_456),
        ("1700000000123", "ms", 1_700_000_000_123_000),
        ("7", "us", 7),
        ("7999", "ns", 7),
        ("1970-01-01T00:00:00Z", "s", 0),
        ("1970-01-01 00:00:01,5+00:00", "s", 1_500_000),
        ("1970-01-01T00:00:00.1234567", "ms", 123_456),
        ("2016-12-31T23:59:60Z", "s", 1_483_228_800_000_000),
    ],
)
def test_numbers_are_read_exactly_in_their_unit(text: str, unit: str, us: int) -> None:
    assert parse_instant(f" {text} ", unit) == us


@pytest.mark.parametrize(
    "text",
    ["", "now", "1e9", "-1", "1969-12-31T23:59:59Z", "2030-13-01T00:00:00Z",
     "2030-1-1T00:00:00Z", "99999999999999999999"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|date"):
        parse_instant(text)


@given(st.integers(0, 4_102_444_800_000_000))
def test_an_instant_is_written_as_the_library_would(at_us: int) -> None:
    at = EPOCH + timedelta(microseconds=at_us)
    assert rfc3339(at_us) == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert utc_text(at_us) == at.strftime("%Y-%m-%d %H:%M:%S UTC")


@given(st.integers(-40_000, 106_097))
def test_a_day_has_the_date_of_the_calendar_and_back(day: int) -> None:
    date = (EPOCH + timedelta(days=day)).date()
    assert date_of_day(day) == (date.year, date.month, date.day)
    assert day_of_date(date.year, date.month, date.day) == day
