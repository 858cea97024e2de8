"""gRPC: what a message can make the service do, and who may send one."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from sluicegate.wire.h2 import frames as f
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import LimiterProcess
from tests.attacks.h2_socket import (
    GET,
    HEALTH,
    LARGE,
    MIB,
    PEEK,
    PEEKED,
    SMALL,
    H2Socket,
    call,
    grpc_health,
    message,
    rows,
)
from tests.attacks.prober import Report, connected, measure
from tests.wire.h2_peer import frame, headers, settings, update

CALLS = 20
PACKED = ("grpc-encoding", "gzip")
UNKNOWN = gzip.compress(b"\x0a\x00" + b"\x78\x00" * 2_090_000)
REPEATED = gzip.compress(b"\x0a\x00" * 2_090_000)


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimiterProcess]:
    with LimiterProcess(tmp_path_factory.mktemp("limiter")) as server:
        yield server


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    with rows(tmp_path_factory.mktemp("kv")) as server:
        yield server


def ask(server: LimiterProcess, fields: Sequence[tuple[str, str]], body: bytes, times: int) -> int:
    """The same call so many times, one after another."""
    with connected(server.port) as sock:
        peer = H2Socket(sock)
        for _ in range(times):
            peer.call(fields, body)
        return peer.sent_bytes


@pytest.mark.parametrize("packed", [UNKNOWN, REPEATED], ids=["unknown", "repeated"])
@pytest.mark.parametrize("fields", [HEALTH, PEEK], ids=["health", "peek"])
def test_a_packed_message_of_empty_fields_costs_no_more_than_what_is_received(
    limiter: LimiterProcess, fields: Sequence[tuple[str, str]], packed: bytes
) -> None:
    with grpc_health(limiter.port) as probe:
        # Honest calls; as many bytes of them would be fifty times as many calls.
        control = measure(limiter, lambda: ask(limiter, PEEK, PEEKED, 500), probe)
        body = message(packed, packed=True)
        report = measure(limiter, lambda: ask(limiter, (*fields, PACKED), body, CALLS), probe)
    assert report.cpu_s_per_kb < 3 * control.cpu_s_per_kb, (report, control)


def test_who_is_nobody_holds_little(limiter: LimiterProcess) -> None:
    """Health checks without an end: each announces 4 MiB, and sends as much as it may."""

    def attack() -> int:
        with connected(limiter.port) as sock:
            peer = H2Socket(sock)
            part = frame(f.DATA, 0, 1, bytes(16_000))
            for _ in range(64):
                stream = peer.next_stream()
                peer.send(
                    frame(f.HEADERS, f.END_HEADERS, stream, headers(HEALTH)),
                    frame(f.DATA, 0, stream, b"\0" + (4_000_000).to_bytes(4, "big")),
                    *[part[:5] + stream.to_bytes(4, "big") + part[9:]] * 15,
                )
            assert peer.settle()
            return peer.sent_bytes

    with grpc_health(limiter.port) as probe:
        report: Report = measure(limiter, attack, probe)
    assert report.peak_bytes < 4 << 20, report


# Responses that nobody takes.

WIDE = (f.INITIAL_WINDOW_SIZE, (1 << 31) - 1)
GETS = 900


def wide_open(sock: socket.socket) -> H2Socket:
    """A peer whose windows are as wide as they can be."""
    peer = H2Socket(sock, WIDE)
    peer.send(update(0, (1 << 31) - 1 - 65_535))
    return peer


def test_who_never_reads_is_held_a_bounded_backlog(kv: KvProcess) -> None:
    def attack() -> int:
        with ExitStack() as stack:
            sent = 0
            for _ in range(4):
                sock = stack.enter_context(connected(kv.port, receive_bytes=4_096))
                peer = wide_open(sock)
                peer.send(*[call(peer.next_stream(), GET, LARGE) for _ in range(GETS)])
                sent += peer.sent_bytes
            honest = H2Socket(stack.enter_context(connected(kv.port)))
            for _ in range(200):  # in as many turns all has been read that will be
                honest.call(HEALTH, message(b""))
            return sent

    with grpc_health(kv.port) as probe:
        report = measure(kv, attack, probe)
    # Half of backlog_bytes_max each, what a turn adds, and what the allocator keeps.
    assert report.peak_bytes < 4 * (16 << 20), report


@pytest.mark.parametrize("window", [65_535, WIDE[1]])
def test_who_reads_gets_all_that_it_asked_for(kv: KvProcess, window: int) -> None:
    with connected(kv.port) as sock:
        peer = wide_open(sock)
        peer.send(settings((f.INITIAL_WINDOW_SIZE, window)))
        peer.send(*[call(peer.next_stream(), GET, LARGE) for _ in range(200)])
        sizes: dict[int, int] = {}
        ended = 0
        for one in peer.frames():
            if one.kind == f.DATA:
                sizes[one.stream] = sizes.get(one.stream, 0) + len(one.payload)
                peer.send(update(0, len(one.payload)), update(one.stream, len(one.payload)))
            assert one.kind not in {f.RST_STREAM, f.GOAWAY}, one
            ended += one.flags & f.END_STREAM and one.kind == f.HEADERS
            if ended == 200:
                break
    assert len(sizes) == 200
    assert min(sizes.values()) > MIB


def test_a_service_that_is_full_of_responses_serves_who_reads(kv: KvProcess) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            peer = wide_open(stack.enter_context(connected(kv.port, receive_bytes=4_096)))
            peer.send(*[call(peer.next_stream(), GET, LARGE) for _ in range(20)])
        honest = wide_open(stack.enter_context(connected(kv.port)))
        for _ in range(50):
            assert len(honest.call(GET, SMALL)) > 20_000
