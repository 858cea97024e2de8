"""Timestamps: microseconds since the epoch as dates and texts, and back; always in UTC.

The calendar is the Gregorian one. The arithmetic counts years from March, so that a leap day is the
last of its year; 400 of them are an era of 146,097 days.
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Final

UNITS_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
AT_US_MAX: Final = 1 << 53
_SECOND_US: Final = 1_000_000
_DAY_S: Final = 86_400
_EPOCH_DAY: Final = 719_468  # 1970-01-01, from 1 March of the year 0
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NUMBER: Final = re.compile(r"(-?)(\d{1,20})(?:\.(\d{1,18}))?", re.ASCII)


def date_of_day(day: int) -> tuple[int, int, int]:
    """Return year, month and day of the month, so many days after 1970-01-01."""
    era, day = divmod(day + _EPOCH_DAY, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    return era * 400 + year + (month <= 2), month, day


def day_of_date(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 until then."""
    era, year = divmod(year - (month <= 2), 400)
    day += (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 - 1
    return era * 146_097 + 365 * year + year // 4 - year // 100 + day - _EPOCH_DAY


def rfc3339(at_us: int) -> str:
    """Return an instant as `2026-11-20T13:45:00.000000Z`."""
    return f"{_text_of(at_us, 'T')}.{at_us % _SECOND_US:06}Z"


def utc_text(at_us: int) -> str:
    """Return an instant as `2026-11-20 13:45:00 UTC`, for people."""
    return f"{_text_of(at_us, ' ')} UTC"


def parse_instant(text: str, unit: str = "s") -> int:
    """Return the instant that a log has; a `ValueError` says what is wrong with it.

    It is a number in that unit, or a date and a time of day as ISO 8601 has them.
    """
    text = text.strip()
    number = _NUMBER.fullmatch(text)
    at_us = _parse_number(number, unit) if number is not None else _parse_date(text)
    if not 0 <= at_us <= AT_US_MAX:
        raise ValueError("its time is out of range")
    return at_us


def _text_of(at_us: int, divider: str) -> str:
    day, second = divmod(at_us // _SECOND_US, _DAY_S)
    year, month, day = date_of_day(day)
    clock = f"{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{year:04}-{month:02}-{day:02}{divider}{clock}"


def _parse_number(found: re.Match[str], unit: str) -> int:
    """Exactly: a double does not tell the nanoseconds of today apart."""
    minus, whole, part = found.groups()
    digits = part or ""
    us: int = int(whole + digits) * UNITS_NS[unit] // (10 ** len(digits) * 1_000)
    return -us if minus else us


def _parse_date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("its time is neither a number nor a date as 2030-01-31T12:00:00.5Z")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second <= 60):
        raise ValueError("there is no such date")
    if not 1 <= day <= monthrange(year, month)[1]:
        raise ValueError("there is no such date")
    micros = int(f"{found[7] or '':0<6.6}")
    seconds = day_of_date(year, month, day) * _DAY_S + hour * 3_600 + minute * 60 + second
    return (seconds - _offset_s(found[8])) * _SECOND_US + micros


def _offset_s(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return -seconds if text[0] == "-" else seconds
