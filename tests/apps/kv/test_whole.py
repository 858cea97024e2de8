"""Whole dispatchers: processes as a user starts them, spoken to in all their languages."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.engines.child import run_to_end, until
from tests.engines.redis import RedisServer


def write_often(client: redis.Redis, count: int) -> None:
    for _ in range(count):
        client.set("t:1", "x" * 1_000)


@pytest.fixture(scope="module")
def kv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvProcess]:
    folder = tmp_path_factory.mktemp("kv")
    with KvProcess(folder, "--engine", f"lmdb:{folder / 'data'}") as process:
        yield process


def test_what_one_language_writes_the_others_read(kv: KvProcess) -> None:
    client = kv.redis()
    assert client.set("homes:7:name", "Villa")
    assert kv.ask("/v1/tables/homes/rows/7/name") == (200, "Villa")
    status, _ = kv.ask("/v1/tables/homes/rows/7/city", method="DELETE")
    assert status in {200, 204, 404}
    client.mset({f"homes:8:{number:03}": str(number) for number in range(50)})
    status, body = kv.ask("/v1/tables/homes/range/8?rows_max=20&reverse=true")
    assert status == 200
    assert [row["value"] for row in body["rows"]] == [str(49 - number) for number in range(20)]


def test_the_state_shows_what_was_asked_and_what_it_cost(kv: KvProcess) -> None:
    before = kv.ask("/v1/state")[1]["board"]["stack"]["admitted"]
    client = kv.redis()
    for number in range(10):
        client.set(f"shown:{number}", "x")
    board = kv.ask("/v1/state")[1]["board"]
    assert board["stack"]["admitted"] == before + 10
    assert board["callers"][0]["caller"] == "anonymous"
    assert board["callers"][0]["mru"] >= 60_000  # a write costs six at the least
    assert kv.metric("sluicegate_kv_done_total", operation="put") >= 10


def test_a_key_that_everybody_asks_for_is_served_from_memory(kv: KvProcess) -> None:
    client = kv.redis()
    client.set("hot:1", "x")

    def from_memory() -> bool:
        done = kv.metric("sluicegate_kv_done_total", operation="get")
        with client.pipeline(transaction=False) as pipe:
            for _ in range(2_000):
                pipe.get("hot:1")
            assert pipe.execute() == [b"x"] * 2_000
        return kv.metric("sluicegate_kv_done_total", operation="get") - done < 200

    until(from_memory, "answers from memory")
    hottest = kv.ask("/v1/hot")[1]["keys"][0]
    assert hottest["key"].startswith("hot:")
    client.set("hot:1", "y")
    assert client.get("hot:1") == b"y"  # never our own stale write


def test_a_scan_enters_anew_for_each_of_its_chunks(kv: KvProcess) -> None:
    client = kv.redis()
    for first in range(0, 1_000, 500):
        client.mset({f"long:1:{number:05}": "v" for number in range(first, first + 500)})
    before = kv.metric("sluicegate_kv_done_total", operation="scan")
    status, body = kv.ask("/v1/tables/long/range/1?rows_max=1000")
    assert status == 200
    assert len(body["rows"]) == 1_000
    assert kv.metric("sluicegate_kv_done_total", operation="scan") - before >= 5


def test_who_has_no_grant_on_a_table_has_nothing_of_it(tmp_path: Path) -> None:
    access = access_file(
        tmp_path,
        {
            "shop": 'tables = { homes = ["read", "write"] }',
            "reader": 'tables = { "*" = ["read"] }',
            "operator": 'grants = ["audit", "operate"]',
        },
    )
    with KvProcess(tmp_path, "--engine", "memory:", "--access", access) as kv:
        shop, reader = kv.redis(token_of("shop")), kv.redis(token_of("reader"))
        assert shop.set("homes:1", "a")
        assert reader.get("homes:1") == b"a"
        for denied in (
            lambda: reader.set("homes:1", "b"),
            lambda: shop.get("reviews:1"),
            lambda: kv.redis().get("homes:1"),
            lambda: shop.execute_command("SG.BULK", "LIST", "homes"),  # type: ignore[no-untyped-call]
        ):
            with pytest.raises(redis.exceptions.RedisError):
                denied()
        for _ in range(200):  # hot by now, and authorisation still comes first
            shop.get("homes:1")
        with pytest.raises(redis.exceptions.RedisError):
            kv.redis(token_of("operator")).get("homes:1")
        assert kv.ask("/v1/tables/homes/rows/1")[0] == 401
        assert kv.ask("/v1/state", token=token_of("shop"))[0] == 403
        assert kv.ask("/v1/state", token=token_of("operator"))[0] == 200


def test_a_spent_quota_is_refused_with_the_instant_of_the_next_epoch(tmp_path: Path) -> None:
    with KvProcess(tmp_path, "--engine", "memory:", "--quota-ru", "100") as kv:
        statuses = [kv.ask("/v1/tables/t/rows/1", {"n": 1}, method="PUT")[0] for _ in range(60)]
        assert 429 in statuses
        assert statuses[0] < 300
        with pytest.raises(redis.exceptions.ResponseError, match="LIMITED"):
            write_often(kv.redis(), 200)
        assert kv.metric("sluicegate_kv_refused_total", reason="quota_spent") > 0


def test_the_seeds_status_for_a_spent_quota_can_be_had(tmp_path: Path) -> None:
    flags = ["--engine", "memory:", "--quota-ru", "50", "--quota-status", "419"]
    with KvProcess(tmp_path, *flags) as kv:
        statuses = {kv.ask("/v1/tables/t/rows/1", {"n": 1}, method="PUT")[0] for _ in range(60)}
        assert 419 in statuses
        assert 429 not in statuses


def test_rules_say_quotas_and_classes_without_a_restart(tmp_path: Path) -> None:
    access = access_file(tmp_path, {"shop": 'tables = { "*" = ["read", "write"] }'})
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\ncallers:\n  quotas:\n    shop: 10/s\n")
    flags = ["--engine", "memory:", "--access", access, "--rules", str(rules)]
    with KvProcess(tmp_path, *flags) as kv:
        shop = kv.redis(token_of("shop"))
        with pytest.raises(redis.exceptions.ResponseError, match="LIMITED"):
            write_often(shop, 20)
        rules.write_text("version: 1\ncallers:\n  quotas:\n    shop: 1000000/s\n")
        kv.signal(signal.SIGHUP)
        for _ in range(100):
            try:
                write_often(shop, 20)  # a single write passes in each epoch of the old quota too
                break
            except redis.exceptions.ResponseError:
                threading.Event().wait(0.05)
        write_often(shop, 200)


def test_told_to_end_it_finishes_what_is_under_way(tmp_path: Path) -> None:
    engine = "faulty+memory:?slots=1&work_ms=300"
    with KvProcess(tmp_path, "--engine", engine) as kv:
        client = kv.redis()
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(client.set("t:1", "x")))
        thread.start()
        for _ in range(100):
            if kv.ask("/v1/state")[1]["board"]["stack"]["entered"]:
                break
        assert kv.end() == 0
        thread.join(60)
        assert answers == [True]


def test_killed_amid_writes_it_has_everything_it_acknowledged(tmp_path: Path) -> None:
    data = f"lmdb:{tmp_path / 'data'}"
    acknowledged: list[int] = []

    def write(kv: KvProcess, of: int) -> None:
        client = kv.redis()
        try:
            for number in range(of, 1_000_000, 4):
                client.set(f"t:{number}", str(number))
                acknowledged.append(number)
        except redis.exceptions.RedisError:
            return

    with KvProcess(tmp_path, "--engine", data, "--quota-ru", "10000000") as kv:
        threads = [threading.Thread(target=write, args=(kv, of)) for of in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 500:
            threading.Event().wait(0.01)
        kv.signal(signal.SIGKILL)
        kv.child.wait(60)
        for thread in threads:
            thread.join(60)
    with KvProcess(tmp_path, "--engine", data, "--quota-ru", "10000000") as kv:
        client = kv.redis()
        keys = [f"t:{number}" for number in acknowledged]
        values = [
            value
            for first in range(0, len(keys), 500)
            for value in client.mget(keys[first : first + 500])
        ]
        assert values == [str(number).encode() for number in acknowledged]


def test_workers_share_a_port_and_an_engine(tmp_path: Path, redis_server: RedisServer) -> None:
    data = f"lmdb:{tmp_path / 'data'}"
    flags = ["--engine", data, "--workers", "2", "--store", redis_server.patient_url]
    with KvProcess(tmp_path, *flags) as kv:

        def client() -> redis.Redis:
            # A first request waits 5 ms for a block of its quota, and is then told to come again.
            refused = redis.exceptions.ResponseError
            return kv.redis(retry=Retry(ConstantBackoff(0.01), 500), retry_on_error=[refused])

        for number in range(20):
            assert client().set(f"t:{number}", str(number))
        for number in range(20):
            assert client().get(f"t:{number}") == str(number).encode()
        assert kv.metric("sluicegate_kv_done_total", operation="put") == 20


def test_a_copy_made_online_can_be_served(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    flags = ["--engine", f"lmdb:{tmp_path / 'data'}", "--backups", str(tmp_path)]
    with KvProcess(tmp_path, *flags) as kv:
        kv.redis().set("t:1", "kept")
        done = run_to_end(
            [sys.executable, "-m", "sluicegate.cli", "kv", "backup", str(copy), "--at", kv.url]
        )
        assert done.returncode == 0, done.stderr
    with KvProcess(tmp_path, "--engine", f"lmdb:{copy}") as kv:
        assert kv.redis().get("t:1") == b"kept"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "lbdm:x"], "engine"),
        (["--workers", "2", "--engine", "memory:"], "--engine"),
        (["--workers", "2", "--engine", "lmdb:x"], "--workers"),
        (["--slots", "-1"], "--slots"),
        (["--quota-status", "500"], "--quota-status: '500' cannot be used; give one of 429, 419"),
        (["--policy", "both"], "--policy"),
        (["--store", "http://x"], "--store"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_to_end(
        [sys.executable, "-m", "sluicegate.cli", "kv", "--listen", "127.0.0.1:0", *flags]
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def is_set(kv: KvProcess, key: str) -> bool:
    """Whether a write was let in; where the machine is busy its queue may refuse it."""
    pipeline = kv.redis().pipeline(transaction=False)
    pipeline.set(key, "x")
    [reply] = pipeline.execute(raise_on_error=False)
    assert reply is True or str(reply).startswith("BUSY")
    return reply is True


def bulkhead(kv: KvProcess) -> tuple[int, int]:
    """What it has let in and refused."""
    stages = kv.ask("/v1/state")[1]["stages"]
    stage = next(one for one in stages if one["name"] == "bulkhead")
    return stage["admitted"], stage["refused"]
