"""What-if beside slower and more obvious ways to work out the same."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import Admission
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.durations import Exponential
from sluicegate.lab.retries import Retries
from sluicegate.lab.rig import Rig
from sluicegate.lab.what_if.outcomes import GAVE_UP, GOOD, TURNED_AWAY, OutcomeCounts, WaitHistogram
from sluicegate.lab.what_if.plan import WHOLE_US, WhatIfPlan, scale_backend
from sluicegate.lab.what_if.runs import NamedRules, run_policies
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.lab.world import World
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.replay import SingleReplay, replay
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import CapturedTraffic
from sluicegate.testing import START_US
from tests.lab.what_if.fifo_run import run_fifo
from tests.lab.what_if_world import NONE, book, fixed, plan, station, traffic_of
from tests.shadow.replay.captures import captured, check, limit, mesh, vips
from tests.shadow.synthetic import synthetic_traffic

DRAWN = Exponential(float(WHOLE_US))
LIMITED = book("limited", limit("all", 30, 1, per="resource"), callers=vips("user-1", "user-2"))
RETRIES = Retries(attempts=3, base_us=40_000)
BUDGETED = Retries(attempts=3, base_us=40_000, budget_milli=300, reserve_milli_per_s=1)


def pooled(capture: CapturedTraffic, rules: NamedRules, how: WhatIfPlan) -> OutcomeCounts:
    traffic = traffic_of(capture, [rules], how.speed)
    return run_fifo(how, traffic, SingleReplay(rules.rules, capture.queries))


def in_a_world(capture: CapturedTraffic, rules: NamedRules, how: WhatIfPlan) -> OutcomeCounts:
    """The same by tasks, with the lab's own pool for a policy."""
    traffic = traffic_of(capture, [rules], how.speed)
    single = SingleReplay(rules.rules, capture.queries)
    classes = [Criticality(one) for one in traffic.classes]
    return run_policies(how, traffic, single, fifo_pool, lambda come: None, classes=classes)


def by_hand(traffic: Traffic, how: WhatIfPlan) -> tuple[int, int, int]:
    """Good, late, and the longest wait of the good: each takes the worker that is free first."""
    free_us = [0] * how.backend.workers
    good = late = longest_us = 0
    for _, at_us, work_us in traffic.arrivals(how):
        end_us = max(at_us, heapq.heappop(free_us)) + work_us
        heapq.heappush(free_us, end_us)
        if end_us - at_us <= how.timeout_us:
            good += 1
            longest_us = max(longest_us, end_us - at_us)
        else:
            late += 1
    return good, late, longest_us


@given(
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 5)), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 400),
    st.integers(0, 1 << 40),
)
@settings(max_examples=60, deadline=None)
def test_a_pool_serves_as_if_each_took_the_worker_that_is_free_first(
    requests: list[tuple[int, int]], workers: int, timeout_ms: int, seed: int
) -> None:
    capture = captured(
        (at_us / 1e6, check("ann", weight=weight)) for at_us, weight in sorted(requests)
    )
    how = plan(station(workers), timeout_ms=timeout_ms, service=DRAWN, seed=seed)
    counts = pooled(capture, NONE, how)
    good, late, longest_us = by_hand(traffic_of(capture, [NONE]), how)
    assert (counts.total(GOOD), counts.total(GAVE_UP)) == (good, late)
    told_us = counts.all_waits().quantile(1.0)
    assert told_us == pytest.approx(how.timeout_us if late else longest_us, rel=1e-3)


