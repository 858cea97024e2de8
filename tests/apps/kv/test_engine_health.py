"""Health: a dispatcher whose engine is unusable is not ready, and fails liveness in the end."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.engine import EngineHealth
from sluicegate.service.engine_health import UNUSABLE_US_MAX, EngineHealthWatch
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock


def test_unusable_engine_fails_readiness_then_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app = KvApp(settings_from(KvSettings, "--engine", "memory:"))
        clock = HandClock(1)
        app.engine_health = EngineHealthWatch(app.engine, clock)
        health = EngineHealth()
        monkeypatch.setattr(type(app.engine), "health", lambda _: health, raising=False)
        assert app.not_ready() == app.not_alive() == ""
        health = EngineHealth("it is opened again", 7)
        assert "it is opened again" in app.not_ready()
        assert app.not_alive() == ""
        clock.advance(us=UNUSABLE_US_MAX)
        assert "it is opened again" in app.not_alive()
        samples = {
            family.name: [sample.value for sample in family.samples] for family in app.metrics()
        }
        assert samples["sluicegate_kv_engine_usable"] == [0]
        assert samples["sluicegate_kv_engine_damaged"] == [7]
        health = EngineHealth("", 7)
        assert app.not_alive() == ""
        health = EngineHealth("it failed again", 7)
        assert app.not_alive() == "", "counted from the beginning"
        await app.engine.close()

    asyncio.run(story())
