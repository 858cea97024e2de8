"""Attacks on HTTP/1.1: requests that are not what they seem, on raw sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.limiter.handler import LimiterHttp, LimiterHttpSettings
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.testing import HandClock
from tests.apps.kv.process import KvProcess
from tests.doors.http.serving import (
    Counting,
    Doorkeeper,
    RunningDoor,
    answer,
    request,
    running_door,
)
from tests.doors.listening import LOOPS, Caller, run
from tests.doors.resp.talk import Wire
from tests.engines.child import free_port

both = pytest.mark.parametrize("loop", sorted(LOOPS))

CHUNKED = (
    "POST /v1/check HTTP/1.1\r\nHost: {0}\r\n{1}Transfer-Encoding: chunked\r\n\r\n"
    "3\r\nabc\r\n0\r\n{2}\r\n"
)


def show(asked: HttpRequest) -> HttpReply | Finish:
    """Says what the handler was given: the head when it came, and the head once the body has."""
    if asked.path == "/health":
        return HttpReply(200, b"ok", TEXT)
    before = names_of(asked)

    def finish(body: bytes) -> HttpReply:
        lines = [f"{asked.method} {asked.path}", before, names_of(asked), body.decode("latin-1")]
        return HttpReply(200, "\n".join(lines).encode(), TEXT)

    return finish


def names_of(asked: HttpRequest) -> str:
    return ",".join(sorted(name.decode() for name, _ in asked.headers))


async def closes(caller: Caller) -> bool:
    """Whether the server ends the connection, with nothing more said."""
    async with asyncio.timeout(60):
        return await caller.reader.read() == b""


# Trailers.


@both
@pytest.mark.parametrize(
    "trailer",
    ["Authorization: Bearer all", "X-Sluicegate-Criticality: CRITICAL", "X-Forwarded-For: ::1"],
)
def test_a_trailer_is_no_header(loop: str, trailer: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            caller = await here.call(CHUNKED.format(here.host, "", f"{trailer}\r\n").encode())
            _, before, after, body = (await answer(caller)).body.decode().split("\n")
            assert before == after == "host,transfer-encoding"
            assert body == "abc"
            caller.writer.write(request("GET", "/health", here.host))
            assert (await answer(caller)).status == 200  # and the connection goes on

    run(story, loop)


def test_who_says_its_token_in_a_trailer_is_nobody() -> None:
    async def story() -> None:
        async with running_door(everybody=False) as here:
            json = "Content-Type: application/json\r\n"
            said = CHUNKED.format(here.host, json, "Authorization: Bearer all\r\n")
            assert (await answer(await here.call(said.encode()))).status == 401
            said = CHUNKED.format(here.host, f"{json}Authorization: Bearer all\r\n", "")
            assert (await answer(await here.call(said.encode()))).status == 400  # abc is no JSON

    run(story)


@both
@pytest.mark.parametrize("piece", [b"x: y\r\n", b"y", b"0123456789abcdef: " + b"y" * 500 + b"\r\n"])
def test_trailers_without_end_are_refused(loop: str, piece: bytes) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            caller = await here.call(CHUNKED.format(here.host, "", "z: ").encode()[:-2])
            if not piece.startswith(b"y"):
                caller.writer.write(b"\r\n")
            sent = 0
            while not caller.reader.at_eof() and sent < 4 << 20:
                caller.writer.write(piece * (16_384 // len(piece)))
                sent += 16_384
                await asyncio.wait_for(caller.writer.drain(), 60)
                await asyncio.sleep(0)
                if caller.reader._buffer:  # type: ignore[attr-defined]
                    break
            assert (await answer(caller)).status == 431
            assert sent < 1 << 20

    run(story, loop)


@both
def test_a_chunk_extension_without_end_is_refused(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            head = f"POST / HTTP/1.1\r\nHost: {here.host}\r\nTransfer-Encoding: chunked\r\n\r\n3;e="
            caller = await here.call(head.encode())
            for _ in range(64):
                caller.writer.write(b"x" * 16_384)
                await caller.writer.drain()
            assert (await answer(caller)).status == 431

    run(story, loop)


@both
def test_a_body_of_tiny_chunks_is_read(loop: str) -> None:
    """The control: chunks of one byte each, with extensions, however slow that is."""

    async def story() -> None:
        async with running_door(handler=show) as here:
            head = f"POST / HTTP/1.1\r\nHost: {here.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
            caller = await here.call(head.encode() + b"1;x=y\r\na\r\n" * 20_000 + b"0\r\n\r\n")
            assert (await answer(caller)).body.endswith(b"\n" + b"a" * 20_000)

    run(story, loop)


# Offers of another protocol.

OFFER = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2_settings": "AAMAAABk"}


@both
def test_an_offer_makes_no_request_of_one_that_was_refused(loop: str) -> None:
    async def story() -> None:
        bounds = HttpSettings(url_bytes_max=64, headers_max=5)
        async with running_door(handler=show, http=bounds) as here:
            long = "/rows/" + "a" * 200
            for path, more, status in (
                (long, {}, 414),
                ("/rows/a", {"x": "1", "y": "2", "z": "3"}, 431),
                ("/rows/a", {"expect": "200-ok"}, 417),
            ):
                said = request("DELETE", path, here.host, **OFFER, **more)
                for pieces in ([said], [said[:70], said[70:]]):
                    caller = await here.call()
                    for piece in pieces:
                        caller.writer.write(piece)
                        await asyncio.sleep(0.01)
                    caller.writer.write(request("DELETE", "/rows/b", here.host))
                    got = await answer(caller)
                    assert got.status == status
                    assert await closes(caller)

    run(story, loop)


@both
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_offer_that_is_not_taken_up_harms_nobody(loop: str, version: str) -> None:
    """The control: Java's client offers h2c with every request, bodies too."""

    async def story() -> None:
        async with running_door(handler=show) as here:
            for body in (None, b"abc"):
                said = request("POST", "/a", here.host, body, **OFFER)
                caller = await here.call(said.replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
                got = await answer(caller)
                assert got.status == 200
                assert got.body.startswith(b"POST /a\n")
                assert got.body.endswith(b"\n" + (body or b""))
                assert b"upgrade" not in got.body
                if version == "1.0":
                    assert await closes(caller)
                else:
                    caller.writer.write(request("GET", "/health", here.host))
                    assert (await answer(caller)).status == 200

    run(story, loop)


# Pipelines.


@both
@pytest.mark.parametrize("cut", [1_000, 40_000, 1 << 20])
def test_requests_in_one_read_are_not_one_long_head(loop: str, cut: int) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            count = 60
            said = request("GET", "/p", here.host, x="y" * 3_000) * count
            caller = await here.call()

            async def send() -> None:
                for at in range(0, len(said), cut):
                    caller.writer.write(said[at : at + cut])
                    await caller.writer.drain()

            sending = asyncio.create_task(send())
            for _ in range(count):
                assert (await answer(caller)).status == 200
            await sending

    run(story, loop)


@both
def test_a_head_that_comes_in_pieces_is_counted_once(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            said = request("GET", "/p", here.host, **{f"x{n}": "y" * 450 for n in range(50)})
            caller = await here.call()
            for at in range(0, len(said), 400):  # 24 KB of the 32 that are allowed
                caller.writer.write(said[at : at + 400])
                await asyncio.sleep(0)
            assert (await answer(caller)).status == 200

    run(story, loop)


@both
@pytest.mark.parametrize("piece", [b"x", b"x: y\r\n"])
def test_a_head_without_end_is_refused(loop: str, piece: bytes) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            caller = await here.call(f"GET / HTTP/1.1\r\nHost: {here.host}\r\n".encode())
            for _ in range(64):
                caller.writer.write(piece * (4_096 // len(piece)))
            assert (await answer(caller)).status == 431

    run(story, loop)


# What one client may keep everybody else waiting for.

SETTINGS = HttpSettings()


class Classes(Doorkeeper):
    """Who has the token `critical` is."""

    def by_token(self, token: str) -> Identity | None:
        if token == "critical":
            return Identity(token, {Grant.CHECK}, criticality=Criticality.CRITICAL)
        return super().by_token(token)


def test_who_was_given_a_higher_class_goes_first_and_who_is_nobody_last() -> None:
    async def story() -> None:
        service, clock = Counting(), HandClock(0)
        http = LimiterHttp(service, service, Classes(everybody=False), clock, LimiterHttpSettings())
        door = HttpDoor(http.handle, clock, HttpSettings(turn_portions_max=16))
        asked = {"nobody's": 400, "checks": 50, "critical": 50}
        callers: dict[str, Wire] = {}
        for token, count in asked.items():
            callers[token] = Wire()
            protocol = door(PeerInfo("127.0.0.1", 1, Address("127.0.0.1", 80)))
            protocol.connection_made(callers[token])
            one = request(
                "GET",
                "/v1/check",
                "a",
                authorization=f"Bearer {token}",
                x_sluicegate_user="nobody",
                x_sluicegate_resource="/p",
            )
            protocol.data_received(one * count)
        order: list[str] = []
        while len(order) < 3:
            await asyncio.sleep(0)
            order += [
                token
                for token, wire in callers.items()
                if token not in order and wire.output.count(b"HTTP/1.1 ") == asked[token]
            ]
        assert order == ["critical", "checks", "nobody's"]
        assert callers["critical"].output.count(b"HTTP/1.1 200") == 50
        assert callers["nobody's"].output.count(b"HTTP/1.1 401") == 400

    run(story)


@both
@pytest.mark.parametrize("path", ["/health", "/p"])
def test_an_honest_caller_waits_for_few_requests_beside_a_pipeline(loop: str, path: str) -> None:
    """Counted, not timed: how many requests are answered between ask and answer."""

    async def story() -> None:
        async with running_door(handler=show) as here:
            flood, honest = await here.call(), await here.call()
            one = request("GET", path, here.host)
            ask = request("GET", "/health", here.host)

            async def send() -> None:
                while True:
                    flood.writer.write(one * ((1 << 18) // len(one)))
                    await flood.writer.drain()

            async def read() -> None:
                while await flood.reader.read(1 << 20):
                    pass

            tasks = [asyncio.create_task(each()) for each in (send, read)]
            while here.door.requests < 500:
                await asyncio.sleep(0)
            waits = []
            for _ in range(50):
                before = here.door.requests
                honest.writer.write(ask)
                assert (await answer(honest)).status == 200
                waits.append(here.door.requests - before)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # A turn of one connection, by the KiB; the way takes some turns of the loop.
            turn = SETTINGS.connection_portions_max * (1_024 // len(one) + 1)
            assert sorted(waits)[25] <= 8 * turn
            assert max(waits) <= 32 * turn

    run(story, loop)


@both
def test_a_pipeline_that_ends_is_answered_to_its_end(loop: str) -> None:
    """The control: no request is lost at the border of a turn, nor when the client says no more."""

    async def story() -> None:
        async with running_door(handler=show) as here:
            count = 2_000
            said = b"".join(request("GET", f"/{number}", here.host) for number in range(count))
            caller = await here.call(said)
            caller.writer.write_eof()
            for number in range(count):
                assert (await answer(caller)).body.startswith(f"GET /{number}\n".encode())
            assert await closes(caller)

    run(story, loop)


@both
def test_bodies_that_wait_for_an_earlier_answer_are_bounded(loop: str) -> None:
    async def story() -> None:
        held: asyncio.Event = asyncio.Event()

        async def slow(body: bytes) -> HttpReply:
            await held.wait()
            return HttpReply(200, str(len(body)).encode(), TEXT)

        async with running_door(
            handler=lambda _: slow, http=HttpSettings(body_bytes_max=100_000)
        ) as here:
            caller = await here.call()
            said = request("POST", "/", here.host, b"x" * 90_000) * 60

            async def send() -> None:
                caller.writer.write(said)
                await caller.writer.drain()

            sending = asyncio.create_task(send())
            while here.door.requests < 3:
                await asyncio.sleep(0.001)
            for _ in range(100):
                await asyncio.sleep(0)
            assert here.door.requests < 8  # the rest is in the sockets, or with the client
            held.set()
            for _ in range(60):
                assert (await answer(caller)).body == b"90000"
            await sending

    run(story, loop)


# What stands in the first line and in the framing.


async def status_of(here: RunningDoor, said: str) -> int:
    caller = await here.call(said.encode("latin-1"))
    return (await answer(caller)).status


@both
def test_what_is_not_http_1_is_refused(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            host = here.host
            for version, status in (("2.0", 505), ("0.9", 505), ("1.1", 200), ("1.0", 200)):
                assert (
                    await status_of(here, f"GET / HTTP/{version}\r\nHost: {host}\r\n\r\n") == status
                )

    run(story, loop)


@both
@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "identity, chunked"])
def test_a_coding_that_nobody_undoes_is_refused(loop: str, coding: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            said = f"POST / HTTP/1.1\r\nHost: {here.host}\r\nTransfer-Encoding: {coding}\r\n\r\n"
            caller = await here.call(said.encode() + b"3\r\nabc\r\n0\r\n\r\n")
            assert (await answer(caller)).status == 501
            assert await closes(caller)
            said = said.replace(coding, "Chunked")  # the control
            caller = await here.call(said.encode() + b"3\r\nabc\r\n0\r\n\r\n")
            assert (await answer(caller)).body.endswith(b"\nabc")

    run(story, loop)


@both
def test_a_target_that_names_another_host_is_refused(loop: str) -> None:
    async def story() -> None:
        async with running_door(handler=show) as here:
            host = here.host
            for target, status in (
                (f"http://{host}/a", 200),  # the control: what a proxy's client sends
                (f"HTTP://{host.upper()}/a", 200),
                (f"http://{host}/a?b=c", 200),
                ("http://elsewhere.example/a", 400),
                (f"http://user@{host}/a", 400),
                (f"ftp://{host}/a", 400),
                (f"http://{host}@elsewhere.example/a", 400),
                (f"http://{host}.elsewhere.example/a", 400),
            ):
                said = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
                assert (target, await status_of(here, said)) == (target, status)

    run(story, loop)


# Names.


def test_a_page_whose_name_was_turned_to_us_drives_no_open_service(tmp_path: Path) -> None:
    """DNS rebinding: a browser sends its page's name as Host, and thinks we are that site."""
    port = free_port("127.0.0.1")
    flags = ["--listen", f"0.0.0.0:{port}", "--insecure", "--engine", "memory:"]
    with KvProcess(tmp_path, *flags, port=port) as kv:

        def put(host: str) -> int:
            return kv.ask("/v1/tables/t/rows/a", {}, method="PUT", headers={"Host": host})[0]

        for name in ("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}"):
            assert put(name) == 421
        # The controls: who asks by an address, as probes and scrapers do, and health by any name.
        for name in (
            f"127.0.0.1:{port}",
            f"localhost:{port}",
            f"10.1.2.3:{port}",
            "[fe80::1]:7080",
        ):
            assert put(name) == 204
        assert kv.ask("/healthz", headers={"Host": "evil.example"})[0] == 200


def test_an_open_service_is_called_by_the_names_it_was_given(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    flags = ["--listen", f"0.0.0.0:{port}", "--insecure", "--engine", "memory:"]
    with KvProcess(tmp_path, *flags, "--hosts", "kv.internal", port=port) as kv:
        for name, status in (
            ("kv.internal", 200),
            ("evil.example", 421),
            (f"localhost:{port}", 200),
        ):
            assert kv.ask("/v1/state", headers={"Host": name})[0] == status


def test_a_service_that_asks_for_a_secret_is_called_by_any_name(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    flags = [
        "--listen",
        f"0.0.0.0:{port}",
        "--insecure",
        "--engine",
        "memory:",
        "--token",
        "s" * 32,
    ]
    with KvProcess(tmp_path, *flags, port=port) as kv:
        balanced = {"Host": "kv.example"}
        assert kv.ask("/v1/state", token="s" * 32, headers=balanced)[0] == 200
        assert kv.ask("/v1/state", headers=balanced)[0] == 401


@both
@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12),
    ],
    ids=["v1", "v2"],
)
def test_a_proxys_header_is_refused_by_its_name(loop: str, header: bytes) -> None:
    """It was taken for RESP, whose error a load balancer's owner has to make sense of."""

    async def story() -> None:
        async with running_door(handler=show) as here:
            got = await answer(await here.call(header + request("GET", "/", here.host)))
            assert got.status == 400
            assert b"not the PROXY protocol" in got.body

    run(story, loop)


def test_health_is_told_as_envoys_rate_limit_service_tells_it() -> None:
    async def story() -> None:
        service = Counting()
        async with running_door(service=service, everybody=False) as here:
            got = await here.ask("GET", "/healthcheck")
            assert (got.status, got.body) == (200, b"OK")
            service.ready = "the store is away"
            got = await here.ask("GET", "/healthcheck")
            assert (got.status, got.body) == (500, b"the store is away")

    run(story)
