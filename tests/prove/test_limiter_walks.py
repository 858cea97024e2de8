from __future__ import annotations

import random

import pytest

from sluicegate import Algorithm, Limit
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX
from sluicegate.stores.memory.tables import table_for
from tests.prove.seeds import seeds
from tests.stores.test_memory import KERNELS

SECOND = 1_000_000
STEPS = 3_000


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=2_000, part=40))
def test_a_long_walk_is_decided_as_the_kernels_decide(seed: int) -> None:
    """Thousands of steps over many keys, gaps from none to hours, costs from none to too many."""
    draw = random.Random(seed)
    algorithm = draw.choice(list(Algorithm))
    count = draw.choice([1, 2, 7, 60, 1_000, 300_000, (1 << 53) - 1])
    if algorithm is Algorithm.SLIDING_LOG:
        count = min(count, LOG_ENTRIES_MAX)
    period_us = draw.choice([1, 997, SECOND, 60 * SECOND, 86_400 * SECOND])
    table = table_for("r", Limit(count, period_us=period_us, algorithm=algorithm), 1_000_000)
    kernels = {f"k{n}": KERNELS[algorithm](count, period_us) for n in range(200)}
    now_us = draw.randrange(10**15, 2 * 10**15)
    for _ in range(STEPS):
        now_us += draw.choice([0, 1, draw.randrange(period_us + 1), draw.randrange(3_600 * SECOND)])
        key = f"k{min(int(draw.expovariate(0.1)), 199)}"
        cost = draw.choice([0, 1, 1, 1, draw.randrange(count + 2), max(1, count // 3)])
        decision = table.take(key, cost, now_us)
        verdict = kernels[key].take(cost, now_us)
        assert (decision.allowed, decision.remaining, decision.retry_after_us) == (
            verdict.allowed,
            verdict.remaining,
            verdict.retry_after_us,
        ), f"seed {seed}: {algorithm.value} of {count} every {period_us} us at {now_us}"
