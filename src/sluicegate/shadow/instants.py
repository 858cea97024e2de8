"""Instants: when a row of a log says that something came, as microseconds since the epoch.

A number in a unit that is told, or a date and a time of day as ISO 8601 has them: in UTC where no
offset stands.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from typing import Final

UNITS_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
AT_US_MAX: Final = 1 << 53
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NUMBER: Final = re.compile(r"(-?)(\d{1,20})(?:\.(\d{1,18}))?", re.ASCII)
_SECOND_US: Final = 1_000_000


def instant_us(text: str, unit: str = "s") -> int:
    """The instant; a `ValueError` says what is wrong with it."""
    text = text.strip()
    number = _NUMBER.fullmatch(text)
    at_us = _of_number(number, unit) if number is not None else _of_date(text)
    if not 0 <= at_us <= AT_US_MAX:
        raise ValueError("its time is out of range")
    return at_us


def _of_number(found: re.Match[str], unit: str) -> int:
    """Exactly: a double does not tell the nanoseconds of today apart."""
    minus, whole, part = found.groups()
    digits = part or ""
    us: int = int(whole + digits) * UNITS_NS[unit] // (10 ** len(digits) * 1_000)
    return -us if minus else us


def _of_date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("its time is neither a number nor a date as 2030-01-31T12:00:00.5Z")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second <= 60):
        raise ValueError("there is no such date")
    if not 1 <= day <= monthrange(year, month)[1]:
        raise ValueError("there is no such date")
    micros = int(f"{found[7] or '':0<6.6}")
    seconds = timegm((year, month, day, hour, minute, second)) - _offset_s(found[8])
    return seconds * _SECOND_US + micros


def _offset_s(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return -seconds if text[0] == "-" else seconds
