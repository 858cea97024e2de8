"""Who may ask what, through the doors of a real process: tokens, certificates, grants."""

from __future__ import annotations

import re
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import redis
import trustme
from hpack import Decoder

from sluicegate.policies.access import token_digest
from sluicegate.protos import rate_limiter_pb2, rate_limiter_pb2_grpc
from sluicegate.wire.h2.frames import END_STREAM
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.attacks.h2_socket import H2Socket, call, request_fields
from tests.attacks.prober import connected
from tests.engines.child import run_to_end, until
from tests.redis.members import ASK_ONCE

PLAYBACK = "/api/v1/playback"
GATEWAY, DESK, OPERATOR = (f"{name} and a long enough secret" for name in ("gw", "desk", "op"))
CALLERS = f"""\
[[callers]]
name = "gateway"
token_sha256 = "{token_digest(GATEWAY)}"
grants = ["check"]
[[callers]]
name = "desk"
token_sha256 = "{token_digest(DESK)}"
grants = ["audit"]
[[callers]]
name = "operator"
token_sha256 = "{token_digest(OPERATOR)}"
certificate = "operator.test"
grants = ["check", "reset", "lease", "audit"]
"""


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimiterProcess]:
    folder = tmp_path_factory.mktemp("access")
    callers = folder / "callers.toml"
    callers.write_text(CALLERS)
    with LimiterProcess(
        folder, "--rules", rules_file(folder, NATIVE), "--access", str(callers), "--shed", "off"
    ) as process:
        yield process


def test_http_asks_for_a_token_and_then_for_the_grant(limiter: LimiterProcess) -> None:
    ask = {"user_id": "ann", "resource_path": PLAYBACK}
    assert limiter.ask("/v1/check", ask)[0] == 401
    assert limiter.ask("/v1/check", ask, token="nobody's token at all")[0] == 401
    assert limiter.ask("/v1/check", ask, token=DESK)[0] == 403
    assert limiter.ask("/v1/check", ask, token=GATEWAY)[0] == 200
    assert limiter.ask("/v1/reset", ask, token=GATEWAY)[0] == 403
    assert limiter.ask("/v1/reset", ask, token=OPERATOR)[0] == 200
    assert limiter.ask("/v1/state", token=GATEWAY)[0] == 403
    assert limiter.ask("/v1/state", token=DESK)[0] == 200
    assert limiter.ask("/v1/audit?user=ann", token=GATEWAY)[0] == 403
    assert limiter.ask("/healthz")[0] == 200


