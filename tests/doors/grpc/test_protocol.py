"""Our own server on sockets: TLS, draining, peers that do not read, and h2load."""

from __future__ import annotations

import asyncio
import gc
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hpack import Decoder

from sluicegate.contracts.access import Identity
from sluicegate.doors.grpc.framing import prefix
from sluicegate.doors.grpc.health import GrpcHealth
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.system import SystemClock
from sluicegate.testing import HandClock
from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from sluicegate.wire.h2.stream import H2Stream
from tests.doors.grpc.servers import SETTINGS, Door, Grpcio, Native, Work, native
from tests.doors.listening import LOOPS
from tests.wire.h2_peer import GREETING, frame, headers, parsed, request, update

CALL_S_MAX = 10.0
GRPC = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t.Test/Echo"),
    ("content-type", "application/grpc"),
]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def server(work: Work) -> Iterator[Native]:
    with native(work.methods()) as made:
        yield made


def until(server: Native, true: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.001)

    server.running.do(wait())


def channel_to(server: Native) -> Any:
    return grpc.insecure_channel(f"127.0.0.1:{server.port}")


def raw(server: Native) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=CALL_S_MAX)
    made.sendall(GREETING)
    return made


def all_of(line: socket.socket) -> bytes:
    """Everything until the server closes."""
    got = b""
    while piece := line.recv(65_536):
        got += piece
    return got


def test_what_is_under_way_is_answered_in_a_drain_and_the_rest_goes_elsewhere(
    server: Native,
) -> None:
    with channel_to(server) as channel:
        later = channel.unary_unary("/t.Test/Later")
        assert later(b"x", timeout=CALL_S_MAX) == b"x"
        futures = [later.future(b"%d" % n, timeout=CALL_S_MAX) for n in range(200)]
        until(server, lambda: server.door.counts.calls > 1)
        assert server.running.do(server.door.drain(5.0))
        until(server, lambda: any(each.done() for each in futures))
        for each in futures:
            each.cancel()  # what was not begun waits for a server that is gone
        done = [each for each in futures if each.code() is grpc.StatusCode.OK]
        assert [each.result() for each in done] == [b"%d" % n for n in range(200)][
            : len(done)
        ] or done
    until(server, lambda: server.door.counts.connections == 0)
    assert server.door.streams == 0


def test_what_does_not_end_within_the_grace_is_ended(server: Native, work: Work) -> None:
    with channel_to(server) as channel:
        never = channel.unary_unary("/t.Test/Never").future(b"", timeout=CALL_S_MAX)
        until(server, lambda: work.started == 1)
        assert not server.running.do(server.door.drain(0.1))
        assert never.code() is grpc.StatusCode.UNAVAILABLE
    until(server, lambda: work.cancelled == 1)


def test_a_connection_that_comes_amid_a_drain_is_sent_away(server: Native) -> None:
    server.running.do(server.door.drain(0.1))
    line = raw(server)
    line.sendall(frame(f.PING, f.ACK, 0, b"draining"))
    assert [x.code for x in parsed(all_of(line)) if x.kind == f.GOAWAY] == [0, 0]
    line.close()


def test_a_flood_ends_the_connection_is_counted_and_harms_no_other(server: Native) -> None:
    with channel_to(server) as channel:
        line = raw(server)
        line.sendall(frame(f.PING, 0, 0, bytes(8)) * 501)
        goaway = [x for x in parsed(all_of(line)) if x.kind == f.GOAWAY]
        assert [x.code for x in goaway] == [f.ENHANCE_YOUR_CALM]
        line.close()
        assert channel.unary_unary("/t.Test/Echo")(b"x", timeout=CALL_S_MAX) == b"x"
    assert server.door.counts.floods == {"pings_per_s_max": 1}


def test_a_peer_that_still_talks_after_the_end_is_not_reset_but_does_not_stay(
    work: Work,
) -> None:
    ping = frame(f.PING, 0, 0, bytes(8))
    with native(work.methods(), settings=GrpcSettings(linger_us=60_000_000)) as server:
        line = raw(server)
        line.sendall(f.goaway(0, f.NO_ERROR, ""))
        all_of(line)
        for _ in range(3):  # after the first, a closed socket would answer with a reset
            line.sendall(ping)
            assert line.recv(1) == b""
        line.close()
        until(server, lambda: server.door.counts.connections == 0)
    with native(work.methods(), settings=GrpcSettings(linger_us=1_000)) as server:
        line = raw(server)
        line.sendall(f.goaway(0, f.NO_ERROR, ""))
        until(server, lambda: server.door.counts.opened == 1 and not server.door.open)
        line.close()


