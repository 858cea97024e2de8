"""As many callers as wait for their answers are no overload, and one who hides among them is found.

The control is the rule that goes by delays alone (`folly`): it refuses the same callers.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.policies.queue.line_book import LineBook
from sluicegate.policies.queue.settings import QueueSettings
from sluicegate.policies.queue.standstill import Standstill
from sluicegate.policies.queue.waiter import LineRemoval, Waiter

MS = 1_000
SECOND = 1_000 * MS
PLACES = 8
WORK_US = 2 * MS
START = 10 * SECOND
INTERVAL = 100 * MS
BOUND = 10 * MS


def refused(
    *, callers: int = 0, late: int = 0, load: float = 0.0, form: str = "codel", seconds: int = 1
) -> float:
    """The part refused of what callers ask who ask again at once, or of arrivals by chance.

    `late` of the callers come after half of the time.
    """
    chance = Random(1)
    book, removed = LineBook(QueueSettings(places=PLACES, form=form)), list[LineRemoval]()
    end_us = START + seconds * SECOND
    coming = [START + at for at in range(callers - late)]
    coming += [START + seconds * SECOND // 2 + at for at in range(late)]
    at_us = float(START)
    while load and at_us < end_us:
        at_us += chance.expovariate(load * PLACES / WORK_US)
        coming.append(int(at_us))
    heap: list[int] = sorted(coming)
    ends: list[int] = []
    came = lost = 0

    def begin(now_us: int) -> None:
        heappush(ends, now_us + chance.randrange(WORK_US * 9 // 10, WORK_US * 11 // 10))

    while heap or ends:
        if ends and (not heap or ends[0] <= heap[0]):
            now_us = heappop(ends)
            book.learn(WORK_US, False, now_us)
            if callers and now_us < end_us:
                heappush(heap, now_us + 50)
            waiter = book.next(now_us, removed) if book.waiting else None
            if waiter is not None:
                begin(now_us)
        else:
            now_us = heappop(heap)
            came += 1
            if len(ends) < PLACES:
                book.saturation.record_free()
                begin(now_us)
            else:
                book.add(
                    Waiter(Request("k", criticality=Criticality.DEGRADED), now_us),
                    1_000,
                    now_us,
                    removed,
                )
        lost += len(removed)
        if callers and now_us < end_us:
            for _ in removed:
                heappush(heap, now_us + 50)
        removed.clear()
    return lost / came


@pytest.mark.parametrize("callers", [50, 100])
def test_nobody_is_refused_of_those_who_wait_for_their_answers(callers: int) -> None:
    assert refused(callers=callers) == 0
    assert refused(callers=callers, form="folly") > 0.05


@pytest.mark.parametrize("load", [1.1, 2.0])
def test_more_than_is_served_is_refused_as_by_delays_alone(load: float) -> None:
    control = refused(load=load, form="folly")
    assert refused(load=load) == pytest.approx(control, abs=0.05)
    assert control > 0.02


@pytest.mark.prove
def test_callers_who_come_later_are_not_refused_for_good() -> None:
    by_delays = refused(callers=70, late=30, seconds=6, form="folly")
    assert refused(callers=70, late=30, seconds=6) < 0.75 * by_delays


def judged(standstill: Standstill, lengths: dict[int, int], delay_us: int = 12 * MS) -> list[bool]:
    """What it says each 10 ms of a line that has these lengths from these milliseconds on."""
    verdicts, length = [], 0
    for ms in range(0, max(lengths) + 1, 10):
        length = lengths.get(ms, length)
        now_us = START + ms * MS
        verdicts.append(standstill.holds(length, delay_us, now_us, BOUND, INTERVAL))
    return verdicts


@pytest.mark.parametrize("lengths", [{0: 40, 60: 53, 400: 53}, {0: 53, 60: 40, 400: 40}])
def test_a_line_that_moves_by_a_quarter_and_more_is_an_overload(lengths: dict[int, int]) -> None:
    assert not judged(Standstill(), lengths)[-1]
    assert all(judged(Standstill(), {ms: min(length, 50) for ms, length in lengths.items()}))


def test_what_was_too_late_for_its_deadline_is_an_overload_at_once() -> None:
    standstill = Standstill()
    standstill.record_late()
    assert not any(judged(standstill, {0: 40, 1_990: 40}))
    standstill.record_calm()
    assert all(judged(standstill, {0: 40, 1_990: 40}))


def test_a_verdict_is_tried_and_the_next_time_later_and_with_more_patience() -> None:
    standstill = Standstill()
    standstill.record_late()
    verdicts = judged(standstill, {0: 40, 20_000: 40}, delay_us=30 * MS)
    # Waits of three bounds end the first try at once; the next bears four, and finds no movement.
    assert verdicts.index(True) == 1_000
    assert all(verdicts[1_000:])


def test_a_clock_that_goes_back_begins_a_new_window() -> None:
    standstill = Standstill()
    assert all(judged(standstill, {0: 40, 300: 40}))
    early = [standstill.holds(40, 12 * MS, ms * MS, BOUND, INTERVAL) for ms in range(0, 300, 10)]
    assert all(early)
