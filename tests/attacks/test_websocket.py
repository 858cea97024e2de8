"""Attacks on the WebSocket of `sluicegate pubsub`: raw sockets, and an honest caller beside."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import frame, handshake, talk
from tests.apps.pubsub.test_whole import ENDED, UNLIMITED
from tests.attacks.prober import Attack, Prober, connected, http_health, measure
from tests.engines.child import until

PEAK_BYTES_MAX = 8 << 20
FLOOD_BYTES = 12 << 20  # more than the sockets of both ends hold
BESIDE_S_MAX = 1.0  # an honest caller waits no longer, on a busy machine
TEXT, CONT, PING, PONG = Opcode.TEXT, Opcode.CONT, Opcode.PING, Opcode.PONG


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubProcess]:
    with PubSubProcess(tmp_path_factory.mktemp("attacks"), *UNLIMITED) as running:
        yield running


@contextmanager
def opened(server: PubSubProcess, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """A WebSocket."""
    with connected(server.port, receive_bytes=receive_bytes) as sock:
        sock.sendall(handshake(server.port))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield sock


def send_all(sock: socket.socket, data: bytes) -> None:
    """Send as much as it takes: it may end the connection in the middle."""
    with suppress(OSError):
        sock.sendall(data)


def close_code(sock: socket.socket) -> int:
    """The code that it ends with; 0 is none."""
    data = b""
    try:
        while more := sock.recv(65_536):
            data = (data + more)[-300:]
    except ConnectionResetError:
        pass
    at = data.rfind(b"\x88")
    return int.from_bytes(data[at + 2 : at + 4], "big") if at >= 0 else 0


def harmless(server: PubSubProcess) -> None:
    """It still serves: over a WebSocket too."""
    with talk(server) as client:
        assert client.ask("publish", channel="beside", data=1)["type"] == "accepted"


def survives(server: PubSubProcess, attack: Attack) -> None:
    """The attack takes bounded memory, and an honest caller is served beside it."""
    with http_health(server.port) as probe:
        report = measure(server, attack, probe)
    assert report.peak_bytes < PEAK_BYTES_MAX
    assert report.latency_s(0.5) < BESIDE_S_MAX
    harmless(server)
    until(lambda: server.metric("sluicegate_pubsub_sockets") == 0, "the attacker to be forgotten")


HUGE = (1 << 40).to_bytes(8, "big")
BROKEN = {
    "a giant frame": (b"\x81\xff" + HUGE + b"mask" + b"x" * 1_000_000, 1009),
    "fragments far beyond what a message may have": (
        frame(TEXT, b"x" * 10_000, fin=False) + frame(CONT, b"x" * 10_000, fin=False) * 110,
        1009,
    ),
    "invalid UTF-8": (frame(TEXT, b'{"type":"\xff"}'), 1007),
    "invalid UTF-8 over two fragments": (
        frame(TEXT, b"\xc3", fin=False) + frame(CONT, b"\x28"),
        1007,
    ),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "a frame without a mask": (Frame(TEXT, b"{}").serialize(mask=False), 1002),
    "a continuation of nothing": (frame(CONT, b"x"), 1002),
    "a message within a message": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002),
    "a long ping": (b"\x89\xfe\x00\x7e" + b"mask" + b"x" * 126, 1002),
    "a ping in fragments": (b"\x09\x80mask", 1002),
    "a reserved bit": (b"\xc1\x80mask", 1002),
    "an operation nobody knows": (b"\x83\x80mask", 1002),
    "a close that is too short": (b"\x88\x81\0\0\0\0x", 1002),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_protocol_ends_its_connection_and_no_other(
    server: PubSubProcess, name: str
) -> None:
    data, code = BROKEN[name]

    def attack() -> int:
        with opened(server) as sock:
            send_all(sock, data)
            assert close_code(sock) == code
        return len(data)

    survives(server, attack)


@pytest.mark.parametrize("name", ["a giant frame", "invalid UTF-8", "a frame without a mask"])
def test_it_is_the_same_byte_by_byte(server: PubSubProcess, name: str) -> None:
    data, code = BROKEN[name]
    with opened(server) as sock:
        for at in range(min(len(data), 64)):
            send_all(sock, data[at : at + 1])
        assert close_code(sock) == code


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", frame(PING, b"x" * 125)),
        (b"", frame(PONG)),
        (frame(TEXT, b"", fin=False), frame(CONT, b"", fin=False)),
    ],
    ids=["pings", "pongs", "fragments without end or content"],
)
def test_a_flood_of_frames_is_read_at_its_pace(tmp_path: Path, first: bytes, piece: bytes) -> None:
    """The sender is held up by its own socket, whoever sends less is not."""
    flags = (*UNLIMITED, "--received-rate", "500")
    with PubSubProcess(tmp_path, *flags) as server:
        body = first + piece * (FLOOD_BYTES // len(piece))

        def attack() -> int:
            sent = 0
            with opened(server, receive_bytes=4_096) as sock:
                sock.settimeout(1.0)  # it is not taken for so long
                with suppress(OSError):
                    while sent < len(body):
                        sent += sock.send(body[sent : sent + 65_536])
            return sent

        with http_health(server.port) as probe:
            report = measure(server, attack, probe)
        assert report.sent_bytes < len(body)
        assert report.cpu_s < 1.5
        assert report.peak_bytes < PEAK_BYTES_MAX
        assert report.latency_s(0.5) < BESIDE_S_MAX
        assert server.metric("sluicegate_pubsub_rested_total") > 0
        harmless(server)


def test_ten_thousand_subscriptions_of_a_connection_are_refused(server: PubSubProcess) -> None:
    def attack() -> int:
        with talk(server) as client, Prober(lambda: harmless(server)):
            types = [
                client.ask("subscribe", channel=f"many-{n}")["type"] for n in range(0, 10_000, 5)
            ]
            assert types.count("subscribed") == 100
            assert server.metric("sluicegate_pubsub_channels") < 110
        return 10_000

    survives(server, attack)


def test_who_never_reads_costs_bounded_memory_and_hears_of_its_loss(tmp_path: Path) -> None:
    """On a slow machine it takes nothing for `write_stall_s_max`, and is cut off: it resumes."""
    count, text = 600, "x" * 40_000  # far more than sockets and history hold
    flags = (*UNLIMITED, "--history-bytes", "500_000")
    with (
        PubSubProcess(tmp_path, *flags) as server,
        ExitStack() as stack,
        Subscriber(server, "news") as quick,
    ):

        def subscribe(more: bytes = b"") -> socket.socket:
            sock = stack.enter_context(opened(server, receive_bytes=4_096))
            sock.sendall(frame(TEXT, b'{"type":"subscribe","id":1,"channel":"news"%b}' % more))
            return sock

        told = messages(subscribe())
        assert next(told)["type"] == "subscribed"
        positions: list[int] = []

        def attack() -> int:
            for n in range(count):
                positions.append(server.accept("news", [n, text]))
                assert quick.take(1)[0][0] == n  # the control: it misses nothing
            return count * len(text)

        assert measure(server, attack).peak_bytes < PEAK_BYTES_MAX  # of 24 MB
        delivered = lost = 0
        while delivered + lost < count:
            try:
                one = next(told)
            except (EOFError, ConnectionError):
                assert server.metric(ENDED, why="not_reading") > 0
                last = positions[delivered + lost - 1] if delivered + lost else 0
                told = messages(subscribe(b',"after":%d' % last))
                continue
            if one["type"] == "message":
                assert one["position"] == positions[delivered + lost]
                delivered += 1
            elif one["type"] == "gap":
                between = [p for p in positions if one["after"] < p < one["before"]]
                assert one["lost"] in (len(between), None)  # nobody can tell who resumes
                lost += len(between)
        assert lost > 0
        assert delivered + lost == count
        assert server.metric("sluicegate_pubsub_gaps_total") > 0


def messages(sock: socket.socket) -> Iterator[dict[str, Any]]:
    """What comes, read by hand."""
    data = b""

    def need(size: int) -> bytes:
        nonlocal data
        while len(data) < size:
            more = sock.recv(65_536)
            if not more:
                raise EOFError("the stream has ended")
            data += more
        taken, data = data[:size], data[size:]
        return taken

    while True:
        opcode, size = need(2)
        if size == 126:
            size = int.from_bytes(need(2), "big")
        elif size == 127:
            size = int.from_bytes(need(8), "big")
        body = need(size)
        if opcode == 0x81 and b'"type":"welcome"' not in body:
            yield json.loads(body)


# Handshakes.


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda port: handshake(port, "Origin: https://evil.example"), 403),
        (lambda port: handshake(port, "Origin: null"), 403),
        (lambda port: handshake(port, "Sec-Fetch-Site: cross-site"), 403),
        (lambda port: handshake(port).replace(b"127.0.0.1", b"evil.example"), 421),
        (lambda port: handshake(port, key="c2hvcnQ="), 400),
        (lambda port: handshake(port, key="no base64!"), 400),
        (lambda port: handshake(port, "Sec-WebSocket-Key: " + "A" * 22 + "=="), 400),
        (lambda port: handshake(port, version="8"), 426),
        (lambda port: handshake(port, "Content-Length: 4") + b"body", 400),
        (lambda port: handshake(port).replace(b"GET", b"POST"), 405),
        (lambda port: handshake(port).replace(b"HTTP/1.1", b"HTTP/1.0"), 426),
        (lambda port: handshake(port).replace(b"Upgrade: websocket\r\n", b""), 426),
        (lambda port: handshake(port).replace(b"Upgrade: websocket", b"Upgrade: h2c"), 426),
    ],
)
def test_a_handshake_that_is_none_of_ours_is_refused(
    server: PubSubProcess, request_of: object, status: int
) -> None:
    assert callable(request_of)
    with connected(server.port) as sock:
        sock.sendall(request_of(server.port))
        assert sock.recv(65_536).split()[1] == str(status).encode()
    assert server.metric("sluicegate_pubsub_sockets") == 0


def test_our_own_page_and_a_program_are_let_in(server: PubSubProcess) -> None:
    own = f"Origin: http://127.0.0.1:{server.port}"
    for more in ((own, "Sec-Fetch-Site: same-origin"), ()):
        with connected(server.port) as sock:
            # What follows the handshake in the same bytes is not lost.
            asked = frame(TEXT, b'{"type":"subscribe","id":7,"channel":"news"}')
            sock.sendall(handshake(server.port, *more) + asked)
            data = b""
            while b"subscribed" not in data:
                piece = sock.recv(65_536)
                assert piece
                data += piece
            assert data.startswith(b"HTTP/1.1 101 ")


def test_a_handshake_after_other_requests_is_answered_in_their_order(
    server: PubSubProcess,
) -> None:
    health = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    with connected(server.port) as sock:
        sock.sendall(health * 3 + handshake(server.port) + frame(PING, b"here"))
        data = b""
        while not data.endswith(b"\x8a\x04here"):
            piece = sock.recv(65_536)
            assert piece
            data += piece
        assert data.count(b"HTTP/1.1 200 ") == 3
        assert data.index(b"HTTP/1.1 101 ") > data.rindex(b"HTTP/1.1 200 ")
