"""Random bytes at the doors: nothing fails, nobody else waits, and no cut changes an answer.

Each seed makes messages out of pieces that are right, nearly right and nonsense. They are sent
whole, then cut at random places, to a fresh connection each; what is answered must be the same to
the byte. An honest caller on a connection of its own is answered after each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import hiredis
import pytest

from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.sniff import sniff
from sluicegate.testing import HandClock
from sluicegate.wire.resp import command
from tests.doors.listening import run
from tests.doors.resp.service import Service, Tokens
from tests.doors.resp.talk import Wire
from tests.prove.seeds import seeds

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


class HalfWire(Wire):
    """A transport that may say that it says no more."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.is_closing()


def message(rng: random.Random, pieces: Sequence[bytes]) -> bytes:
    """Some pieces, and sometimes a byte of them that is another, one more, or missing."""
    said = bytearray(b"".join(rng.choices(pieces, k=rng.randrange(1, 40))))
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


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(50, 4))
@pytest.mark.parametrize(
    ("make", "pieces", "honest", "answered"),
    [(make_resp, RESP_PIECES, PING, PONG), (make_http, HTTP_PIECES, GET, b"HTTP/1.1 200 OK")],
    ids=["RESP", "HTTP/1.1"],
)
def test_no_cut_changes_an_answer_and_nobody_else_is_harmed(
    make: Callable[[], Callable[[], asyncio.Protocol]],
    pieces: Sequence[bytes],
    honest: bytes,
    answered: bytes,
    seed: int,
) -> None:
    rng = random.Random(seed)

    async def story() -> None:
        for _ in range(MESSAGES):
            said = message(rng, pieces)
            whole = make()
            expected = (await answer_to(whole(), [said])).replace(CONTINUE, b"")
            apart = make()
            got = (await answer_to(apart(), cut(rng, said))).replace(CONTINUE, b"")
            assert got == expected, said
            for door in (whole, apart):
                assert (await answer_to(door(), [honest])).startswith(answered), said
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
        said = message(rng, [*RESP_PIECES, *HTTP_PIECES])[:4_096]
        kinds = [sniff(said[:length]) for length in range(len(said) + 1)]
        known = [kind for kind in kinds if kind is not None]
        assert len(set(known)) <= 1, said
        assert kinds[len(kinds) - len(known) :] == known, said
