"""A token that is taken back, on connections that were opened with it."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from sluicegate.policies.access import token_digest
from sluicegate.protos import key_values_pb2, key_values_pb2_grpc
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.engines.child import until
from tests.redis.members import ASK_ONCE

MAY = 'tables = { t = ["read", "write"] }'


def test_who_is_taken_out_of_the_access_file_has_nothing_more_on_any_open_connection(
    tmp_path: Path,
) -> None:
    access = Path(access_file(tmp_path, {"ann": MAY, "bob": MAY, "carl": MAY}))
    with KvProcess(tmp_path, "--engine", "memory:", "--access", str(access)) as kv:
        ann, bob, carl = (
            redis.Redis(
                port=kv.port, password=token_of(name), retry=ASK_ONCE, single_connection_client=True
            )
            for name in ("ann", "bob", "carl")
        )
        bearer = f"Bearer {token_of('bob')}"
        page = http.client.HTTPConnection("127.0.0.1", kv.port, timeout=60)
        channel = grpc.insecure_channel(f"127.0.0.1:{kv.port}")
        stub = key_values_pb2_grpc.KeyValuesStub(channel)

        def by_http() -> int:
            page.request("GET", "/v1/tables/t/rows/1", headers={"authorization": bearer})
            answer = page.getresponse()
            answer.read()
            return answer.status

        def by_grpc() -> Any:
            request = key_values_pb2.GetRequest(table="t", partition=b"1")
            return stub.Get(request, metadata=(("authorization", bearer),), timeout=60)

        for client in (ann, bob, carl):
            assert client.set("t:1", "a")
        assert by_http() == 200
        by_grpc()
        text = access.read_text().replace(token_digest(token_of("bob")), "0" * 64)
        at = text.index('name = "carl"')
        access.write_text(text[:at] + text[at:].replace('"read", "write"', '"read"'))
        kv.signal(signal.SIGHUP)
        until(lambda: by_http() == 401, "the file read again")
        with pytest.raises(grpc.RpcError) as refused:
            by_grpc()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for word in ("GET", "DEL"):
            with pytest.raises(redis.AuthenticationError):
                bob.execute_command(word, "t:1")  # type: ignore[no-untyped-call]
        assert carl.get("t:1") == b"a"
        with pytest.raises(redis.exceptions.NoPermissionError):
            carl.set("t:1", "b")
        assert ann.set("t:1", "b")
        for client in (ann, bob, carl):
            client.close()
        page.close()
        channel.close()
