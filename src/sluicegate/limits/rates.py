"""Rate strings: `"100/minute"`, `"10/s burst 20"`, `"100/5m"`, `"10 per 2 hours"`.

`"10/s; 1000/hour"` says two. One grammar takes in the spellings people know from other libraries:

    COUNT ("/" | "per") [N] UNIT ["burst" BURST] ["cells" CELLS]

COUNT, N, BURST and CELLS are whole numbers; `_` may group their digits. A unit is one of the names
below, in any case. A month is 30 days and a year 365. A burst belongs to gcra and the buckets,
cells to the sliding window: in how many parts it is counted.

This file reads and writes the words; what a limit is stands in `contracts/rule.py`.
"""

from __future__ import annotations

import re
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.sliding_window import CELLS_DEFAULT, cells_within

RATE_CHARS_MAX: Final = 200
RATES_MAX: Final = 16

_SECOND_US: Final = 1_000_000
_UNITS: Final[tuple[tuple[int, str, tuple[str, ...]], ...]] = (
    (365 * 86_400 * _SECOND_US, "year", ("y", "year", "years")),
    (30 * 86_400 * _SECOND_US, "month", ("mo", "month", "months")),
    (7 * 86_400 * _SECOND_US, "week", ("w", "wk", "wks", "week", "weeks")),
    (86_400 * _SECOND_US, "day", ("d", "day", "days")),
    (3_600 * _SECOND_US, "hour", ("h", "hr", "hrs", "hour", "hours")),
    (60 * _SECOND_US, "minute", ("m", "min", "mins", "minute", "minutes")),
    (_SECOND_US, "second", ("s", "sec", "secs", "second", "seconds")),
    (1_000, "ms", ("ms", "millisecond", "milliseconds")),
    (1, "us", ("us", "microsecond", "microseconds")),
)
_US_BY_WORD: Final = {word: unit_us for unit_us, _, words in _UNITS for word in words}

_RATE: Final = re.compile(
    r"""\s* (?P<count>\d[\d_]*) \s* (?:/|per) \s*
        (?:(?P<n>\d[\d_]*)\s*)? (?P<unit>[a-z]+) \s*
        (?:burst \s* (?P<burst>\d[\d_]*) \s*)?
        (?:cells \s* (?P<cells>\d[\d_]*) \s*)?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
RATE_REMEDY: Final = 'write it as "100/minute", "10/s burst 20", "100/5m" or "10 per 2 hours"'


def parse_rate(text: str, *, algorithm: Algorithm = Algorithm.GCRA, field: str = "rate") -> Limit:
    """The limit that a rate string says; `field` names the place of the string in an error."""
    if len(text) > RATE_CHARS_MAX:
        raise BadValue(field, text, f"it is longer than {RATE_CHARS_MAX} characters; {RATE_REMEDY}")
    found = _RATE.fullmatch(text)
    if found is None:
        raise BadValue(field, text, _why_not(text))
    unit_us = _US_BY_WORD.get(found["unit"].lower())
    if unit_us is None:
        raise BadValue(field, text, f"{found['unit']!r} is no unit; use us, ms, s, m, h, d, w")
    count, periods = int(found["count"]), int(found["n"] or 1)
    burst = None if found["burst"] is None else int(found["burst"])
    cells = None if found["cells"] is None else int(found["cells"])
    if 0 in (count, periods, burst, cells):
        raise BadValue(field, text, "a rate has no zeros; to admit nothing, close the door instead")
    return Limit(count, period_us=periods * unit_us, burst=burst, cells=cells, algorithm=algorithm)


def parse_rates(
    text: str, *, algorithm: Algorithm = Algorithm.GCRA, field: str = "rate"
) -> list[Limit]:
    """Return the limits of a rate string that may say several, with `;`, `,` or `|` between."""
    parts = re.split("[;,|]", text)
    if len(parts) > RATES_MAX:
        raise BadValue(field, text, f"it says {len(parts)} rates; at most {RATES_MAX}")
    return [parse_rate(part, algorithm=algorithm, field=field) for part in parts]


def format_rate(limit: Limit) -> str:
    """Return the shortest rate string that says this limit's count, period, burst and cells."""
    unit_us, name = next(
        (unit_us, name) for unit_us, name, _ in _UNITS if limit.period_us % unit_us == 0
    )
    periods = limit.period_us // unit_us
    rate = f"{limit.count}/{name}" if periods == 1 else f"{limit.count}/{periods} {name}"
    if limit.algorithm in BURSTING and limit.burst != limit.count:
        rate += f" burst {limit.burst}"
    default = limit.algorithm is not Algorithm.SLIDING_WINDOW or (
        limit.cells == cells_within(limit.period_us, CELLS_DEFAULT)
    )
    if not default:
        rate += f" cells {limit.cells}"
    return rate


def _why_not(text: str) -> str:
    if re.search(r"\d\.\d", text):
        return f"numbers are whole; for half a unit a second say 1/2s; {RATE_REMEDY}"
    if re.match(r"\s*-", text):
        return f"a rate cannot be negative; {RATE_REMEDY}"
    return RATE_REMEDY
