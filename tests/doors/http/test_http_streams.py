"""Replies that go on, piece by piece: for as long as the client reads, and bounded in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from sluicegate.contracts.access import Identity
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.settings import HttpSettings
from tests.doors.http.serving import answer, request, running_door
from tests.doors.listening import LOOPS, Caller, run, until

both = pytest.mark.parametrize("loop", sorted(LOOPS))


class Source:
    """Replies of pieces that are put in by hand, and what became of them."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.taken = 0
        self.closed = 0

    def handle(self, http_request: HttpRequest) -> HttpReply | Finish:
        if http_request.path == "/health":
            return HttpReply(200, b"ok", TEXT)
        return lambda _: HttpReply(200, b"first ", TEXT, pieces=self.stream())

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            while piece := await self.pieces.get():
                if piece == b"bug":
                    raise ZeroDivisionError
                self.taken += 1
                yield piece
        finally:
            self.closed += 1


async def begun(caller: Caller) -> None:
    """The head of a stream, and what comes with it."""
    head = await answer(caller)
    assert (head.status, head.headers["connection"]) == (200, "close")
    assert "content-length" not in head.headers
    await caller.hears(b"first ")


@both
def test_pieces_are_sent_as_they_come_and_their_end_is_the_connections(loop: str) -> None:
    async def story() -> None:
        source = Source()
        async with running_door(handler=source.handle) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            for piece in (b"one", b"two", b"three"):
                source.pieces.put_nowait(piece)
                await caller.hears(piece)
            assert here.door.streams == 1
            other = await here.ask("GET", "/health")
            assert other.body == b"ok"
            source.pieces.put_nowait(b"")
            assert await caller.rest() == b""
            assert (here.door.streams, source.closed) == (0, 1)

    run(story, loop)


@both
def test_a_client_that_leaves_ends_the_work_for_it(loop: str) -> None:
    async def story() -> None:
        source = Source()
        async with running_door(handler=source.handle) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            await caller.leave()
            await until(lambda: here.door.streams == 0)
            assert source.closed == 1

    run(story, loop)


@both
def test_of_a_client_that_does_not_read_nothing_more_is_asked_and_it_is_sent_away(
    loop: str,
) -> None:
    async def story() -> None:
        source = Source()
        bounds = {"write_stall_s_max": 0.2}
        async with running_door(handler=source.handle, listener=bounds) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            for _ in range(2_000):
                source.pieces.put_nowait(b"x" * 65_536)
            await until(lambda: here.door.streams == 0)
            assert source.taken < 1_000
            assert source.closed == 1
            await until(lambda: not here.listener.stats().open)

    run(story, loop)


@both
def test_a_stream_outlives_the_time_that_a_reply_may_take(loop: str) -> None:
    async def story() -> None:
        source = Source()
        bounds = HttpSettings(keep_alive_s=0.1, answer_timeout_s=0.1)
        async with running_door(handler=source.handle, http=bounds) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            await asyncio.sleep(0.5)
            source.pieces.put_nowait(b"still")
            await caller.hears(b"still")

    run(story, loop)


def test_a_drain_ends_streams() -> None:
    async def story() -> None:
        source = Source()
        async with running_door(handler=source.handle) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            await here.listener.close(60.0)
            assert await caller.rest() == b""
            assert source.closed == 1

    run(story)


def test_there_are_at_most_so_many_at_a_time() -> None:
    async def story() -> None:
        source = Source()
        bounds = HttpSettings(streams_max=1)
        async with running_door(handler=source.handle, http=bounds) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            assert (await here.ask("GET", "/")).status == 503
            await caller.leave()
            await until(lambda: here.door.streams == 0)
            again = await here.call(request("GET", "/", here.host))
            await begun(again)

    run(story)


def test_a_bug_in_the_middle_ends_it_and_is_counted() -> None:
    async def story() -> None:
        source = Source()
        async with running_door(handler=source.handle) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            source.pieces.put_nowait(b"bug")
            assert await caller.rest() == b""
            assert (here.door.faults, source.closed) == (1, 1)

    run(story)


def test_head_is_answered_without_a_stream() -> None:
    async def story() -> None:
        source = Source()
        async with running_door(handler=source.handle) as here:
            reply = await here.ask("HEAD", "/")
            assert (reply.status, here.door.streams) == (200, 0)

    run(story)


@both
def test_stream_of_revoked_caller_ends_without_event(loop: str) -> None:
    async def story() -> None:
        source, ann = Source(), Identity("ann", ())

        def handle(http_request: HttpRequest) -> HttpReply | Finish:
            http_request.identity = ann
            return source.handle(http_request)

        async with running_door(handler=handle) as here:
            caller = await here.call(request("GET", "/", here.host))
            await begun(caller)
            ann.revoke()
            assert await caller.rest() == b""
            assert (here.door.streams, source.closed) == (0, 1)

    run(story, loop)
