"""TLS: handshakes that do not end, records that are mostly frame, and what is not read."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.resp import command
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import LimiterProcess
from tests.attacks.h2_socket import GET, HEALTH, LARGE, MIB, H2Socket, call, message
from tests.attacks.prober import TIMEOUT_S, Probe, connected, measure
from tests.doors.test_tls import Authority
from tests.wire.h2_peer import update

STRANGERS = 200
PING, PONG = b"PING\r\n", b"+PONG\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def flags(authority: Authority) -> tuple[str, ...]:
    return ("--tls-cert", str(authority.cert), "--tls-key", str(authority.key))


@pytest.fixture(scope="module")
def limiter(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LimiterProcess]:
    with LimiterProcess(tmp_path_factory.mktemp("limiter"), *flags(authority)) as server:
        yield server


@pytest.fixture(scope="module")
def kv(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    folder: Path = tmp_path_factory.mktemp("kv")
    engine = ("--engine", f"lmdb:{folder / 'data'}", "--policy", "none")
    with KvProcess(folder, *engine, *flags(authority)) as server:
        with secured(authority, server.port) as sock:
            sock.sendall(command("SET", "t:large", bytes(MIB)))
            assert sock.recv(100) == b"+OK\r\n"
        yield server


@contextmanager
def secured(
    authority: Authority, port: int, *alpn: str, receive_bytes: int | None = None
) -> Iterator[ssl.SSLSocket]:
    """A connection, agreed on."""
    with (
        connected(port, receive_bytes=receive_bytes) as sock,
        authority.client(*alpn).wrap_socket(sock, server_hostname="127.0.0.1") as secure,
    ):
        yield secure


def pings(authority: Authority, port: int) -> Callable[[], None]:
    """Honest: each on a connection of its own, its handshake included."""

    def ask() -> None:
        with secured(authority, port) as sock:
            sock.sendall(PING)
            assert sock.recv(100) == PONG

    return ask


@contextmanager
def grpc_probe(authority: Authority, port: int) -> Iterator[Probe]:
    """grpc.health.v1.Health/Check, on one connection."""
    with secured(authority, port, "h2") as sock:
        peer = H2Socket(sock)

        def ask() -> None:
            assert peer.call(HEALTH, message(b"")) == message(b"\x08\x01")

        yield ask


def hello(authority: Authority) -> bytes:
    """The first message of a handshake."""
    out = ssl.MemoryBIO()
    client = authority.client().wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def ends(sock: socket.socket) -> None:
    """Wait until the service has ended the connection, whatever it still says."""
    try:
        while sock.recv(65_536):
            pass
    except ConnectionError:
        pass


def test_handshakes_that_do_not_end_are_ended_and_hold_little(
    authority: Authority, limiter: LimiterProcess
) -> None:
    first = hello(authority)

    def attack() -> int:
        with ExitStack() as stack:
            socks = [stack.enter_context(connected(limiter.port)) for _ in range(STRANGERS)]
            for number, sock in enumerate(socks):
                # Nothing, half of it, or all of it and no answer to the service's own.
                sock.sendall((b"", first[: len(first) // 2], first)[number % 3])
            for sock in socks:
                ends(sock)
            return STRANGERS * len(first)

    report = measure(limiter, attack, pings(authority, limiter.port))
    assert report.peak_bytes < STRANGERS * (128 << 10), report
    state = limiter.ask("/v1/state", context=authority.client())[1]
    assert state["connections"]["listener"]["open"] == 1, state


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000)]
)
def test_what_is_no_handshake_is_ended_at_once(
    authority: Authority, limiter: LimiterProcess, data: bytes
) -> None:
    def attack() -> int:
        for _ in range(STRANGERS):
            with connected(limiter.port) as sock:
                try:
                    sock.sendall(data)
                except ConnectionError:
                    continue
                ends(sock)
        return STRANGERS * len(data)

    with grpc_probe(authority, limiter.port) as probe:
        report = measure(limiter, attack, probe)
    assert report.peak_bytes < 8 << 20, report


def test_records_of_a_byte_cost_no_more_than_what_is_received(
    authority: Authority, limiter: LimiterProcess
) -> None:
    """A record is 23 bytes for one: they are counted as they come over the network."""
    count = 2_000

    def commands(each: int) -> int:
        with secured(authority, limiter.port) as sock:
            data = PING * count
            for at in range(0, len(data), each):
                sock.sendall(data[at : at + each])
            left = count * len(PONG)
            while left:
                left -= len(sock.recv(65_536))
        return len(data) * (each + 22) // each

    with grpc_probe(authority, limiter.port) as probe:
        control = measure(limiter, lambda: commands(len(PING)), probe)
        report = measure(limiter, lambda: commands(1), probe)
    assert report.cpu_s_per_kb < 4 * control.cpu_s_per_kb, (report, control)


def test_who_never_reads_over_tls_is_held_a_bounded_backlog(
    authority: Authority, kv: KvProcess
) -> None:
    wide = (1 << 31) - 1

    def attack() -> int:
        with ExitStack() as stack:
            sent = 0
            for _ in range(4):
                link = secured(authority, kv.port, "h2", receive_bytes=4_096)
                peer = H2Socket(stack.enter_context(link), (f.INITIAL_WINDOW_SIZE, wide))
                peer.send(update(0, wide - 65_535))
                peer.send(*[call(peer.next_stream(), GET, LARGE) for _ in range(900)])
                sent += peer.sent_bytes
            honest = H2Socket(stack.enter_context(secured(authority, kv.port, "h2")))
            for _ in range(200):  # in as many turns all has been read that will be
                honest.call(HEALTH, message(b""))
            return sent

    with grpc_probe(authority, kv.port) as probe:
        report = measure(kv, attack, probe)
    # Half of backlog_bytes_max each, encrypted once more, and what the allocator keeps.
    assert report.peak_bytes < 4 * (20 << 20), report


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the PATH")
def test_a_client_may_not_ask_for_one_handshake_after_another(
    authority: Authority, limiter: LimiterProcess
) -> None:
    """Each costs the service ten times what it costs the client, where it is allowed (TLS 1.2)."""
    client = [
        *("openssl", "s_client", "-connect", f"127.0.0.1:{limiter.port}", "-tls1_2"),
        *("-CAfile", str(authority.client_ca)),
    ]
    done = subprocess.run(
        client, input=b"R\n" * 100, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert b"no renegotiation" in done.stderr, done
    pings(authority, limiter.port)()
