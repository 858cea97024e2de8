"""A dispatcher's life with people: what they ask too much of, get wrong, and look at."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path

import grpc
import pytest
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.cli import main
from sluicegate.service.settings import fields_of
from sluicegate.wire.resp import command
from tests.apps.kv.process import KvProcess, access_file, token_of

MIB = 1 << 20
PLENTY = ("--quota-ru", "100000000")


def test_the_settings_in_effect_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "--slots", "7", "--print-config"]) == 0
    output = capsys.readouterr().out
    assert 'slots = "7" ' in output
    names = [field.name for field in fields_of(KvSettings) if field.name != "token"]
    assert all(f"{name} = " in output for name in names)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--frob"], "there is no flag --frob; see"),
        (["--port", "6000"], "there is no flag --port; give --listen HOST:PORT"),
        (["--hot", "off", "--qouta-ru", "9"], "no flag --qouta-ru; did you mean --quota-ru?"),
        (["top", "--listen", "9"], "there is no flag --listen; see sluicegate kv top --help"),
        (["frob"], "invalid choice: 'frob'"),
        (["--engine", "foo:bar"], "give one of memory:"),
        (["--listen", "0.0.0.0:0"], "others can reach it"),
        (["--workers", "2"], "workers share quotas by a store"),
        (["--weights", "/nowhere"], "it cannot be read"),
        (["backup", "x", "--url", "here"], "write it as http://"),
        (["top", "--every", "0"], "give seconds from 0.1"),
    ],
)
def test_a_wrong_word_is_told_with_what_would_be_right(
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)  # where an embedded engine would be made
    try:
        code: object = main(["kv", *flags])
    except SystemExit as end:  # as the reader of flags ends
        code = end.code
    assert code == 2
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("flags", "limit"), [((), "limit none yet"), (("--slots", "64"), "limit 64 (set)")]
)
def test_ready_line_shows_limit_and_its_origin(
    flags: tuple[str, ...], limit: str, tmp_path: Path
) -> None:
    with KvProcess(tmp_path, "--engine", "memory:", *flags) as kv:
        assert limit in kv.ready_line


def test_a_multi_get_answers_no_more_than_it_may_hold(tmp_path: Path) -> None:
    with KvProcess(tmp_path, "--engine", "memory:", *PLENTY) as kv:
        client = kv.redis()
        for number in range(20):
            client.set(f"big:{number}", b"x" * MIB)
        whole = client.mget([f"big:{number}" for number in range(16)])
        assert [len(one) for one in whole if isinstance(one, bytes)] == [MIB] * 16
        with pytest.raises(redis.exceptions.ResponseError, match="ask for fewer at a time"):
            client.mget([f"big:{number}" for number in range(17)])
        for count in (17, 400):  # all of one key: served from memory by and by, and counted too
            for _ in range(3):
                with pytest.raises(redis.exceptions.ResponseError, match="ask for fewer"):
                    client.mget(["big:0"] * count)
        places = [{"partition": str(number % 20), "sort": ""} for number in range(150)]
        status, body = kv.ask("/v1/tables/big/rows:get", {"places": places})
        assert status == 400
        assert body["field"] == "places"
        assert len(client.mget([f"big:{number}" for number in range(3)])) == 3


def test_health_answers_while_everything_else_waits(tmp_path: Path) -> None:
    engine = "faulty+memory:?slots=1&work_ms=100"
    with KvProcess(tmp_path, "--engine", engine, *PLENTY) as kv:
        sockets = [socket.create_connection(("127.0.0.1", kv.port)) for _ in range(8)]
        for at, one in enumerate(sockets):
            one.sendall(b"".join([command("SET", f"t:{at}-{n}", "x") for n in range(50)]))
        while kv.ask("/v1/state")[1]["board"]["stack"]["under_way"] < 50:
            threading.Event().wait(0.01)
        assert kv.ask("/healthz") == (200, {"status": "ok"})
        assert kv.ask("/readyz")[0] == 200
        assert kv.ask("/v1/state")[1]["board"]["stack"]["under_way"] > 40  # they wait still
        for one in sockets:
            one.close()
        kv.signal(signal.SIGKILL)


def test_health_is_told_for_the_services_that_are_here(tmp_path: Path) -> None:
    with (
        KvProcess(tmp_path, "--engine", "memory:") as kv,
        grpc.insecure_channel(f"127.0.0.1:{kv.port}") as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "sluicegate.v1.KeyValues"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        with pytest.raises(grpc.RpcError, match="there is no service"):
            stub.Check(health_pb2.HealthCheckRequest(service="sluicegate.v1.RateLimiter"))


def run_verb(verb: str, *words: str) -> int:
    return main(["kv", verb, *words])


def test_a_copy_is_never_written_over_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    flags = ["--engine", f"lmdb:{tmp_path / 'data'}", "--backups", str(tmp_path)]
    with KvProcess(tmp_path, *flags) as kv:
        kv.redis().set("t:1", "x")
        assert run_verb("backup", str(copy), "--url", kv.url) == 0
        assert "copied" in capsys.readouterr().out
        status, body = kv.ask("/v1/backup", {"folder": str(copy)})
        assert status == 400  # whoever asks is mistaken; to come back later would not help
        assert body["field"] == "folder"
        assert run_verb("backup", str(copy), "--url", kv.url) != 0
        assert "give an empty one" in capsys.readouterr().err
    with KvProcess(tmp_path, "--engine", f"lmdb:{copy}") as kv:
        assert kv.redis().get("t:1") == b"x"


def test_what_memory_answers_is_charged_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KvProcess(tmp_path, "--engine", "memory:", "--quota-ru", "100") as kv:
        client = kv.redis()
        client.set("hot:1", "x")
        replies: list[object] = []
        for _ in range(20):  # it is cached once the dispatcher is seen to be busy
            with client.pipeline(transaction=False) as pipe:
                for _ in range(3_000):
                    pipe.get("hot:1")
                replies = pipe.execute(raise_on_error=False)
            if (served := replies.count(b"x")) > 200:
                break
        assert served > 200  # more than a read of the engine each would leave
        # A tenth of a unit each, and when those are spent memory answers nobody either.
        refused = [one for one in replies if one != b"x"]
        assert refused
        assert all(str(one).startswith("LIMITED") for one in refused)
        board = kv.ask("/v1/state")[1]["board"]
        mru = next(one["mru"] for one in board["callers"] if one["caller"] == "anonymous")
        assert mru >= served * 100
        assert run_verb("top", "--once", "--every", "0.1", kv.url) == 0
        assert "answered from memory" in capsys.readouterr().out


def test_nobody_claims_more_than_they_may(tmp_path: Path) -> None:
    access = access_file(
        tmp_path,
        {
            "night": 'tables = { "*" = ["read", "write"] }\nhighest = "BEST_EFFORT"',
            "operator": 'grants = ["audit"]',
        },
    )
    with KvProcess(tmp_path, "--engine", "memory:", "--access", access) as kv:
        client = kv.redis(token_of("night"))
        client.execute_command("SG.CRITICALITY", "CRITICAL")  # type: ignore[no-untyped-call]
        client.set("t:1", "x")
        state = kv.ask("/v1/state", token=token_of("operator"))[1]
        stage = next(one for one in state["stages"] if one["name"] == "criticality")
        assert stage["own"]["clamped"] >= 1
        assert stage["own"]["critical"] == 0
