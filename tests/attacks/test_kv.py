"""Attacks on `sluicegate kv`: what a caller learns, writes and costs beyond its grants."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from sluicegate.contracts.key_values import tag_of
from sluicegate.protos import key_values_pb2 as pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.attacks.prober import Meter

SECRET = b"correct horse battery staple"
TAG = tag_of(SECRET).hex()
WRONG_TAG = tag_of(b"a guess").hex()


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    folder = tmp_path_factory.mktemp("kv")
    callers = {
        "writer": 'tables = { "*" = ["write"] }',
        "owner": 'tables = { "*" = ["read", "write"] }',
    }
    with KvProcess(
        folder, "--engine", "memory:", "--access", access_file(folder, callers)
    ) as process:
        yield process


@pytest.fixture
def owner(kv: KvProcess) -> Iterator[Any]:
    """Who may read, beside a secret at `t:secret`."""
    connection = connect(kv, "owner")
    ask(connection, "SET", "t:secret", SECRET)
    yield connection
    connection.disconnect()


@pytest.fixture
def writer(kv: KvProcess) -> Iterator[Any]:
    """Who may only write."""
    connection = connect(kv, "writer")
    yield connection
    connection.disconnect()


def connect(kv: KvProcess, name: str) -> Any:
    """A connection whose replies nobody interprets."""
    untyped: Any = redis.Connection
    connection = untyped(
        host="127.0.0.1", port=kv.port, protocol=2, password=token_of(name), socket_timeout=10
    )
    connection.connect()
    return connection


def ask(connection: Any, *words: str | bytes) -> Any:
    """The reply; an error is one too."""
    connection.send_command(*words)
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error


def put(
    kv: KvProcess, name: str, headers: dict[str, str], place: str = "secret"
) -> tuple[int, str, bytes]:
    """Status, ETag and body of a conditional PUT."""
    connection = http.client.HTTPConnection("127.0.0.1", kv.port, timeout=60)
    sent = {"Authorization": f"Bearer {token_of(name)}", **headers}
    connection.request("PUT", f"/v1/tables/t/rows/{place}", b"x", sent)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, reply.headers.get("ETag", ""), body


def write_if(kv: KvProcess, name: str, condition: pb.Condition, place: bytes = b"secret") -> Any:
    """The response of WriteIf; an error as its code."""
    metadata = [("authorization", f"Bearer {token_of(name)}")]
    request = pb.WriteIfRequest(
        table="t", write=pb.Write(partition=place, value=b"x"), condition=condition
    )
    with grpc.insecure_channel(f"127.0.0.1:{kv.port}") as channel:
        stub: Any = KeyValuesStub(channel)
        try:
            return stub.WriteIf(request, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            return error.code()


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "t:secret", "x", "NX", "GET"),
        ("SET", "t:secret", "x", "XX", "GET"),
        ("SET", "t:secret", "x", "GET"),
        ("SET", "t:secret", "x", "NX", "GET", "KEEPTTL"),
        ("GETDEL", "t:secret"),
        ("GETEX", "t:secret"),
        ("GETEX", "t:secret", "EX", "10"),
        ("SG.PUTIF", "t:secret", "x", "ABSENT"),
        ("SG.PUTIF", "t:secret", "x", "TAG", WRONG_TAG),
        ("SG.PUTIF", "t:secret", SECRET, "TAG", TAG),  # a guess at the value, which changes nothing
    ],
)
def test_no_command_shows_a_value_to_who_may_only_write(
    owner: Any, writer: Any, words: tuple[str | bytes, ...]
) -> None:
    reply = ask(writer, *words)
    told = repr(reply)
    assert SECRET.decode() not in told
    assert TAG not in told
    if words[0] == "SG.PUTIF" and words[3] == "ABSENT":
        assert reply == [0, None, None]  # a write may say whether it was made
    else:
        assert isinstance(reply, redis.exceptions.NoPermissionError)
    assert ask(owner, "GET", "t:secret") == SECRET


def test_a_refused_set_with_get_has_written_nothing(owner: Any, writer: Any) -> None:
    refused = ask(writer, "SET", "t:new", "x", "NX", "GET")
    assert isinstance(refused, redis.exceptions.NoPermissionError)
    assert ask(owner, "GET", "t:new") is None


def test_http_tells_no_tag_of_a_value_to_who_may_only_write(kv: KvProcess, owner: Any) -> None:
    status, tag, body = put(kv, "writer", {"If-None-Match": "*"})
    assert (status, tag) == (412, "")
    assert TAG.encode() not in body
    for guess in (TAG, WRONG_TAG):
        assert put(kv, "writer", {"If-Match": f'"{guess}"'})[:2] == (403, "")
    assert ask(owner, "GET", "t:secret") == SECRET


def test_grpc_tells_no_row_to_who_may_only_write(kv: KvProcess, owner: Any) -> None:
    tried = write_if(kv, "writer", pb.Condition(absent=True))
    assert (tried.done, tried.HasField("row")) == (False, False)
    for guess in (TAG, WRONG_TAG):
        code = write_if(kv, "writer", pb.Condition(tag=bytes.fromhex(guess)))
        assert code is grpc.StatusCode.PERMISSION_DENIED
    assert ask(owner, "GET", "t:secret") == SECRET


def test_who_may_only_write_still_writes_on_condition(
    kv: KvProcess, owner: Any, writer: Any
) -> None:
    """The control: what needs no reading is done, and says whether it was."""
    assert ask(writer, "SET", "t:lock", "x", "NX") == b"OK"
    assert ask(writer, "SET", "t:lock", "y", "NX") is None
    assert ask(writer, "SG.PUTIF", "t:lock", "z", "PRESENT") == [1, None, None]
    assert put(kv, "writer", {"If-None-Match": "*"}, "made")[0] == 204
    assert write_if(kv, "writer", pb.Condition(absent=True), b"made-too").done
    assert ask(writer, "DEL", "t:lock") == 1
    assert ask(owner, "GET", "t:made") == b"x"


def test_who_may_read_is_shown_what_stands_in_the_way(kv: KvProcess, owner: Any) -> None:
    """The control: an answer to somebody with both grants is what it was."""
    assert ask(owner, "SET", "t:secret", "x", "NX", "GET") == SECRET
    assert ask(owner, "SET", "t:fresh", "x", "NX", "GET") is None
    assert ask(owner, "GET", "t:fresh") == b"x"
    assert ask(owner, "SG.PUTIF", "t:secret", "x", "ABSENT") == [0, TAG.encode(), SECRET]
    assert ask(owner, "SG.PUTIF", "t:secret", "x", "TAG", WRONG_TAG) == [0, TAG.encode(), SECRET]
    assert put(kv, "owner", {"If-None-Match": "*"})[:2] == (412, f'"{TAG}"')
    assert write_if(kv, "owner", pb.Condition(absent=True)).row.value == SECRET
    assert put(kv, "owner", {"If-Match": f'"{TAG}"'})[0] == 204
    assert ask(owner, "GET", "t:secret") == b"x"


def test_a_copy_goes_nowhere_but_where_copies_belong(tmp_path: Path) -> None:
    backups, elsewhere = tmp_path / "backups", tmp_path / "elsewhere"
    backups.mkdir()
    elsewhere.mkdir()
    (backups / "link").symlink_to(elsewhere)
    engine = ["--engine", f"lmdb:{tmp_path / 'data'}"]
    with KvProcess(tmp_path, *engine, "--backups", str(backups)) as process:
        for folder in (
            elsewhere / "a",
            backups / "link" / "a",
            f"{backups}/../elsewhere/a",
            f"{backups}-too",
            "backups/a",
        ):
            status, answer = process.ask("/v1/backup", {"folder": str(folder)})
            assert (status, answer["field"]) == (400, "folder")
        assert list(elsewhere.iterdir()) == []
        assert process.ask("/v1/backup", {"folder": str(backups / "a")})[0] == 200  # the control
    with KvProcess(tmp_path, *engine) as process:
        status, answer = process.ask("/v1/backup", {"folder": str(backups / "b")})
        assert status == 400
        assert "--backups" in answer["detail"]


def test_json_of_a_million_values_is_refused_for_a_fraction_of_its_price(kv: KvProcess) -> None:
    """Ratio of CPU in the same run: a body as long, one string, is the measure."""
    size = 1 << 21
    many = b"[" + b"{}," * (size // 3) + b"{}]"
    one = b'{"places": "' + b"x" * size + b'"}'

    def cost_s(body: bytes) -> float:
        meter = Meter(kv.child.pid)
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", kv.port, timeout=60)
            headers = {"Authorization": f"Bearer {token_of('owner')}"}
            headers["Content-Type"] = "application/json"
            connection.request("POST", "/v1/tables/t/rows:get", body, headers)
            reply = connection.getresponse()
            assert reply.status == 400
            assert reply.read()
            connection.close()
        return meter.cpu_s()

    cost_s(one)
    assert cost_s(many) < 4 * cost_s(one) + 0.1
