"""A short line: who stands in it while nearly all who come have to wait, and who is told at once.

The figures in `queue/settings.py` are made here: open arrivals of four classes at eight places,
event by event, without a loop that takes time of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUEUE_FULL, QUEUE_TIMEOUT
from sluicegate.contracts.request import Request
from sluicegate.policies.queue.queue import Queue, QueuePermit, QueueSettings
from sluicegate.testing import START_US

PLACES = 8
WORK_US = 10_000
CAPACITY_PER_S = PLACES * 1_000_000 // WORK_US
LINE_US = 12_000
SPAN_US = 4_000_000
SWEEP_US = 1_000
CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


class QueueRun(NamedTuple):
    """Of each class what part was served; of all, how soon the refused were told."""

    goodput: float  # of the capacity
    served: list[float]
    refused_us: list[int]

    def refused_p_us(self, part: float) -> int:
        """That quantile."""
        return sorted(self.refused_us)[int(len(self.refused_us) * part)]


def queue_of(line_us: int | None, floor_permille: int = 10) -> Queue:
    return Queue(
        QueueSettings(
            floor_permille=floor_permille,
            places=PLACES,
            length_max=10_000,
            line_us=line_us,
            sweep_us=SWEEP_US,
            slack_quantile=0.5,
        )
    )


def request(criticality: Criticality, now_us: int = START_US) -> Request:
    return Request("k", criticality=criticality, deadline_us=now_us + 500_000)


def arrivals(rates: list[float], chance: Random) -> Iterator[tuple[int, Criticality]]:
    """When who comes, at so many a second of each class."""
    for criticality, rate in zip(Criticality, rates, strict=True):
        at_us = 0.0
        while rate and at_us < SPAN_US:
            at_us += chance.expovariate(rate) * 1e6
            yield START_US + int(at_us), criticality


async def played(queue: Queue, rates: list[float], work_us: int = WORK_US) -> QueueRun:
    """All of it, event by event."""
    chance = Random(7)
    events: list[tuple[int, int, Criticality | QueuePermit | None]] = []
    for number, (at_us, criticality) in enumerate(arrivals(rates, chance)):
        heappush(events, (at_us, number, criticality))
    came = [0] * 4
    for _, _, who in events:
        assert isinstance(who, Criticality)
        came[who] += 1
    order = len(events)
    for at_us in range(START_US, START_US + SPAN_US + 1_000_000, SWEEP_US):
        order += 1
        heappush(events, (at_us, order, None))
    served, refused_us = [0] * 4, []
    waiting: list[tuple[asyncio.Future[QueuePermit | Decision], int, Criticality]] = []

    def record_answer(
        answer: QueuePermit | Decision, since_us: int, who: Criticality, now_us: int
    ) -> None:
        nonlocal order
        if isinstance(answer, Decision):
            refused_us.append(now_us - since_us)
            return
        served[who] += 1
        order += 1
        took_us = int(work_us * (0.9 + 0.2 * chance.random()))
        heappush(events, (now_us + took_us, order, answer))

    while events:
        now_us, _, event = heappop(events)
        if event is None:
            queue.sweep(now_us)
        elif isinstance(event, QueuePermit):
            event.end(Outcome.SUCCESS, now_us)
        else:
            answer = queue.enter(request(event, now_us), now_us)
            if isinstance(answer, QueuePermit | Decision):
                record_answer(answer, now_us, event, now_us)
            else:
                waiting.append((answer.future, now_us, event))
        for turn, since_us, who in waiting:
            if turn.done():
                record_answer(turn.result(), since_us, who, now_us)
        waiting = [one for one in waiting if not one[0].done()]
    parts = [ok / all_ if all_ else 1.0 for ok, all_ in zip(served, came, strict=True)]
    return QueueRun(sum(served) * work_us / SPAN_US / PLACES, parts, refused_us)


def rates_at(times: float) -> list[float]:
    """CRITICAL alone asks for half of what can be done, the others for all that is too much."""
    critical = 0.5 * CAPACITY_PER_S
    rest = times * CAPACITY_PER_S - critical
    return [critical, 0.4 * rest, 0.3 * rest, 0.3 * rest]


@pytest.mark.parametrize("times", [2, 5, 10])
def test_who_is_refused_hears_so_soon_and_nothing_that_can_be_done_is_not(times: int) -> None:
    result = asyncio.run(played(queue_of(LINE_US), rates_at(times)))
    assert result.goodput > 0.99
    assert result.served[CRITICAL] == 1.0
    assert result.refused_p_us(0.99) <= 14_000
    assert result.refused_p_us(0.5) <= (4_000 if times == 2 else 0)


def test_work_that_waits_in_the_engine_makes_no_longer_line() -> None:
    queue = queue_of(LINE_US)
    queue.resize(2 * PLACES, START_US)  # each takes twice as long with two in a slot
    result = asyncio.run(played(queue, rates_at(2), 2 * WORK_US))
    assert result.goodput > 1.98
    assert result.served[CRITICAL] == 1.0
    assert result.refused_p_us(0.95) <= 14_000


def test_without_it_the_classes_in_the_middle_hear_late() -> None:
    result = asyncio.run(played(queue_of(None), rates_at(2)))
    assert result.refused_p_us(0.99) > 30_000


def test_slow_work_has_a_line_as_long_as_itself_or_who_comes_luckily_would_be_served() -> None:
    slow_us = 10 * WORK_US
    rates = [0.1 * rate for rate in rates_at(2)]
    result = asyncio.run(played(queue_of(LINE_US), rates, slow_us))
    assert result.goodput > 0.98
    assert result.served[CRITICAL] > 0.99
    # With a line of 12 ms there is seldom anybody in it to choose from: half, and a fifth of BULK.
    assert result.served[DEGRADED] > 0.7
    assert result.served[BULK] < 0.1
    assert sorted(result.refused_us)[len(result.refused_us) // 2] <= 1.1 * slow_us


def test_one_class_at_four_fifths_of_the_capacity_is_served_whole() -> None:
    result = asyncio.run(played(queue_of(LINE_US), [0.0, 0.0, 0.8 * CAPACITY_PER_S, 0.0]))
    assert result.served[BEST_EFFORT] > 0.999


def floors(rates: list[float]) -> tuple[QueueRun, QueueRun]:
    """With a floor of 1% for each class below CRITICAL, and without."""
    kept, without = queue_of(LINE_US), queue_of(LINE_US, floor_permille=0)
    return asyncio.run(played(kept, rates)), asyncio.run(played(without, rates))


def test_each_class_is_served_a_little_of_a_line_that_is_full_of_what_matters_more() -> None:
    kept, without = floors([part * CAPACITY_PER_S for part in (0.9, 2.0, 0.5, 0.5)])
    for member in (BEST_EFFORT, BULK):
        assert 0.016 <= kept.served[member] <= 0.022  # of half of what the places can do
        assert without.served[member] < 0.004
    assert kept.goodput > 0.99
    assert without.served[CRITICAL] - kept.served[CRITICAL] < 0.005  # 0.990 and 0.988


def test_while_critical_stands_no_other_class_takes_a_place_from_it() -> None:
    kept, without = floors([part * CAPACITY_PER_S for part in (2.0, 0.5, 0.5, 0.5)])
    assert without.served[CRITICAL] - kept.served[CRITICAL] < 0.005
    assert max(kept.served[DEGRADED:]) < 0.01


def test_a_class_is_owed_only_while_others_wait_and_none_of_it_does() -> None:
    async def story() -> None:
        queue, later_us = queue_of(LINE_US, floor_permille=333), START_US + 700_000
        permits = crowded(queue)
        bulk, critical = request(BULK, later_us), request(CRITICAL, later_us)
        assert not queue.owes(bulk), "nobody waits"
        for at in range(4):
            queue.enter(request(CRITICAL, later_us), later_us)
            permits[at].end(Outcome.SUCCESS, later_us)
        assert not queue.owes(bulk), "nobody waits any more"
        queue.enter(critical, later_us)
        assert queue.owes(bulk)
        assert not queue.owes(critical)
        queue.enter(bulk, later_us)
        assert not queue.owes(request(BULK, later_us)), "it has come"

    asyncio.run(story())


def crowded(queue: Queue) -> list[QueuePermit]:
    """All places are taken, and of the last who came all had to wait, in vain."""
    entries = [queue.enter(request(DEGRADED), START_US) for _ in range(PLACES)]
    permits = [one for one in entries if isinstance(one, QueuePermit)]
    for _ in permits:
        queue.learn(WORK_US, True, START_US)
    for at in range(300):
        queue.enter(request(BULK), START_US + at)
    queue.sweep(START_US + 600_000)
    assert queue.stats().queued == 0
    return permits


def test_a_burst_on_a_free_service_is_not_cut() -> None:
    async def story() -> None:
        queue = queue_of(LINE_US)
        for _ in range(PLACES + 60):
            assert not isinstance(queue.enter(request(BULK), START_US), Decision)
        assert queue.stats().queued == 60

    asyncio.run(story())


def test_while_it_is_crowded_the_line_holds_what_the_places_serve_in_its_time() -> None:
    async def story() -> None:
        queue = queue_of(LINE_US)
        permits = crowded(queue)
        now_us = START_US + 700_000
        answers = [queue.enter(request(BULK, now_us), now_us) for _ in range(30)]
        service_us = 6_500  # the average of eight works, on its way to 10 ms
        room = queue.stats().queued
        assert PLACES <= room <= LINE_US * PLACES // service_us
        refused = [one for one in answers if isinstance(one, Decision)]
        assert len(refused) == 30 - room
        assert all(one.reason is QUEUE_FULL for one in refused)
        queue.sweep(now_us + LINE_US)
        assert queue.stats().queued == 0
        turns = [
            one.future.result() for one in answers if not isinstance(one, Decision | QueuePermit)
        ]
        assert {one.reason for one in turns if isinstance(one, Decision)} == {QUEUE_TIMEOUT}
        assert permits

    asyncio.run(story())


def test_who_matters_more_takes_the_place_of_who_matters_less_who_is_told_at_once() -> None:
    async def story() -> None:
        queue = queue_of(LINE_US)
        permits = crowded(queue)
        now_us = START_US + 700_000
        less = [queue.enter(request(BULK, now_us), now_us) for _ in range(30)]
        room = queue.stats().queued
        more = [queue.enter(request(DEGRADED, now_us), now_us) for _ in range(room)]
        assert not any(isinstance(one, Decision) for one in more)
        assert queue.stats().queued == room
        assert all(isinstance(one, Decision) or one.future.done() for one in less if one)  # type: ignore[union-attr]
        assert permits

    asyncio.run(story())


def test_what_is_critical_is_not_refused_for_its_number() -> None:
    async def story() -> None:
        queue = queue_of(LINE_US)
        permits = crowded(queue)
        now_us = START_US + 700_000
        answers = [queue.enter(request(CRITICAL, now_us), now_us) for _ in range(100)]
        assert not any(isinstance(one, Decision) for one in answers)
        assert queue.stats().queued == 100
        queue.sweep(now_us + LINE_US)
        assert queue.stats().queued == 100
        # Where so many of them stand there is no room for anybody else.
        assert isinstance(queue.enter(request(DEGRADED, now_us), now_us), Decision)
        assert permits

    asyncio.run(story())


def test_when_places_are_free_again_it_is_not_crowded_any_more() -> None:
    async def story() -> None:
        queue = queue_of(LINE_US)
        permits = crowded(queue)
        now_us = START_US + 700_000
        for permit in permits:
            permit.end(Outcome.SUCCESS, now_us)
        for _ in range(20):
            free = queue.enter(request(BULK, now_us), now_us)
            assert isinstance(free, QueuePermit)
            free.end(Outcome.SUCCESS, now_us)
        for _ in range(PLACES + 30):
            assert not isinstance(queue.enter(request(BULK, now_us), now_us), Decision)
        assert queue.stats().queued == 30

    asyncio.run(story())


def test_a_line_of_no_time_is_no_setting() -> None:
    with pytest.raises(BadValue, match=r"queue\.line_us"):
        QueueSettings(line_us=0)
