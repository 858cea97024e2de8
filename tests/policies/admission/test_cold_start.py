"""A cold start: the first request in each slot is slow, and a queue waits behind them."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate, GateSettings
from tests.policies.virtual import VirtualLoop, pause_us, run

SECOND_US = 1_000_000
REQUESTS = 60
PATIENCE_US = 3 * SECOND_US
COLD_US, WARM_US = 2 * SECOND_US, 10_000


@pytest.mark.parametrize("slots", [1, 2, 8, 16, 32])
def test_cold_start_loses_no_request_that_can_be_served(slots: int) -> None:
    async def story(loop: VirtualLoop) -> int:
        gate = Gate(GateSettings(name="pool", slots=slots))
        began = 0

        async def ask() -> bool:
            nonlocal began
            now_us = loop.now_us()
            request = Request("", operation="work", deadline_us=now_us + PATIENCE_US)
            permit = await gate.admit(request, loop)
            if isinstance(permit, Decision):
                return False
            began += 1
            await pause_us(COLD_US if began <= slots else WARM_US)
            permit.end(Outcome.SUCCESS, loop.now_us())
            return loop.now_us() <= now_us + PATIENCE_US

        return sum(await asyncio.gather(*(ask() for _ in range(REQUESTS))))

    assert run(story) == REQUESTS
