"""Flatness, second by second, and who misses when one of the two is taken out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sluicegate.lab.arrivals import Even
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.rigs.tenants import TenantAccount, Tenants, TenantsRun
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.ablation import SCENARIO, curves, least_ms, measure, rig, seconds
from sluicegate.lab.speed_profile import SpeedProfile

SECOND = 1_000_000


def met(candidate: str, of: Tenants) -> bool:
    scenario = replace(SCENARIO, rigs={"one": of})
    return run_trials(scenario, [candidate], [1]).meets_goals(candidate)


@pytest.mark.prove
def test_both_keep_the_reads_flat_through_a_burst() -> None:
    assert met("both", replace(rig(burst=True, slow=False), span_us=26 * SECOND))


@pytest.mark.prove
def test_pricing_alone_is_blind_to_a_backend_that_becomes_slow() -> None:
    slow = replace(rig(burst=False, slow=True, workers=8), span_us=33 * SECOND)
    assert not met("pricing", slow)


@pytest.mark.prove
def test_the_queue_alone_comes_too_late_for_a_burst_of_dear_calls() -> None:
    burst = replace(rig(burst=True, slow=False, workers=8), span_us=27 * SECOND)
    assert not met("queue", burst)


def test_no_control_at_all_is_not_flat() -> None:
    burst = replace(rig(burst=True, slow=False, workers=8), span_us=27 * SECOND)
    assert not met("fifo", burst)


TWO = Tenants(
    kinds=(WorkKind(name="read", arrivals=Even(1)),),
    ru_us=10_000,
    speed_profile=SpeedProfile(((3 * SECOND, 0.5), (5 * SECOND, 1.0))),
    span_us=8 * SECOND,
    warm_us=SECOND,
)


def slow_run(times: dict[int, float]) -> TenantsRun:
    """A run with one answer a second, so many times the p99 of the work at full speed."""
    account = TenantAccount(81)
    for second in range(8):
        account.good_us_at[second * 10].append(round(46_050 * times.get(second, 1.0)))
    account.good = 8
    return TenantsRun(0, [account])


def test_the_least_is_the_p99_of_the_work_at_the_speed_of_that_second() -> None:
    calm, slow = pytest.approx(46.05), pytest.approx(92.1)
    least = [least_ms(TWO, second) for second in range(1, 8)]
    # Slow in 3 and 4; in 5 ends what began before.
    assert least == [calm, calm, slow, slow, slow, calm, calm]


def test_slow_work_is_not_uneven_if_the_backend_is_slow() -> None:
    figures = measure(TWO, slow_run({4: 2.0}))
    assert figures["worst_times"] == pytest.approx(1.0)
    assert figures["uneven_s"] == 0
    figures = measure(TWO, slow_run({2: 3.0, 4: 2.0, 7: 2.5}))
    assert figures["worst_times"] == pytest.approx(3.0)
    assert figures["uneven_s"] == 2
    assert figures["success.read"] == 1.0


def test_a_second_without_an_answer_is_as_uneven_as_can_be() -> None:
    run = slow_run({})
    run.accounts[0].good_us_at[60].clear()
    assert measure(TWO, run)["worst_times"] == math.inf
    assert len(seconds(TWO, run.accounts[0])) == 7, "from the warm-up on"
    drawn = curves(TWO, run)
    assert [at for at, _ in drawn["read_p99_ms"]] == [1, 2, 3, 4, 5, 7]
    assert [at for at, _ in drawn["least_ms"]] == [1, 2, 3, 4, 5, 6, 7]
