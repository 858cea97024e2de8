"""The page of twenty dependencies: availability with the kit and without, measured over sockets.

Each dependency fails two attempts in a hundred; of those of the extras half last, and no repeat
mends them. One page after another asks all twenty at once. Which attempts fail is drawn by page,
dependency and number, so both ways of asking meet the same failures.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, final

import pytest
import uvicorn

from sluicegate.apps.resilience.drill.caller import HttpCaller
from sluicegate.contracts.request import Request
from sluicegate.lab.random_source import derive_seed
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience import gather
from sluicegate.resilience.client.calls import Call
from sluicegate.resilience.kit import build_client, build_dependencies
from sluicegate.resilience.plan import plan_of
from sluicegate.resilience.settings import Resilience, resilience_settings
from sluicegate.testing import SeededChance

PAGES: Final = 200
FAILING: Final = 0.02
CORE: Final = [f"core-{number}" for number in range(8)]
EXTRAS: Final = [f"extra-{number}" for number in range(12)]


def settings() -> Resilience:
    core = {"availability": 1 - FAILING, "lasting": 0.0}
    extra = {"availability": 1 - FAILING, "lasting": 0.5, "soft": True, "timeout_us": 30_000_000}
    return resilience_settings(
        {
            "client": {"retry": {"base_us": 1_000, "wait_us_max": 2_000}},
            "dependencies": dict.fromkeys(CORE, core) | dict.fromkeys(EXTRAS, extra),
        }
    )


@final
class Dependencies:
    """All twenty in one server: /NAME/PAGE answers 200 or 500."""

    def __init__(self) -> None:
        self._draws: dict[str, tuple[bool, SeededChance]] = {}
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        status = 500 if self._fails(scope["path"]) else 200
        length = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": length})
        await send({"type": "http.response.body", "body": b""})

    def _fails(self, path: str) -> bool:
        down = 0.5 * FAILING if path.startswith("/extra") else 0.0
        if path not in self._draws:
            chance = SeededChance(derive_seed(16, path))
            self._draws[path] = (chance.draw() < down, chance)
        lasts, chance = self._draws[path]
        return lasts or chance.draw() < (FAILING - down) / (1 - down)


Page = Callable[[int], Awaitable[tuple[bool, bool]]]  # its number: answered, complete


def plain(caller: HttpCaller) -> Page:
    """Without: each is asked once, and all are needed."""

    async def show(number: int) -> tuple[bool, bool]:
        asked = [caller.ask(f"/{name}/{number}") for name in (*CORE, *EXTRAS)]
        whole = all(answer.status == 200 for answer in await asyncio.gather(*asked))
        return whole, whole

    return show


def resilient(caller: HttpCaller) -> Page:
    """With: repeats within the budget, and a stand-in for what is soft."""
    kit = settings()
    client, dependencies = build_client(kit, chance=SeededChance(1)), build_dependencies(kit)

    async def fetch(name: str, number: int) -> CallResult[bytes]:
        async def attempt(_: Call) -> CallResult[bytes]:
            status = (await caller.ask(f"/{name}/{number}")).status
            if status == 200:
                return CallResult(ResultKind.OK, b"it")
            return CallResult(ResultKind.FAILED, error=ConnectionError(str(status)))

        async def call() -> bytes:
            request = Request("", shard=name, operation="get")
            return (await client.call(attempt, request, idempotent=True)).unwrap()

        soft = name in EXTRAS
        return await dependencies[name].call(call, default=bytes if soft else None)

    async def show(number: int) -> tuple[bool, bool]:
        works = {name: fetch(name, number) for name in (*CORE, *EXTRAS)}
        found = await gather(works, timeout_s=60)
        results = [one.unwrap() for one in found.values()]
        answered = all(one.ok for one in results)
        return answered, answered and not any(one.degraded for one in results)

    return show


async def measured(make: Callable[[HttpCaller], Page]) -> tuple[float, float, float]:
    """Return the shares of pages that were answered and complete, and attempts a dependency."""
    app = Dependencies()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        caller = HttpCaller("127.0.0.1", listening.getsockname()[1], 60_000_000)
        try:
            show = make(caller)
            pages = [await show(number) for number in range(PAGES)]
        finally:
            caller.close()
            server.should_exit = True
            await serving
    answered, complete = (sum(column) / PAGES for column in zip(*pages, strict=True))
    return answered, complete, app.asked / (PAGES * 20)


def test_twenty_dependencies_without_lose_a_third_of_the_pages_and_with_none() -> None:
    plan = plan_of(settings())
    answered, _, load = asyncio.run(measured(plain))
    assert load == 1.0
    assert answered == pytest.approx(plan.without, abs=0.1)  # 0.668; three standard deviations
    assert answered < 0.75
    answered, complete, load = asyncio.run(measured(resilient))
    assert answered >= 0.99  # the plan says 0.9999
    assert plan.answered > 0.999
    assert complete == pytest.approx(plan.complete, abs=0.07)  # 0.885
    assert load == pytest.approx(1.02, abs=0.01)
