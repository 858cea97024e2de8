from __future__ import annotations

import logging

import pytest

from sluicegate import Decision
from sluicegate.contracts.observer import Observer
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.telemetry.observer_group import ObserverGroup
from tests.telemetry.decisions import NOW, allowed, refused
from tests.telemetry.threads import in_threads


class Broken:
    """An observer that never gets further than its first line."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        raise self.error

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        raise self.error

    def record_lease(self, rule: str, event: str, units: int) -> None:
        raise self.error


def tell(observer: Observer) -> None:
    observer.record_decision(allowed(), "user:1", NOW, NOW + 1)
    observer.record_round_trip(2, NOW, NOW + 70, "")
    observer.record_lease("api", "taken", 10)


def test_every_observer_is_told_everything() -> None:
    one, two = DecisionMetrics(), DecisionMetrics()
    several = ObserverGroup(one, two)
    tell(several)
    assert one.snapshot() == two.snapshot()
    snapshot = one.snapshot()
    assert (snapshot.count(), snapshot.batches.total, snapshot.leases[0].units) == (1, 2, 10)
    assert snapshot.round_trips_us.total == 70
    assert several.failures == (0, 0)


def test_one_that_raises_is_counted_logged_once_and_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, after = DecisionMetrics(), DecisionMetrics()
    several = ObserverGroup(before, Broken(OSError("disk full")), after, Broken(KeyError("x")))
    for _ in range(3):
        tell(several)
    assert several.failures == (0, 9, 0, 9)
    assert before.snapshot() == after.snapshot()
    assert before.snapshot().count() == 3
    records = [record for record in caplog.records if record.name == "sluicegate.telemetry"]
    assert [record.levelno for record in records] == [logging.ERROR, logging.ERROR]
    assert "Broken" in records[0].getMessage()
    assert "disk full" in caplog.text
    assert "user:1" not in caplog.text


def test_one_that_raises_harms_nobody_even_where_the_log_raises_too() -> None:
    def filtered(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.name)

    log = logging.getLogger("sluicegate.telemetry")
    log.addFilter(filtered)
    try:
        several = ObserverGroup(Broken(OSError()), DecisionMetrics())
        tell(several)
    finally:
        log.removeFilter(filtered)
    assert several.failures == (3, 0)


def test_what_ends_the_program_is_not_held_up() -> None:
    for error in (KeyboardInterrupt(), SystemExit()):
        several = ObserverGroup(Broken(error))
        with pytest.raises(type(error)):
            several.record_decision(refused(), "k", NOW, NOW)


def test_failures_on_many_threads_are_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    several = ObserverGroup(Broken(OSError()), DecisionMetrics())

    def work(_: int) -> None:
        for _ in range(500):
            several.record_decision(refused(), "k", NOW, NOW)

    in_threads(6, work)
    assert several.failures == (3_000, 0)
    assert len(caplog.records) == 1


def test_several_may_hold_several_or_none() -> None:
    tally = DecisionMetrics()
    inner = ObserverGroup(Broken(OSError()), tally)
    outer = ObserverGroup(inner, ObserverGroup())
    tell(outer)
    assert (inner.failures, outer.failures) == ((3, 0), (0, 0))
    assert tally.snapshot().count() == 1
