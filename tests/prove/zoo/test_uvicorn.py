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
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.asgi_service import Slots, application, uvicorn_of
from tests.prove.zoo.http import CALLER, http_caller, watch_health
from tests.prove.zoo.load import (
    HELD_PATIENCE_S,
    SEEDS,
    STREAM_SLOTS,
    Load,
    Results,
    assert_holds_no_slot,
    assert_loses_nothing,
    assert_serves_what_matters,
    load_of,
    prove,
    side_by_side,
    with_patience,
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


async def play(
    load: Load, settings: Mapping[str, Resilience | None], health: list[float] | None = None
) -> Results:
    """Play with an application for each of the settings, None for a bare one.

    The times of health are those of the last of them.
    """
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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_shape_protected_by_defaults_loses_nothing(name: str, seed: int) -> None:
    load = load_of(f"service: {name}", ORDINARY[name], seed)
    settings = {"bare": None, "ours": settings_of(load.shape, known=False)}
    prove(lambda: play(load, settings), assert_loses_nothing)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["stream", "sse"])
def test_stream_after_its_first_byte_holds_no_slot(name: str, seed: int) -> None:
    load = with_patience(load_of(f"service: {name}", ORDINARY[name], seed), HELD_PATIENCE_S)
    ours = Resilience(slots=STREAM_SLOTS)
    settings = {"ours": ours, "held": replace(ours, hold_streams=True)}
    prove(lambda: play(load, settings), assert_holds_no_slot)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OVERLOADED)
def test_overload_with_slots_known_serves_what_matters(name: str, seed: int) -> None:
    load = load_of(name, OVERLOADED[name], seed)
    health: list[float] = []
    settings = {"plain": None, "ours": settings_of(load.shape, known=True)}

    def judge(found: Results) -> None:
        assert_serves_what_matters(found)
        assert max(health) < load.patience_s

    prove(lambda: play(load, settings, health), judge)
