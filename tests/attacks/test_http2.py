"""HTTP/2: what one connection can make the service do, before anybody has said who it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.wire.h2 import frames as f
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import LimiterProcess
from tests.attacks.h2_socket import (
    GET,
    HEALTH,
    LARGE,
    PEEK,
    PEEKED,
    SMALL,
    H2Socket,
    call,
    grpc_health,
    rows,
)
from tests.attacks.prober import connected, measure
from tests.wire.h2_peer import frame, headers, setting, settings, update

WINDOWS_A_FRAME = f.FRAME_BYTES_MAX // len(setting(f.INITIAL_WINDOW_SIZE, 0))


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimiterProcess]:
    with LimiterProcess(tmp_path_factory.mktemp("limiter")) as server:
        yield server


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    with rows(tmp_path_factory.mktemp("kv")) as server:
        yield server


# Work for each byte.


def first_windows(server: LimiterProcess, streams: int) -> int:
    """Open streams that are never used, and change the first window of all, again and again."""
    change = settings(*[(f.INITIAL_WINDOW_SIZE, 65_535 + at % 2) for at in range(WINDOWS_A_FRAME)])
    with connected(server.port) as sock:
        peer = H2Socket(sock)
        opened = [
            frame(f.HEADERS, f.END_HEADERS, peer.next_stream(), headers(HEALTH))
            for _ in range(streams)
        ]
        peer.send(*opened)
        assert peer.settle()
        peer.send(*[change] * 40)
        peer.settle()
        return peer.sent_bytes


def test_first_windows_cost_no_more_with_many_streams(limiter: LimiterProcess) -> None:
    with grpc_health(limiter.port) as probe:
        control = measure(limiter, lambda: first_windows(limiter, 1), probe)
        report = measure(limiter, lambda: first_windows(limiter, 900), probe)
    # Opening the streams costs a little; that is spread over 655,000 bytes of SETTINGS.
    assert report.cpu_s < 3 * control.cpu_s + 0.3, (report, control)


def drops_of_window(server: LimiterProcess, streams: int) -> int:
    """Have many responses wait for their own windows, and open the connection's, byte by byte."""
    with connected(server.port) as sock:
        peer = H2Socket(sock, (f.INITIAL_WINDOW_SIZE, 0))
        peer.send(*[call(peer.next_stream(), PEEK, PEEKED) for _ in range(streams)])
        assert peer.settle()
        peer.send(update(0, 1) * 10_000)
        assert peer.settle()
        return peer.sent_bytes


def test_an_update_of_the_connection_costs_no_more_with_many_streams(
    limiter: LimiterProcess,
) -> None:
    with grpc_health(limiter.port) as probe:
        control = measure(limiter, lambda: drops_of_window(limiter, 1), probe)
        report = measure(limiter, lambda: drops_of_window(limiter, 600), probe)
    assert report.cpu_s < 3 * control.cpu_s + 0.5, (report, control)


def test_a_large_response_is_not_copied_for_each_byte_of_window(kv: KvProcess) -> None:
    def attack(row: bytes) -> int:
        with connected(kv.port) as sock:
            peer = H2Socket(sock, (f.INITIAL_WINDOW_SIZE, 0))
            peer.send(call(1, GET, row))
            assert peer.settle()
            peer.send(update(1, 1) * 19_000)
            assert peer.settle()
            return peer.sent_bytes

    with grpc_health(kv.port) as probe:
        control = measure(kv, lambda: attack(SMALL), probe)
        report = measure(kv, lambda: attack(LARGE), probe)
    # 20 GB would have been copied.
    assert report.cpu_s < 2 * control.cpu_s + 0.2, (report, control)


def test_a_block_of_table_sizes_costs_no_more_than_a_call(limiter: LimiterProcess) -> None:
    sizes = b"\x20" * f.FRAME_BYTES_MAX

    def attack() -> int:
        with connected(limiter.port) as sock:
            peer = H2Socket(sock)
            stream = peer.next_stream()
            peer.send(
                frame(f.HEADERS, f.END_STREAM, stream, sizes),
                frame(f.CONTINUATION, f.END_HEADERS, stream, sizes[:-100] + headers(PEEK)),
            )
            peer.settle()
            return peer.sent_bytes

    def honest() -> int:
        with connected(limiter.port) as sock:
            peer = H2Socket(sock)
            for _ in range(300):
                peer.call(PEEK, PEEKED)
            return peer.sent_bytes

    with grpc_health(limiter.port) as probe:
        control = measure(limiter, honest, probe)
        report = measure(limiter, attack, probe)
    assert report.cpu_s_per_kb < control.cpu_s_per_kb, (report, control)


def test_no_level_of_the_log_shows_a_token(tmp_path: Path) -> None:
    with LimiterProcess(tmp_path, "--log", "debug") as server:
        with connected(server.port) as sock:
            secret = ("authorization", "Bearer such-a-secret")
            H2Socket(sock).call((*PEEK, secret), PEEKED)
        assert server.ask("/healthz", token="such-a-secret")[0] in {200, 401}
        server.end()
        assert "such-a-secret" not in server.log.read_text()
