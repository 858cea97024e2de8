"""Shapes of engines on real ones, behind processes of `sluicegate kv`.

Each is compared with `--policy none` in front of an engine of the same kind, or with dispatchers
that share nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.zoo.shape import ShapeTraffic, ZooRequest
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.prove.zoo.http import claims_of, fetch
from tests.prove.zoo.load import (
    SEEDS,
    USEFUL_MIN,
    Call,
    Candidate,
    Load,
    Played,
    Results,
    assert_serves_what_matters,
    load_of,
    play,
    run_on_time,
    side_by_side,
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


def kv_caller(ports: Sequence[int]) -> Call:
    """Return what sends the requests of an engine, each to its dispatcher."""

    async def call(ask: ZooRequest, kind: ShapeTraffic) -> bool:
        path = f"/v1/tables/{kind.name}/rows/k{ask.number}"
        fields = {**claims_of(ask, kind), "authorization": f"Bearer {token_of(CALLER)}"}
        status, _ = await fetch(ports[ask.dispatcher % len(ports)], path, fields)
        return status in ANSWERED

    return call


def flags_of(folder: Path, engine: str) -> list[str]:
    """Return the flags of a dispatcher."""
    access = access_file(folder, {CALLER: GRANTS})
    return ["--engine", engine, "--access", access, *QUOTA]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["bursts of 20", "no deadline"])
def test_lmdb_at_ordinary_load_refuses_nothing(name: str, tmp_path: Path, seed: int) -> None:
    """Even while fifty connections write sixteen rows at a time."""
    load = load_of(f"engine: {name}", seed)
    refused: list[object] = []

    def write(kv: KvProcess, number: int) -> None:
        with kv.redis(token_of(CALLER)) as client:
            pipe = client.pipeline(transaction=False)
            for at in range(PIPELINED):
                pipe.set(f"t:{number}-{at}", b"v" * 100)
            refused.extend(one for one in pipe.execute(raise_on_error=False) if one is not True)

    with KvProcess(tmp_path, *flags_of(tmp_path, f"lmdb:{tmp_path / 'data'}")) as kv:
        writers = [threading.Thread(target=write, args=(kv, one)) for one in range(CONNECTIONS)]

        async def story() -> Played:
            for writer in writers:
                asyncio.get_running_loop().call_later(load.span_s / 2, writer.start)
            return await play(load, kv_caller([kv.port]))

        played = asyncio.run(story())
        for writer in writers:
            writer.join()
    assert played.share() == 1
    assert refused == []


def run_engines(
    redis: RedisServer,
    folder: Path,
    load: Load,
    candidates: Mapping[str, Sequence[str]],
    *,
    dispatchers: int = 1,
    stalls_from_s: float = 0.0,
) -> tuple[Results, Mapping[str, SlowRedis]]:
    """Play with a slow Redis for each candidate, whose flags are given."""
    engines: dict[str, SlowRedis] = {}

    async def story() -> Results:
        async with AsyncExitStack() as stack:
            work_us = round(load.shape.traffic[0].work.mean_us)
            all_of: dict[str, Candidate] = {}
            for name, flags in candidates.items():
                engine = SlowRedis(redis.port, load.shape.slots, work_us)
                engines[name] = await stack.enter_async_context(engine.serving())
                url = f"redis://127.0.0.1:{engine.port}/0?timeout_ms=20000"
                # They ask the engine as they start, so this loop has to run meanwhile.
                started = [
                    asyncio.to_thread(KvProcess, folder, *flags_of(folder, url), *flags)
                    for _ in range(dispatchers)
                ]
                processes = await asyncio.gather(*started)
                for process in processes:
                    stack.enter_context(process)
                call = kv_caller([process.port for process in processes])
                all_of[name] = call, engine.slots.get_ended
            stalls = [
                asyncio.create_task(engine.stall(stalls_from_s))
                for engine in engines.values()
                if stalls_from_s
            ]
            found = await side_by_side(load, all_of)
            for stall in stalls:
                stall.cancel()
            return found

    return run_on_time(story), engines


@pytest.mark.parametrize("seed", SEEDS)
def test_overloaded_engine_with_slots_known_serves_what_matters(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    load = load_of("engine: 2x, patience of 5 x", seed, 0.5)
    candidates = {"ours": ["--slots", str(load.shape.slots)], "none": ["--policy", "none"]}
    found, _ = run_engines(redis_server, tmp_path, load, candidates)
    assert_serves_what_matters(found["ours"], found["none"])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots_known", [True, False])
def test_stalling_engine_serves_critical_no_worse_than_no_policy(
    redis_server: RedisServer, tmp_path: Path, slots_known: bool, seed: int
) -> None:
    load = load_of("engine: stalls", seed)
    known = ["--slots", str(load.shape.slots)] if slots_known else []
    candidates = {"ours": known, "none": ["--policy", "none"]}
    found, _ = run_engines(redis_server, tmp_path, load, candidates, stalls_from_s=0.5)
    ours, none = (found[name].share(Criticality.CRITICAL) for name in ("ours", "none"))
    assert ours >= none


@pytest.mark.parametrize("seed", SEEDS)
def test_dispatchers_with_one_store_share_the_slots_of_an_engine(
    redis_server: RedisServer, tmp_path: Path, seed: int
) -> None:
    load = load_of("engine: 2x, 4 dispatchers", seed, 1.5)
    slots = ["--slots", str(load.shape.slots)]
    candidates = {"ours": [*slots, "--store", redis_server.patient_url], "apart": slots}
    found, engines = run_engines(redis_server, tmp_path, load, candidates, dispatchers=2)
    usual = {name: median(engine.seen) / load.shape.slots for name, engine in engines.items()}
    assert usual["apart"] >= 1.75
    assert usual["ours"] <= 1.25
    assert max(engines["ours"].seen) <= 2 * load.shape.slots
    assert found["ours"].useful >= USEFUL_MIN * found["apart"].ended
