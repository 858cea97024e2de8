"""A slot ends with the last byte, a hang-up leaves the queue, and a late loop orders by class."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from types import FrameType
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.world import World, run
from sluicegate.resilience.server import asgi, inbox
from sluicegate.resilience.server.asgi import ProtectedApp
from sluicegate.resilience.server.inbox import BODY_BYTES
from sluicegate.resilience.server.loop_lag import BEAT_US, LATE_US
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.testing import HandClock
from tests.resilience.server.virtual_client import Answer, Field, ask, protected, reply

MS = 1_000
ONE = Resilience(slots=1)


def levels(app: ProtectedApp) -> tuple[int, int, int]:
    """Return what is in flight, streams and background tasks."""
    stats = app.protection.stats()
    return stats.gate.inflight, stats.streams, stats.background


async def stream(scope: Any, receive: Any, send: Any) -> None:
    """Send a part each 10 ms, for 30 ms."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(3):
        await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def then_works_on(scope: Any, receive: Any, send: Any) -> None:
    await reply(send)
    await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("hold", "seen"), [(False, [(1, 0, 0), (0, 1, 0)]), (True, [(1, 0, 0), (1, 1, 0)])]
)
def test_stream_holds_its_slot_until_first_message(
    hold: bool, seen: list[tuple[int, int, int]]
) -> None:
    async def main(world: World) -> tuple[list[tuple[int, int, int]], Answer]:
        app = protected(world, stream, Resilience(slots=1, hold_streams=hold))
        task = world.spawn(ask(world, app), "client")
        found = []
        for at_us in (5 * MS, 15 * MS):
            await world.until_us(at_us)
            found.append(levels(app))
        answer = await task
        assert levels(app) == (0, 0, 0)
        return found, answer

    found, answer = run(main, 1).value
    assert found == seen
    assert answer.body == b"partpartpartend"


def test_background_task_holds_no_slot_and_is_counted_apart() -> None:
    async def main(world: World) -> None:
        app = protected(world, then_works_on, ONE)
        first = world.spawn(ask(world, app), "first")
        await world.until_us(MS)
        assert levels(app) == (0, 0, 1)
        second = world.spawn(ask(world, app), "second")
        await world.until_us(2 * MS)
        assert levels(app) == (0, 0, 2)
        assert (await first).served
        assert (await second).served
        assert levels(app) == (0, 0, 0)

    run(main, 1)


def test_application_that_fails_or_sends_nothing_gives_its_slot_back() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/fails":
            raise RuntimeError("a bug of the service")

    async def main(world: World) -> None:
        app = protected(world, broken, ONE)
        for path in ("/fails", "/silent", "/fails"):
            try:
                await ask(world, app, path)
            except RuntimeError:
                assert path == "/fails"
            assert levels(app) == (0, 0, 0)

    run(main, 1)


