"""Every reply of every service has a bound: a longer one becomes an error.

The rows are those that ship: each app's own routes, commands and methods, and what the host adds.
A row that is new is walked too, and fails here if nothing bounds its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate.apps.console.app import ConsoleApp
from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.apps.images.app import ImagesApp
from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.limiter.app import LimiterApp
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.apps.pubsub.app import PubSubApp
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.contracts.access import EVERY_GRANT, EVERY_TABLE_GRANT, Identity
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route
from sluicegate.doors.http.rules.handler import RulesHttp
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.resp.cluster.commands import CLUSTER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.session import Command, Reply, Run
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.policies.access import OpenAccess
from sluicegate.service.listeners import Listeners
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock
from sluicegate.wire.resp import command
from tests.apps.images.process import stores
from tests.attacks.h2_socket import request_fields
from tests.attacks.test_grpc_turns import Caller
from tests.doors.grpc.servers import Door
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin, no_gate
from tests.doors.http.rules.serving import Well
from tests.doors.listening import run
from tests.doors.resp.talk import Talk
from tests.wire.h2_peer import headers

ALL: Final = Identity("all", EVERY_GRANT, {"*": EVERY_TABLE_GRANT})
LONGEST: Final = 128 << 20  # of any reply: an image
APPS: Final[dict[str, tuple[Any, Any, Callable[[Path], list[str]]]]] = {
    "limiter": (LimiterApp, LimiterSettings, lambda _: []),
    "kv": (KvApp, KvSettings, lambda _: ["--engine", "memory:"]),
    "pubsub": (PubSubApp, PubSubSettings, lambda folder: ["--history", str(folder / "history")]),
    "images": (
        ImagesApp,
        ImagesSettings,
        lambda folder: [*stores(folder)],
    ),
    "console": (ConsoleApp, ConsoleSettings, lambda _: []),
}


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[Listeners]:
    """Open the doors of an app on a free port; the app itself is not started."""
    kind, settings, words = APPS[name]
    app = kind(settings_from(settings, "--listen", "127.0.0.1:0", *words(folder)))
    made = Listeners(app)
    made.open()
    try:
        yield made
    finally:
        await made.close(0.0)
        await app.end()


def handler_of(listeners: Listeners) -> HttpHandler:
    assert listeners._http is not None
    found = getattr(listeners._http.handler, "__self__", None)
    assert isinstance(found, HttpHandler)
    return found


@pytest.mark.parametrize("name", [*APPS, "rulebook"])
def test_route_with_too_long_reply_sends_error(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        if name == "rulebook":
            rules = RulesHttp(
                MemoryRuleAdmin(no_gate), Well(), OpenAccess(), HandClock(0), RulesHttpSettings()
            )
            await walk_routes(rules)
            rules.close()
            return
        async with opened(name, tmp_path) as listeners:
            await walk_routes(handler_of(listeners))

    run(story)


def test_listener_bound_has_room_for_all_request_bodies(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened("images", tmp_path) as listeners:
            assert listeners._http is not None
            assert listeners._public is not None
            bodies = listeners._http.settings.bodies_bytes_max
            assert listeners._public.settings.owed_bytes_max == bodies + (1 << 30)

    run(story)


async def walk_routes(handler: HttpHandler) -> None:
    request = HttpRequest("GET", "/", b"", [], PeerInfo("", 0, Address("", 0)))
    assert len(handler.table.routes) > 3
    for route in handler.table.routes:
        bound = route.reply_bytes_max or handler.reply_bytes_max
        assert 0 < bound <= LONGEST, route.path
        for size, status in ((bound, 200), (bound + 1, 500)):
            for late in (False, True):
                reply = handler.finish(sized(route, size, late), request, ALL, b"")
                found = reply if isinstance(reply, HttpReply) else await reply
                assert found.status == status, (route.path, size)
                assert status == 200 or len(found.body) < 1_000


def sized(route: Route, size: int, late: bool) -> Route:
    """The same route, with a reply of this size."""

    def now(_request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return HttpReply(200, bytes(size))

    async def later(request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        await asyncio.sleep(0)
        return now(request, by, body)

    return route._replace(work=later if late else now)


@pytest.mark.parametrize("name", ["limiter", "kv", "cluster"])
def test_command_with_too_long_reply_sends_error(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        if name == "cluster":  # the door of a pub/sub node to the others
            await walk_commands(RespDoor(None, OpenAccess(), RespSettings(), CLUSTER))
            return
        async with opened(name, tmp_path) as listeners:
            assert listeners._resp is not None
            await walk_commands(listeners._resp)

    run(story)


async def walk_commands(door: RespDoor) -> None:
    bound = door._shared.settings.reply_bytes_max
    assert 0 < bound <= LONGEST
    rows = door._shared.table.rows
    assert len(rows) > 10
    for late in (False, True):
        door.wrap_commands(partial(with_run, long_reply(bound, late)))
        for row in rows:
            said = await reply_to(door, row)
            assert said.startswith(b"-ERR the reply is longer"), (row.name, said[:40])


def with_run(run_it: Run, row: Command) -> Command:
    return row.with_run(run_it)


def long_reply(bound: int, late: bool) -> Run:
    """Return a run of a command whose reply is one byte longer than the bound."""

    async def later() -> Reply:
        await asyncio.sleep(0)
        return [bytes(bound), b"x"]

    return lambda _session, _parts: later() if late else bytes(bound + 1)


async def reply_to(door: RespDoor, row: Command) -> bytes:
    talk = Talk(door)
    talk.protocol._session.identity = ALL
    said = await talk.request(command(row.name, *["x"] * (row.least - 1)))
    talk.lose()
    return said


@pytest.mark.parametrize("name", ["limiter", "kv"])
def test_method_with_too_long_reply_fails_call(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name, tmp_path) as listeners:
            served = listeners._grpc
            assert served is not None
            bound, methods = served.settings.reply_bytes_max, served.methods
            assert 0 < bound <= LONGEST

            async def later(_message: bytes, *_: object) -> bytes:
                await asyncio.sleep(0)
                return bytes(bound + 1)

            async def pieces(messages: AsyncIterator[bytes], _by: Identity) -> AsyncIterator[bytes]:
                async for _ in messages:
                    yield bytes(bound + 1)

            def now(_message: bytes, *_: object) -> bytes:
                return bytes(bound + 1)

            paths = [*methods.unary, *methods.with_metadata, *methods.streams]
            assert len(paths) > 8
            for method in (now, later):
                whole = methods._replace(
                    unary=dict.fromkeys(methods.unary, method),
                    with_metadata=dict.fromkeys(methods.with_metadata, method),
                    streams=dict.fromkeys(methods.streams, pieces),
                )
                for path in paths:
                    door = GrpcDoor(whole, Door(ALL), HandClock(0), served.settings)
                    caller = Caller(door)
                    caller.block = headers(request_fields(path))
                    caller.call()
                    while caller.protocol.streams:
                        await asyncio.sleep(0)
                    assert door.counts.failed == 1, path
                    assert len(caller.wire.output) < 1_000, path
                    caller.lose()
            await asyncio.sleep(0)

    run(story)
