from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import SHED
from sluicegate.kernels.utilization_shed import Ramp
from sluicegate.policies.admission.utilization_gate import (
    SIGNALS,
    OpenGate,
    Readings,
    UtilizationGate,
    UtilizationSettings,
)
from sluicegate.testing import SeededChance

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


def gate(**settings: object) -> UtilizationGate:
    return UtilizationGate(SeededChance(1), UtilizationSettings(**settings))  # type: ignore[arg-type]


def refused_share(a_gate: UtilizationGate, priority: Criticality, asks: int = 2_000) -> float:
    return sum(a_gate.refusal(priority, "ann") is not None for _ in range(asks)) / asks


def test_below_sixty_percent_nobody_is_shed() -> None:
    a_gate = gate()
    a_gate.observe(Readings(0.6))
    assert [refused_share(a_gate, priority) for priority in Criticality] == [0, 0, 0, 0]
    assert a_gate.status() == ""


def test_above_it_bulk_goes_first_and_in_part() -> None:
    a_gate = gate()
    a_gate.observe(Readings(0.65))
    assert a_gate.status() == "DEGRADED_MODE"
    assert 0.45 < refused_share(a_gate, BULK) < 0.55
    assert refused_share(a_gate, BEST_EFFORT) == 0
    refusal = gate_refusal(a_gate)
    assert refusal.reason is SHED
    assert refusal.rule_id == "shed:cpu"
    assert refusal.retry_after_us == 1_000_000


def gate_refusal(a_gate: UtilizationGate):  # type: ignore[no-untyped-def]
    while (refusal := a_gate.refusal(BULK, "ann")) is None:
        pass
    return refusal


def test_critical_is_never_shed_but_by_setting() -> None:
    full = gate()
    full.observe(Readings(1.0))
    assert refused_share(full, CRITICAL) == 0
    assert refused_share(full, DEGRADED) == 1
    ramps = (Ramp(0.9, 1.0), Ramp(0.8, 0.9), Ramp(0.7, 0.8), Ramp(0.6, 0.7))
    by_setting = gate(ramps=ramps)
    by_setting.observe(Readings(0.95))
    assert 0.4 < refused_share(by_setting, CRITICAL) < 0.6


@pytest.mark.parametrize(
    ("readings", "worst"),
    [
        (Readings(0.1, throttled=0.25), "throttled"),
        (Readings(0.1, machine_cpu=1.0), "machine_cpu"),
        (Readings(0.1, machine_io=0.6), "machine_io"),
        (Readings(0.1, machine_memory=0.3), "machine_memory"),
        (Readings(0.1, lag_us=50_000), "lag"),
        (Readings(0.1, queue_us=20_000), "queue"),
        (Readings(0.99, lag_us=20_000), "cpu"),
    ],
)
def test_the_worst_reading_counts_whatever_it_is(readings: Readings, worst: str) -> None:
    a_gate = gate()
    a_gate.observe(readings)
    stats = a_gate.stats()
    assert stats.worst == a_gate.worst == worst
    assert stats.utilization >= 0.99
    assert stats.signals.keys() == SIGNALS.keys()
    assert refused_share(a_gate, BULK) == 1
    assert gate_refusal(a_gate).rule_id == f"shed:{worst}"


def test_it_relaxes_with_a_backlash_and_then_wholly() -> None:
    a_gate = gate()
    a_gate.observe(Readings(0.66))
    a_gate.observe(Readings(0.62))
    assert refused_share(a_gate, BULK) > 0.5  # as if it were still 0.66
    a_gate.observe(Readings(0.5))
    assert refused_share(a_gate, BULK) == 0
    assert not a_gate.shedding


def test_one_in_a_hundred_of_each_class_passes_until_it_is_hard() -> None:
    a_gate = gate()
    a_gate.observe(Readings(0.85))
    assert 0.98 < refused_share(a_gate, BULK, 20_000) < 1
    a_gate.observe(Readings(0.95))
    assert refused_share(a_gate, BULK, 20_000) == 1


def test_counts_are_kept_by_class() -> None:
    a_gate = gate()
    a_gate.observe(Readings(0.75))
    for priority in Criticality:
        for _ in range(100):
            a_gate.refusal(priority, "ann")
    stats = a_gate.stats()
    assert [a + b for a, b in zip(stats.refused, stats.passed, strict=True)] == [100] * 4
    assert stats.refused[CRITICAL] == stats.refused[DEGRADED] == 0
    assert stats.refused[BULK] > stats.refused[BEST_EFFORT] > 20


@given(
    cpu=st.floats(0, 1),
    draws=st.integers(0, 1 << 32),
    pair=st.tuples(st.sampled_from(list(Criticality)), st.sampled_from(list(Criticality))),
)
def test_no_class_is_shed_more_than_a_lesser_one(
    cpu: float, draws: int, pair: tuple[Criticality, Criticality]
) -> None:
    a_gate = UtilizationGate(SeededChance(draws))
    a_gate.observe(Readings(cpu))
    more, less = sorted(pair)
    shares = a_gate.stats().shares
    assert shares[more] <= shares[less]


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(BadValue, match=r"gate\.floor"):
        UtilizationSettings(floor=2.0)
    with pytest.raises(BadValue, match=r"gate\.ramps"):
        UtilizationSettings(ramps=(None,))
    with pytest.raises(BadValue, match=r"gate\.ramps"):
        UtilizationSettings(ramps=(Ramp(0.5, 0.9), None, None, None))


def test_an_open_gate_sheds_nobody() -> None:
    assert OpenGate().refusal(BULK, "ann") is None
    assert OpenGate().status() == ""
