"""Dates: the day of the month that a day since the epoch is, in UTC."""

from __future__ import annotations

from typing import Final, NamedTuple

_MONTHS: Final = " Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Date(NamedTuple):
    """A day of the calendar."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{self.day} {_MONTHS[4 * self.month - 3 : 4 * self.month].strip()}"


def date_of(day: int) -> Date:
    """The date of a day since the epoch; `day` is not negative."""
    year = 1970
    while day >= 365 + _is_leap(year):
        day -= 365 + _is_leap(year)
        year += 1
    month = 1
    while day >= _length(year, month):
        day -= _length(year, month)
        month += 1
    return Date(year, month, day + 1)


def _length(year: int, month: int) -> int:
    return _LENGTHS[month - 1] + (month == 2 and _is_leap(year))


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
