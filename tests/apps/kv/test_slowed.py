"""`sluicegate kv` slows a caller far over its quota over HTTP and gRPC, and says so."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from sluicegate.protos import key_values_pb2 as pb
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.engines.child import until

DEPTH = 100
ROUNDS_MAX = 10
RULES = "version: 1\ncallers: {quotas: {hammer: 1/s}}\n"
SLOWED = "sluicegate-slowed-ms"
TABLES = 'tables = { "*" = ["read", "write"] }'
PATH = "/v1/tables/homes/rows/1"


class ImpatientKv(KvProcess):
    """One that slows after few refusals."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.apps.kv.impatient", self.app]


def is_slowed_over_http(port: int, token: str) -> bool:
    """Whether who asks on by pipelined requests is told of a delay."""
    ask = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for _ in range(ROUNDS_MAX):
            connection.sendall(ask.encode() * DEPTH)
            replies = b""
            while replies.count(b"HTTP/1.1 ") < DEPTH:
                replies += connection.recv(1 << 16)
                if b"x-sluicegate-slowed-ms: " in replies:
                    return True
    return False


def is_slowed_over_grpc(port: int, token: str) -> bool:
    """Whether who asks on by calls that run together is told of a delay."""
    metadata = (("authorization", f"Bearer {token}"),)
    message = pb.GetRequest(table="homes", partition=b"1").SerializeToString()
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        get: Any = channel.unary_unary("/sluicegate.v1.KeyValues/Get")
        for _ in range(ROUNDS_MAX):
            calls = [get.future(message, metadata=metadata, timeout=60) for _ in range(DEPTH)]
            if any(SLOWED in dict(call.trailing_metadata() or ()) for call in calls):
                return True
    return False


@pytest.mark.parametrize("is_slowed", [is_slowed_over_http, is_slowed_over_grpc])
def test_who_asks_on_though_its_quota_is_spent_is_slowed_and_counted_and_no_other(
    tmp_path: Path, is_slowed: Callable[[int, str], bool]
) -> None:
    access = access_file(tmp_path, {"hammer": TABLES, "good": TABLES})
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = ["--engine", "memory:", "--quota-ru", "20", "--access", access, "--metrics-open", "on"]
    with ImpatientKv(tmp_path, *flags, "--rules", str(rules)) as kv:
        assert slowed_total(kv) == 0
        # Who hangs up as soon as it is told may be gone before its connection is put off.
        until(
            lambda: is_slowed(kv.port, token_of("hammer")) and slowed_total(kv) > 0,
            "a connection that is told and put off",
        )
        # One of its twenty units, so that it is served though a busy machine had prices rise.
        status, told = kv.ask(PATH, token=token_of("good"))
        assert status == HTTPStatus.NOT_FOUND, told


def slowed_total(kv: KvProcess) -> float:
    with urlopen(f"{kv.url}/metrics") as metrics:
        (value,) = re.findall(r"^sluicegate_kv_slowed_total (\S+)", metrics.read().decode(), re.M)
    return float(value)
