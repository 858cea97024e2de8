"""The smallest service has what the host gives: languages, TLS, access, workers, reload, drain."""

from __future__ import annotations

import signal
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sluicegate.policies.access import token_digest
from tests.apps.server_process import ServerProcess
from tests.engines.child import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "echo_service.py"
ANN, BOB = "ann and a long enough secret", "bob and a long enough secret"
TEXT = {"content-type": "text/plain"}


class EchoProcess(ServerProcess):
    """The example, as a program of its own."""

    app = "echo"

    def command(self) -> list[str]:
        return [sys.executable, str(EXAMPLE)]


def callers(*tokens: str) -> str:
    return "".join(
        f'[[callers]]\nname = "{token.partition(" ")[0]}"\n'
        f'token_sha256 = "{token_digest(token)}"\ngrants = ["check", "audit"]\n'
        for token in tokens
    )


def test_one_port_speaks_three_languages_and_limits_in_each(tmp_path: Path) -> None:
    with EchoProcess(tmp_path, "--rate", "3/hour") as echo:
        assert echo.ready_line.startswith("sluicegate echo is ready: gRPC, RESP and HTTP on ")
        client: Any = redis.Redis(port=echo.port)
        assert client.execute_command("SAY", "one") == b"one"
        with grpc.insecure_channel(f"127.0.0.1:{echo.port}") as channel:
            say: Any = channel.unary_unary("/echo.Echo/Say")
            assert say(b"two", timeout=60) == b"two"
            health = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert echo.ask("/echo", "three", headers=TEXT) == (200, "three")
        status, problem = echo.ask("/echo", "four")
        assert (status, problem["reason"]) == (429, "rate_limited")
        with pytest.raises(redis.ResponseError, match="LIMITED"):
            client.execute_command("SAY", "five")
        assert echo.ask("/v1/state")[1]["app"] == "echo"
        assert echo.ask("/readyz")[0] == 200
        assert echo.metric("sluicegate_echo_connections") >= 1
        assert "/echo" in echo.ask("/openapi.json")[1]["paths"]


def test_who_may_speak_is_read_again_on_sighup(tmp_path: Path) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(callers(ANN))
    with EchoProcess(tmp_path, "--access", str(file)) as echo:
        assert echo.ask("/echo", "x")[0] == 401
        assert echo.ask("/echo", "x", token=ANN)[0] == 200
        file.write_text(callers(BOB))
        echo.signal(signal.SIGHUP)
        until(lambda: echo.ask("/echo", "x", token=BOB)[0] == 200, "bob", children=[echo.child])
        assert echo.ask("/echo", "x", token=ANN)[0] == 401


def test_it_speaks_tls_where_it_has_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    server.private_key_pem.write_to_path(str(key))
    for part in server.cert_chain_pems:
        part.write_to_path(str(chain), append=True)
    with EchoProcess(tmp_path, "--tls-cert", str(chain), "--tls-key", str(key)) as echo:
        assert " over TLS on " in echo.ready_line
        context = ssl.create_default_context()
        authority.configure_trust(context)
        assert echo.ask("/echo", "x", context=context) == (200, "x")


def test_several_workers_are_one_service(tmp_path: Path) -> None:
    with EchoProcess(tmp_path, "--workers", "2") as echo:
        assert echo.ready_line.endswith(", 2 workers")
        assert {echo.ask("/v1/state")[1]["workers"] for _ in range(3)} == {2}
        assert all(f'worker="{number}"' in echo.ask("/metrics")[1] for number in range(2))


def test_told_to_end_it_finishes_what_it_has_begun(tmp_path: Path) -> None:
    with EchoProcess(tmp_path) as echo:
        codes: list[int | None] = []
        ending = threading.Thread(target=lambda: codes.append(echo.end()))
        assert echo.ask("/echo", "x")[0] == 200
        ending.start()
        ending.join(60)
        assert codes == [0]