def test_a_connection_that_has_ended_and_lingers_is_no_obstacle_to_a_drain(work: Work) -> None:
    with native(work.methods(), settings=GrpcSettings(linger_us=60_000_000)) as server:
        line = raw(server)
        line.sendall(f.goaway(0, f.NO_ERROR, ""))
        all_of(line)
        assert server.running.do(server.door.drain(0.01))
        assert line.recv(1) == b""
        line.close()


def test_the_work_of_a_connection_that_is_lost_is_stopped(server: Native, work: Work) -> None:
    line = raw(server)
    fields = headers([*GRPC[:2], (":path", "/t.Test/Never"), GRPC[3]])
    line.sendall(frame(f.HEADERS, 4, 1, fields) + frame(f.DATA, 1, 1, prefix(b"")))
    until(server, lambda: work.started == 1)
    line.close()
    until(server, lambda: work.cancelled == 1)
    until(server, lambda: not server.door.open)


def test_a_peer_that_does_not_read_is_not_read(server: Native, work: Work) -> None:
    line = raw(server)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    line.sendall(update(0, (1 << 31) - 1 - 65_535))
    line.settimeout(0.5)
    block, sent = headers(GRPC), 0
    body = prefix(bytes(16_000))
    try:
        for stream in range(1, 40_001, 2):
            line.sendall(frame(f.HEADERS, 4, stream, block) + frame(f.DATA, 1, stream, body))
            sent += 1
    except TimeoutError:
        pass
    assert sent < 20_000  # it stopped taking before we stopped sending
    waiting = server.door.counts.calls
    with channel_to(server) as channel:
        assert channel.unary_unary("/t.Test/Echo")(b"x", timeout=CALL_S_MAX) == b"x"
    assert server.door.counts.calls <= waiting + 2
    line.close()
    until(server, lambda: len(server.door.open) == 0)


