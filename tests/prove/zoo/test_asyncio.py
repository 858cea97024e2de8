"""Shapes of services on real uvicorn and grpc.aio: what protection costs none of, and saves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import pytest

from sluicegate.lab.zoo.service import settings_of
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.asgi_service import on_uvicorn
from tests.prove.zoo.grpc_service import on_grpc
from tests.prove.zoo.http import watch_health
from tests.prove.zoo.load import (
    COLLAPSED_MAX,
    HELD_PATIENCE_S,
    SEEDS,
    STREAM_SLOTS,
    Load,
    Results,
    assert_loses_nothing,
    assert_serves_what_matters,
    load_of,
    prove,
    side_by_side,
    with_patience,
)

pytestmark = pytest.mark.prove

SERVERS: Final = {"uvicorn": on_uvicorn, "grpc": on_grpc}
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
OF_GRPC: Final = ("io 500 ms", "io 500 ms, deadline", "stream", "long poll")
OVERLOADED: Final = {
    "service: 2x, least patience": 0.35,
    "engine: 2x, patience of 5 x": 0.5,
    "engine: 2x, hang-up after 5 x": 0.5,
}
ON_SERVERS: Final = [("uvicorn", name) for name in ORDINARY] + [("grpc", name) for name in OF_GRPC]


async def play(
    server: str,
    load: Load,
    settings: Mapping[str, Resilience | None],
    health: list[float] | None = None,
) -> Results:
    """Play with a service for each of the settings, None for a bare one.

    The times of health are those of the last of them.
    """
    async with AsyncExitStack() as servers:
        candidates = {
            name: await servers.enter_async_context(SERVERS[server](load.shape, one))
            for name, one in settings.items()
        }
        if health is None:
            return await side_by_side(load, candidates)
        port = candidates[next(reversed(candidates))].port
        found, health[:] = await asyncio.gather(
            side_by_side(load, candidates), watch_health(port, load.span_s)
        )
        return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("server", "name"), ON_SERVERS)
def test_ordinary_shape_protected_loses_nothing(server: str, name: str, seed: int) -> None:
    load = load_of(f"service: {name}", ORDINARY[name], seed)
    settings = {"bare": None, "ours": settings_of(load.shape, known=False)}
    prove(lambda: play(server, load, settings), assert_loses_nothing)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("server", "name"), [("uvicorn", "stream"), ("uvicorn", "sse"), ("grpc", "stream")]
)
def test_stream_after_its_first_part_holds_no_slot(server: str, name: str, seed: int) -> None:
    load = load_of(f"service: {name}", ORDINARY[name], seed)
    load = with_patience(load, HELD_PATIENCE_S)
    ours = Resilience(slots=STREAM_SLOTS)
    settings = {"ours": ours, "held": replace(ours, hold_streams=True)}

    def judge(found: Results) -> None:
        assert found["ours"].share() == 1, found
        assert found["held"].share() < COLLAPSED_MAX, found

    prove(lambda: play(server, load, settings), judge)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OVERLOADED)
def test_overloaded_uvicorn_serves_what_matters(name: str, seed: int) -> None:
    load = load_of(name, OVERLOADED[name], seed)
    health: list[float] = []
    settings = {"plain": None, "ours": settings_of(load.shape, known=True)}

    def judge(found: Results) -> None:
        assert_serves_what_matters(found)
        assert max(health) < load.patience_s

    prove(lambda: play("uvicorn", load, settings, health), judge)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in OVERLOADED if "hang-up" not in name])
def test_overloaded_grpc_server_serves_what_matters(name: str, seed: int) -> None:
    load = load_of(name, OVERLOADED[name], seed)
    settings = {"plain": None, "ours": settings_of(load.shape, known=True)}
    prove(lambda: play("grpc", load, settings), assert_serves_what_matters)
