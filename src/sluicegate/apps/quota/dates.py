"""Dates: a day since the epoch as the calendar has it, in UTC."""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.wire.timestamps import date_of_day

_MONTHS: Final = (
    *("", "Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


class Date(NamedTuple):
    """A day of the calendar."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{self.day} {_MONTHS[self.month]}"


def date_of(day: int) -> Date:
    """The date of a day since the epoch."""
    return Date(*date_of_day(day))
