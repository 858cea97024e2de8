"""HTTP/2 and gRPC by hand, on a real socket: what is sent is spelled by `tests.wire.h2_peer`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sluicegate.wire.h2 import frames as f
from tests.apps.kv.process import KvProcess
from tests.attacks.prober import Probe, connected
from tests.wire.h2_peer import Frame, frame, headers, settings, update

READ_BYTES: Final = 1 << 18
_PING: Final = b"all read"


def request_fields(path: str, *more: tuple[str, str]) -> Sequence[tuple[str, str]]:
    """The head of a gRPC request."""
    return (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *more,
    )


HEALTH: Final = request_fields("/grpc.health.v1.Health/Check")


def message(body: bytes, *, packed: bool = False) -> bytes:
    """A gRPC message."""
    return bytes((packed,)) + len(body).to_bytes(4, "big") + body


PEEK: Final = request_fields("/sluicegate.v1.RateLimiter/Peek")
PEEKED: Final = message(b"\x0a\x03ann\x12\x02/a")

MIB: Final = 1 << 20
GET: Final = request_fields("/sluicegate.v1.KeyValues/Get")
SMALL: Final = message(b"\x0a\x01t\x12\x05small")  # the places of two rows
LARGE: Final = message(b"\x0a\x01t\x12\x05large")


@contextmanager
def rows(folder: Path) -> Iterator[KvProcess]:
    """A key-value service with a row of 20,000 bytes, and one of 1 MiB."""
    # What the dispatcher itself refuses, on a busy machine or beyond a quota, is not tried here.
    flags = ("--engine", f"lmdb:{folder / 'data'}", "--policy", "none")
    with KvProcess(folder, *flags) as server:
        assert server.redis().set("t:small", bytes(20_000))
        assert server.redis().set("t:large", bytes(MIB))
        yield server


def call(stream: int, fields: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """A whole unary call."""
    head = frame(f.HEADERS, f.END_HEADERS, stream, headers(fields))
    return head + frame(f.DATA, f.END_STREAM, stream, body)


class H2Socket:
    """A client's side of one connection; `sent_bytes` counts."""

    def __init__(self, sock: socket.socket, *pairs: tuple[int, int]) -> None:
        self.sock = sock
        self.sent_bytes = 0
        self.ended = False
        self._rest = b""
        self._last_stream = -1
        self.send(f.PREFACE, settings(*pairs))

    def send(self, *what: bytes) -> None:
        """Send it all; a service that has ended the connection is no fault here."""
        data = b"".join(what)
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.ended = True
        self.sent_bytes += len(data)

    def next_stream(self) -> int:
        """A stream that was not used yet."""
        self._last_stream += 2
        return self._last_stream

    def frames(self) -> Iterator[Frame]:
        """All frames until the connection ends; what is read is room for more."""
        while True:
            while len(self._rest) >= f.HEAD_BYTES:
                size = int.from_bytes(self._rest[:3], "big") + f.HEAD_BYTES
                if len(self._rest) < size:
                    break
                one, self._rest = self._rest[:size], self._rest[size:]
                yield Frame(one[3], one[4], int.from_bytes(one[5:9], "big"), one[9:])
            try:
                data = self.sock.recv(READ_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
                return
            self._rest += data

    def call(self, fields: Sequence[tuple[str, str]], body: bytes) -> bytes:
        """One unary call, with this as its body; the response's body."""
        stream = self.next_stream()
        self.send(call(stream, fields, body))
        found = b""
        for one in self.frames():
            if one.kind == f.SETTINGS and not one.flags & f.ACK:
                self.send(f.SETTINGS_ACK)
            if one.stream != stream:
                continue
            if one.kind == f.DATA:
                found += one.payload
                if one.payload:
                    self.send(update(0, len(one.payload)))
            if one.kind == f.RST_STREAM or one.flags & f.END_STREAM:
                break
        return found

    def settle(self) -> bool:
        """Wait until all that was sent has been dealt with; False if that ended the connection."""
        self.send(frame(f.PING, 0, 0, _PING))
        return any(one.kind == f.PING and one.payload == _PING for one in self.frames())


@contextmanager
def grpc_health(port: int) -> Iterator[Probe]:
    """grpc.health.v1.Health/Check, on one connection."""
    with connected(port) as sock:
        peer = H2Socket(sock)

        def ask() -> None:
            found = peer.call(HEALTH, message(b""))
            assert found == message(b"\x08\x01"), found

        yield ask
