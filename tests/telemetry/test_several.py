from __future__ import annotations

import logging

import pytest

from sluicegate import Decision
from sluicegate.contracts.observer import Observer
from sluicegate.telemetry.several import Several
from sluicegate.telemetry.tally import Tally
from tests.telemetry.threads import in_threads
from tests.telemetry.told import NOW, allowed, refused


class Broken:
    """An observer that never gets further than its first line."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def decided(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        raise self.error

    def asked_store(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        raise self.error

    def leased(self, rule: str, event: str, units: int) -> None:
        raise self.error


def tell(observer: Observer) -> None:
    observer.decided(allowed(), "user:1", NOW, NOW + 1)
    observer.asked_store(2, NOW, NOW + 70, "")
    observer.leased("api", "taken", 10)


def test_every_observer_is_told_everything() -> None:
    one, two = Tally(), Tally()
    several = Several(one, two)
    tell(several)
    assert one.snapshot() == two.snapshot()
    seen = one.snapshot()
    assert (seen.count(), seen.batches.total, seen.leases[0].units) == (1, 2, 10)
    assert seen.round_trips_us.total == 70
    assert several.failures == (0, 0)


def test_one_that_raises_is_counted_logged_once_and_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, after = Tally(), Tally()
    several = Several(before, Broken(OSError("disk full")), after, Broken(KeyError("x")))
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
        several = Several(Broken(OSError()), Tally())
        tell(several)
    finally:
        log.removeFilter(filtered)
    assert several.failures == (3, 0)


def test_what_ends_the_program_is_not_held_up() -> None:
    for error in (KeyboardInterrupt(), SystemExit()):
        several = Several(Broken(error))
        with pytest.raises(type(error)):
            several.decided(refused(), "k", NOW, NOW)


def test_failures_on_many_threads_are_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    several = Several(Broken(OSError()), Tally())

    def work(_: int) -> None:
        for _ in range(500):
            several.decided(refused(), "k", NOW, NOW)

    in_threads(6, work)
    assert several.failures == (3_000, 0)
    assert len(caplog.records) == 1


def test_several_may_hold_several_or_none() -> None:
    tally = Tally()
    inner = Several(Broken(OSError()), tally)
    outer = Several(inner, Several())
    tell(outer)
    assert (inner.failures, outer.failures) == ((3, 0), (0, 0))
    assert tally.snapshot().count() == 1
