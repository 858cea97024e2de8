"""Fair queue: each choice against a slow model, and each rule of the order by itself."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from sluicegate.kernels.fair_queue import (
    GAIN_MAX,
    LOW_SHARE,
    PATIENCE_SHARE,
    FairQueue,
    QueuedUnit,
)

MEAN_US = 10_000.0


def pushed(
    queue: FairQueue,
    rank: int,
    caller: str,
    now_us: int,
    need_us: int = 10_000,
    deadline_us: int = -1,
) -> QueuedUnit:
    unit = QueuedUnit(rank, caller, deadline_us, 100)
    queue.push(unit, need_us, now_us, least_us=need_us)
    return unit


class Model:
    """The rules as the documentation has them, over plain lists."""

    def __init__(self, ranks: int) -> None:
        self.units: list[QueuedUnit] = []
        self.used: list[dict[str, int]] = [{} for _ in range(ranks)]
        self.owed = [0.0] * ranks
        self.crowded = False
        self.gained = 0

    def of(self, rank: int) -> list[QueuedUnit]:
        return [one for one in self.units if one.rank == rank]

    @staticmethod
    def is_in_time(unit: QueuedUnit, now_us: int) -> bool:
        return unit.deadline_us < 0 or now_us + unit.need_us <= unit.deadline_us

    def push(self, unit: QueuedUnit) -> None:
        self.units.append(unit)
        self.gained = min(self.gained + 1, GAIN_MAX)
        self.used[unit.rank].setdefault(unit.caller, 0)
        patience_us = 2 * unit.need_us
        if unit.deadline_us >= 0:
            patience_us = unit.deadline_us - unit.queued_us - unit.need_us
        work_us = sum(one.need_us for one in self.units)
        self.crowded = self.crowded or work_us > PATIENCE_SHARE * patience_us

    def take(self, unit: QueuedUnit) -> None:
        self.units.remove(unit)
        if not self.units:
            self.used = [{} for _ in self.used]
            self.owed = [0.0] * len(self.owed)
            self.crowded = False

    def check_pop(self, unit: QueuedUnit, now_us: int) -> None:
        """Assert that this unit is the one to be served next, and record it."""
        ranks = sorted({one.rank for one in self.units})
        owed = [rank for rank in ranks if self.owed[rank] > MEAN_US]
        assert unit.rank == (owed[0] if owed else ranks[0])
        used = self.used[unit.rank]
        share = sum(used.values()) / len(used)
        mine = self.of(unit.rank)
        within = [one for one in mine if used[one.caller] <= share]
        newest = self.crowded and self.gained
        oldest = [one for one in mine if not self.crowded or self.is_in_time(one, now_us)]
        if not newest and oldest and oldest[0] in within:
            assert unit is oldest[0]
        elif within:
            caller = within[-1].caller
            theirs = [one for one in mine if one.caller == caller]
            assert unit is theirs[-1 if newest else 0]
        else:
            assert used[unit.caller] == min(used[one.caller] for one in mine)
        self.gained = max(0, self.gained - 1)
        rank = unit.rank
        used, need_us = self.used[rank], unit.need_us
        self.take(unit)
        if self.units:
            used[unit.caller] += need_us
            self.owed[rank] = max(0.0, self.owed[rank] - need_us)
            for lower in range(rank + 1, len(self.owed)):
                if self.of(lower):
                    self.owed[lower] += LOW_SHARE * need_us


@pytest.mark.parametrize("seed", range(8))
def test_every_choice_is_that_of_the_model(seed: int) -> None:
    random, queue, model = Random(seed), FairQueue(4), Model(4)
    now_us = 0
    for _ in range(3_000):
        now_us += random.randrange(4_000)
        draw = random.random()
        if draw < 0.48:
            deadline_us = now_us + random.randrange(4_000_000) if random.random() < 0.97 else -1
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


def served(queue: FairQueue, count: int) -> list[QueuedUnit]:
    found = [queue.pop(MEAN_US, 0) for _ in range(count)]
    return [one for one in found if one is not None]


def test_callers_of_unequal_cost_share_the_time() -> None:
    queue = FairQueue(1)
    for _ in range(400):
        pushed(queue, 0, "cheap", 0, 1_000)
        pushed(queue, 0, "expensive", 0, 10_000)
    counts = Counter(one.caller for one in served(queue, 220))
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
        (unit,) = served(queue, 1)
        counts[unit.caller] += 1
        queue.settle(unit, 10_000 if unit.caller == "slower" else 1_000)
    assert counts["slower"] == pytest.approx(20, abs=3)


def test_units_that_all_start_in_time_are_served_by_rank_then_in_arrival_order() -> None:
    queue = FairQueue(2)
    units = [
        pushed(queue, rank, caller, 0, deadline_us=1_000_000)
        for rank, caller in ((1, "a"), (0, "b"), (1, "b"), (0, "a"))
    ]
    assert served(queue, 4) == [units[1], units[3], units[0], units[2]]


def test_crowded_queue_serves_rank_then_newest_until_it_is_empty() -> None:
    queue = FairQueue(2)
    low, *high = [pushed(queue, rank, "", 0, deadline_us=60_000) for rank in (1, 0, 0, 0)]
    assert served(queue, 2) == [high[2], high[1]]
    late = pushed(queue, 0, "", 30_000, deadline_us=900_000)
    assert served(queue, 3) == [late, high[0], low]
    again = [pushed(queue, 0, "", 40_000, deadline_us=900_000) for _ in range(2)]
    assert served(queue, 2) == again


def test_units_without_deadline_are_served_by_rank() -> None:
    queue = FairQueue(2)
    units = [QueuedUnit(rank, "", -1) for rank in (1, 0, 0)]
    for unit in units:
        queue.push(unit, 0, 0)
    assert served(queue, 3) == [units[1], units[2], units[0]]


def test_lower_rank_gets_its_bounded_share() -> None:
    queue = FairQueue(2)
    for _ in range(1_000):
        pushed(queue, 0, "high", 0)
        pushed(queue, 1, "low", 0)
    counts = Counter(one.caller for one in served(queue, 500))
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
    assert len(queue._ranks[0].within) + len(queue._ranks[0].above) < 200
