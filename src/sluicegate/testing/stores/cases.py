"""Cases: the limits that stories are told of; each way to count, in short, long and awkward terms.

Periods are short, so that a store on real time passes many of them; a day stands for those that do
not pass at all while a story is told.
"""

from __future__ import annotations

from typing import Final

import pytest

from sluicegate.contracts.rule import Algorithm, Limit

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US

GCRA: Final = Algorithm.GCRA
TOKENS: Final = Algorithm.TOKEN_BUCKET
FIXED: Final = Algorithm.FIXED_WINDOW
SLIDING: Final = Algorithm.SLIDING_WINDOW
LOG: Final = Algorithm.SLIDING_LOG

LIMITS: Final = (
    Limit(1, period_us=2_000),
    Limit(4, period_us=12_000),
    Limit(7, period_us=10_001, burst=3),  # a seventh of a microsecond is kept
    Limit(300_000, period_us=SECOND_US, burst=40),  # one every 3.33 us
    Limit(5, period_us=DAY_US),
    Limit(3, period_us=5_000, algorithm=TOKENS),
    Limit(9, period_us=10_000, burst=20, algorithm=TOKENS),
    Limit(5, period_us=9_999),
    Limit(1, period_us=4_000, algorithm=FIXED),
    Limit(4, period_us=6_000, algorithm=FIXED),
    Limit(1 << 50, period_us=DAY_US, algorithm=FIXED),
    Limit(5, period_us=6_000, cells=1, algorithm=SLIDING),
    Limit(10, period_us=20_000, algorithm=SLIDING),
    Limit(6, period_us=9_000, cells=3, algorithm=SLIDING),
    Limit(70_000, period_us=DAY_US, algorithm=SLIDING),
    Limit(1, period_us=2_000, algorithm=LOG),
    Limit(6, period_us=9_000, algorithm=LOG),
    Limit(40, period_us=DAY_US, algorithm=LOG),
)
# One of each way to count, five in a day: nothing comes back while a story is told.
DAILY: Final = tuple(Limit(5, period_us=DAY_US, algorithm=algorithm) for algorithm in Algorithm)


def limit_name(limit: Limit) -> str:
    """Return the name of a case."""
    burst = "" if limit.burst == limit.count else f"-burst{limit.burst}"
    cells = f"-cells{limit.cells}" if limit.algorithm is SLIDING else ""
    return f"{limit.algorithm.value}-{limit.count}-{limit.period_us}us{burst}{cells}"


each_limit = pytest.mark.parametrize("limit", LIMITS, ids=limit_name)
each_algorithm = pytest.mark.parametrize("limit", DAILY, ids=lambda limit: limit.algorithm.value)
