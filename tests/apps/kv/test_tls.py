"""A dispatcher behind TLS: a certificate says who asks, in each of the three languages."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import redis
import trustme

from sluicegate.protos import key_values_pb2 as pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from tests.apps.kv.process import KvProcess
from tests.redis.members import ASK_ONCE

SHOP, READER, STRANGER = "shop.internal", "reader.internal", "stranger.internal"
ACCESS = f"""
[[callers]]
name = "shop"
certificate = "{SHOP}"
tables = {{ homes = ["read", "write"] }}

[[callers]]
name = "reader"
certificate = "{READER}"
tables = {{ homes = ["read"] }}
"""


class Papers:
    """One authority, and what it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.server = self.issue("127.0.0.1")

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of one that has this name."""
        issued = self.authority.issue_cert(name)
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def context(self, name: str) -> ssl.SSLContext:
        """Of a client of this name; of none where there is no name."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name:
            context.load_cert_chain(*self.issue(name))
        return context

    def redis(self, kv: KvProcess, name: str) -> redis.Redis:
        """A real Redis client of this name."""
        cert, key = self.issue(name)
        return redis.Redis(
            port=kv.port,
            host="127.0.0.1",
            ssl=True,
            ssl_ca_certs=str(self.ca),
            ssl_certfile=str(cert),
            ssl_keyfile=str(key),
            socket_timeout=10,
            retry=ASK_ONCE,
        )

    def grpc(self, kv: KvProcess, name: str) -> grpc.Channel:
        """A real gRPC channel of this name."""
        cert, key = self.issue(name)
        return grpc.secure_channel(
            f"127.0.0.1:{kv.port}",
            grpc.ssl_channel_credentials(self.ca.read_bytes(), key.read_bytes(), cert.read_bytes()),
        )


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def kv(papers: Papers) -> Iterator[KvProcess]:
    (papers.folder / "callers.toml").write_text(ACCESS)
    cert, key = papers.server
    flags = (
        "--engine", "memory:",
        "--access", str(papers.folder / "callers.toml"),
        "--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(papers.ca),
    )  # fmt: skip
    with KvProcess(papers.folder, *flags) as started:
        yield started


def test_over_resp_a_certificate_says_who_asks(kv: KvProcess, papers: Papers) -> None:
    shop, reader, stranger = (papers.redis(kv, name) for name in (SHOP, READER, STRANGER))
    assert shop.set("homes:resp", "a")
    assert reader.get("homes:resp") == b"a"
    with pytest.raises(redis.exceptions.RedisError):
        reader.set("homes:resp", "b")
    with pytest.raises(redis.exceptions.RedisError):
        stranger.get("homes:resp")
    assert shop.get("homes:resp") == b"a"


def test_over_http_too(kv: KvProcess, papers: Papers) -> None:
    shop, reader, stranger = (papers.context(name) for name in (SHOP, READER, STRANGER))
    where = "/v1/tables/homes/rows/http"
    assert kv.ask(where, {"n": 1}, method="PUT", context=shop)[0] < 300
    assert kv.ask(where, context=reader)[0] == 200
    assert kv.ask(where, {"n": 2}, method="PUT", context=reader)[0] == 403
    assert kv.ask(where, context=stranger)[0] == 401


def test_over_grpc_too(kv: KvProcess, papers: Papers) -> None:
    request = pb.GetRequest(table="homes", partition=b"not-there")
    with papers.grpc(kv, READER) as channel:
        assert not KeyValuesStub(channel).Get(request, timeout=10).HasField("row")
    with papers.grpc(kv, STRANGER) as channel, pytest.raises(grpc.RpcError) as refused:
        KeyValuesStub(channel).Get(request, timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_who_shows_no_certificate_does_not_come_in_at_all(kv: KvProcess, papers: Papers) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the moment
        kv.ask("/v1/tables/homes/rows/http", context=papers.context(""))
    with pytest.raises((ConnectionError, redis.exceptions.ConnectionError)):
        redis.Redis(port=kv.port, socket_timeout=5, retry=ASK_ONCE).ping()


def test_a_certificate_of_another_authority_does_not_come_in(kv: KvProcess, papers: Papers) -> None:
    other = trustme.CA().issue_cert(SHOP)
    context = ssl.create_default_context(cafile=str(papers.ca))
    other.configure_cert(context)
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the moment
        kv.ask("/v1/tables/homes/rows/http", context=context)