@pytest.mark.parametrize("retries", [None, RETRIES, BUDGETED, Retries(attempts=4)])
@pytest.mark.parametrize("queue_max", [2, 1_000])
@pytest.mark.parametrize("seed", range(2))
def test_tasks_in_a_world_and_a_heap_of_events_tell_the_same(
    retries: Retries | None, queue_max: int, seed: int
) -> None:
    capture = synthetic_traffic(300, seed=seed, entities=20, per_s=60)
    how = plan(
        station(workers=3, capacity=40),
        timeout_ms=120,
        service=DRAWN,
        retries=retries,
        queue_max=queue_max,
        seed=seed,
        speed=1.3,
    )
    one, other = pooled(capture, LIMITED, how), in_a_world(capture, LIMITED, how)
    assert one.ended == other.ended
    assert one.slice_ended == other.slice_ended
    assert one.by_rule == other.by_rule
    assert (one.attempts, one.busy_us, one.useful_us) == (
        other.attempts,
        other.busy_us,
        other.useful_us,
    )
    for share in (0.01, 0.5, 0.99, 1.0):
        assert one.all_waits().quantile(share) == other.all_waits().quantile(share)
    assert one.queue_peak == other.queue_peak


@pytest.mark.parametrize("retries", [None, Retries(attempts=1)])
def test_whoever_is_answered_at_the_very_end_of_its_patience_is_in_time_there_too(
    retries: Retries | None,
) -> None:
    two = captured([(0, check("ann")), (0, check("ann"))])
    for timeout_ms, good in ((20, 2), (19.999, 1)):
        how = plan(timeout_ms=timeout_ms, retries=retries)
        assert in_a_world(two, NONE, how).total(GOOD) == good
        assert pooled(two, NONE, how).total(GOOD) == good


class Spy:
    """A policy that keeps what it is asked, and refuses after so long."""

    def __init__(self, world: World, wait_us: int) -> None:
        self.world = world
        self.wait_us = wait_us
        self.requests: list[Request] = []

    async def admit(self, request: Request, clock: Clock) -> Admission:
        self.requests.append(request)
        await self.world.sleep_us(self.wait_us)
        return Decision(False, 0, 0, 0, OVERLOADED, "")


@pytest.mark.parametrize(("wait_ms", "how"), [(100, TURNED_AWAY), (100.001, GAVE_UP)])
def test_policies_are_told_who_asks_how_much_it_matters_and_until_when(
    wait_ms: float, how: int
) -> None:
    capture = captured([(0, check("ann", weight=3)), (0.5, check("bob"))])
    traffic = traffic_of(capture, [NONE])
    spies: list[Spy] = []

    def make(rig: Rig, world: World) -> Spy:
        spies.append(Spy(world, round(wait_ms * 1_000)))
        return spies[0]

    counts = run_policies(
        plan(timeout_ms=100),
        traffic,
        SingleReplay(NONE.rules, capture.queries),
        make,
        lambda come: None,
        classes=[Criticality.BULK, Criticality.CRITICAL],
    )
    # Whoever is refused after it has gone was not turned away, it gave up.
    assert counts.total(how) == 2
    one, other = spies[0].requests
    assert (one.key, one.cost, one.criticality) == ("ann", 3, Criticality.BULK)
    assert (other.key, other.cost, other.criticality) == ("bob", 1, Criticality.CRITICAL)
    assert one.caller.startswith("BULK-")
    assert other.caller.startswith("CRITICAL-")
    assert (one.arrived_us, one.deadline_us) == (START_US, START_US + 100_000)
    assert (other.arrived_us, other.deadline_us) == (START_US + 500_000, START_US + 600_000)


@pytest.mark.parametrize("mesh_share", [0, 10_000])
def test_a_book_asked_alone_refuses_what_it_refuses_in_a_shadow_replay(mesh_share: int) -> None:
    capture = synthetic_traffic(2_000, seed=7, entities=30, per_s=300, mesh=mesh_share)
    rules = LIMITED.rules
    if mesh_share:
        each = "{key: path, rate_limit: {unit: second, requests_per_unit: 3}}"
        text = f"domain: made\ndescriptors: [{{key: tenant, descriptors: [{each}]}}]\n"
        rules = ReplayRules({"made.yaml": text.encode()})
    single = SingleReplay(rules, capture.queries)
    refused: Counter[int] = Counter()
    for at_us, ask in zip(capture.at_us, capture.which, strict=True):
        refused[ask] += single.decide(ask, at_us) > 0
    pair = replay(capture, rules, ReplayRules({})).pair
    for ask in range(len(capture.queries)):
        refusals = sum(
            times for phase in (0, 1) for did, _, times in pair.outcomes_of(ask, phase) if did > 0
        )
        assert refused[ask] == refusals
        assert single.priority(ask) is Criticality(pair.classes[ask])
    assert 0 < refused.total() < 2_000


