"""Dead letters never hold up a decision, and what becomes of each is counted."""

from __future__ import annotations

import os
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.event_log import OLDEST, Event, Reader
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.limits.completeness import MISSING, CompletenessCheck
from sluicegate.limits.dead_letter import (
    BEGUN,
    CLOSED,
    DEAD_LETTER,
    DeadLetter,
    ProcessMark,
    unpack,
    unpack_mark,
)
from sluicegate.limits.dead_letters import DeadLetters
from sluicegate.stores.event_logs import open_log
from sluicegate.system import SystemClock
from sluicegate.testing import START_US, SeededChance


class Gated:
    """A log in memory that answers, refuses, or says nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.refusing = 0  # so many times
        self.silent = False
        self.append_flag = Flag()
        self.unanswered: list[Future[int]] = []
        self.closed = False

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        promise: Future[int] = Future()
        self.append_flag.set()
        if self.silent:
            self.unanswered.append(promise)
        elif self.refusing and kind == DEAD_LETTER:
            self.refusing -= 1
            promise.set_exception(Unavailable("the log", "no"))
        else:
            self.events.append(Event(len(self.events), at_us, kind, body))
            promise.set_result(len(self.events) - 1)
        return promise

    def reader(self, offset: int = OLDEST) -> Reader:
        raise NotImplementedError

    def close(self, grace_us: int = 0) -> None:
        self.closed = True

    def letters(self) -> list[DeadLetter]:
        records = [unpack(event.body) for event in self.events if event.kind == DEAD_LETTER]
        return [one for one in records if isinstance(one, DeadLetter)]


def dead_letters(log: Gated, **settings: object) -> DeadLetters:
    quick: dict[str, object] = {"linger_us": 1_000, "retry_us": 1_000, **settings}
    return DeadLetters(log, node="node", clock=SystemClock(), **quick)  # type: ignore[arg-type]


def letter(user: str = "ann", weight: int = 1) -> DeadLetter:
    return DeadLetter(user, "r", weight, START_US, allowed=True, limit=None)


def test_what_is_offered_is_written_in_order_between_two_marks() -> None:
    log = Gated()
    letters = dead_letters(log, batch_max=7)
    assert [letters.offer(letter(f"u{n}", n)) for n in range(50)] == list(range(50))

    stats = letters.close()

    assert (stats.offered, stats.written, stats.dropped, stats.depth) == (50, 50, 0, 0)
    assert [event.kind for event in log.events] == [BEGUN, *[DEAD_LETTER] * 50, CLOSED]
    records = log.letters()
    assert [one.number for one in records] == list(range(50))
    assert [one.before for one in records] == [n * (n - 1) // 2 for n in range(50)]
    assert {one.process for one in records} == {letters.process}
    assert letters.process.startswith(f"node/{os.getpid()}/")
    end = unpack_mark(CLOSED, log.events[-1].body, log.events[-1].at_us)
    assert isinstance(end, ProcessMark)
    assert (end.number, end.before) == (50, 1_225)
    assert log.closed


def test_a_silent_log_fills_the_ring_and_the_rest_is_dropped_and_counted() -> None:
    log = Gated()
    log.silent = True
    letters = dead_letters(log, buffer_max=10)

    for _ in range(25):
        letters.offer(letter())

    stats = letters.stats()
    assert (stats.offered, stats.written, stats.dropped, stats.depth) == (25, 0, 15, 10)
    stats = letters.close(grace_us=20_000)
    assert (stats.offered, stats.written, stats.dropped, stats.depth) == (25, 0, 25, 0)


def test_what_is_under_way_counts_for_the_bound_too() -> None:
    log = Gated()
    letters = dead_letters(log, buffer_max=5)
    letters.offer(letter())
    while not log.letters():
        log.append_flag.wait(1)
    log.silent = True
    log.append_flag.clear()
    for _ in range(5):
        letters.offer(letter())
    assert log.append_flag.wait(60)  # some are out of the ring now, and not acknowledged
    letters.offer(letter())

    assert (letters.stats().depth, letters.stats().dropped) == (5, 1)
    letters.close(grace_us=0)


def test_a_log_that_refuses_is_asked_again_and_keeps_the_order() -> None:
    log = Gated()
    log.refusing = 12
    letters = dead_letters(log, batch_max=5)
    for _ in range(20):
        letters.offer(letter())

    stats = letters.close()

    assert (stats.written, stats.dropped) == (20, 0)
    assert stats.retries >= 3
    assert "no" in stats.last_error
    assert sorted(one.number for one in log.letters()) == list(range(20))


def test_what_is_dropped_shows_as_a_gap_in_the_log() -> None:
    log = Gated()
    log.silent = True
    letters = dead_letters(log, buffer_max=3)
    for n in range(6):
        letters.offer(letter(weight=10 + n))
    assert log.append_flag.wait(60)
    log.silent = False
    for promise in log.unanswered:
        promise.set_exception(Unavailable("the log", "no"))
    while letters.stats().depth:
        log.append_flag.wait(0.01)
    letters.offer(letter(weight=1))
    stats = letters.close()

    check = CompletenessCheck()
    for event in log.events:
        record = (
            unpack(event.body)
            if event.kind == DEAD_LETTER
            else unpack_mark(event.kind, event.body, 0)
        )
        if isinstance(record, DeadLetter):
            check.add_letter(record)
        elif isinstance(record, ProcessMark):
            check.add_mark(record)
    (gap,) = check.report().findings
    assert stats.dropped == 3
    assert (gap.kind, gap.letters, gap.units) == (MISSING, 3, 13 + 14 + 15)


def test_a_letter_that_cannot_be_written_is_dropped_and_the_next_is_not() -> None:
    class Picky(Gated):
        def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
            if b"huge" in body:
                raise BadValue("event.body", "huge", "give less")
            return super().append(kind, body, at_us)

    log = Picky()
    letters = dead_letters(log)
    letters.offer(letter("huge"))
    letters.offer(letter("ann"))

    stats = letters.close()

    assert (stats.written, stats.dropped) == (1, 1)
    assert "give less" in stats.last_error


def test_after_the_end_offers_are_dropped_and_counted() -> None:
    letters = dead_letters(Gated())
    letters.close()

    letters.offer(letter())

    assert letters.close() == letters.stats()
    assert (letters.stats().offered, letters.stats().dropped) == (1, 1)


def test_many_threads_may_offer_and_every_letter_is_accounted_for() -> None:
    log = Gated()
    letters = dead_letters(log, buffer_max=500, batch_max=50)
    threads = [
        Thread(target=lambda: [letters.offer(letter()) for _ in range(2_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stats = letters.close()

    assert stats.offered == 8_000 == stats.written + stats.dropped
    numbers = [one.number for one in log.letters()]
    assert len(numbers) == len(set(numbers)) == stats.written


def decision(*, allowed: bool, degraded: bool = False) -> Decision:
    reason = None if allowed else RATE_LIMITED
    return Decision(allowed, 0, 0, 0, reason, "r").with_marks(degraded=degraded)


def test_every_decision_without_the_store_is_wanted_and_refusals_only_if_said() -> None:
    plain = dead_letters(Gated())
    every = dead_letters(Gated(), refusals=1)
    some = dead_letters(Gated(), refusals=0.25, chance=SeededChance(1))
    refused = decision(allowed=False)

    for letters in (plain, every, some):
        assert letters.accepts(decision(allowed=True, degraded=True))
        assert letters.accepts(decision(allowed=False, degraded=True))
        assert not letters.accepts(decision(allowed=True))
    assert not plain.accepts(refused)
    assert every.accepts(refused)
    assert 200 < sum(some.accepts(refused) for _ in range(1_000)) < 300
    for letters in (plain, every, some):
        letters.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"buffer_max": 0},
        {"batch_max": 0},
        {"linger_us": 0},
        {"retry_us": 0},
        {"refusals": 1.5},
        {"refusals": 0.5},
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadValue):
        dead_letters(Gated(), **settings)
    with pytest.raises(BadValue):
        DeadLetters(Gated(), node="", clock=SystemClock())


def test_letters_reach_a_log_in_files(tmp_path: Path) -> None:
    letters = DeadLetters(open_log(f"files:{tmp_path}/dlq"), node="n", clock=SystemClock())
    for _ in range(100):
        letters.offer(letter())

    assert letters.close().written == 100
    with closing(open_log(f"files:{tmp_path}/dlq").reader()) as reader:
        kinds = [event.kind for event in reader.read(1_000, 0)]
    assert kinds == [BEGUN, *[DEAD_LETTER] * 100, CLOSED]
