"""Fair queue: each choice against a slow model, and each rule of the order by itself."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from sluicegate.kernels.fair_queue import LOW_SHARE, FairQueue, Waiting

MEAN_US = 10_000.0


def pushed(
    queue: FairQueue,
    rank: int,
    caller: str,
    now_us: int,
    need_us: int = 10_000,
    deadline_us: int = -1,
) -> Waiting:
    unit = Waiting(rank, caller, deadline_us, 100)
    queue.push(unit, need_us, now_us)
    return unit


class Model:
    """The rules as the documentation has them, over plain lists."""

    def __init__(self, ranks: int) -> None:
        self.units: list[Waiting] = []
        self.tags: list[dict[str, int]] = [{} for _ in range(ranks)]
        self.virtual = [0] * ranks
        self.owed = [0.0] * ranks
        self.newest: set[tuple[int, str]] = set()

    def of(self, rank: int, caller: str | None = None) -> list[Waiting]:
        return [one for one in self.units if one.rank == rank and caller in (None, one.caller)]

    def push(self, unit: Waiting) -> None:
        if not self.of(unit.rank, unit.caller):
            tags, virtual = self.tags[unit.rank], self.virtual[unit.rank]
            tags[unit.caller] = max(tags.get(unit.caller, virtual), virtual)
            self.newest.discard((unit.rank, unit.caller))
        self.units.append(unit)

    def take(self, unit: Waiting) -> None:
        self.units.remove(unit)
        if not self.of(unit.rank):
            self.tags[unit.rank] = {}
            self.virtual[unit.rank] = 0
            self.owed[unit.rank] = 0.0

    def check_pop(self, unit: Waiting, now_us: int) -> None:
        """Assert that this unit is one that may be served next, and record it."""
        waiting = [rank for rank in range(len(self.tags)) if self.of(rank)]
        owed = [rank for rank in waiting if self.owed[rank] > MEAN_US]
        assert unit.rank == (owed[0] if owed else waiting[0])
        tags = self.tags[unit.rank]
        assert tags[unit.caller] == min(tags[one.caller] for one in self.of(unit.rank))
        mine = self.of(unit.rank, unit.caller)
        key = unit.rank, unit.caller
        if now_us - mine[0].queued_us > mine[0].need_us:
            self.newest.add(key)
        assert unit is (mine[-1] if key in self.newest else mine[0])
        self.virtual[unit.rank] = tags[unit.caller]
        tags[unit.caller] += unit.need_us
        self.owed[unit.rank] = max(0.0, self.owed[unit.rank] - unit.need_us)
        self.take(unit)
        for rank in range(unit.rank + 1, len(self.tags)):
            if self.of(rank):
                self.owed[rank] += LOW_SHARE * unit.need_us


@pytest.mark.parametrize("seed", range(8))
def test_every_choice_is_that_of_the_model(seed: int) -> None:
    random, queue, model = Random(seed), FairQueue(4), Model(4)
    now_us = 0
    for _ in range(3_000):
        now_us += random.randrange(4_000)
        draw = random.random()
        if draw < 0.52:
            deadline_us = now_us + random.randrange(200_000) if random.random() < 0.3 else -1
            unit = pushed(
                queue,
                random.randrange(4),
                random.choice("abcde"),
                now_us,
                random.choice((1_000, 10_000, 50_000)),
                deadline_us,
            )
            model.push(unit)
        elif draw < 0.9:
            popped = queue.pop(MEAN_US, now_us)
            assert (popped is None) == (not model.units)
            if popped is not None:
                model.check_pop(popped, now_us)
        elif draw < 0.94 and model.units:
            unit = random.choice(model.units)
            assert queue.remove(unit)
            assert not queue.remove(unit)
            model.take(unit)
        elif draw < 0.97:
            while (expired := queue.expire(now_us)) is not None:
                assert expired.latest_us < now_us
                model.take(expired)
            assert all(one.latest_us >= now_us for one in model.units)
        else:
            rank = random.randrange(4)
            evicted = queue.evict(rank)
            last = max((one.rank for one in model.units), default=-1)
            assert (evicted is None) == (last < rank)
            if evicted is not None:
                assert evicted is model.of(last)[0]
                model.take(evicted)
        assert queue.waiting == len(model.units)
        assert queue.size_bytes == 100 * len(model.units)
        assert [queue.waiting_of(rank) for rank in range(4)] == [
            len(model.of(rank)) for rank in range(4)
        ]


def served(queue: FairQueue, count: int, now_us: int) -> list[Waiting]:
    found = [queue.pop(MEAN_US, now_us) for _ in range(count)]
    return [one for one in found if one is not None]


def test_callers_of_unequal_cost_share_the_time() -> None:
    queue = FairQueue(1)
    for _ in range(400):
        pushed(queue, 0, "cheap", 0, 1_000)
        pushed(queue, 0, "expensive", 0, 10_000)
    counts = Counter(one.caller for one in served(queue, 220, 0))
    assert counts["cheap"] == pytest.approx(200, abs=10)
    assert counts["expensive"] == pytest.approx(20, abs=2)


def test_settled_time_replaces_the_estimate() -> None:
    """A caller whose work took ten times the estimate is served a tenth as often."""
    queue = FairQueue(1)
    for _ in range(300):
        pushed(queue, 0, "as expected", 0, 1_000)
        pushed(queue, 0, "slower", 0, 1_000)
    counts: Counter[str] = Counter()
    for _ in range(220):
        (unit,) = served(queue, 1, 0)
        counts[unit.caller] += 1
        queue.settle(unit, 10_000 if unit.caller == "slower" else 1_000)
    assert counts["slower"] == pytest.approx(20, abs=3)


def test_idle_caller_saves_up_nothing() -> None:
    queue = FairQueue(1)
    for _ in range(100):
        pushed(queue, 0, "busy", 0)
    served(queue, 50, 0)
    for _ in range(50):
        pushed(queue, 0, "new", 0)
    counts = Counter(one.caller for one in served(queue, 20, 0))
    assert counts["busy"] == pytest.approx(10, abs=1)


def test_standing_queue_serves_the_newest_until_it_is_empty() -> None:
    queue = FairQueue(1)
    units = [pushed(queue, 0, "a", at_us) for at_us in (0, 1_000, 2_000)]
    assert queue.pop(MEAN_US, 9_000) is units[0]  # nobody has waited longer than the work takes
    assert queue.pop(MEAN_US, 30_000) is units[2]
    late = pushed(queue, 0, "a", 30_000)
    assert queue.pop(MEAN_US, 30_001) is late
    assert queue.pop(MEAN_US, 30_002) is units[1]
    again = [pushed(queue, 0, "a", 40_000) for _ in range(2)]
    assert queue.pop(MEAN_US, 40_001) is again[0]


def test_lower_rank_gets_its_bounded_share() -> None:
    queue = FairQueue(2)
    for _ in range(1_000):
        pushed(queue, 0, "high", 0)
        pushed(queue, 1, "low", 0)
    counts = Counter(one.caller for one in served(queue, 500, 0))
    assert counts["low"] == pytest.approx(500 * LOW_SHARE, abs=2)


def test_unit_expires_after_its_last_instant_to_begin() -> None:
    queue = FairQueue(1)
    unit = pushed(queue, 0, "a", 0, 30_000, deadline_us=100_000)
    assert queue.next_expiry_us() == 70_001
    assert queue.expire(70_000) is None
    assert queue.expire(70_001) is unit
    assert queue.next_expiry_us() == -1


def test_left_units_leave_no_garbage_in_the_heaps() -> None:
    queue: Any = FairQueue(1)
    pushed(queue, 0, "stays", 0)
    for number in range(5_000):
        queue.remove(pushed(queue, 0, f"caller {number}", 0, deadline_us=10**9))
    assert len(queue._expiries) < 200
    assert len(queue._ranks[0].heap) < 200
    assert len(queue._ranks[0].callers) < 200
