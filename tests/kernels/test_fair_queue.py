"""Fair queue: each choice against a slow model, and each rule of the order by itself."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from sluicegate.kernels.fair_queue import LOW_SHARE, PATIENCE_SHARE, FairQueue, Waiting

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
    queue.push(unit, need_us, now_us, least_us=need_us)
    return unit


def crowd(queue: FairQueue) -> FairQueue:
    """Make the queue serve by importance, until it is empty."""
    pushed(queue, 0, "impatient", 0, deadline_us=0)
    assert queue.crowded
    return queue


class Model:
    """The rules as the documentation has them, over plain lists."""

    def __init__(self, ranks: int) -> None:
        self.units: list[Waiting] = []
        self.used: list[dict[str, int]] = [{} for _ in range(ranks)]
        self.owed = [0.0] * ranks
        self.crowded = False

    def of(self, rank: int, caller: str | None = None) -> list[Waiting]:
        return [one for one in self.units if one.rank == rank and caller in (None, one.caller)]

    def push(self, unit: Waiting, now_us: int) -> None:
        self.used[unit.rank].setdefault(unit.caller, 0)
        self.units.append(unit)
        patience_us = 2 * unit.need_us
        if unit.deadline_us >= 0:
            patience_us = unit.deadline_us - now_us - unit.need_us
        need_us = sum(one.need_us for one in self.units)
        self.crowded = self.crowded or need_us > PATIENCE_SHARE * patience_us

    def take(self, unit: Waiting) -> None:
        self.units.remove(unit)
        if not self.units:
            self.__init__(len(self.used))  # type: ignore[misc]

    def expected(self) -> Waiting:
        """Return the unit to be served next."""
        if not self.crowded:
            return self.units[0]
        waiting = [rank for rank in range(len(self.used)) if self.of(rank)]
        owed = [rank for rank in waiting if self.owed[rank] > MEAN_US]
        rank = owed[0] if owed else waiting[0]
        used, units = self.used[rank], self.of(rank)
        total_us = sum(used.values())
        within = [one for one in units if used[one.caller] * len(used) <= total_us]
        if within:
            return within[-1]
        least = min(units, key=lambda one: (used[one.caller], one.caller)).caller
        return self.of(rank, least)[-1]

    def serve(self, unit: Waiting) -> None:
        rank = unit.rank
        self.take(unit)
        if self.units:
            self.used[rank][unit.caller] += unit.need_us
            self.owed[rank] = max(0.0, self.owed[rank] - unit.need_us)
            for lower in range(rank + 1, len(self.used)):
                if self.of(lower):
                    self.owed[lower] += LOW_SHARE * unit.need_us


@pytest.mark.parametrize("seed", range(8))
def test_every_choice_is_that_of_the_model(seed: int) -> None:
    random, queue, model = Random(seed), FairQueue(4), Model(4)
    now_us = 0
    for _ in range(2_000):
        now_us += random.randrange(4_000)
        draw = random.random()
        if draw < 0.5:
            patience_us = random.choice((50_000, 5_000_000))
            unit = pushed(
                queue,
                random.randrange(4),
                random.choice("abcde"),
                now_us,
                random.choice((1_000, 10_000, 50_000)),
                now_us + random.randrange(patience_us) if random.random() < 0.5 else -1,
            )
            model.push(unit, now_us)
        elif draw < 0.9:
            popped = queue.pop(MEAN_US)
            assert (popped is None) == (not model.units)
            if popped is not None:
                assert popped is model.expected()
                model.serve(popped)
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
        assert queue.crowded == model.crowded
        assert queue.size_bytes == 100 * len(model.units)
        assert [queue.waiting_of(rank) for rank in range(4)] == [
            len(model.of(rank)) for rank in range(4)
        ]


def served(queue: FairQueue, count: int) -> list[Waiting]:
    found = [queue.pop(MEAN_US) for _ in range(count)]
    return [one for one in found if one is not None]


def test_queue_that_serves_all_in_time_keeps_arrival_order() -> None:
    queue = FairQueue(2)
    units = [pushed(queue, 1 - at % 2, f"caller {at}", 0, 10_000, 1_000_000) for at in range(6)]
    assert not queue.crowded
    assert served(queue, 6) == units


def test_crowded_queue_serves_the_newest_until_it_is_empty() -> None:
    queue = crowd(FairQueue(1))
    units = [pushed(queue, 0, "impatient", 0, deadline_us=9_000_000) for _ in range(3)]
    assert served(queue, 3) == units[::-1]
    assert queue.crowded
    served(queue, 1)
    assert not queue.crowded


def test_callers_of_unequal_cost_share_the_time() -> None:
    queue = crowd(FairQueue(1))
    for _ in range(400):
        pushed(queue, 0, "cheap", 0, 1_000)
        pushed(queue, 0, "expensive", 0, 10_000)
    counts = Counter(one.caller for one in served(queue, 221))
    assert counts["cheap"] == pytest.approx(200, abs=15)
    assert counts["expensive"] == pytest.approx(20, abs=3)


def test_settled_time_replaces_the_estimate() -> None:
    """A caller whose work took ten times the estimate is served a tenth as often."""
    queue = crowd(FairQueue(1))
    for _ in range(300):
        pushed(queue, 0, "as expected", 0, 1_000)
        pushed(queue, 0, "slower", 0, 1_000)
    counts: Counter[str] = Counter()
    for _ in range(220):
        (unit,) = served(queue, 1)
        counts[unit.caller] += 1
        queue.settle(unit, 10_000 if unit.caller == "slower" else 1_000)
    assert counts["slower"] == pytest.approx(20, abs=4)


def test_lower_rank_gets_its_bounded_share() -> None:
    queue = crowd(FairQueue(2))
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
        queue.remove(pushed(queue, 0, f"caller {number % 50}", 0, deadline_us=10**9))
    assert len(queue._expiries) < 200
    assert len(queue._ranks[0].within) + len(queue._ranks[0].above) < 200
