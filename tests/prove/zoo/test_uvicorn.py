"""Shapes of services on real uvicorn: what `protect(app)` costs none of, and what it saves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

from sluicegate.doors.asgi import App
from sluicegate.lab.zoo.service import settings_of
from sluicegate.lab.zoo.shape import HANGUP, SECOND_US
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.asgi_service import Slots, application, uvicorn_of
from tests.prove.zoo.http import CALLER, http_caller, watch_health
from tests.prove.zoo.load import (
    COLLAPSED_MAX,
    SEEDS,
    Load,
    Results,
    assert_serves_what_matters,
    load_of,
    run_on_time,
    side_by_side,
)

pytestmark = pytest.mark.prove

# Each shape, and by what its times are divided: for 20 to 60 requests a second.
ORDINARY: Final = {
    "io 500 ms": 1,
    "io 500 ms, deadline": 1,
    "io 500 ms, hang-up": 1,
    "stream": 2,
    "sse": 8,
    "background": 2,
    "long poll": 3,
    "upload": 2,
    "websocket": 3,
    "llm 3 s": 4,
}
OVERLOADED: Final = {
    "service: 2x, least patience": 0.35,
    "engine: 2x, patience of 5 x": 0.5,
    "engine: 2x, hang-up after 5 x": 0.5,
}


def protected(app: App, settings: Resilience) -> App:
    def caller(scope: Any) -> str:
        return str(dict(scope["headers"]).get(CALLER.encode(), b"").decode())

    return protect(app, settings, caller=caller)


def play(
    load: Load, settings: Mapping[str, Resilience | None], health: list[float] | None = None
) -> Results:
    """Play with a bare application, and with one for each of the settings.

    The times of health are those of the last of them.
    """

    async def story() -> Results:
        async with AsyncExitStack() as servers:
            candidates = {}
            for name, one in settings.items():
                slots = Slots(load.shape.slots)
                app = application(load.shape, slots)
                app = app if one is None else protected(app, one)
                port = await servers.enter_async_context(uvicorn_of(app))
                candidates[name] = http_caller(port), slots.get_ended
            if health is None:
                return await side_by_side(load, candidates)
            found, health[:] = await asyncio.gather(
                side_by_side(load, candidates), watch_health(port, load.span_s)
            )
            return found

    return run_on_time(story)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_shape_protected_by_defaults_loses_nothing(name: str, seed: int) -> None:
    load = load_of(f"service: {name}", seed, ORDINARY[name])
    found = play(load, {"bare": None, "ours": settings_of(load.shape, known=False)})
    assert found["bare"].share() == 1
    assert found["ours"].share() == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["stream", "sse"])
def test_stream_after_its_first_byte_holds_no_slot(name: str, seed: int) -> None:
    """Four slots are enough for the work; held by the streams they would serve a tenth."""
    load = load_of(f"service: {name}", seed, ORDINARY[name])
    (kind,) = load.shape.traffic
    kind = replace(kind, patience_us=3 * SECOND_US, tells=HANGUP)
    load = load._replace(shape=replace(load.shape, traffic=(kind,)))
    ours = Resilience(slots=4)
    found = play(load, {"ours": ours, "held": replace(ours, hold_streams=True)})
    assert found["ours"].share() == 1
    assert found["held"].share() < COLLAPSED_MAX


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OVERLOADED)
def test_overload_with_slots_known_serves_what_matters(name: str, seed: int) -> None:
    load = load_of(name, seed, OVERLOADED[name])
    health: list[float] = []
    found = play(load, {"bare": None, "ours": settings_of(load.shape, known=True)}, health)
    assert_serves_what_matters(found["ours"], found["bare"])
    assert max(health) < load.patience_s
