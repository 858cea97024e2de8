"""HTTP/1.1 on a raw socket: however it is cut, bounded, half-finished or wrong."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.testing import HandClock
from tests.doors.http.serving import Counting, answer, request, running_door
from tests.doors.listening import LOOPS, reset, run, until

both = pytest.mark.parametrize("loop", sorted(LOOPS))


def echo(http_request: HttpRequest) -> HttpReply | Finish:
    """Says what was asked; what is sent to /at-once is refused unread."""
    if http_request.path == "/at-once":
        return HttpReply(403, b"no", TEXT)
    if http_request.path == "/split":
        return HttpReply(200, b"", TEXT, ((b"x-odd", b"a\r\nset-cookie: b"),))
    if http_request.path == "/bug":
        raise ZeroDivisionError
    if http_request.path == "/large":
        return HttpReply(200, b"x" * 300_000, TEXT)
    line = f"{http_request.method} {http_request.path} {http_request.query.decode()} ".encode()
    if http_request.path == "/later":

        async def later(body: bytes) -> HttpReply:
            await asyncio.sleep(0.001)
            return HttpReply(200, line + body, TEXT)

        return later
    if http_request.path == "/never":

        async def never(_: bytes) -> HttpReply:
            await asyncio.Event().wait()
            return HttpReply(500)

        return never
    return lambda body: HttpReply(200, line + body, TEXT)


@both
def test_a_request_is_answered_and_the_next_one_on_the_same_connection(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call()
            for number in range(3):
                caller.writer.write(request("GET", f"/a%20b/{number}?x=1", here.host))
                got = await answer(caller)
                assert (got.status, got.body) == (200, f"GET /a b/{number} x=1 ".encode())
                assert got.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
                assert got.headers["cache-control"] == "no-store"
                assert "connection" not in got.headers
            assert here.door.requests == 3
            await caller.leave()

    run(story, loop)


@both
def test_pipelined_requests_are_answered_in_their_order_though_some_take_longer(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            paths = [f"/{'later' if number % 3 == 0 else number}" for number in range(200)]
            caller = await here.call(
                b"".join(request("POST", path, here.host, path.encode()) for path in paths)
            )
            for path in paths:
                assert (await answer(caller)).body == f"POST {path}  {path}".encode()
            await caller.leave()

    run(story, loop)


@settings(max_examples=30)
@given(st.data())
def test_however_requests_are_cut_each_gets_its_own_answer(data: st.DataObject) -> None:
    bodies = data.draw(st.lists(st.binary(min_size=0, max_size=30), min_size=1, max_size=5))
    chunked = data.draw(st.lists(st.booleans(), min_size=len(bodies), max_size=len(bodies)))
    whole = b""
    for number, (body, in_chunks) in enumerate(zip(bodies, chunked, strict=True)):
        path = f"/{'later' if number % 2 else 'now'}"
        if in_chunks:
            whole += (
                f"POST {path} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            )
            if body:
                whole += f"{len(body):x}\r\n".encode() + body + b"\r\n"
            whole += b"0\r\n\r\n"
        else:
            whole += request("POST", path, "h", body)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))

    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call()
            for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                caller.writer.write(whole[start:end])
                await caller.writer.drain()
                await asyncio.sleep(0)
            for number, body in enumerate(bodies):
                path = f"/{'later' if number % 2 else 'now'}"
                assert (await answer(caller)).body == f"POST {path}  ".encode() + body
            await caller.leave()

    run(story)


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\nhost: h\r\n\r\n",
            b"POST /later HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nabcd",
            b"POST /later HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nabcd",
            b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"GET /at-once HTTP/1.1\r\nhost: h\r\ncontent-length: 400\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
            b"\r\n\r\n",
            b"0\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n",
        ]
    ),
)


@settings(max_examples=60)
@given(st.lists(st.lists(PIECES, max_size=5), max_size=6), st.booleans())
def test_garbage_among_requests_harms_nobody_else(visits: list[list[bytes]], resets: bool) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            honest = await here.call()
            for number, pieces in enumerate(visits):
                caller = await here.call(b"GET /")
                for piece in pieces:
                    if not caller.writer.transport.is_closing():
                        caller.writer.write(piece)
                    await asyncio.sleep(0)
                honest.writer.write(request("POST", f"/later?{number}", here.host, b"mine"))
                assert (await answer(honest)).body == f"POST /later {number} mine".encode()
                if resets:
                    reset(caller.writer)
                else:
                    await caller.leave()
            assert here.door.faults == 0
            await honest.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().faults == 0

    run(story)


@both
def test_head_has_no_body_and_http_1_0_is_closed_after_its_answer(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call(request("HEAD", "/x", here.host))
            got = await answer(caller, head=True)
            assert got.headers["content-length"] == str(len("HEAD /x  "))
            caller.writer.write(b"GET /old HTTP/1.0\r\n\r\n")
            got = await answer(caller)
            assert (got.status, got.headers["connection"]) == (200, "close")
            assert await caller.rest() == b""
            await caller.leave()

    run(story, loop)


@both
def test_a_client_that_waits_for_leave_gets_it_or_a_refusal_at_once(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo, http=HttpSettings(body_bytes_max=10)) as here:
            head = request("POST", "/x", here.host, b"", expect="100-continue")
            caller = await here.call(head.replace(b"length: 0", b"length: 4"))
            await caller.hears(b"HTTP/1.1 100 Continue\r\n\r\n")
            caller.writer.write(b"body")
            assert (await answer(caller)).body == b"POST /x  body"
            caller.writer.write(
                request("POST", "/at-once", here.host, b"", expect="100-continue").replace(
                    b"length: 0", b"length: 4"
                )
            )
            got = await answer(caller)
            assert (got.status, got.headers["connection"]) == (403, "close")
            assert await caller.rest() == b""
            await caller.leave()
            other = await here.call(head.replace(b"length: 0", b"length: 11"))
            assert (await answer(other)).status == 413
            await other.leave()
            odd = await here.ask("POST", "/x", b"a", expect="a-miracle")
            assert odd.status == 417

    run(story, loop)


def test_a_client_that_does_not_wait_for_leave_is_given_none() -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            whole = request("POST", "/x", here.host, b"abcd", expect="100-continue")
            caller = await here.call(whole[:-2])
            await asyncio.sleep(0.02)
            caller.writer.write(whole[-2:])
            assert (await answer(caller)).status == 200
            await caller.leave()

    run(story)


class Wire(asyncio.Transport):
    """Tells whether it is being read from."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def pause_reading(self) -> None:
        self.events.append("pause")

    def resume_reading(self) -> None:
        self.events.append("resume")

    def is_closing(self) -> bool:
        return False


