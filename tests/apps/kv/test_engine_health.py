"""Health: a dispatcher whose engine is unusable is not ready, and fails liveness in the end."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.engine import EngineHealth
from sluicegate.contracts.errors import Unavailable
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


SECOND_US = 1_000_000


async def failing_app(monkeypatch: pytest.MonkeyPatch, engine: str) -> tuple[KvApp, HandClock]:
    """A dispatcher whose engine has failed operations for a second, with a catalogue just read."""
    app = KvApp(settings_from(KvSettings, "--engine", engine))
    clock = HandClock()
    monkeypatch.setattr(app, "clock", clock)
    app.engine_watch = StoreWatch(clock, "-")
    await app.catalogue.refresh()
    app.engine_watch.failed("put", Unavailable("the engine", "one shard is lost"))
    clock.advance(us=SECOND_US)
    return app, clock


def test_one_lost_shard_of_several_leaves_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app, clock = await failing_app(monkeypatch, "faulty+memory:?shards=16")
        app.catalogue.fresh_until_us = app.catalogue._clock.now_us() + 60 * SECOND_US
        assert app.engine_watch.stats().gone
        assert app.not_ready() == ""
        # The shards of two copies of the catalogue are lost, and the others answer.
        app.catalogue.fresh_until_us = 0
        app.engine_watch.answered("get")
        assert app.not_ready() == ""
        clock.advance(us=SECOND_US)
        assert "one shard is lost" in app.not_ready()
        await app.engine.close()

    asyncio.run(story())


def test_failing_engine_of_one_shard_fails_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app, _ = await failing_app(monkeypatch, "memory:")
        app.catalogue.fresh_until_us = app.catalogue._clock.now_us() + 60 * SECOND_US
        app.engine_watch.answered("get")
        assert "one shard is lost" in app.not_ready()
        await app.engine.close()

    asyncio.run(story())
