"""Random bytes at the doors: nothing fails, nobody else waits, and no cut changes an answer.

Each seed makes messages out of pieces that are right, nearly right and nonsense. They are sent
whole, then cut at random places, to a fresh connection each; what is answered must be the same to
the byte, of HTTP/2 without the windows. An honest caller on a connection of its own is answered
after each.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import hiredis
import pytest

from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.sniff import sniff
from sluicegate.testing import HandClock
from sluicegate.wire.h2 import frames as f
from sluicegate.wire.proxy_protocol import ProxyFault, read_proxy_header
from sluicegate.wire.resp import command
from tests.attacks.h2_socket import HEALTH, request_fields
from tests.attacks.h2_socket import message as grpc_message
from tests.doors.grpc.servers import Door, Work
from tests.doors.listening import run
from tests.doors.resp.service import Service, Tokens
from tests.doors.resp.talk import Wire
from tests.prove.seeds import seeds
from tests.wire.h2_peer import GREETING, frame, headers, parsed, setting, settings, update

MESSAGES = 300  # a seed
PEER = PeerInfo("127.0.0.1", 1, Address("127.0.0.1", 80))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # said only where the body has not come with the head
PING, PONG = command("PING"), b"+PONG\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

RESP_PIECES = [
    PING,
    b"PING\r\n",
    b"ping hello\r\n",
    command("ECHO", "x" * 300),
    command("CL.THROTTLE", "k", 1, 1, 60),
    command("CL.THROTTLE", b"\xff" * 400, 0, 1, 60, 1),
    command("SELECT", 0),
    command("HELLO", 3),
    command("NOPE"),
    b'ECHO "a\\x00\\n\r\n',
    b"ECHO 'a b'\r\n",
    b"\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n",
    b"$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$",
    b"5000\r\n" + b"y" * 5_000,
    b"*99999999999\r\n",
    b"$-1\r\n",
    b":1\r\n",
    b"\x00",
    b"*1\r\n$70000\r\n",
]
HTTP_PIECES = [
    GET,
    b"GET /a%20b?c=d HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 900 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n" + b"z" * 3_000,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"3\r\nabc\r\n",
    b"5;x=y\r\nabcde\r\n",
    b"0\r\n\r\n",
    b"0\r\nAuthorization: x\r\n\r\n",
    b"1\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\n",
    b"Host: a\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Length: 9\r\n",
    b"\x00",
    b"\xff\xfe",
    b"GET ",
]


ECHO = request_fields("/t.Test/Echo")
BLOCK = headers(ECHO)
HELLO = grpc_message(b"hello")
CALL = frame(f.HEADERS, f.END_HEADERS, 1, BLOCK) + frame(f.DATA, f.END_STREAM, 1, HELLO)


def _head(fields: Sequence[tuple[str, str]], flags: int = f.END_HEADERS) -> Callable[[int], bytes]:
    return lambda stream: frame(f.HEADERS, flags, stream, headers(fields))


def _body(data: bytes, flags: int = 0) -> Callable[[int], bytes]:
    return lambda stream: frame(f.DATA, flags, stream, data)


def _always(data: bytes) -> Callable[[int], bytes]:
    return lambda _: data


GRPC_PIECES: list[Callable[[int], bytes]] = [
    *[_head(ECHO)] * 6,
    *[_body(HELLO, f.END_STREAM)] * 6,
    _head(ECHO, f.END_HEADERS | f.END_STREAM),
    _head(HEALTH),
    _head(request_fields("/t.Test/Nope")),
    _head(request_fields("/t.Test/Name")),
    _head([*ECHO, ("grpc-encoding", "gzip")]),
    _head([*ECHO, ("grpc-timeout", "nonsense")]),
    _head([*ECHO, ("authorization", "Bearer nobody's")]),
    _head([*ECHO, ("content-length", "9")]),
    _head([*ECHO, (":late", "x")]),
    _head([("x", "y" * 20_000)]),
    _head([("trailer", "x")], f.END_HEADERS | f.END_STREAM),
    lambda stream: frame(f.HEADERS, 0, stream, BLOCK[:9]),
    lambda stream: frame(f.CONTINUATION, f.END_HEADERS, stream, BLOCK[9:]),
    lambda stream: (
        frame(f.HEADERS, 0, stream, BLOCK[:9])
        + frame(f.CONTINUATION, f.END_HEADERS, stream, BLOCK[9:])
    ),
    _body(HELLO[:4]),
    _body(HELLO[4:], f.END_STREAM),
    _body(grpc_message(bytes(20_000), packed=True), f.END_STREAM),
    _body(b"\x04" + HELLO + bytes(4), f.END_STREAM | f.PADDED),
    _body(b"\xff\xff\xff\xff\xff"),
    _body(b"", f.END_STREAM),
    lambda stream: frame(f.RST_STREAM, 0, stream, bytes(4)),
    lambda stream: update(stream, 1),
    lambda stream: update(stream, f.WINDOW_MAX),
    lambda stream: frame(f.PRIORITY, 0, stream, bytes(5)),
    _always(update(0, 1_000)),
    _always(settings((f.INITIAL_WINDOW_SIZE, 3))),
    _always(settings((f.INITIAL_WINDOW_SIZE, 70_000), (f.HEADER_TABLE_SIZE, 0))),
    _always(frame(f.SETTINGS, f.ACK, 0)),
    _always(frame(f.SETTINGS, 0, 0, setting(99, 1) * 40)),
    _always(frame(f.PING, 0, 0, b"12345678")),
    _always(frame(250, 255, 3, b"unknown")),
]


class HalfWire(Wire):
    """A transport that may say that it says no more."""

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.is_closing()


def message(pieces: Sequence[bytes], rng: random.Random) -> bytes:
    """Some pieces, and sometimes a byte of them that is another, one more, or missing."""
    return bent(rng, b"".join(rng.choices(pieces, k=rng.randrange(1, 40))))


def calls(rng: random.Random) -> bytes:
    """Some frames of one stream after the other."""
    stream, said = 1, []
    for _ in range(rng.randrange(1, 40)):
        said.append(rng.choice(GRPC_PIECES)(stream))
        stream += rng.choice((0, 0, 2))
    return GREETING + bent(rng, b"".join(said))


def bent(rng: random.Random, straight: bytes) -> bytes:
    """The same, or with a byte that is another, one more, or missing."""
    said = bytearray(straight)
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(said) + 1)
        said[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(2))
    return bytes(said) or b" "


def cut(rng: random.Random, said: bytes) -> list[bytes]:
    """The same in pieces; sometimes byte by byte."""
    count = min(len(said), rng.choice((2, 5, 40, 1_500)))
    ends = sorted(rng.sample(range(1, len(said) + 1), count))
    return [said[first:end] for first, end in zip([0, *ends], [*ends, len(said)], strict=True)]


async def answer_to(protocol: asyncio.Protocol, pieces: Sequence[bytes]) -> bytes:
    """All that is written to these, each sent once the one before it has been read."""
    wire = HalfWire()
    protocol.connection_made(wire)
    for piece in pieces:
        while not (wire.is_reading() or wire.is_closing()):
            await asyncio.sleep(0)
        if wire.is_closing():
            break
        if piece:
            protocol.data_received(piece)
    before = -1
    while before != len(wire.writes) or not (wire.is_reading() or wire.is_closing()):
        before = len(wire.writes)
        for _ in range(4):
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    return wire.output


def echo(asked: HttpRequest) -> HttpReply | Finish:
    """Says what it was asked, the names of the head included."""
    names = b" ".join(name for name, _ in asked.headers)
    line = f"{asked.method} {asked.path} ".encode() + asked.query + b" " + names + b"\n"
    return lambda body: HttpReply(200, line + body, TEXT)


def make_resp() -> Callable[[], asyncio.Protocol]:
    return RespDoor(Service(), Tokens(), RespSettings()).protocol


def make_http() -> Callable[[], asyncio.Protocol]:
    door = HttpDoor(echo, HandClock(0), HttpSettings())

    def make() -> asyncio.Protocol:
        assert door.faults == door.under_way == 0
        return door(PEER)

    return make


def make_grpc() -> Callable[[], asyncio.Protocol]:
    door = GrpcDoor(Work().methods(), Door(), HandClock(0), GrpcSettings())

    def make() -> asyncio.Protocol:
        assert door.counts.backlog_bytes == len(door.open) == 0
        return cast("asyncio.Protocol", door())

    return make


def as_is(answer: bytes) -> bytes:
    """All of it counts."""
    return answer


def without_continue(answer: bytes) -> bytes:
    """Without what is said only where a body has not come with its head."""
    return answer.replace(CONTINUE, b"")


def without_windows(answer: bytes) -> bytes:
    """Without what depends on how much came at a time."""
    return b"".join(frame(*one) for one in parsed(answer) if one.kind != f.WINDOW_UPDATE)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(50, 4))
@pytest.mark.parametrize(
    ("make", "spell", "counts", "honest", "answered"),
    [
        (make_resp, partial(message, RESP_PIECES), as_is, PING, PONG),
        (make_http, partial(message, HTTP_PIECES), without_continue, GET, b"HTTP/1.1 200 OK"),
        (make_grpc, calls, without_windows, GREETING + CALL, HELLO),
    ],
    ids=["RESP", "HTTP/1.1", "gRPC"],
)
def test_no_cut_changes_an_answer_and_nobody_else_is_harmed(
    make: Callable[[], Callable[[], asyncio.Protocol]],
    spell: Callable[[random.Random], bytes],
    counts: Callable[[bytes], bytes],
    honest: bytes,
    answered: bytes,
    seed: int,
) -> None:
    rng = random.Random(seed)

    async def story() -> None:
        for _ in range(MESSAGES):
            said = spell(rng)
            whole = make()
            expected = counts(await answer_to(whole(), [said]))
            apart = make()
            got = counts(await answer_to(apart(), cut(rng, said)))
            assert got == expected, said
            for door in (whole, apart):
                assert answered in await answer_to(door(), [honest]), said
            if make is make_resp:
                reader = hiredis.Reader()
                reader.feed(got)
                while reader.gets() is not False:  # each reply is one that a client understands
                    pass

    run(story)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(50, 4))
def test_the_language_of_a_connection_is_known_or_not_yet_and_never_changes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(MESSAGES):
        said = message([*RESP_PIECES, *HTTP_PIECES], rng)[:4_096]
        kinds = [sniff(said[:length]) for length in range(len(said) + 1)]
        known = [kind for kind in kinds if kind is not None]
        assert len(set(known)) <= 1, said
        assert kinds[len(kinds) - len(known) :] == known, said


PROXY_PIECES = [
    b"PROXY ",
    b"TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
    b"TCP6 2001:db8::1 ::1 1 2",
    b"UNKNOWN",
    b"\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n",
    b"\x21\x11\x00\x0c" + bytes(12),
    b"\x21\x21\x00\x24" + bytes(36),
    b"\x20\x00\x00\x00",
    b"\x21\x11\xff\xff",
    GET,
]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(50, 4))
def test_a_proxys_header_is_whole_or_a_fault_or_not_yet_and_that_never_changes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(MESSAGES):
        said = message(PROXY_PIECES, rng)[:200]
        verdicts: list[object] = []
        for length in range(len(said) + 1):
            try:
                verdicts.append(read_proxy_header(said[:length]))
            except ProxyFault:
                verdicts.append("a fault")
        known = [verdict for verdict in verdicts if verdict is not None]
        assert len(set(known)) <= 1, said
        assert verdicts[len(verdicts) - len(known) :] == known, said


@pytest.mark.parametrize(
    ("make", "said"), [(make_resp, PING), (make_http, GET)], ids=["RESP", "HTTP/1.1"]
)
def test_closed_connections_leave_nothing_that_only_the_collector_could_free(
    make: Callable[[], Callable[[], asyncio.Protocol]], said: bytes
) -> None:
    async def story() -> None:
        new = make()
        await answer_to(new(), [said])
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                await answer_to(new(), [said])
            assert gc.collect() < 50
        finally:
            gc.enable()

    run(story)
