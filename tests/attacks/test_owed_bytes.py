"""A client that repeats a request and reads nothing: its connection stays within its bound.

The service counts the bytes itself, as `sluicegate_APP_owed_bytes`: unsent replies and unprocessed
input. A reply is sent whole, so a connection may hold one reply more than its bound.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest
from websockets.frames import Opcode

from sluicegate.wire.resp import command
from tests.apps.kv.process import KvProcess
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.socket import frame, handshake, talk
from tests.apps.pubsub.test_whole import UNLIMITED
from tests.apps.server_process import ServerProcess
from tests.attacks.h2_socket import GET, LARGE, call, rows
from tests.attacks.prober import connected
from tests.attacks.test_grpc import wide_open

MIB: Final = 1 << 20
ASKED_BYTES: Final = 24 * MIB  # of replies: more than the kernel holds, and any bound
ASKED_MAX: Final = 2_000
HTTP_BYTES_MAX: Final = MIB  # what a turn gathers, what the socket buffers, and the next requests
RESP_BYTES_MAX: Final = (16 << 20) + (1 << 20)  # `replies_bytes_max`, and the commands behind
GRPC_BYTES_MAX: Final = (16 << 20) + (1 << 20)  # `h2.backlog_bytes_max`
WEBSOCKET_BYTES_MAX: Final = MIB  # `unread_bytes_max`, and what a turn reads
VALUE: Final = bytes(MIB)


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    with rows(tmp_path_factory.mktemp("kv")) as server:
        client = server.redis()
        for number in range(8):
            assert client.set(f"t:many:{number}", VALUE)
            assert client.mset({f"keys:p{number}:{one}": b"x" for one in range(100)})
        client.close()
        yield server


@pytest.fixture(scope="module")
def pubsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubProcess]:
    flags = (*UNLIMITED, "--presence-member-bytes", "60_000")
    with PubSubProcess(tmp_path_factory.mktemp("pubsub"), *flags) as server, talk(server) as client:
        for number in range(40):
            server.accept("news", "x" * 50_000)
            entered = client.ask("enter", channel="news", member=f"m{number}", data="x" * 50_000)
            assert entered["type"] == "entered"
        yield server


def http(method: str, path: str, body: bytes = b"") -> bytes:
    """A request on a connection that stays open."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


PLACES: Final = json.dumps(
    {"places": [{"partition": "many", "sort": str(number)} for number in range(8)]}
).encode()
KV_HTTP: Final = {
    "row": http("GET", "/v1/tables/t/rows/large"),
    "range": http("GET", "/v1/tables/t/range/many?bytes_max=4000000"),
    "rows:get": http("POST", "/v1/tables/t/rows:get", PLACES),
    "keys": http("GET", "/v1/tables/keys/keys?rows_max=10000"),
    "uploads": http("GET", "/v1/tables/t/uploads"),
    "hot": http("GET", "/v1/hot"),
    "audit": http("GET", "/v1/audit?user=ann"),
    "state": http("GET", "/v1/state"),
    "metrics": http("GET", "/metrics"),
    "document": http("GET", "/openapi.json"),
}
KV_RESP: Final = {
    "GET": command("GET", "t:large"),
    "MGET": command("MGET", *[f"t:many:{number}" for number in range(8)]),
    "SG.RANGE": command("SG.RANGE", "t:many"),
    "SCAN": command("SCAN", "0", "MATCH", "keys:*", "COUNT", "1000"),
    "EXEC": command("MULTI") + command("GETEX", "t:many:1") * 4 + command("EXEC"),
    "ECHO": command("ECHO", b"x" * 60_000),
    "COMMAND": command("COMMAND", "DOCS"),
    "CLIENT LIST": command("CLIENT", "LIST"),
    "INFO": command("INFO"),
}
PUBSUB_HTTP: Final = {
    "history": http("GET", "/v1/channels/news/messages?count=1000"),
    "presence": http("GET", "/v1/channels/news/presence?bytes=1048576"),
    "usage": http("GET", "/v1/usage"),
    "page": http("GET", "/"),
    "events": http("GET", "/v1/channels/news/events?after=0"),
}
PUBSUB_SOCKET: Final[dict[str, dict[str, object]]] = {
    "read": {"channel": "news", "count": 1_000},
    "members": {"channel": "news", "bytes": 1 << 20},
    "subscribe": {"channel": "news", "after": 0},
    "unsubscribe": {"channel": "news"},
    "publish": {"channel": "other", "data": 1},
    "enter": {"channel": "other", "member": "m", "data": 1},
    "leave": {"channel": "other", "member": "m"},
    "unknown": {"channel": "news"},
}