class Written(asyncio.Transport):
    """A transport that keeps what it is to write."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def test_what_comes_amid_a_pause_is_read_after_it(work: Work) -> None:
    async def talk() -> None:
        transport = Written()
        protocol = GrpcDoor(work.methods(), Door(), SystemClock())()
        protocol.connection_made(transport)
        protocol.data_received(GREETING)
        protocol.pause_writing()
        assert transport.calls == ["pause"]
        before = transport.sent
        call = frame(f.HEADERS, 4, 1, headers(GRPC)) + frame(f.DATA, 1, 1, prefix(b"x"))
        protocol.data_received(call[:30])
        protocol.data_received(call[30:])
        assert transport.sent == before
        protocol.resume_writing()
        await asyncio.sleep(0)  # in a turn of its own
        assert [x.payload for x in parsed(transport.sent) if x.kind == f.DATA] == [prefix(b"x")]
        assert transport.calls == ["pause", "resume"]
        assert protocol.under_way() == 0
        protocol.connection_lost(None)

    asyncio.run(talk())


def test_all_answers_of_one_read_leave_in_one_write(work: Work) -> None:
    async def talk() -> None:
        transport = Written()
        writes: list[int] = []
        transport.write = lambda data: writes.append(len(data))  # type: ignore[method-assign]
        protocol = GrpcDoor(work.methods(), Door(), HandClock())()  # no turn is ever over
        protocol.connection_made(transport)
        protocol.data_received(GREETING)
        # Few are begun before the first results have shown how large they are, hence twice.
        for round_, path in enumerate(("/t.Test/Echo", "/t.Test/Later", "/t.Test/Later")):
            writes.clear()
            fields = headers([*GRPC[:2], (":path", path), GRPC[3]])
            first = 1 + 100 * round_
            calls = [
                frame(f.HEADERS, 4, first + 2 * n, fields)
                + frame(f.DATA, 1, first + 2 * n, prefix(b"x"))
                for n in range(50)
            ]
            protocol.data_received(b"".join(calls))
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(writes) == 1 or round_ == 1
        protocol.connection_lost(None)

    asyncio.run(talk())


def test_no_call_leaves_anything_behind_even_for_the_collector(work: Work) -> None:
    async def talk() -> None:
        transport = Written()
        protocol = GrpcDoor(work.methods(), Door(), SystemClock(), SETTINGS)()
        protocol.connection_made(transport)
        protocol.data_received(GREETING)
        stream = -1
        for path in ("Echo", "Later", "Future", "Fails", "FailsLater", "Never", "Twice", "Endless"):
            fields = headers([*GRPC[:2], (":path", f"/t.Test/{path}"), GRPC[3]])
            for reset in (False, True):
                stream += 2
                protocol.data_received(
                    frame(f.HEADERS, 4, stream, fields) + frame(f.DATA, 1, stream, prefix(b"bad"))
                )
                if reset or path in {"Never", "Endless"}:
                    await asyncio.sleep(0)
                    protocol.data_received(frame(f.RST_STREAM, 0, stream, b"\0\0\0\x08"))
                for _ in range(10):
                    await asyncio.sleep(0)
        assert protocol.streams == 0
        assert len(asyncio.all_tasks()) == 1
        left = [x for x in gc.get_objects() if type(x) is H2Stream]
        assert [x.id for x in left if id(x) not in before] == []
        protocol.connection_lost(None)

    gc.collect()
    others = [x for x in gc.get_objects() if type(x) is H2Stream]  # by other tests
    before = {id(x) for x in others}
    gc.disable()
    try:
        asyncio.run(talk())
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["Never", "Future", "Twice"])
def test_a_deadline_is_kept_by_the_server_itself(work: Work, path: str) -> None:
    async def silent(_message: bytes, _by: Identity) -> bytes:
        await asyncio.Event().wait()
        return b""

    methods = work.methods()
    methods = methods._replace(unary={**methods.unary, "/t.Test/Future": silent})

    async def talk() -> None:
        transport = Written()
        protocol = GrpcDoor(methods, Door(), SystemClock())()
        protocol.connection_made(transport)
        protocol.data_received(GREETING)
        timed_fields = [*GRPC[:2], (":path", f"/t.Test/{path}"), GRPC[3], ("grpc-timeout", "20m")]
        body = frame(f.DATA, 0 if path == "Twice" else 1, 1, prefix(b"x"))
        began = asyncio.get_running_loop().time()
        protocol.data_received(frame(f.HEADERS, 4, 1, headers(timed_fields)) + body)
        while protocol.streams:
            await asyncio.sleep(0.001)
        assert 0.015 < asyncio.get_running_loop().time() - began < CALL_S_MAX
        for _ in range(5):
            await asyncio.sleep(0)
        last = [x for x in parsed(transport.sent) if x.kind == f.HEADERS][-1]
        fields = [tuple(each) for each in Decoder().decode(last.payload, raw=True)]
        assert (b"grpc-status", b"4") in fields
        assert len(asyncio.all_tasks()) == 1
        protocol.connection_lost(None)

    asyncio.run(talk())


def test_a_stream_waits_for_who_does_not_read_it(work: Work) -> None:
    async def talk() -> None:
        transport = Written()
        protocol = GrpcDoor(work.methods(), Door(), SystemClock())()
        protocol.connection_made(transport)
        protocol.data_received(GREETING)
        fields = headers([*GRPC[:2], (":path", "/t.Test/Endless"), GRPC[3]])
        body = prefix(bytes(995))
        protocol.data_received(frame(f.HEADERS, 4, 1, fields) + frame(f.DATA, 1, 1, body))
        for _ in range(1_000):
            await asyncio.sleep(0)
        sent = sum(len(x.payload) for x in parsed(transport.sent) if x.kind == f.DATA)
        assert sent == 65_535
        assert protocol.calls.h2.streams[1].queued_bytes <= 1_000
        protocol.data_received(update(1, 10_000) + update(0, 10_000))
        for _ in range(100):
            await asyncio.sleep(0)
        sent = sum(len(x.payload) for x in parsed(transport.sent) if x.kind == f.DATA)
        assert sent == 75_535
        protocol.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert work.cancelled == 1

    asyncio.run(talk())


def test_slow_connections_are_swept_out(work: Work) -> None:
    quick = GrpcSettings(h2=H2Settings(handshake_us_max=50_000), sweep_us=10_000)
    with native(work.methods(), settings=quick) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=CALL_S_MAX)
        line.sendall(f.PREFACE[:10])
        goaway = [x for x in parsed(all_of(line)) if x.kind == f.GOAWAY]
        assert [x.code for x in goaway] == [f.SETTINGS_TIMEOUT]
        line.close()


def test_an_old_protocol_is_told_goodbye(server: Native) -> None:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=CALL_S_MAX)
    line.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert [x.code for x in parsed(all_of(line)) if x.kind == f.GOAWAY] == [f.PROTOCOL_ERROR]
    line.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize(
    ("token", "who"), [(None, b"by certificate"), ("ann's", b"ann")], ids=["certificate", "token"]
)
def test_a_client_is_known_by_its_certificate_unless_it_shows_a_token(
    work: Work, authority: trustme.CA, token: str | None, who: bytes, tmp_path: Path
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.set_alpn_protocols(["h2"])
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("localhost").configure_cert(tls)
    authority.configure_trust(tls)
    client = authority.issue_cert("client.test")
    with native(work.methods(), Door(anonymous=None), tls=tls) as server:
        credentials = grpc.ssl_channel_credentials(
            authority.cert_pem.bytes(),
            client.private_key_pem.bytes(),
            b"".join([each.bytes() for each in client.cert_chain_pems]),
        )
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
            call: Any = channel.unary_unary("/t.Test/Name")
            assert call(b"", timeout=CALL_S_MAX, metadata=metadata) == who


class Noting(Door):
    """Notes the names that a certificate is head_sent to have."""

    def __init__(self) -> None:
        super().__init__(anonymous=None)
        self.lookups: list[Sequence[str]] = []

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        self.lookups.append(names)
        return Identity("somebody", [])


@pytest.mark.parametrize("kind", [Native, Grpcio])
def test_only_names_of_a_certificate_that_say_who_serves_are_names_of_a_caller(
    work: Work, authority: trustme.CA, kind: type[Native] | type[Grpcio]
) -> None:
    ours = authority.issue_cert("localhost")
    tls: Any = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.set_alpn_protocols(["h2"])
    tls.verify_mode = ssl.CERT_REQUIRED
    ours.configure_cert(tls)
    authority.configure_trust(tls)
    trusted = authority.cert_pem.bytes()
    if kind is Grpcio:
        pair = (ours.private_key_pem.bytes(), ours.cert_chain_pems[0].bytes())
        tls = grpc.ssl_server_credentials([pair], trusted, require_client_auth=True)
    client = authority.issue_cert("admin@mail.test", "10.0.0.7", "gate.test", common_name="gateway")
    access = Noting()
    server = kind(work.methods(), access, tls=tls)
    try:
        credentials = grpc.ssl_channel_credentials(
            trusted, client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes()
        )
        # grpcio's server listens on 127.0.0.1 alone.
        options = [("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials, options) as channel:
            call: Any = channel.unary_unary("/t.Test/Name")
            assert call(b"", timeout=CALL_S_MAX) == b"somebody"
    finally:
        server.stop()
    assert access.lookups == [("gateway", "gate.test")]


def test_a_token_that_is_void_is_nobodys_on_an_open_connection_too(work: Work) -> None:
    access = Door(anonymous=None)
    with native(work.methods(), access) as server, channel_to(server) as channel:
        call: Any = channel.unary_unary("/t.Test/Name")

        def name() -> bytes:
            answer: bytes = call(
                b"", timeout=CALL_S_MAX, metadata=[("authorization", "Bearer ann's")]
            )
            return answer

        async def change(**tokens: Identity) -> None:
            access.tokens = {f"{who}'s": identity for who, identity in tokens.items()}
            for protocol in server.door.open:
                protocol.check_callers(reloaded=True)

        assert [name(), name()] == [b"ann", b"ann"]  # the second from memory
        server.running.do(change(ann=Identity("anna", [])))
        assert [name(), name()] == [b"anna", b"anna"]
        server.running.do(change())
        with pytest.raises(grpc.RpcError) as refused:
            name()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert server.door.counts.opened == 1


def test_a_watch_hears_of_a_drain_and_ends() -> None:
    health = GrpcHealth(lambda: True)
    methods = Methods(health.unary, health.streams, health.open)
    with native(methods) as server, channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=CALL_S_MAX)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        server.running.loop.call_soon_threadsafe(health.drain)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.RpcError, match="ending"):
            next(watch)
        ask = health_pb2.HealthCheckRequest()
        assert stub.Check(ask).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_watches_are_bounded() -> None:
    health = GrpcHealth(lambda: True, settings=GrpcSettings(watchers_max=1))
    methods = Methods(health.unary, health.streams, health.open)
    with native(methods) as server, channel_to(server) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        first = stub.Watch(health_pb2.HealthCheckRequest(), timeout=CALL_S_MAX)
        next(first)
        with pytest.raises(grpc.RpcError, match="watchers_max"):
            next(stub.Watch(health_pb2.HealthCheckRequest(), timeout=CALL_S_MAX))
        first.cancel()
        until(server, lambda: server.door.streams == 0)
        after = stub.Watch(health_pb2.HealthCheckRequest(), timeout=CALL_S_MAX)
        until(server, lambda: server.door.streams == 1)
        assert next(after).status == health_pb2.HealthCheckResponse.SERVING
        after.cancel()


def test_a_method_that_answers_with_something_else_is_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def wrong(_message: bytes, _by: Identity) -> Any:
        return "text"

    async def wrong_later(_message: bytes, _by: Identity) -> Any:
        return "text"

    methods = Methods({"/t.T/A": wrong, "/t.T/B": wrong_later}, {})
    with native(methods) as server, channel_to(server) as channel:
        for path in ("/t.T/A", "/t.T/B"):
            with pytest.raises(grpc.RpcError, match="its log says why"):
                channel.unary_unary(path)(b"", timeout=CALL_S_MAX)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_who_sends_much_at_once_is_not_served_before_who_sends_little(
    work: Work, loop: str
) -> None:
    served: list[bytes] = []

    def serve(message: bytes, _by: Identity) -> bytes:
        served.append(message)
        return message

    methods = work.methods()
    methods = methods._replace(unary={**methods.unary, "/t.Test/Echo": serve})

    async def talk() -> None:
        running = asyncio.get_running_loop()
        door: Any = GrpcDoor(methods, Door(), SystemClock(), GrpcSettings(turn_us_max=1))
        server = await running.create_server(door, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        many, few = (socket.create_connection(address) for _ in range(2))
        for line in (many, few):
            line.sendall(GREETING)
        while len(door.open) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        block = headers(GRPC)
        calls = [
            frame(f.HEADERS, 4, 1 + 2 * at, block) + frame(f.DATA, 1, 1 + 2 * at, prefix(b"many"))
            for at in range(1_000)
        ]
        # Both are there before the loop looks again.
        many.sendall(b"".join(calls))
        few.sendall(frame(f.HEADERS, 4, 1, block) + frame(f.DATA, 1, 1, prefix(b"few")))
        while len(served) < 1_001:
            await asyncio.sleep(0)
        for line in (many, few):
            line.close()
        server.close()
        while door.open:
            await asyncio.sleep(0)
        assert served.index(b"few") <= 2 * H2Settings().portion_frames_max

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(talk(), CALL_S_MAX))


@pytest.mark.skipif(shutil.which("h2load") is None, reason="apt-get install nghttp2-client")
def test_h2load_finds_every_call_answered(server: Native, tmp_path: Path) -> None:
    body = tmp_path / "frame.bin"
    body.write_bytes(prefix(bytes(40)))
    output = subprocess.run(
        [
            "h2load",
            *("-n", "5000", "-c", "5", "-m", "20", "-d", str(body)),
            *("-H", "content-type: application/grpc", "-H", "te: trailers"),
            f"http://127.0.0.1:{server.port}/t.Test/Echo",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "5000 succeeded, 0 failed, 0 errored" in output
    data = re.search(r"\((\d+)\) data", output)
    assert data is not None
    assert int(data[1]) == 5_000 * 45
    assert server.door.counts.calls == 5_000
    assert server.door.counts.failed == 0


def test_a_stream_that_is_open_is_seen_by_the_door(server: Native) -> None:
    line = raw(server)
    line.sendall(request(1, ("content-type", "text/plain"), ends=False))
    until(server, lambda: server.door.streams == 1)
    assert server.door.counts.connections == 1
    assert SETTINGS.h2.streams_max > 1
    line.close()
