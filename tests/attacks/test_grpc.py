"""gRPC: what a message can make the service do, and who may send one."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence

import pytest

from sluicegate.wire.h2 import frames as f
from tests.apps.limiter.process import LimiterProcess
from tests.attacks.h2_socket import HEALTH, PEEK, PEEKED, H2Socket, grpc_health, message
from tests.attacks.prober import Report, connected, measure
from tests.wire.h2_peer import frame, headers

CALLS = 20
PACKED = ("grpc-encoding", "gzip")
UNKNOWN = gzip.compress(b"\x0a\x00" + b"\x78\x00" * 2_090_000)
REPEATED = gzip.compress(b"\x0a\x00" * 2_090_000)


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimiterProcess]:
    with LimiterProcess(tmp_path_factory.mktemp("limiter")) as server:
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
