"""Health: a dispatcher whose engine is unusable is not ready, and fails liveness in the end."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.engine import UNUSABLE_S_MAX, EngineHealth
from sluicegate.service.settings import settings_from


def test_unusable_engine_fails_readiness_then_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app = KvApp(settings_from(KvSettings, "--engine", "memory:"))
        health = EngineHealth()
        monkeypatch.setattr(type(app.engine), "health", lambda _: health, raising=False)
        assert app.not_ready() == app.not_alive() == ""
        health = EngineHealth("it is opened again", 1.0, 7)
        assert "it is opened again" in app.not_ready()
        assert app.not_alive() == ""
        health = EngineHealth("it is opened again", UNUSABLE_S_MAX, 7)
        assert "it is opened again" in app.not_alive()
        samples = {
            family.name: [sample.value for sample in family.samples] for family in app.metrics()
        }
        assert samples["sluicegate_kv_engine_usable"] == [0]
        assert samples["sluicegate_kv_engine_damaged"] == [7]
        await app.engine.close()

    asyncio.run(story())
