"""Shapes of engines on real ones, behind processes of `sluicegate kv`.

Each is compared with `--policy none` in front of an engine of the same kind, or with dispatchers
that share nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import pytest
import redis

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.zoo.shape import ShapeTraffic, ZooRequest
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.prove.zoo.http import claims_of, fetch
from tests.prove.zoo.load import (
    COLLAPSED_MAX,
    SEEDS,
    USEFUL_MIN,
    Call,
    Candidate,
    Load,
    Results,
    assert_loses_nothing,
    assert_serves_what_matters,
    load_of,
    prove,
    side_by_side,
    with_patience,
)
from tests.prove.zoo.slow_redis import SlowRedis

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

pytestmark = pytest.mark.prove

CALLER: Final = "zoo"
GRANTS: Final = 'tables = { "*" = ["read", "write"] }\nhighest = "CRITICAL"'
QUOTA: Final = ("--quota-ru", "100000000")  # far above any need
ANSWERED: Final = (200, 404)  # the rows are not there
CONNECTIONS: Final = 50
PIPELINED: Final = 16
OVERLOADED: Final = ("engine: 2x, patience of 5 x", 0.5)
DISPATCHERS: Final = 2
# In flight at the engine, in slots: twice what it has where nothing is shared, and once where the
# slots are. Dispatchers hear of each other every 50 ms, a sixth of the work.
APART_MIN: Final = 1.75
TOGETHER_MAX: Final = 1.25


def kv_caller(ports: Sequence[int]) -> Call:
    """Return what sends the requests of an engine, to each dispatcher in turn."""

    async def call(ask: ZooRequest, kind: ShapeTraffic) -> bool:
        path = f"/v1/tables/{kind.name}/rows/k{ask.number}"
        fields = {**claims_of(ask, kind), "authorization": f"Bearer {token_of(CALLER)}"}
        status, _ = await fetch(ports[ask.number % len(ports)], path, fields)
        return status in ANSWERED

    return call


def flags_of(folder: Path, engine: str) -> list[str]:
    """Return the flags of a dispatcher."""
    access = access_file(folder, {CALLER: GRANTS})
    return ["--engine", engine, "--access", access, *QUOTA]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["bursts of 20", "no deadline"])
def test_lmdb_at_ordinary_load_refuses_nothing(name: str, tmp_path: Path, seed: int) -> None:
    """At the default settings, even while fifty connections write sixteen rows at a time."""
    load = with_patience(load_of(f"engine: {name}", 1, seed), 0)
    refused: list[object] = []

    def write(port: int, number: int) -> None:
        with redis.Redis(port=port, password=token_of(CALLER), socket_timeout=60) as client:
            pipe = client.pipeline(transaction=False)
            for at in range(PIPELINED):
                pipe.set(f"t:{number}-{at}", b"v" * 100)
            refused.extend(one for one in pipe.execute(raise_on_error=False) if one is not True)

    with KvProcess(tmp_path, "--engine", f"lmdb:{tmp_path / 'data'}") as kv:

        async def write_all() -> None:
            await asyncio.sleep(load.span_s / 2)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                loop = asyncio.get_running_loop()
                writes = (
                    loop.run_in_executor(pool, write, kv.port, number)
                    for number in range(CONNECTIONS)
                )
                await asyncio.gather(*writes)

        async def story() -> Results:
            candidates = {"ours": Candidate(kv_caller([kv.port]))}
            found, _ = await asyncio.gather(side_by_side(load, candidates), write_all())
            return found

        prove(story, assert_loses_nothing)
    assert refused == []


async def play(
    engines: Mapping[str, SlowRedis],
    folder: Path,
    load: Load,
    flags: Mapping[str, Sequence[str]],
    *,
    dispatchers: int = 1,
    stalls: bool = False,
) -> Results:
    """Play with a slow Redis for each candidate, behind dispatchers with its flags."""
    async with AsyncExitStack() as stack:
        candidates: dict[str, Candidate] = {}
        for name, engine in engines.items():
            await stack.enter_async_context(engine.serving())
            words = [*flags_of(folder, f"{engine.url}?timeout_ms=20000"), *flags[name]]
            # They ask the engine as they start, so this loop has to run meanwhile.
            starts = [asyncio.to_thread(KvProcess, folder, *words) for _ in range(dispatchers)]
            processes = [stack.enter_context(one) for one in await asyncio.gather(*starts)]
            ports = [process.port for process in processes]
            candidates[name] = Candidate(kv_caller(ports), engine.slots.get_ended)
        tasks = [asyncio.create_task(one.stall()) for one in engines.values() if stalls]
        found = await side_by_side(load, candidates)
        for task in tasks:
            task.cancel()
        return found


def engines_of(redis_server: RedisServer, load: Load, *names: str) -> dict[str, SlowRedis]:
    """Return an engine for each candidate."""
    work_us = round(load.shape.traffic[0].work.mean_us)
    return {name: SlowRedis(redis_server.port, load.shape.slots, work_us) for name in names}


@pytest.mark.parametrize("seed", SEEDS)
def test_overloaded_engine_with_slots_known_serves_what_matters(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    load = load_of(*OVERLOADED, seed=seed)
    flags = {"ours": ["--slots", str(load.shape.slots)], "plain": ["--policy", "none"]}
    engines = engines_of(redis_server, load, *flags)
    prove(lambda: play(engines, tmp_path, load, flags), assert_serves_what_matters)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "found"])
def test_stalling_engine_serves_critical_no_worse_than_no_policy(
    redis_server: RedisServer, tmp_path: Path, known: bool, seed: int
) -> None:
    load = load_of("engine: stalls", 1, seed)
    slots = ["--slots", str(load.shape.slots)] if known else []
    flags = {"ours": slots, "plain": ["--policy", "none"]}
    engines = engines_of(redis_server, load, *flags)

    def judge(found: Results) -> None:
        ours, plain = (found[name].share(Criticality.CRITICAL) for name in ("ours", "plain"))
        assert ours >= max(plain, COLLAPSED_MAX), found

    prove(lambda: play(engines, tmp_path, load, flags, stalls=True), judge)


@pytest.mark.parametrize("seed", SEEDS)
def test_dispatchers_with_one_store_share_slots_of_an_engine(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    load = load_of(*OVERLOADED, seed=seed)
    slots = ["--slots", str(load.shape.slots)]
    flags = {"ours": [*slots, "--store", redis_server.patient_url], "plain": slots}
    engines = engines_of(redis_server, load, *flags)

    def judge(found: Results) -> None:
        usual = {name: median(one.seen) / load.shape.slots for name, one in engines.items()}
        assert usual["plain"] >= APART_MIN
        assert usual["ours"] <= TOGETHER_MAX
        assert max(engines["ours"].seen) <= DISPATCHERS * load.shape.slots
        assert found["ours"].useful >= USEFUL_MIN * found["plain"].ended, found

    prove(lambda: play(engines, tmp_path, load, flags, dispatchers=DISPATCHERS), judge)
