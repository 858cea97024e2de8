"""CL.THROTTLE while its Redis is gone: the failure policy decides, and the log says so once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sluicegate.apps.limiter.throttle import Throttle
from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.limits import outage_watch
from sluicegate.limits.outage_watch import CALM_US
from sluicegate.limits.rule import Failure
from sluicegate.stores.redis.throttle import RedisThrottle
from sluicegate.system import SystemChance, now_us
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from tests.engines.redis import RedisServer
from tests.stores.redis.relay import Relay


async def decide(throttle: Throttle) -> ThrottleResponse:
    response = throttle.decide(ThrottleRequest("ann", 0, 1, 3_600, 1), now_us())
    assert not isinstance(response, ThrottleResponse)
    return await response


@pytest.mark.parametrize(
    ("failure", "limited"),
    [
        (Failure.OPEN, [False, False]),
        (Failure.CLOSED, [True, True]),
        (Failure.LOCAL, [False, True]),
    ],
)
def test_an_outage_is_decided_by_the_policy_and_told_once_until_it_ends(
    redis_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failure: Failure,
    limited: list[bool],
) -> None:
    caplog.set_level(logging.WARNING, "sluicegate.limits")

    async def story() -> None:
        with Relay(redis_server.port) as relay:
            metrics = DecisionMetrics()
            url = f"{relay.url}?timeout_ms=500"
            remote = RedisThrottle(url, SystemChance(), observer=metrics)
            throttle = Throttle(now_us, 100, remote, failure)
            assert not (await decide(throttle)).degraded
            assert not caplog.records
            relay.answers.clear()
            decided = [await decide(throttle) for _ in range(2)]
            assert [one.limited for one in decided] == limited
            assert all(one.degraded for one in decided)
            assert metrics.snapshot().store_failures == 2  # the second was held back
            assert len(caplog.records) == 1
            assert f"failure={failure.value}" in caplog.records[0].getMessage()
            relay.answers.set()
            while (await decide(throttle)).degraded:
                await asyncio.sleep(0.01)
            later = now_us() + CALM_US
            monkeypatch.setattr(outage_watch, "now_us", lambda: later)
            await decide(throttle)
            assert "CL.THROTTLE, answers again" in caplog.records[1].getMessage()
            await throttle.close()

    asyncio.run(story())
