"""A real HAProxy in front: the service knows the clients behind it, in every language."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.apps.limiter.process import LimiterProcess
from tests.doors.test_tls import Authority
from tests.engines.child import PATIENCE_S, Child, free_port, until
from tests.engines.need import Program, engine

pytestmark = pytest.mark.engine

CLIENT, GREEDY, OTHER = "127.0.0.7", "127.0.0.8", "127.0.0.9"
SHARE = 3  # connections of one address
CONFIGURATION = """\
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend edge
    bind 127.0.0.1:{port}
    default_backend service
backend service
    server one 127.0.0.1:{service} {send} check inter 200ms
"""


class Edge(NamedTuple):
    """A limiter behind HAProxy."""

    service: LimiterProcess
    port: int
    context: ssl.SSLContext | None
    roots: bytes | None

    def connect(self, source: str) -> socket.socket:
        """A connection from that address, agreed on with the service."""
        plain = socket.create_connection(
            ("127.0.0.1", self.port), PATIENCE_S, source_address=(source, 0)
        )
        if self.context is None:
            return plain
        return self.context.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture(
    scope="module", params=["send-proxy", "send-proxy-v2", "send-proxy-v2 over TLS"], ids=str
)
def edge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Edge]:
    engine("haproxy", [Program("haproxy", "apt-get install -y haproxy")])
    folder: Path = tmp_path_factory.mktemp("haproxy")
    send, _, secure = str(request.param).partition(" over ")
    authority = Authority(folder)
    tls = ["--tls-cert", str(authority.cert), "--tls-key", str(authority.key)] if secure else []
    flags = ["--proxy-protocol", "127.0.0.1", "--connections-per-address-max", str(SHARE)]
    with LimiterProcess(folder, *flags, *tls, wait=False) as service:
        port = free_port("127.0.0.1")
        file = folder / "haproxy.cfg"
        file.write_text(CONFIGURATION.format(port=port, service=service.port, send=send))
        haproxy = Child("haproxy", ["haproxy", "-db", "-f", str(file)], folder / "haproxy.log")
        context = authority.client() if secure else None
        roots = authority.client_ca.read_bytes() if secure else None
        made = Edge(service, port, context, roots)
        try:
            until(lambda: service.ready_line, "sluicegate limiter", children=[service.child])
            until(lambda: _answers(made), "haproxy", children=[haproxy])
            yield made
        finally:
            haproxy.stop()


def _answers(edge: Edge) -> bool:
    try:
        with edge.connect(OTHER) as link:
            link.sendall(b"PING\r\n")
            return link.recv(100) == b"+PONG\r\n"
    except OSError:
        return False


def clients_of(edge: Edge, link: socket.socket) -> bytes:
    """How the service calls the connections that speak RESP."""
    link.sendall(b"CLIENT LIST\r\n")
    data = b""
    while not data.endswith(b"\n\r\n"):
        data += link.recv(65_536)
    return data


def test_redis_commands_come_from_who_sent_them(edge: Edge) -> None:
    with edge.connect(CLIENT) as link:
        port = link.getsockname()[1]
        assert f" addr={CLIENT}:{port} ".encode() in clients_of(edge, link)


def test_http_and_grpc_are_answered_through_it(edge: Edge) -> None:
    with edge.connect(CLIENT) as link:
        connection = http.client.HTTPConnection("127.0.0.1", edge.service.port)
        connection.sock = link
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    target = f"127.0.0.1:{edge.port}"
    secure = edge.roots and grpc.ssl_channel_credentials(edge.roots)
    channel = grpc.secure_channel(target, secure) if secure else grpc.insecure_channel(target)
    with channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_each_client_has_its_own_share_of_connections(edge: Edge) -> None:
    def refused(source: str) -> bool:
        try:
            with edge.connect(source) as link:
                link.sendall(b"PING\r\n")
                return link.recv(100) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    links = [edge.connect(GREEDY) for _ in range(SHARE)]
    try:
        for link in links:
            link.sendall(b"PING\r\n")
            assert link.recv(100) == b"+PONG\r\n"
        assert refused(GREEDY)
        assert not refused(OTHER)
    finally:
        for link in links:
            link.close()


def test_who_comes_past_the_proxy_is_not_believed(edge: Edge) -> None:
    """From an address that is none of our proxies a header is refused, and a client is served."""
    source = (OTHER, 0)
    service = ("127.0.0.1", edge.service.port)
    with socket.create_connection(service, PATIENCE_S, source_address=source) as link:
        link.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nPING\r\n")
        answer = link.recv(1_000)
        assert b"not the PROXY protocol" in answer or (edge.context and b"PONG" not in answer)
    with edge._replace(port=edge.service.port).connect(OTHER) as link:
        link.sendall(b"PING\r\n")
        assert link.recv(100) == b"+PONG\r\n"
