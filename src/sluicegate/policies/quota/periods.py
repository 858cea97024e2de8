"""Periods: which hour and which month an instant is in, by UTC, and when that ends.

A period is a whole number that rises by one from one to the next, so that nodes can compare what
they count without comparing clocks. Months are counted from March, as the calendar's own rule is
then one: a leap day ends a year (Hinnant, "chrono-compatible low-level date algorithms").
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US
DAY_US: Final = 24 * HOUR_US
MONTHS: Final = 12
_EPOCH_DAYS: Final = 719_468  # from 1 March of year 0 to 1970
_ERA_DAYS: Final = 146_097  # 400 years


def hour_of(now_us: int) -> int:
    """Hours since the epoch."""
    return now_us // HOUR_US


def hour_end_us(hour: int) -> int:
    """When the next hour begins."""
    return (hour + 1) * HOUR_US


def month_of(now_us: int) -> int:
    """Months since March of year 0."""
    era, day = divmod(now_us // DAY_US + _EPOCH_DAYS, _ERA_DAYS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    return (400 * era + year) * MONTHS + (5 * day_of_year + 2) // 153


def month_end_us(month: int) -> int:
    """When the next month begins."""
    year, number = divmod(month + 1, MONTHS)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * number + 2) // 5
    return (days - _EPOCH_DAYS) * DAY_US
