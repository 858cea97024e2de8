"""What the hunt has found: each a story of its own, so that it stays mended."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import AccountFactor, FactorMessage
from sluicegate.lab.hunt.invariants import check
from sluicegate.lab.hunt.search import play_setup
from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.suppression.suppress import Suppress
from sluicegate.testing import START_US, SeededChance

MS = 1_000
SECOND = 1_000_000
BACK_US = 800_000


def test_who_fetches_alone_because_the_table_is_full_has_a_deadline_too() -> None:
    async def story(world: World) -> int:
        shared: Coalesce[str] = Coalesce(CoalesceSettings(flights_max=1))

        async def slow(flight: Flight[str]) -> str:
            await asyncio.sleep(30)
            return "late"

        def ask(key: str, timeout_us: int) -> Request:
            now_us = world.clock.now_us()
            return Request(key, arrived_us=now_us, deadline_us=now_us + timeout_us)

        first = world.spawn(shared.share("a", ask("a", 60_000_000), world.clock, slow), "first")
        await world.sleep_us(1)
        with pytest.raises(Refused) as refused:
            await shared.share("b", ask("b", 10_000), world.clock, slow)
        assert refused.value.decision.reason is DEADLINE
        told_us = world.elapsed_us
        await first
        return told_us

    assert run(story, 1).value <= 11_000


def test_fetches_that_all_hang_are_at_most_two_for_a_key_whoever_leaves() -> None:
    async def story(world: World) -> int:
        shared: Coalesce[str] = Coalesce(CoalesceSettings())

        async def hangs(flight: Flight[str]) -> str:
            await asyncio.sleep(3_600)
            return "late"

        async def ask(timeout_us: int) -> None:
            now_us = world.clock.now_us()
            request = Request("k", arrived_us=now_us, deadline_us=now_us + timeout_us)
            try:
                await shared.share("k", request, world.clock, hangs)
            except Refused:
                return

        most = 0
        for _ in range(20):
            world.spawn(ask(30_000 * MS), "patient")  # in each flight one stays
            await world.sleep_us(250 * MS)
            await ask(5 * MS)  # overdue by now: a second one begins, and is left at once
            most = max(most, shared.stats().flights)
        await world.sleep_us(60_000 * MS)
        return most

    assert run(story, 1).value <= 2


def test_a_factor_told_unasked_is_asked_about_until_its_master_says_that_it_is_over() -> None:
    node = Suppress("n1", 1, SeededChance(1))
    permit = node.admit(Request("k", caller="acme"), START_US)
    assert not isinstance(permit, Decision)
    permit.end(Outcome.SUCCESS, START_US)
    assert node.report(START_US) is not None
    # Its report is answered, and the account goes idle here. Elsewhere it surges: a broadcast.
    calm = FactorMessage("m1", 1, 1, 2 * SECOND, 2, (AccountFactor("acme", 0.0, 100, 100),))
    surge = FactorMessage("m1", 1, 2, 2 * SECOND, 2, (AccountFactor("acme", 0.9, 100, 100),))
    node.receive(calm, START_US + 10_000)
    node.receive(surge, START_US + 20_000)
    now_us = START_US + SECOND
    report = node.report(now_us)
    assert report is not None
    assert [count.account for count in report.counts] == ["acme"], "or nobody tells it when it ends"
    over = FactorMessage("m1", 1, 3, 2 * SECOND, 2, (AccountFactor("acme", 0.0, 100, 100),))
    node.receive(over, now_us + 10_000)
    assert node.factor("acme", now_us + 20_000) == 0.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("callers", [1, 5, 100, 1_000])
def test_after_a_pause_of_200_ms_at_a_quarter_of_the_load_hardly_any_critical_is_shed(
    seed: int, callers: int
) -> None:
    setup = Setup(
        stage="server",
        seed=seed,
        span_ms=2_000,
        loads=(
            HuntLoad(name="shop", criticality="CRITICAL", per_s=150, callers=callers),
            HuntLoad(name="bulk", criticality="BULK", per_s=35, callers=callers),
        ),
        faults=(HuntFault(what="pause", from_ms=600, until_ms=BACK_US // 1_000),),
        knobs={"workers": 8, "service_us": 10_000},
    )
    critical = [
        unit
        for unit in play_setup(setup).units
        if unit.criticality is Criticality.CRITICAL and unit.arrived_us - START_US >= BACK_US
    ]
    shed = sum(unit.reason == "shed" for unit in critical)
    assert shed <= 0.1 * len(critical)  # 180 of 181 were, once


def test_a_node_that_nobody_uses_yet_remembers_no_limit_and_is_not_held_to_it() -> None:
    setup = Setup(
        stage="cluster",
        seed=50_000_765,
        span_ms=5_923,
        loads=(HuntLoad(name="account0", per_s=300),),
        faults=(HuntFault(what="gone", from_ms=4_870, until_ms=4_986),),
        knobs={"burst": 0, "skew": 5},
    )
    assert check(setup, play_setup(setup)) == []