def test_grpc_asks_for_a_token_and_then_for_the_grant(limiter: LimiterProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        stub = rate_limiter_pb2_grpc.RateLimiterStub(channel)
        ask = rate_limiter_pb2.RateLimitRequest(user_id="bob", resource_path=PLAYBACK)

        def code(token: str) -> str:
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            try:
                stub.Check(ask, metadata=metadata)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        assert [code(token) for token in ("", "wrong and long enough", DESK, GATEWAY)] == [
            "UNAUTHENTICATED",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "OK",
        ]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_who_may_not_is_refused_before_the_message_is_unpacked_or_read(
    limiter: LimiterProcess, packed: bool
) -> None:
    """What makes no sense is INVALID_ARGUMENT or INTERNAL to who may ask, and to nobody else."""
    head = bytes((packed,)) + (4).to_bytes(4, "big")
    with connected(limiter.port) as sock:
        peer = H2Socket(sock)
        statuses = []
        for token in (DESK, GATEWAY):
            stream = peer.next_stream()
            fields = request_fields(
                "/sluicegate.v1.RateLimiter/Check",
                ("authorization", f"Bearer {token}"),
                ("grpc-encoding", "gzip"),
            )
            peer.send(call(stream, fields, head + b"\xff" * 4))
            answer = next(one for one in peer.frames() if one.flags & END_STREAM and one.stream)
            trailers = {str(name): str(value) for name, value in Decoder().decode(answer.payload)}
            statuses.append(trailers["grpc-status"])
    assert statuses == ["7", "13" if packed else "3"]


def test_resp_asks_for_a_token_and_then_for_the_grant(limiter: LimiterProcess) -> None:
    stranger = redis.Redis(port=limiter.port, retry=ASK_ONCE)
    with pytest.raises(redis.AuthenticationError):
        stranger.ping()
    gateway = redis.Redis(port=limiter.port, password=GATEWAY, retry=ASK_ONCE)
    assert gateway.execute_command("CL.THROTTLE", "k", 1, 1, 1)[0] == 0  # type: ignore[no-untyped-call]
    with pytest.raises(redis.exceptions.NoPermissionError):
        gateway.execute_command("SG.RESET", "ann", PLAYBACK)  # type: ignore[no-untyped-call]
    wrong = redis.Redis(port=limiter.port, password="wrong and long enough", retry=ASK_ONCE)
    with pytest.raises(redis.AuthenticationError):
        wrong.ping()
    for client in (stranger, gateway, wrong):
        client.close()


def test_callers_are_read_again_on_sighup(tmp_path: Path) -> None:
    callers = tmp_path / "callers.toml"
    callers.write_text(CALLERS)
    with LimiterProcess(
        tmp_path, "--rules", rules_file(tmp_path, NATIVE), "--access", str(callers)
    ) as limiter:
        assert limiter.ask("/v1/state", token=DESK)[0] == 200
        callers.write_text(CALLERS.replace(token_digest(DESK), token_digest("another " + DESK)))
        limiter.signal(signal.SIGHUP)
        until(lambda: limiter.ask("/v1/state", token=DESK)[0] == 401, "the old token void")
        assert limiter.ask("/v1/state", token="another " + DESK)[0] == 200
        # Who is on an open connection is asked anew too.
        gateway, operator = (
            redis.Redis(
                port=limiter.port, password=one, retry=ASK_ONCE, single_connection_client=True
            )
            for one in (GATEWAY, OPERATOR)
        )
        assert gateway.ping()
        assert operator.ping()
        callers.write_text(CALLERS.replace(token_digest(GATEWAY), "0" * 64))
        limiter.signal(signal.SIGHUP)
        until(lambda: limiter.ask("/v1/state", token=DESK)[0] == 200, "the file read again")
        with pytest.raises(redis.AuthenticationError):
            gateway.execute_command("CL.THROTTLE", "k", 1, 1, 1)  # type: ignore[no-untyped-call]
        assert operator.execute_command("CL.THROTTLE", "k", 1, 1, 1)[0] == 0  # type: ignore[no-untyped-call]
        gateway.close()
        operator.close()
        callers.write_text("[[callers")  # what is bad changes nothing
        limiter.signal(signal.SIGHUP)
        until(lambda: "not reloaded" in limiter.log.read_text(), "the complaint")
        assert limiter.ask("/v1/state", token=DESK)[0] == 200


def test_a_new_token_fits_the_file_that_is_shown_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sluicegate.cli", "limiter", "--new-token"]
    output = run_to_end(command).stdout
    token = re.search(r"alone:\s+(\S+)", output)
    assert token is not None
    callers = tmp_path / "callers.toml"
    callers.write_text(output.partition("\n\n")[2].replace('"..."', '"somebody"'))
    with LimiterProcess(tmp_path, "--access", str(callers)) as limiter:
        assert limiter.ask("/v1/check", {"user_id": "a", "resource_path": "/"})[0] == 401
        status, _ = limiter.ask("/v1/check", {"user_id": "a", "resource_path": "/"}, token=token[1])
        assert status == 200


class Secure(NamedTuple):
    process: LimiterProcess
    ca: trustme.CA
    folder: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    ca = trustme.CA()
    issue(ca, folder)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    callers = folder / "callers.toml"
    callers.write_text(CALLERS)
    with LimiterProcess(
        folder,
        "--rules", rules_file(folder, NATIVE),
        "--access", str(callers),
        "--tls-cert", str(folder / "chain.pem"),
        "--tls-key", str(folder / "key.pem"),
        "--tls-client-ca", str(folder / "ca.pem"),
        "--tls-client-optional", "on",
        "--shed", "off",
    ) as process:  # fmt: skip
        yield Secure(process, ca, folder)


def issue(ca: trustme.CA, folder: Path) -> None:
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    (folder / "chain.pem").write_bytes(chain)


def context_of(ca: trustme.CA, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if name:
        ca.issue_cert(name).configure_cert(context)
    return context


def test_over_tls_a_certificate_is_as_good_as_a_token(secure: Secure) -> None:
    limiter = secure.process
    ask = {"user_id": "ann", "resource_path": PLAYBACK}
    nobody, operator = context_of(secure.ca), context_of(secure.ca, "operator.test")
    assert limiter.ask("/v1/check", ask, context=nobody)[0] == 401
    assert limiter.ask("/v1/check", ask, context=nobody, token=GATEWAY)[0] == 200
    assert limiter.ask("/v1/reset", ask, context=operator)[0] == 200
    with pytest.raises(ssl.SSLError):
        limiter.ask("/v1/check", ask, context=context_of(trustme.CA()))


def test_grpc_over_tls_knows_the_certificate_too(secure: Secure) -> None:
    operator = secure.ca.issue_cert("operator.test")
    credentials = grpc.ssl_channel_credentials(
        secure.ca.cert_pem.bytes(),
        operator.private_key_pem.bytes(),
        operator.cert_chain_pems[0].bytes(),
    )
    with grpc.secure_channel(f"localhost:{secure.process.port}", credentials) as channel:
        stub = rate_limiter_pb2_grpc.RateLimiterStub(channel)
        ask = rate_limiter_pb2.RateLimitRequest(user_id="eve", resource_path=PLAYBACK)
        assert stub.Check(ask, timeout=60).allowed


def test_resp_over_tls(secure: Secure) -> None:
    client = redis.Redis(
        port=secure.process.port,
        ssl=True,
        ssl_ca_certs=str(secure.folder / "ca.pem"),
        password=GATEWAY,
    )
    assert client.ping()
    client.close()


def test_a_new_certificate_is_served_without_a_restart(secure: Secure) -> None:
    def serial() -> str:
        return ssl.get_server_certificate(("127.0.0.1", secure.process.port))

    before = serial()
    issue(secure.ca, secure.folder)
    until(lambda: serial() != before, "the new certificate")
    status, _ = secure.process.ask(
        "/v1/check",
        {"user_id": "ann", "resource_path": PLAYBACK},
        context=context_of(secure.ca),
        token=GATEWAY,
    )
    assert status == 200


def test_why_asks_with_a_token_over_tls(secure: Secure) -> None:
    check = {"user_id": "ann", "resource_path": PLAYBACK}
    context = context_of(secure.ca)
    assert secure.process.ask("/v1/check", check, context=context, token=GATEWAY)[0] == 200
    words = [sys.executable, "-m", "sluicegate.cli", "why", "ann"]
    words += ["--at", f"https://127.0.0.1:{secure.process.port}", "--ca",
              str(secure.folder / "ca.pem")]  # fmt: skip
    refused = run_to_end(words)
    assert refused.returncode == 1
    assert "the grant audit" in refused.stderr
    done = run_to_end([*words, "--token", DESK])
    assert done.returncode == 0, done.stderr
    assert "playback" in done.stdout
