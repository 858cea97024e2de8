"""How long work takes, and what says nothing of it."""

from __future__ import annotations

from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.queue.line_book import LineBook
from sluicegate.policies.queue.queue import Queue, QueuePermit
from sluicegate.policies.queue.settings import QueueSettings
from sluicegate.policies.queue.work_times import WorkTimes

MS = 1_000
START_US = 1_000_000 * MS


def ended(work: WorkTimes, begun_us: int, now_us: int, beside: int = 7) -> bool:
    """Whether it taught anything."""
    service_us = now_us - begun_us
    if work.stood_still(service_us, beside, now_us):
        return False
    work.learn(service_us, True, now_us, 1)
    return True


def usual(beside: int = 7, count: int = 100) -> tuple[WorkTimes, int]:
    """Work of 10 ms, of which one ends each 2 ms."""
    work, now_us = WorkTimes(0.99), START_US
    for _ in range(count):
        now_us += 2 * MS
        assert ended(work, now_us - 10 * MS, now_us, beside)
    return work, now_us


def test_what_stood_still_for_seconds_is_no_work_of_seconds() -> None:
    work, stalled_us = usual()
    now_us = stalled_us + 5_000 * MS
    taught = [ended(work, stalled_us - at * MS, now_us + at * MS) for at in range(8)]
    assert not any(taught)  # also what ended a little later: it had begun before
    assert ended(work, now_us + 1 * MS, now_us + 12 * MS)
    now_us += 300 * MS  # by then the quantile is read anew
    assert ended(work, now_us - 11 * MS, now_us)
    assert max(work.unloaded_us, work.service_us) < 12 * MS
    assert work.slack_us < 13 * MS


def test_what_an_overload_began_with_is_no_measure_of_work_for_as_long_as_it_lasts() -> None:
    work, now_us = WorkTimes(0.99), START_US
    for _ in range(16):  # by chance they took long, and nothing is unloaded after them
        work.learn(17 * MS, True, now_us, 1)
    for _ in range(200):
        work.learn(10 * MS, False, now_us, 1)
    assert 9 * MS < work.unloaded_us < 11 * MS
    for _ in range(200):  # what load makes longer is no longer work
        work.learn(40 * MS, False, now_us, 1)
    assert work.unloaded_us == 17 * MS


def test_work_that_became_slow_for_good_is_learned_all_the_same() -> None:
    work, now_us = usual()
    taught = 0
    for _ in range(200):
        now_us += 500 * MS  # eight at work, that end together
        taught += sum(ended(work, now_us - 500 * MS, now_us) for _ in range(8))
    assert taught >= 0.95 * 8 * 200
    assert work.unloaded_us > 450 * MS


def test_slow_work_among_quick_work_is_no_stall() -> None:
    """A scan beside reads that end all the time, and one that is alone at work."""
    work, now_us = usual()
    for _ in range(250):
        now_us += 2 * MS
        assert ended(work, now_us - 10 * MS, now_us)
    assert ended(work, now_us - 500 * MS, now_us)
    assert ended(work, now_us + 1 * MS, now_us + 2_001 * MS, beside=0)


def test_what_begins_slow_or_by_a_clock_that_went_back_is_learned() -> None:
    work = WorkTimes(0.99)
    assert all(ended(work, START_US, START_US + 3_000 * MS) for _ in range(8))
    work, now_us = usual()
    assert not ended(work, now_us, now_us + 5_000 * MS)
    assert ended(work, START_US - 10 * MS, START_US)


def target_us(at_work: int) -> int:
    """What a queue takes for a good delay, after work of 10 ms has stood still for 5 s once."""
    queue, now_us = Queue(QueueSettings(places=64)), START_US
    for took_us in [10 * MS] * 64 + [5_000 * MS]:  # the 65th round is fitted to
        permits = [queue.admit_now(Request("k"), now_us) for _ in range(at_work)]
        now_us += took_us
        for permit in permits:
            assert isinstance(permit, QueuePermit)
            permit.end(Outcome.SUCCESS, now_us)
    return queue.stats().target_us


def test_a_queue_bears_no_longer_a_delay_after_a_stall() -> None:
    assert target_us(at_work=8) == 5 * MS
    assert target_us(at_work=32) == 5 * MS
    assert target_us(at_work=3) > 5 * MS  # so few may well be as slow as that


def test_one_long_work_among_many_short_ones_does_not_halve_a_line() -> None:
    book, now_us = LineBook(QueueSettings(places=32)), START_US
    for _ in range(200):
        now_us += MS
        book.learn(10 * MS, False, now_us)
    book.burst.us = 100 * MS
    assert book.burst_units == 320
    book.learn(200 * MS, False, now_us)
    assert book.burst_units >= 270
    book.burst.us = 0
    assert book.burst_units == 0
