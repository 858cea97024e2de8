"""Who keeps asking a shard in trouble for most of it pays more, whatever prices there are."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUEUE_FULL
from sluicegate.contracts.request import Measured, Request
from tests.apps.kv.test_dispatcher import dispatcher

MS = 1_000
WARM_MS, TROUBLE_MS, STEP_MS = 80_000, 10_000, 20
FULL = Decision(False, 0, 0, 0, QUEUE_FULL, "queue")


def serve(app: KvApp, caller: str, now_us: int, took_us: int, *, crowded: bool) -> None:
    """Charge one read, and say what came of it."""
    chain = app.chain
    request = Request("k", caller=caller, operation="get", shard="s")
    chain.units.admit(request, now_us)
    if crowded:
        chain.local_prices.record_refusal(request, "queue", FULL, now_us)
        return
    request.measured = Measured(took_us)
    request.deadline_us = now_us - took_us + 50 * MS
    chain.local_prices.record_end(request, Outcome.SUCCESS, now_us)


@pytest.mark.parametrize("form", ["local", "mussel", "off"])
def test_a_penalty_goes_by_the_same_signs_whatever_prices_there_are(form: str) -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:", "--prices", form) as app:
            start_us = app.clock.now_us()
            for at_ms in range(0, WARM_MS + TROUBLE_MS, STEP_MS):
                slow = at_ms >= WARM_MS
                now_us = start_us + at_ms * MS
                crowded = slow and at_ms % (10 * STEP_MS) == 0
                for caller, count in (("scraper", 8), ("shop", 1), ("app", 1)):
                    for _ in range(count):
                        serve(app, caller, now_us, (80 if slow else 10) * MS, crowded=crowded)
            assert list(app.chain.penalty.stats().prices_milli) == ["scraper"]
            # What is off has no price, and says so.
            raised = app.chain.local_prices.stats().raises > 0
            assert raised == (form == "local")

    asyncio.run(story())
