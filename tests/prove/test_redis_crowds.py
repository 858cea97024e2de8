"""Ten thousand keys, sixteen processes, one real server: never over the limit."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sluicegate import Algorithm, Limit
from tests.failures.bounds import (
    Admission,
    admitted_max,
    over_bucket,
    over_span,
    over_window,
    shared_max,
)
from tests.failures.crowd import Crowd, Spec
from tests.failures.pressing import clock_us
from tests.failures.test_processes import left_of
from tests.prove.seeds import seeds
from tests.stores.redis.live import run

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
KEYS = 10_000
PROCESSES = 16
PATIENT = "?timeout_ms=20000"  # sixteen processes on two processors wait for each other
ALGORITHMS = [one.value for one in Algorithm]
BLOCKS: list[str | int] = [2, 5, "10%", "30%", "auto"]
BLOCKS_HOT: list[str | int] = ["auto", "auto", "5%", "40%", 7]
LEASED = [one for one in ALGORITHMS if one != "sliding_log"]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=24, part=1))
def test_each_unit_of_ten_thousand_keys_is_admitted_once(
    redis_server: RedisServer, seed: int
) -> None:
    """Exactly: what was admitted and what is left are the limit, for every key."""
    draw = random.Random(seed)
    spec = Spec(
        redis_server.url + PATIENT,
        ALGORITHMS[seed % len(ALGORITHMS)],
        draw.randrange(2, 9),
        DAY_US,
        keys=KEYS,
        workers=PROCESSES,
        seconds=5,
        skew_s=10,
        seed=seed,
    )
    began_us = clock_us()
    with Crowd(spec) as crowd:
        pass
    result = crowd.result
    tell(
        f"seed {seed}: {spec.algorithm}, {sum(result.admitted):,} admitted of {KEYS * spec.count:,}"
    )
    assert result.processes == PROCESSES
    assert sum(result.degraded) == 0
    if began_us // DAY_US == clock_us() // DAY_US:  # else some windows have begun anew
        left = run(left_of(spec))
        both = [n + m for n, m in zip(result.admitted, left, strict=True)]
        assert both == [spec.count] * KEYS, f"seed {seed}"
    assert max(result.admitted) <= admitted_max(spec.limit, began_us, clock_us()), f"seed {seed}"


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=24, part=1))
def test_leases_and_killed_processes_never_exceed_a_limit_of_ten_thousand_keys(
    redis_server: RedisServer, seed: int
) -> None:
    draw = random.Random(seed)
    spec = Spec(
        redis_server.url + PATIENT,
        LEASED[seed % len(LEASED)],
        draw.choice([6, 9, 14]),
        DAY_US,
        keys=KEYS,
        workers=PROCESSES,
        seconds=6,
        lease=draw.choice(BLOCKS),
        skew_s=10,
        kills=17,
        kill_every_s=0.3,
        seed=seed,
    )
    began_us = clock_us()
    with Crowd(spec) as crowd:
        pass
    result = crowd.result
    tell(
        f"seed {seed}: {spec.algorithm}, lease {spec.lease}, {sum(result.admitted):,} admitted of "
        f"{KEYS * spec.count:,}, {result.killed} killed"
    )
    assert result.killed == 17
    assert max(result.admitted) <= admitted_max(spec.limit, began_us, clock_us()), f"seed {seed}"
    if began_us // DAY_US == clock_us() // DAY_US:
        # Nor could it be from now on: each unit that was spent is missing in the store.
        left = run(left_of(spec))
        assert max(n + m for n, m in zip(result.admitted, left, strict=True)) <= spec.count


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=24, part=1))
def test_hot_keys_stay_within_every_second_though_their_holders_are_killed(
    redis_server: RedisServer, seed: int
) -> None:
    """A few keys that all want at once, in windows of a second: each span is looked at."""
    draw = random.Random(seed)
    spec = Spec(
        redis_server.url + PATIENT,
        draw.choice(LEASED),
        draw.choice([150, 400, 1_000]),
        SECOND_US,
        keys=draw.choice([1, 3, 10]),
        workers=PROCESSES,
        seconds=4,
        lease=draw.choice(BLOCKS_HOT),
        skew_s=10,
        kills=11,
        kill_every_s=0.3,
        log=True,
        waves=draw.random() < 0.3,
        seed=seed,
    )
    if not spec.waves:
        spec = replace(spec, admitted_min=spec.count * spec.keys)
    with Crowd(spec) as crowd:
        pass
    tell(
        f"seed {seed}: {spec.algorithm} {spec.count}/s, lease {spec.lease}, {spec.keys} keys, "
        f"{sum(crowd.result.admitted):,} admitted, {crowd.result.killed} killed"
    )
    assert 1 <= len(crowd.result.log) <= spec.keys
    for admissions in crowd.result.log.values():
        assert over(spec, admissions) == 0, f"seed {seed}: {spec}"
        assert len(admissions) > spec.count / 2 or spec.waves


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=24, part=1))
def test_a_server_that_fails_at_random_admits_no_more_than_its_losses_explain(
    redis_server: RedisServer, seed: int
) -> None:
    """Kills, pauses and flushes in any order, with sixteen processes asking."""
    draw = random.Random(seed)
    lease = draw.choice([None, None, "10%"])
    spec = Spec(
        redis_server.url,
        draw.choice(LEASED if lease else ALGORITHMS),
        50,
        DAY_US,
        keys=400,
        workers=PROCESSES,
        tasks=2,
        seconds=5,
        pause_s=0.02,
        failure=draw.choice(["open", "closed", "local"]),
        local_share=0.1,
        lease=lease,
        skew_s=10,
        seed=seed,
    )
    began_us, losses, story = clock_us(), 0, []
    with Crowd(spec) as crowd:
        while clock_us() < began_us + 3_500_000:
            time.sleep(draw.uniform(0.1, 0.6))
            what = draw.choice(["kill", "pause", "flush", "script flush", "demote"])
            story.append(what)
            losses += BREAK[what](redis_server, draw.uniform(0.05, 0.8))
    result, ended_us = crowd.result, clock_us()
    tell(
        f"seed {seed}: {spec.algorithm} {spec.failure} lease {lease}: {story}, {losses} losses, "
        f"{sum(result.admitted):,} + {sum(result.degraded):,} degraded"
    )
    most = admitted_max(spec.limit, began_us, ended_us, losses=losses)
    assert max(result.admitted) <= most, f"seed {seed}: {story}"
    if spec.failure == "closed":
        assert sum(result.degraded) == 0, f"seed {seed}: {story}"
    if spec.failure == "local":
        most = shared_max(spec.limit, 0.1, began_us, ended_us, processes=PROCESSES)
        assert max(result.degraded) <= most, f"seed {seed}: {story}"


def tell(what: str) -> None:
    """Shown with `pytest -s`, and beside a failure."""
    sys.stdout.write(f"{what}\n")


def kill(server: RedisServer, seconds: float) -> int:
    server.kill()
    time.sleep(seconds)
    server.restart(empty=True)
    return 1


def pause(server: RedisServer, seconds: float) -> int:
    server.pause()
    time.sleep(seconds)
    server.resume()
    return 0


def flush(server: RedisServer, seconds: float) -> int:
    server.ask("FLUSHALL")
    return 1


def flush_scripts(server: RedisServer, seconds: float) -> int:
    server.ask("SCRIPT", "FLUSH")
    return 0


def demote(server: RedisServer, seconds: float) -> int:
    server.ask("REPLICAOF", "127.0.0.1", 1)
    time.sleep(seconds)
    server.ask("REPLICAOF", "NO", "ONE")
    return 0


BREAK = {
    "kill": kill,
    "pause": pause,
    "flush": flush,
    "script flush": flush_scripts,
    "demote": demote,
}


def over(spec: Spec, admissions: list[Admission]) -> int:
    """By how much the fullest span is over, as far as it can be told from outside."""
    limit = spec.limit
    if limit.algorithm is Algorithm.FIXED_WINDOW:
        return over_window(limit, admissions)
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        # The expiring cell counts in part; all that is younger counts in full.
        full = Limit(limit.count, period_us=limit.period_us // limit.cells * (limit.cells - 1))
        return over_span(full, admissions)
    return over_bucket(limit, admissions)
