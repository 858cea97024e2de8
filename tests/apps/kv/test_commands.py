"""Commands that many callers send at once, to real dispatchers on their real engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
import redis

from sluicegate.protos import key_values_pb2 as pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from tests.apps.kv.process import KvProcess
from tests.engines.child import until

CROWD = 10
ROUNDS = 30
T = TypeVar("T")


@pytest.fixture(scope="module", params=["lmdb", "rocksdb"])
def kv(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KvProcess]:
    folder = tmp_path_factory.mktemp("kv")
    with KvProcess(folder, "--engine", f"{request.param}:{folder / 'data'}") as process:
        yield process


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """What these return, begun together."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def by_redis(kv: KvProcess, *keys: str) -> Callable[[], int]:
    client = kv.redis()
    return lambda: int(client.delete(*keys))


def by_http(kv: KvProcess, *rows: str) -> Callable[[], int]:
    places = [{"partition": row} for row in rows]

    def remove() -> int:
        status, body = kv.ask("/v1/tables/t/rows:remove", {"places": places}, method="POST")
        assert status == 200, body
        return int(body["removed"])

    return remove


def by_grpc(kv: KvProcess, *rows: str) -> Callable[[], int]:
    stub = KeyValuesStub(grpc.insecure_channel(f"127.0.0.1:{kv.port}"))
    places = [pb.Place(partition=row.encode()) for row in rows]
    return lambda: int(stub.Remove(pb.RemoveRequest(table="t", places=places), timeout=60).removed)


def test_of_many_that_delete_a_key_one_is_told_that_it_did(kv: KvProcess) -> None:
    client = kv.redis()
    works = [by_redis(kv, "t:1") for _ in range(6)]
    works += [by_http(kv, "1"), by_http(kv, "1"), by_grpc(kv, "1"), by_grpc(kv, "1")]
    assert len(works) == CROWD
    for _ in range(ROUNDS):
        client.set("t:1", "x")
        assert sum(at_once(works)) == 1
    assert sum(at_once(works)) == 0


def test_of_many_that_delete_several_keys_each_key_is_counted_once(kv: KvProcess) -> None:
    client = kv.redis()
    keys = [f"t:{number}:{sort}" for number in range(5) for sort in "ab"]
    works = [by_redis(kv, *keys) for _ in range(CROWD)]
    for _ in range(ROUNDS):
        client.mset(dict.fromkeys(keys, "x"))
        assert sum(at_once(works)) == len(keys)
    assert client.exists(*keys) == 0


def test_of_many_on_two_dispatchers_of_one_lmdb_one_deletes_a_key(tmp_path: Path) -> None:
    engine = f"lmdb:{tmp_path / 'data'}"
    one_folder, other_folder = tmp_path / "one", tmp_path / "other"
    for folder in (one_folder, other_folder):
        folder.mkdir()
    with (
        KvProcess(one_folder, "--engine", engine) as one,
        KvProcess(other_folder, "--engine", engine) as other,
    ):
        works = [by_redis(kv, "t:1") for kv in (one, other) for _ in range(5)]
        for _ in range(ROUNDS):
            one.redis().set("t:1", "x")
            assert sum(at_once(works)) == 1


def test_a_counter_of_many_writers_counts_each_of_them(kv: KvProcess) -> None:
    each = 20

    def count() -> list[int]:
        client = kv.redis()
        return [int(client.incr("t:count")) for _ in range(each)]

    kv.redis().delete("t:count")
    counted = [number for numbers in at_once([count] * CROWD) for number in numbers]
    assert sorted(counted) == list(range(1, CROWD * each + 1))


def test_transactions_of_many_writers_move_between_two_rows_and_lose_nothing(
    kv: KvProcess,
) -> None:
    kv.redis().mset({"t:sum:a": 1_000, "t:sum:b": 0})

    def move() -> list[int]:
        client = kv.redis()
        seen = []
        for _ in range(20):
            with client.pipeline() as pipe:
                pipe.decr("t:sum:a")
                pipe.incr("t:sum:b")
                a, b = pipe.execute()
            seen.append(a + b)
        return seen

    assert {total for sums in at_once([move] * CROWD) for total in sums} == {1_000}
    assert kv.redis().mget("t:sum:a", "t:sum:b") == [b"800", b"200"]


def test_rows_of_one_partition_are_of_one_instant_also_if_some_are_hot(tmp_path: Path) -> None:
    engine = f"lmdb:{tmp_path / 'data'}"
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    with (
        KvProcess(folders[0], "--engine", engine) as one,
        KvProcess(folders[1], "--engine", engine) as other,
    ):
        writer, reader = one.redis(), other.redis()
        cached = 0
        for number in range(200):
            writer.mset({"t:p:hot": number, "t:p:cold": number, "t:q": number})
            with reader.pipeline(transaction=False) as pipe:
                for _ in range(100):
                    pipe.get("t:p:hot")
                cached += pipe.execute()[-1] != b"%d" % number
            hot, _, cold = reader.mget("t:p:hot", "t:q", "t:p:cold")
            assert hot == cold
        assert cached  # or there was nothing to tear
        writer.mset({f"t:many:{number}": "x" for number in range(300)})
        assert reader.mget([f"t:many:{number}" for number in range(300)]) == [b"x"] * 300


def test_an_engine_that_fails_is_in_the_log_once_and_not_ready_until_it_answers(
    tmp_path: Path,
) -> None:
    control = tmp_path / "control.json"
    control.write_text("{}")
    url = f"faulty+lmdb:{tmp_path / 'data'}?control={control}"
    with KvProcess(tmp_path, "--engine", url) as kv:
        client = kv.redis()
        assert client.set("t:1", "x")
        assert kv.ask("/readyz")[0] == 200

        def plan(text: str) -> None:
            aside = tmp_path / "aside.json"
            aside.write_text(text)
            aside.rename(control)

        def fails() -> bool:
            try:
                client.set("t:1", "x")
            except redis.ResponseError:
                return True
            return False

        plan(json.dumps({"error_share": 1}))
        until(lambda: fails() and kv.ask("/readyz")[0] == 503, "not ready", 10, [kv.child])
        assert "its plan has it fail" in str(kv.ask("/readyz")[1])
        assert kv.ask("/v1/state")[1]["engine"]["gone"] is True
        assert kv.log.read_text().count("does not answer") == 1
        plan("{}")
        until(lambda: not fails() and kv.ask("/readyz")[0] == 200, "ready", 20, [kv.child])
        assert kv.log.read_text().count("answers again") == 1


def test_mset_and_mget_take_5000_keys_and_20000_are_an_error(kv: KvProcess) -> None:
    client = kv.redis()
    values = {f"wide:{number}": str(number) for number in range(5_000)}
    assert client.mset(values)
    assert client.mget(list(values)) == [one.encode() for one in values.values()]
    assert client.delete(*values) == 5_000
    pinned = kv.redis(single_connection_client=True)  # errors must not end its connection
    number = pinned.client_id()
    with pytest.raises(redis.ResponseError, match="send less at a time"):
        pinned.mset({f"wide:{one}": "v" for one in range(20_000)})
    assert pinned.client_id() == number
    of_one = {f"p:{number}": str(number) for number in range(5_000)}
    assert client.mset(of_one)
    assert client.mget(list(of_one)) == [one.encode() for one in of_one.values()]
    with pytest.raises(redis.ResponseError, match=r"from 1 to 16,384|send less at a time"):
        pinned.mget([f"wide:{one}" for one in range(40_000)])
    assert pinned.client_id() == number