def test_who_does_not_read_is_not_read_from() -> None:
    wire = Wire()
    door = HttpDoor(echo, HandClock(0))
    protocol = door(PeerInfo("h", 1, Address("h", 2)))
    protocol.connection_made(wire)
    protocol.pause_writing()
    assert wire.events == ["pause"]
    protocol.resume_writing()
    assert wire.events == ["pause", "resume"]
    protocol.connection_lost(None)


@both
def test_what_is_too_large_is_told_so_even_to_who_is_still_sending(loop: str) -> None:
    bounds = HttpSettings(
        body_bytes_max=1_000,
        head_bytes_max=2_000,
        url_bytes_max=200,
        headers_max=10,
        linger_s=60,  # who listens for the end hears it long before
    )

    async def story() -> None:
        async with running_door(handler=echo, http=bounds) as here:
            sent = await here.call(request("POST", "/x", here.host, b"a" * 2_000_000))
            assert (await answer(sent)).status == 413
            await sent.leave()
            chunks = await here.call(
                b"POST /x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
                b"200\r\n" + b"a" * 0x200 + b"\r\n"
            )
            chunks.writer.write(b"200\r\n" + b"a" * 0x200 + b"\r\n")
            assert (await answer(chunks)).status == 413
            assert await chunks.rest() == b""
            await chunks.leave()
            assert (await here.ask("GET", "/" + "a" * 200)).status == 414
            assert (await here.ask("GET", "/", x="a" * 2_000)).status == 431
            many = {f"x{number}": "1" for number in range(10)}
            assert (await here.ask("GET", "/", **many)).status == 431
            most = {f"x{number}": "1" for number in range(9)}
            assert (await here.ask("GET", "/", **most)).status == 200
            assert (await here.ask("POST", "/x", b"a" * 1_000)).status == 200
            endless = await here.call(b"GET / HTTP/1.1\r\nx: ")
            for _ in range(40):
                endless.writer.write(b"a" * 100)
                await asyncio.sleep(0.001)
            assert (await answer(endless)).status == 431
            await endless.leave()

    run(story, loop)


def test_a_refusal_before_the_body_is_read_keeps_the_connection() -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            whole = request("POST", "/at-once", here.host, b"a" * 1_000)
            caller = await here.call(whole[:-900])
            assert (await answer(caller)).status == 403
            caller.writer.write(whole[-900:] + request("GET", "/next", here.host))
            assert (await answer(caller)).body == b"GET /next  "
            await caller.leave()

    run(story)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost a\r\n\r\n",
        b"GET  HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/3.0\r\nhost: a\r\n\r\n",
        b"PUNCH / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_400_and_the_end(data: bytes) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call(data)
            got = await answer(caller)
            assert (got.status, got.headers["connection"]) == (400, "close")
            assert got.headers["content-type"] == "application/problem+json"
            assert json.loads(got.body)["title"] == "Bad Request"
            assert await caller.rest() == b""
            await caller.leave()
            assert here.door.bad_requests == 1

    run(story)


