from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import RATE_LIMITED, SHED
from sluicegate.telemetry.audit_ring import AuditRing

S = 1_000_000


def refusal(retry_us: int = 5, reason: object = RATE_LIMITED) -> Decision:
    return Decision(False, 0, retry_us, retry_us, reason, "r")  # type: ignore[arg-type]


def admission(remaining: int = 5) -> Decision:
    return Decision(True, remaining, 0, 1, None, "r")


def test_a_refusal_is_found_with_all_that_explains_it() -> None:
    ring = AuditRing()
    ring.record("ann", "login", 2, Criticality.BULK, refusal(7), 10 * S)
    (entry,) = ring.find("ann")
    assert entry.rule_id == "login"
    assert (entry.first_us, entry.last_us, entry.times, entry.weight) == (10 * S, 10 * S, 1, 2)
    assert (entry.priority, entry.reason, entry.allowed) == ("BULK", "rate_limited", False)
    assert (entry.remaining, entry.retry_after_us, entry.without_store) == (0, 7, False)
    assert ring.find("bob") == []


def test_what_repeats_itself_within_a_second_is_one_entry() -> None:
    ring = AuditRing()
    for at in range(1_000):
        ring.record("ann", "login", 1, Criticality.BULK, refusal(at), 10 * S + at * 1_999)
    entries = ring.find("ann")
    assert [entry.times for entry in entries] == [499, 501]
    assert sum(entry.weight for entry in entries) == 1_000
    assert entries[0].retry_after_us == 999  # as it was at the last
    assert entries[0].last_us - entries[0].first_us < S


def test_another_reason_or_another_rule_is_another_entry() -> None:
    ring = AuditRing()
    ring.record("ann", "a", 1, Criticality.BULK, refusal(), 1)
    ring.record("ann", "b", 1, Criticality.BULK, refusal(), 2)
    ring.record("ann", "a", 1, Criticality.BULK, refusal(reason=SHED), 3)
    ring.record("ann", "a", 1, Criticality.BULK, admission(), 4)
    assert [(e.rule_id, e.reason) for e in ring.find("ann")] == [
        ("a", ""),
        ("a", "shed"),
        ("b", "rate_limited"),
        ("a", "rate_limited"),
    ]


def test_a_shed_keeps_the_signal_that_it_was_for() -> None:
    ring = AuditRing()
    shed = Decision(False, 0, 9, 9, SHED, "shed:lag")
    ring.record("ann", "login", 1, Criticality.BULK, shed, 1)
    ring.record("ann", "login", 1, Criticality.BULK, refusal(), 2)
    assert [(e.rule_id, e.reason, e.signal) for e in ring.find("ann")] == [
        ("login", "rate_limited", ""),
        ("login", "shed", "lag"),
    ]


def test_another_priority_is_another_entry() -> None:
    ring = AuditRing()
    for at, priority in enumerate([Criticality.BULK, Criticality.DEGRADED, Criticality.BULK]):
        ring.record("ann", "a", 1, priority, refusal(reason=SHED), 10 * at)
        ring.record("ann", "a", 1, priority, admission(), 10 * at + 1)
    assert [(e.priority, e.reason, e.times) for e in ring.find("ann")] == [
        ("BULK", "", 2),
        ("BULK", "shed", 2),
        ("DEGRADED", "", 1),
        ("DEGRADED", "shed", 1),
    ]


def test_a_flood_of_admissions_washes_no_refusal_away() -> None:
    ring = AuditRing(refusals_max=4, admissions_max=4)
    ring.record("ann", "login", 1, Criticality.BULK, refusal(), 1)
    for at in range(100):
        ring.record(f"user {at}", "login", 1, Criticality.BULK, admission(), at)
    assert len(ring.find("ann")) == 1
    assert len(ring) == 5


def test_the_oldest_goes_first_and_the_bound_holds() -> None:
    ring = AuditRing(refusals_max=3, admissions_max=1)
    for at in range(10):
        ring.record(f"user {at}", "login", 1, Criticality.BULK, refusal(), at)
        ring.record(f"user {at}", "login", 1, Criticality.BULK, refusal(), at)
    assert [entry.entity for entry in ring.find(None)] == ["user 9", "user 8", "user 7"]
    assert {entry.times for entry in ring.find(None)} == {2}


def test_a_degraded_admission_and_a_trial_are_kept_with_the_refusals() -> None:
    ring = AuditRing(refusals_max=8, admissions_max=1)
    ring.record("ann", "a", 1, Criticality.BULK, admission().with_marks(degraded=True), 1)
    trial = Decision(True, 0, 3, 3, RATE_LIMITED, "r").with_marks(shadow=True)
    ring.record("ann", "b", 1, Criticality.BULK, trial, 2)
    ring.record("ann", "c", 1, Criticality.BULK, admission().with_marks(overridden=True), 3)
    for at in range(5):
        ring.record(f"user {at}", "a", 1, Criticality.BULK, admission(), at)
    assert [(e.without_store, e.shadow, e.overridden) for e in ring.find("ann")] == [
        (False, False, True),
        (False, True, False),
        (True, False, False),
    ]


def test_since_and_count_bound_what_is_told() -> None:
    ring = AuditRing()
    for at in range(10):
        ring.record("ann", f"rule {at}", 1, Criticality.BULK, refusal(), at * S)
    assert len(ring.find("ann", since_us=7 * S)) == 3
    assert [entry.rule_id for entry in ring.find("ann", count_max=2)] == ["rule 9", "rule 8"]


def test_a_long_entity_is_kept_cut_and_found_whole() -> None:
    ring = AuditRing()
    ring.record("a" * 5_000, "login", 1, Criticality.BULK, refusal(), 1)
    (entry,) = ring.find("a" * 5_000)
    assert len(entry.entity) == 256


def test_a_wrong_bound_is_named() -> None:
    with pytest.raises(BadValue, match=r"audit\.refusals_max"):
        AuditRing(refusals_max=0)
