"""Races: limits that admit more than they hold, or refuse what would fit, because threads meet.

The memory store of limits looks a counter up without holding its lock, and reads it after giving
the lock back: with threads that are switched often, 47 were admitted for 20, and elsewhere fewer
than 20. pyrate-limiter's `blocking=False` takes a busy lock for a spent limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sluicegate import Algorithm, Claim, Decision, Limiter
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.stores.memory.refusal_cache import Denials
from sluicegate.testing import HandClock
from tests.issues.crowd import crowd

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

THREADS = 8
HITS = 8  # of each thread, on each key
LIMIT = 20  # of the 64 hits on a key
KEYS = [f"key {number}" for number in range(60)]
# Slow is not wrong here, and this machine may be busy.
PATIENT = "?timeout_ms=20000&connect_timeout_ms=20000"

each_algorithm = pytest.mark.parametrize("algorithm", list(Algorithm), ids=lambda one: one.value)


def _asking(take: Callable[[str], Decision]) -> Callable[[int], Decision]:
    return lambda _: take("all")


def admitted(limiter: Limiter, keys: list[str], hits: int = HITS) -> dict[str, int]:
    """How many hits each key was admitted, in all threads together."""

    def hit(number: int) -> dict[str, int]:
        # Each begins elsewhere, so that they meet on changing keys.
        mine = keys[number:] + keys[:number]
        counts = dict.fromkeys(keys, 0)
        for _ in range(hits):
            for key in mine:
                counts[key] += limiter.take(key).allowed
        return counts

    each = crowd(THREADS, hit)
    return {key: sum(counts[key] for counts in each) for key in keys}


@pytest.mark.usefixtures("restless")
@each_algorithm
def test_threads_are_never_admitted_more_than_the_limit_and_never_less(
    algorithm: Algorithm,
) -> None:
    # limits: https://github.com/alisaifee/limits/issues/26
    limiter = Limiter(f"{LIMIT}/hour", algorithm=algorithm, clock=HandClock())
    assert admitted(limiter, KEYS) == dict.fromkeys(KEYS, LIMIT)


@pytest.mark.usefixtures("restless")
@each_algorithm
def test_threads_that_meet_on_a_key_which_has_just_expired_share_one_new_limit(
    algorithm: Algorithm,
) -> None:
    # limits drops an expired key's lock and counter while another thread is counting on them.
    clock = HandClock()
    # So few that the table is swept, and full, all the time.
    limiter = Limiter(f"{LIMIT}/hour", algorithm=algorithm, keys_max=150, clock=clock)
    for generation in range(4):
        clock.advance(s=7_201)
        # Half are those of the last hour, half are new.
        keys = [f"key {number}" for number in range(50 * generation, 50 * generation + 100)]
        assert admitted(limiter, keys, hits=3) == dict.fromkeys(keys, LIMIT)


@pytest.mark.usefixtures("restless")
def test_two_limits_that_threads_take_together_are_charged_alike() -> None:
    limiter = Limiter(rules={"narrow": "20/hour", "wide": "500/hour"}, clock=HandClock())

    def hit(number: int) -> int:
        # One half asks in the other order.
        claims = [Claim("all", "narrow"), Claim("all", "wide")][:: 1 if number % 2 else -1]
        return sum(limiter.take_all(*claims).allowed for _ in range(100))

    assert sum(crowd(THREADS, hit)) == 20
    assert limiter.peek("all", 0, "narrow").remaining == 0
    assert limiter.peek("all", 0, "wide").remaining == 480


@pytest.mark.usefixtures("restless")
def test_nobody_within_quota_is_refused_because_another_is_being_decided() -> None:
    # pyrate-limiter, blocking=False: https://github.com/vutran1710/PyrateLimiter/pull/234
    limiter = Limiter("1000000/hour", clock=HandClock())
    assert all(crowd(16, lambda _: all(limiter.take("all") for _ in range(500))))
    assert limiter.peek("all", 0).remaining == 1_000_000 - 16 * 500


@pytest.mark.usefixtures("restless")
def test_threads_that_are_the_first_to_name_a_rule_share_its_limit() -> None:
    for _ in range(20):
        take = partial(Limiter(clock=HandClock()).take, rule="5/hour; 100/day")
        assert [decision.allowed for decision in crowd(THREADS, _asking(take))].count(True) == 5


@pytest.mark.usefixtures("restless")
def test_threads_never_break_what_is_remembered_of_refused_keys() -> None:
    # limits: "threads can only be started once", out of hit(), when threads meet.
    denials = Denials(keys_max=50)
    refused = Decision(False, 0, 1_000_000, 1_000_000, RATE_LIMITED, "rule")

    def refuse(number: int) -> None:
        for round_ in range(5_000):
            denials.remember(f"{number}: {round_}", 1, refused, 0)

    crowd(THREADS, refuse)
    assert len(denials) == 50


@each_algorithm
def test_threads_on_one_redis_are_admitted_exactly_the_limit(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    keys, url = KEYS[:5], redis_server.url + PATIENT
    with Limiter(f"{LIMIT}/day", store_url=url, algorithm=algorithm, failure="closed") as limiter:
        assert admitted(limiter, keys) == dict.fromkeys(keys, LIMIT)


@pytest.mark.parametrize("lease", ["auto", "10%", 1])
def test_threads_that_spend_leases_are_admitted_no_more_than_the_limit(
    redis_server: RedisServer, lease: str | int
) -> None:
    url = redis_server.url + PATIENT
    with (
        Limiter("200/day", store_url=url, lease=lease, failure="closed") as one,
        Limiter("200/day", store_url=url, lease=lease, failure="closed") as other,
    ):
        take = (one.take, other.take)
        sums = crowd(THREADS, lambda n: sum(take[n % 2]("all").allowed for _ in range(100)))
        assert 150 <= sum(sums) <= 200  # what a lease keeps back is not lost, but not given yet


def test_nobody_within_quota_is_refused_because_redis_is_asked_by_many(
    redis_server: RedisServer,
) -> None:
    with Limiter("1000000/day", store_url=redis_server.url + PATIENT, failure="closed") as limiter:
        assert all(crowd(16, lambda _: all(limiter.take("all") for _ in range(20))))
        assert limiter.peek("all", 0).remaining <= 1_000_000 - 16 * 20 + 4  # what an hour brings