@both
def test_another_protocol_is_not_taken_up(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            got = await here.ask("GET", "/x", connection="upgrade", upgrade="websocket")
            assert (got.status, got.body) == (200, b"GET /x  ")
            offer = {
                "connection": "Upgrade, HTTP2-Settings",
                "upgrade": "h2c",
                "http2-settings": "AA",
            }
            whole = request("POST", "/x", here.host, b"abc", **offer)
            caller = await here.call(whole[:-2])
            caller.writer.write(whole[-2:] + whole + request("GET", "/y", here.host))
            for body in (b"POST /x  abc", b"POST /x  abc", b"GET /y  "):
                got = await answer(caller)
                assert (got.status, got.body) == (200, body)
            assert here.door.requests == 4
            await caller.leave()
            many = await here.call(request("GET", "/x", "h", **offer) * 2_000)
            for _ in range(2_000):
                assert (await answer(many)).status == 200
            await many.leave()
            assert (await here.ask("CONNECT", "h:1")).status == 400

    run(story, loop)


@both
def test_bytes_one_by_one_are_no_progress(loop: str) -> None:
    async def story() -> None:
        async with running_door(
            handler=echo, http=HttpSettings(head_timeout_s=0.1, linger_s=60)
        ) as here:
            drip = await here.call(b"GET / HTTP/1.1\r\n")
            waiter = asyncio.ensure_future(answer(drip))
            while not waiter.done():
                drip.writer.write(b"x: 1\r\n")
                await asyncio.sleep(0.01)
            assert (await waiter).status == 408
            await drip.leave()

    run(story, loop)


@both
def test_each_kind_of_slowness_has_its_own_end(loop: str) -> None:
    bounds = HttpSettings(
        head_timeout_s=0.1,
        body_timeout_s=0.1,
        keep_alive_s=0.1,
        answer_timeout_s=0.1,
        linger_s=0.1,
    )

    async def story() -> None:
        async with running_door(handler=echo, http=bounds) as here:
            begun = await here.call(b"GET / HTTP/1.1\r\nx: ")
            assert (await answer(begun)).status == 408
            body = await here.call(request("POST", "/x", here.host, b"abcd")[:-1])
            assert b"body_timeout_s" in (await answer(body)).body
            refused = await here.call(request("POST", "/at-once", here.host, b"abcd")[:-1])
            assert (await answer(refused)).status == 403
            assert await refused.rest() == b""
            owed = await here.call(request("GET", "/never", here.host))
            assert (await answer(owed)).status == 504
            rest = await here.call(request("GET", "/x", here.host))
            assert (await answer(rest)).status == 200
            assert await rest.rest() == b""
            await until(lambda: here.listener.stats().open == 0)  # though none has closed its side
            for caller in (begun, body, refused, owed, rest):
                await caller.leave()
            assert here.door.under_way == 0
            assert not here.door.tasks

    run(story, loop)


def test_a_bug_is_a_500_that_says_little_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            got = await here.ask("GET", "/bug")
            assert got.status == 500
            assert b"ZeroDivision" not in got.body
            split = await here.ask("GET", "/split")
            assert split.status == 500
            assert "set-cookie" not in split.headers
            assert here.door.faults == 2
            far = await door_with_a_late_bug()
            assert far == 500

    async def door_with_a_late_bug() -> int:
        async with running_door(service=Counting(far=True)) as there:
            return (await there.ask("POST", "/v1/check", {"user_id": "bug"})).status

    run(story)
    assert "ZeroDivisionError" in caplog.text


@both
def test_beyond_the_most_under_way_a_request_is_refused_and_the_rest_go_on(loop: str) -> None:
    async def story() -> None:
        service = Counting()
        service.hold = asyncio.Event()
        async with running_door(service=service, http=HttpSettings(requests_max=2)) as here:
            ask = request("POST", "/v1/check", here.host, {"user_id": "a"})
            waiting = [await here.call(ask) for _ in range(2)]
            await until(lambda: here.door.under_way == 2)
            got = await here.ask("POST", "/v1/check", {"user_id": "b"})
            assert (got.status, got.headers["retry-after"]) == (503, "1")
            assert got.json["reason"] == "overloaded"
            assert here.door.overloaded == 1
            assert (await here.ask("GET", "/healthz")).status == 200
            reset(waiting[1].writer)  # gone, and yet still under way
            await until(lambda: here.listener.stats().open == 1)
            assert here.door.under_way == 2
            service.hold.set()
            assert (await answer(waiting[0])).status == 200
            await until(lambda: here.door.under_way == 0)
            await waiting[0].leave()

    run(story, loop)


@both
def test_draining_answers_what_was_asked_and_says_that_it_was_the_last(loop: str) -> None:
    async def story() -> None:
        service = Counting()
        service.hold = asyncio.Event()
        async with running_door(service=service) as here:
            idle = await here.call(request("GET", "/healthz", here.host))
            assert "connection" not in (await answer(idle)).headers
            busy = await here.call(request("POST", "/v1/check", here.host, {"user_id": "a"}))
            await until(lambda: here.door.under_way == 1)
            asyncio.get_running_loop().call_later(0.05, service.hold.set)
            assert await here.listener.close(5.0) == 0
            assert await idle.rest() == b""
            got = await answer(busy)
            assert (got.status, got.headers["connection"]) == (200, "close")
            await idle.leave()
            await busy.leave()

    run(story, loop)


@both
def test_leaving_door_closes_connection_with_its_next_reply(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call(request("GET", "/a", here.host))
            assert "connection" not in (await answer(caller)).headers
            here.door.leaving = True
            for one in (caller, await here.call()):
                one.writer.write(request("GET", "/b", here.host))
                assert (await answer(one)).headers["connection"] == "close"
                assert await one.rest() == b""
                await one.leave()

    run(story, loop)


@both
def test_leaving_door_answers_all_pipelined_requests(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            here.door.leaving = True
            caller = await here.call(request("GET", "/later", here.host) * 3)
            got = [(await answer(caller)).headers.get("connection", "") for _ in range(3)]
            assert got == ["", "", "close"]
            assert await caller.rest() == b""
            await caller.leave()

    run(story, loop)


def test_drain_answers_request_whose_head_is_half_here() -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            whole = request("GET", "/a", here.host)
            caller = await here.call(whole[:20])
            await until(lambda: bool(here.listener.stats().served["HTTP/1.1"]))
            closing = asyncio.create_task(here.listener.close(60.0))
            await until(lambda: here.listener.closing)
            caller.writer.write(whole[20:])
            assert (await answer(caller)).headers["connection"] == "close"
            assert await closing == 0
            await caller.leave()

    run(story)


@both
def test_who_has_asked_and_closed_its_side_is_still_answered(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo) as here:
            caller = await here.call(request("GET", "/later", here.host) * 2)
            caller.writer.write_eof()
            assert (await answer(caller)).status == 200
            last = await answer(caller)
            assert (last.status, last.headers["connection"]) == (200, "close")
            assert await caller.rest() == b""
            await caller.leave()

    run(story, loop)


@both
def test_who_closes_its_side_amid_a_body_is_refused_at_once_and_holds_nothing(loop: str) -> None:
    """Also one that has gone: it looks the same, and held its bytes until its time was over."""

    async def story() -> None:
        async with running_door(handler=echo) as here:
            whole = request("GET", "/later", here.host)
            part = request("POST", "/v1/check", here.host, {"user_id": "a"})[:-1]
            caller = await here.call(whole + part)
            await until(lambda: here.door.body_bytes > 0)
            caller.writer.write_eof()
            assert (await answer(caller)).status == 200
            last = await answer(caller)
            assert (last.status, last.headers["connection"]) == (400, "close")
            assert await caller.rest() == b""
            await caller.leave()
            gone = await here.call(part)
            await until(lambda: here.door.body_bytes > 0)
            await gone.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.door.body_bytes == here.door.under_way == 0

    run(story, loop)


@both
def test_who_asks_much_and_reads_nothing_is_not_read_from_and_then_dropped(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=echo, listener={"write_stall_s_max": 0.2}) as here:
            caller = await here.call(request("GET", "/large", here.host) * 2_000)
            await until(lambda: here.listener.stats().not_reading == 1)
            await until(lambda: here.listener.stats().open == 0)
            await caller.leave()

    run(story, loop)


def test_who_reads_slowly_gets_all_of_it() -> None:
    async def story() -> None:
        async with running_door(handler=echo, http=HttpSettings(pipelined_max=3)) as here:
            caller = await here.call(request("GET", "/large", here.host) * 100)
            for _ in range(100):
                assert len((await answer(caller)).body) == 300_000
            await caller.leave()

    run(story)


def test_of_a_header_that_is_there_twice_the_first_is_its_value() -> None:
    headers = [(b"accept", b"image/webp"), (b"host", b"a"), (b"accept", b"*/*")]
    asked = HttpRequest("GET", "/", b"", headers, PeerInfo("h", 1, Address("h", 1)))
    assert asked.header(b"accept") == b"image/webp"
    assert asked.header(b"range") == b""
    assert [asked.count(one) for one in (b"accept", b"host", b"range")] == [2, 1, 0]


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(BadValue, match=r"http\.headers_max: 0"):
        HttpSettings(headers_max=0)
