"""Ten million answers through every fault: none reaches another caller, and service returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import RECOVERY_S, chaos, check, place_of
from tests.prove.seeds import in_slice, seeds
from tests.stores.redis.live import LOOPS

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

# Of a million answers of one seed, on both loops; by what each client does in a second.
ANSWERS = {
    "client": 250_000,
    "cluster": 150_000,
    "store": 40_000,
    "kv": 30_000,
    "threads": 20_000,
    "service": 10_000,
}
QUIET_S = 0.5  # between faults: most answers come then
FULL = 10  # seeds


def prove(row: str, loop: str, seed: int, redis: RedisServer | RedisCluster | None) -> None:
    """One run of one client."""
    with place_of(row, redis) as (url, proxy, engine):
        outcome = chaos(
            row, url, proxy, engine, loop=loop, seed=seed, answers=ANSWERS[row], quiet_s=QUIET_S
        )
    check(outcome, ANSWERS[row])
    assert max(outcome.recovery_s.values()) <= RECOVERY_S, f"seed {seed}: {outcome}"


ROWS = ("client", "store", "threads", "kv", "cluster", "service")  # one each day; all in full


def rows(*names: str) -> list[str]:
    """Return those of these rows that are proved in this run."""
    return [name for name in names if in_slice(ROWS.index(name), len(ROWS))]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=FULL, part=1))
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", rows("client", "store", "threads", "kv"))
def test_million_answers_of_server_reach_their_callers(
    redis_server: RedisServer, row: str, loop: str, seed: int
) -> None:
    prove(row, loop, seed, redis_server)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=FULL, part=1))
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", rows("cluster"))
def test_million_answers_of_cluster_reach_their_callers(
    redis_cluster: RedisCluster, row: str, loop: str, seed: int
) -> None:
    prove(row, loop, seed, redis_cluster)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=FULL, part=1))
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", rows("service"))
def test_million_answers_of_service_reach_their_callers(row: str, loop: str, seed: int) -> None:
    prove(row, loop, seed, None)
