"""What lines do with a unit, one at a time."""

from __future__ import annotations

import pytest

from sluicegate.lab.baselines import TABLE
from sluicegate.lab.baselines.codel import FollyCodel
from sluicegate.lab.baselines.rate_gates import TokenRate
from sluicegate.lab.kernel_mode import MakeQueue
from sluicegate.lab.work_queue import WorkUnit
from tests.lab.rigs import small

MS = 1_000


def unit(arrived_us: int, timeout_us: int = 500 * MS) -> WorkUnit:
    return WorkUnit(0, 0, arrived_us, arrived_us + timeout_us, 0)


@pytest.mark.parametrize("make_queue", TABLE.values(), ids=TABLE)
def test_a_line_gives_back_what_it_took_in_and_is_empty_then(make_queue: MakeQueue) -> None:
    line = make_queue(small(1))
    lost: list[WorkUnit] = []
    units = [unit(number) for number in range(5)]
    for number, each in enumerate(units):
        line.arrive(each, number, lost)
    assert line.waiting() == 5
    served = [line.take(10, lost) for _ in range(5)]
    assert set(map(id, served)) == set(map(id, units))
    assert line.take(11, lost) is None
    assert (line.waiting(), lost) == (0, [])


def test_folly_sheds_in_an_overloaded_interval_what_waited_twice_the_target() -> None:
    line = FollyCodel()
    lost: list[WorkUnit] = []
    for _ in range(60):
        line.arrive(unit(0), 0, lost)
    for now_ms in range(20, 140, 20):  # the first interval only looks
        assert line.take(now_ms * MS, lost) is not None
    assert lost == []
    line.arrive(unit(139 * MS), 139 * MS, lost)
    assert line.take(140 * MS, lost) is not None  # the first of an interval always passes
    assert lost == []
    newest = line.take(141 * MS, lost)
    assert newest is not None
    assert newest.arrived_us == 139 * MS
    assert len(lost) == 53


def test_a_token_rate_admits_a_burst_and_then_its_rate() -> None:
    line = TokenRate(10, 2)
    lost: list[WorkUnit] = []
    for number in range(5):
        line.arrive(unit(number), number, lost)
    assert line.waiting() == 2
    line.arrive(unit(100_000), 100_000, lost)
    assert line.waiting() == 3