def test_a_book_that_is_asked_about_an_earlier_instant_stands_still() -> None:
    other = limit("other", 1, 2, resource_path="/other")
    rules = book("two", fixed(1), other).rules
    begin_us = 1_700_000_000_000_000
    single = SingleReplay(rules, [check("ann"), check("bob", "/other")])
    assert single.decide(0, begin_us + 2_500_000) == 0
    assert single.decide(1, begin_us + 1_500_000) == 0
    assert single.decide(1, begin_us + 2_600_000) == 1  # for all rules it was 2.5 s by then
    assert single.rule_id(1, 1) == "other"
    assert single.decide(1, begin_us + 4_000_000) == 0


def test_a_refusal_names_the_rule_that_refuses() -> None:
    rules = book("two", fixed(9, per="user"), limit("few", 2, 60, resource_path="/play")).rules
    single = SingleReplay(rules, [check("ann")])
    codes = [single.decide(0, 1_700_000_000_000_000 + at) for at in range(3)]
    assert codes[:2] == [0, 0]
    assert single.rule_id(0, codes[2]) == "few"
    other = "at-most-9"
    assert {single.rule_id(0, 1), single.rule_id(0, 2)} == {"few", other}


def test_a_mesh_is_set_as_its_rulebook_is_read() -> None:
    with pytest.raises(BadValue, match="semantics"):
        SingleReplay(NONE.rules, [], mesh=MeshSettings(semantics=Semantics.ENVOY))


def test_a_descriptor_weighs_what_it_says_or_else_what_its_request_says() -> None:
    several: list[Query] = [
        mesh([("tenant", "a")]),
        mesh([("tenant", "a")], hits=5),
        mesh([("tenant", "a")], hits=5, own=7),
        mesh([("tenant", "a")], hits=5, own=0),
        check("ann", weight=0),
        check("ann", weight=1 << 40),
    ]
    traffic = traffic_of(captured((at, ask) for at, ask in enumerate(several)), [NONE])
    assert traffic.units == [1, 5, 7, 0, 0, 1_000_000]
    # A million and thirteen units of 10 ms, in the five seconds of one worker.
    assert traffic.load(station()) == pytest.approx(1_000_013 * 0.01 / 5)
    assert traffic.units_per_s() == pytest.approx(1_000_013 / 5)


@given(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=200), st.floats(0, 1))
def test_a_wait_is_told_to_a_thousandth(values: list[int], share: float) -> None:
    waits, half = WaitHistogram(), WaitHistogram()
    for number, us in enumerate(values):
        (waits if number % 2 else half).add(us)
    waits.merge(half)
    exact = sorted(values)[max(ceil(share * len(values)), 1) - 1]
    quantile = waits.quantile(share)
    assert quantile is not None
    assert exact * (1 - 1 / 1024) <= quantile <= exact
    assert WaitHistogram().quantile(share) is None


@given(st.integers(1, 500), st.floats(0.01, 1.0))
def test_a_share_of_the_workers_does_its_share_of_the_work(workers: int, share: float) -> None:
    whole = station(workers, 100.0)
    part = scale_backend(whole, share)
    assert part.capacity == pytest.approx(100 * share)
    assert part.workers >= 1
    # What they do together is what was said, however many they are.
    assert part.workers * 1e6 / part.unit_us[0] == pytest.approx(part.capacity)
    assert scale_backend(whole, 1.0) is whole
    assert replace(plan(), backend=part).backend is part