async def slow(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    await asyncio.sleep(0.1)
    await reply(send, body)


def test_request_that_hangs_up_in_queue_leaves_it_at_once() -> None:
    async def main(world: World) -> None:
        app = protected(world, slow, ONE)
        first = world.spawn(ask(world, app), "first")
        await world.until_us(MS)
        gone = world.spawn(ask(world, app, patience_us=20 * MS), "gone")
        last = world.spawn(ask(world, app, body=(b"a", b"b")), "last")
        await world.until_us(10 * MS)
        assert app.protection.gate.queued == 2
        await world.until_us(22 * MS)
        assert app.protection.gate.queued == 1
        assert (await gone).messages == []
        assert (await first).served
        assert (await last).body == b"ab"  # what was read in the queue is replayed
        assert app.protection.stats().gate.hung_up == 1
        assert levels(app) == (0, 0, 0)

    run(main, 1)


def test_task_cancelled_by_its_server_in_queue_stays_cancelled() -> None:
    async def main(world: World) -> None:
        app = protected(world, slow, ONE)
        first = world.spawn(ask(world, app), "first")
        await world.until_us(MS)
        waiting = asyncio.get_running_loop().create_task(ask(world, app))
        await world.until_us(10 * MS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert app.protection.gate.queued == 0
        assert (await first).served

    run(main, 1)


LENGTH = ((b"content-length", b"200000"),)
PARTS = (b"x" * 10_000,) * 20


@pytest.mark.parametrize("fields", [LENGTH, ()])
def test_slow_uploads_hold_no_slot_while_they_arrive(
    fields: Sequence[Field],
) -> None:
    """Ten seconds each, of known or unknown length: requests between them start at once."""

    async def main(world: World) -> None:
        app = protected(world, slow, Resilience(slots=4))

        async def upload() -> Answer:
            return await ask(world, app, fields=fields, body=PARTS, gap_us=500 * MS)

        uploads = [world.spawn(upload(), f"upload {at}") for at in range(8)]
        for at in range(30):
            await world.until_us((at + 1) * 300 * MS)
            began_us = world.elapsed_us
            assert (await ask(world, app)).served
            assert world.elapsed_us - began_us == 100 * MS
        assert levels(app) == (0, 0, 0)
        assert [(await one).body for one in uploads] == [b"".join(PARTS)] * 8
        assert app._bodies.held_bytes == 0

    run(main, 1)


def test_bodies_beyond_bound_in_bytes_are_read_in_their_slots() -> None:
    async def main(world: World) -> None:
        app = protected(world, slow, Resilience(slots=4, queue_bytes=50_000))
        big = (b"x" * 100_000,) * 12  # more than one may hold
        for parts, held in (((b"x" * 10_000,) * 20, 1), (big, 1)):
            size = (b"content-length", b"%d" % sum(map(len, parts)))
            task = world.spawn(ask(world, app, fields=[size], body=parts, gap_us=MS), "upload")
            await world.sleep_us(len(parts) * MS - 1)
            assert app.protection.stats().gate.inflight == held
            assert (await task).body == b"".join(parts)
            assert app._bodies.held_bytes == 0

    run(main, 1)


def test_upload_that_hangs_up_before_its_end_takes_no_slot() -> None:
    begun = 0

    async def work(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1

    async def main(world: World) -> None:
        app = protected(world, work, ONE)

        async def receive() -> Any:
            if not received:
                received.append(b"half")
                return {"type": "http.request", "body": b"half", "more_body": True}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError("the caller is gone")

        received: list[bytes] = []
        scope = {"type": "http", "path": "/", "method": "POST", "headers": [*LENGTH]}
        await app(scope, receive, send)
        assert (begun, app._bodies.held_bytes, levels(app)) == (0, 0, (0, 0, 0))

    run(main, 1)


def test_body_that_waits_for_the_response_is_served_after_a_pause() -> None:
    """Of unknown length: its caller sends the rest once the response has begun."""

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        first = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": first["body"], "more_body": True})
        await send({"type": "http.response.body", "body": (await receive())["body"]})

    async def main(world: World) -> Answer:
        app = protected(world, echo, ONE)
        began = asyncio.Event()
        answer = Answer()
        parts = [b"first", b" last"]

        async def receive() -> Any:
            if len(parts) == 1:
                await began.wait()
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            began.set()
            answer.body += message.get("body", b"")

        scope = {"type": "http", "path": "/", "method": "POST", "headers": []}
        await app(scope, receive, send)
        answer.ended_us = world.elapsed_us
        return answer

    answer = run(main, 1).value
    assert (answer.body, answer.ended_us) == (b"first last", int(inbox.PAUSE_S * 1e6))


def test_long_body_that_waits_is_read_only_to_its_bound() -> None:
    reads = 0

    async def main(world: World) -> None:
        app = protected(world, slow, ONE)
        part = b"x" * 16_384
        first = world.spawn(ask(world, app), "first")
        await world.until_us(MS)

        async def counting(scope: Any, receive: Any, send: Any) -> None:
            async def heard() -> Any:
                nonlocal reads
                reads += 1
                return await receive()

            await app(scope, heard, send)

        last = world.spawn(ask(world, counting, body=(part,) * 80), "last")
        await world.until_us(50 * MS)
        assert reads == BODY_BYTES // len(part)
        assert (await first).served
        assert (await last).body == part * 80

    run(main, 1)


@pytest.mark.parametrize("reads", [True, False])
def test_hang_up_in_flight_is_recorded_once_and_work_goes_on(reads: bool) -> None:
    """Whether the application reads its body or not."""
    ended = 0

    async def work(scope: Any, receive: Any, send: Any) -> None:
        nonlocal ended
        if reads:
            await receive()
        await asyncio.sleep(1.0)
        ended += 1
        await reply(send)

    async def main(world: World) -> tuple[float, int]:
        app = protected(world, work)
        await ask(world, app, patience_us=400 * MS)
        found = app.protection.gate.resources[""].found
        assert found is not None
        return found.patience_us, ended

    assert run(main, 1).value == (400 * MS, 1)


def test_disconnect_after_response_is_no_hang_up() -> None:
    async def main(world: World) -> float:
        app = protected(world, slow)
        for _ in range(3):
            assert (await ask(world, app, body=(b"a", b"b"))).served
        found = app.protection.gate.resources[""].found
        assert found is not None
        return found.patience_us

    assert run(main, 1).value == 0


def test_application_that_listens_for_disconnects_hears_them() -> None:
    """As event streams do; messages that were read ahead are received first."""
    heard: list[str] = []

    async def listens(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.3)  # it is being watched by now
        while heard[-1:] != ["http.disconnect"]:
            heard.append((await receive())["type"])

    async def main(world: World) -> None:
        await ask(world, protected(world, listens), patience_us=500 * MS)

    run(main, 1)
    assert heard == ["http.request", "http.disconnect"]


def test_late_loop_starts_requests_in_order_of_class() -> None:
    """Work that blocks the loop for 30 ms: CRITICAL arrives last and is served second."""
    order: list[str] = []

    async def main(world: World) -> None:
        async def blocks(scope: Any, receive: Any, send: Any) -> None:
            order.append(scope["path"])
            world._loop.elapsed_us += 30 * MS
            await reply(send)

        settings = Resilience(callers={"shop": Criticality.CRITICAL})
        app = protected(world, blocks, settings, caller=lambda scope: "shop")
        for _ in range(8):
            assert (await ask(world, app, "/learned")).served
        await world.sleep_us(int(2e6))  # until the loop counts as on time
        order.clear()
        claim = (b"x-sluicegate-criticality", b"critical")
        bulk = (b"x-sluicegate-criticality", b"bulk")
        asks: list[Coroutine[Any, Any, Answer]] = [
            *(ask(world, app, f"/{at}", fields=[bulk]) for at in range(4)),
            ask(world, app, "/pay", fields=[claim]),
        ]
        tasks = [world.spawn(one, f"client {at}") for at, one in enumerate(asks)]
        for task in tasks:
            assert (await task).served

    run(main, 1)
    assert BEAT_US < 30 * MS > LATE_US
    assert sorted(order) == ["/0", "/1", "/2", "/3", "/pay"]
    assert order.index("/pay") <= 2


def test_uncontended_request_takes_at_most_45_python_calls() -> None:
    ours = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal ours
        name = frame.f_code.co_filename
        ours += event == "call" and "/tests/" not in name and "/testing/" not in name

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await reply(send)

    async def main() -> list[int]:
        nonlocal ours
        clock = HandClock()  # on a busy machine a real loop is late, which takes more calls
        app = asgi.protect(page, protection=Protection(clock=clock))
        counts = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            return

        scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"shop")]}
        for _ in range(100):
            ours = 0
            sys.setprofile(count)
            await app(scope, receive, send)
            sys.setprofile(None)
            counts.append(ours)
            await asyncio.sleep(0)
        return counts

    counts = sorted(asyncio.run(main()))
    clock_reads = 2  # of a real clock, one call each
    assert counts[len(counts) // 2] + clock_reads <= 45


def test_requests_in_flight_share_one_timer_that_rests_when_idle() -> None:
    async def main(world: World) -> bool:
        app = protected(world, slow)
        await ask(world, app)
        await world.sleep_us(int(10 * inbox.YOUNG_S * 1e6))
        return app._in_flight._loop is None

    assert run(main, 1).value