def owed(server: ServerProcess) -> int:
    """Return the bytes that its connections hold, once three readings agree."""
    found = [-1, -2, -3]
    while len({*found[-3:]}) > 1:
        found.append(int(server.metric(f"sluicegate_{server.app}_owed_bytes")))
    return found[-1]


@contextmanager
def deaf(port: int) -> Iterator[socket.socket]:
    """A connection of a client that reads nothing."""
    with connected(port, receive_bytes=4_096) as sock:
        sock.settimeout(2.0)  # then the service reads no more requests
        yield sock


def flood(sock: socket.socket, unit: bytes, reply_bytes: int) -> None:
    """Send requests for far more bytes than the bound, until the service stops reading."""
    times = min(ASKED_MAX, max(20, ASKED_BYTES // max(1, reply_bytes)))
    with suppress(OSError):
        sock.sendall(unit * times)


def length_of_reply(port: int, unit: bytes) -> int:
    """Return the length of a reply: all bytes until the connection is silent."""
    with connected(port) as sock:
        sock.sendall(unit)
        sock.settimeout(2.0)
        size = 0
        with suppress(TimeoutError):
            while data := sock.recv(1 << 20):
                size += len(data)
        return size


def holds_at_most(server: ServerProcess, unit: bytes, bytes_max: int) -> None:
    """A deaf client that asks this again and again."""
    size = length_of_reply(server.port, unit)
    assert size > 0
    with deaf(server.port) as sock:
        flood(sock, unit, size)
        assert owed(server) <= bytes_max + size
    assert server.ask("/healthz")[0] == 200


@pytest.mark.parametrize("name", KV_HTTP)
def test_kv_route_asked_by_deaf_client_is_bounded(kv: KvProcess, name: str) -> None:
    holds_at_most(kv, KV_HTTP[name], HTTP_BYTES_MAX)


@pytest.mark.parametrize("name", KV_RESP)
def test_command_asked_by_deaf_client_is_bounded(kv: KvProcess, name: str) -> None:
    holds_at_most(kv, KV_RESP[name], RESP_BYTES_MAX)


def test_grpc_call_of_deaf_client_is_bounded(kv: KvProcess) -> None:
    with deaf(kv.port) as sock:
        peer = wide_open(sock)
        with suppress(OSError):
            peer.send(*[call(peer.next_stream(), GET, LARGE) for _ in range(100)])
        assert 0 < owed(kv) <= GRPC_BYTES_MAX + MIB


@pytest.mark.parametrize("name", PUBSUB_HTTP)
def test_pubsub_route_asked_by_deaf_client_is_bounded(pubsub: PubSubProcess, name: str) -> None:
    holds_at_most(pubsub, PUBSUB_HTTP[name], HTTP_BYTES_MAX)


@pytest.mark.parametrize("name", PUBSUB_SOCKET)
def test_websocket_message_of_deaf_client_is_bounded(pubsub: PubSubProcess, name: str) -> None:
    asked = {"type": name, "id": 1, **PUBSUB_SOCKET[name]}
    unit = frame(Opcode.TEXT, json.dumps(asked).encode())
    with deaf(pubsub.port) as sock:
        sock.sendall(handshake(pubsub.port))
        flood(sock, unit, 1)
        assert owed(pubsub) <= WEBSOCKET_BYTES_MAX + (1 << 20) + 60_000
    assert pubsub.ask("/healthz")[0] == 200
