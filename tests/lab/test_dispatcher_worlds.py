"""What ships does no harm: a slice of the proofs in `tests/prove`, and faults they must find."""

from __future__ import annotations

import pytest

from sluicegate.apps.kv.admission import Admission
from sluicegate.contracts.permit import Outcome
from sluicegate.kernels import cost_model
from sluicegate.lab.rigs.dispatcher import US, play
from sluicegate.policies.stack import StackPermit
from tests.lab.dispatcher_worlds import (
    KNOWN_SHORT_US,
    STALL_OVER_US_MAX,
    WELL_US_MAX,
    cold,
    critical_crowd,
    harm_of_beginning,
    harm_of_slowness,
    losses_of_overload,
    neighbours,
    overload,
    read_p99_ms,
    recovery_us,
    short_deadline,
    slow_down,
    slow_goodput,
    slow_slots,
    stall,
    stalls,
)
from tests.lab.harmless_worlds import harmless
from tests.prove.seeds import first

OVERLOADED = (28, 1)
IN_A_LINE_AT_FIRST = (4, 18)
STALLS_LEFT_A_DEBT = (1, 8)
STALLS_WERE_CHARGED = (9, 11)
planted = pytest.mark.skipif(
    not (cost_model.__file__ or "").endswith(".py"),
    reason="what is compiled cannot be replaced; the interpreted build is tried",
)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2))
def test_what_is_slow_and_has_room_refuses_nobody(seed: int) -> None:
    assert harm_of_slowness(play(slow_down(seed), seed)) == []


@pytest.mark.prove
@pytest.mark.parametrize("seed", [1, 5_011, 5_025])
def test_a_stall_is_over_half_a_second_after_its_end(seed: int) -> None:
    assert recovery_us(play(stall(seed), seed)) <= STALL_OVER_US_MAX


@pytest.mark.prove
def test_a_deadline_of_five_times_the_work_is_tried_though_some_of_it_takes_longer() -> None:
    found = play(short_deadline(50_000), 1)
    assert found.served(KNOWN_SHORT_US, found.rig.span_us, 1) > 0.9


@pytest.mark.prove
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_an_engine_that_does_five_a_second_does_them_in_time(slots: int, seed: int) -> None:
    """None was in time: so few ends say too little of what is done a second, for a minute."""
    assert slow_goodput(play(slow_slots(slots), seed)) >= 0.4


@pytest.mark.prove
def test_every_class_has_samples_though_critical_alone_is_too_much() -> None:
    """Below CRITICAL nobody was served for as long as that lasted."""
    found = play(critical_crowd(), 1)
    for caller in (1, 2, 3):
        assert found.served(3 * US, 14 * US, caller) > 0
        assert found.served(14 * US, 25 * US, caller) > 0
        assert found.served(3 * US, 25 * US, caller) < 0.03


def test_scans_at_two_thirds_of_the_capacity_wait_and_are_served() -> None:
    found = play(neighbours(scans_per_s=20, quota_ru=100_000), 2)
    assert found.served(0, found.rig.span_us - 2 * US) == 1.0


def test_scans_with_room_for_all_of_them_are_all_served() -> None:
    found = play(neighbours(slots=64, scans_per_s=200, quota_ru=100_000), 1)
    assert found.served(0, found.rig.span_us - US) == 1.0
    assert read_p99_ms(found) < 11


@pytest.mark.parametrize("seed", STALLS_LEFT_A_DEBT)
def test_stalls_leave_no_debt_to_who_asks_for_less_than_its_quota(seed: int) -> None:
    assert recovery_us(play(stalls(), seed)) <= WELL_US_MAX


@pytest.mark.parametrize("seed", STALLS_WERE_CHARGED)
def test_a_caller_pays_for_no_stall(seed: int) -> None:
    """Each of a hundred reads owed what the past p95 was above the mean: 12 were refused for it."""
    found = play(stalls(), seed)
    over_us = found.rig.course[-1].at_us
    assert [one.reason for one in found.of(over_us, found.rig.span_us) if not one.served] == []


@pytest.mark.parametrize("seed", first(1, OVERLOADED))
def test_overload_is_served_as_far_as_the_engine_goes_and_what_matters_first(seed: int) -> None:
    assert losses_of_overload(play(overload(seed), seed)) == []


@pytest.mark.prove
@planted
def test_giving_the_place_of_abandoned_work_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def abandon(self: Admission, permit: StackPermit, _: object, outcome: Outcome) -> None:
        permit.end(outcome, self._clock.now_us())

    monkeypatch.setattr(Admission, "_abandon", abandon)
    assert slow_goodput(play(slow_slots(1), 1)) < 0.1


@pytest.mark.parametrize("seed", IN_A_LINE_AT_FIRST)
def test_a_line_in_the_engine_is_not_what_reads_cost_a_new_dispatcher(seed: int) -> None:
    assert harm_of_beginning(play(cold(seed), seed)) == []


def test_a_run_is_a_function_of_its_seed() -> None:
    first, again = (play(stall(1), 1) for _ in range(2))
    assert first.ends == again.ends


@pytest.mark.parametrize("seed", range(2))
def test_where_there_is_room_for_all_nobody_is_refused(seed: int) -> None:
    world = harmless(seed)
    assert world.harm(world.play(seed)) == []


@planted
def test_charging_a_slow_shard_for_its_slowness_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_model, "HELD_UP_TIMES", 1e9)
    monkeypatch.setattr(cost_model, "BAND", 1e9)
    [harm, *_] = harm_of_slowness(play(slow_down(0), 0))
    assert "quota_spent" in harm
