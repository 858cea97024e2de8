"""Clients: who sends work in a world, as coroutines that call a function for each request.

Open-loop callers never wait for an answer before they send the next request; that is what overload
is made of. What a call goes through (a policy, a network, a backend) is the function's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias, final

from sluicegate.contracts.request import Request
from sluicegate.lab.retries import NO_MORE, Retrier
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.world import World

Call: TypeAlias = Callable[[Request], Awaitable[bool]]  # whether it was answered in time

# The attributes of a request that is a retry.
AGAIN: Final[Mapping[str, str]] = {"retry": "yes"}

_US: Final = 1e6


def make_request(world: World, kind: WorkKind, caller: int) -> Request:
    """A request of that kind and caller, arriving now."""
    now_us = world.clock.now_us()
    return Request(
        f"{kind.name}/{caller}",
        caller=f"{kind.name}-{caller}",
        cost=kind.cost,
        criticality=kind.criticality,
        arrived_us=now_us,
        deadline_us=now_us + kind.timeout_us,
        operation=kind.operation or kind.name,
        shard=kind.shard,
    )


async def open_loop(
    world: World, kind: WorkKind, call: Callable[[Request], Awaitable[object]], *, until_us: int
) -> None:
    """A task for each arrival of `kind`, until the run is `until_us` old."""
    pick = world.chance(f"callers/{kind.name}").draw
    loop = asyncio.get_running_loop()
    instants = kind.arrivals.instants_us(world.chance(f"arrivals/{kind.name}"))
    over: asyncio.Future[None] = loop.create_future()

    async def one(request: Request) -> None:
        try:
            await call(request)
        except Exception as error:
            world.fail(error)

    def arrive() -> None:
        caller = int(pick() * kind.callers) if kind.callers > 1 else 0
        # The loop holds its tasks until they are done.
        loop.create_task(one(make_request(world, kind, caller)), name=kind.name)  # noqa: RUF006
        set_next()

    def set_next() -> None:
        at_us = next(instants, until_us)
        if at_us < until_us:
            world.call_at_us(at_us, arrive)
        elif not over.done():
            over.set_result(None)

    set_next()
    await over


async def run_callers(
    world: World,
    calls: Iterable[tuple[WorkKind, Callable[[Request], Awaitable[object]]]],
    *,
    until_us: int,
) -> None:
    """Let open-loop callers of each kind call until then, and cancel what is under way."""
    for kind, call in calls:
        world.spawn(open_loop(world, kind, call, until_us=until_us), f"clients/{kind.name}")
    await world.until_us(until_us)
    await world.cancel_others()


@final
class RetryingCall:
    """A call that is tried again, as its retrier says, and given up at each attempt's deadline.

    An attempt that is given up is not cancelled: no network tells a server that nobody waits.
    """

    __slots__ = ("_call", "_retrier", "_world", "attempts", "calls")

    def __init__(self, world: World, call: Call, retrier: Retrier) -> None:
        self._world = world
        self._call = call
        self._retrier = retrier
        self.calls = 0
        self.attempts = 0

    async def __call__(self, request: Request) -> bool:
        """Whether any attempt was answered in time."""
        world = self._world
        self.calls += 1
        self._retrier.first(world.clock.now_us())
        attempt = 0
        while True:
            self.attempts += 1
            if await self._attempt(request):
                return True
            wait_us = self._retrier.wait_us(attempt, world.clock.now_us())
            if wait_us == NO_MORE:
                return False
            attempt += 1
            if wait_us:
                await world.sleep_us(wait_us)
            request = _again(request, world.clock.now_us())

    async def _attempt(self, request: Request) -> bool:
        work = asyncio.ensure_future(self._call(request))
        timeout_s = None
        left_us = request.remaining_us(self._world.clock.now_us())
        if left_us is not None:
            timeout_s = left_us / _US
        done, _ = await asyncio.wait([work], timeout=timeout_s)
        return work.result() if done else False


def _again(request: Request, now_us: int) -> Request:
    again = request.copy(AGAIN)
    again.arrived_us = now_us
    if request.deadline_us is not None:
        again.deadline_us = now_us + request.deadline_us - request.arrived_us
    return again
