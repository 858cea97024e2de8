"""Class reserve: who is served by a part that is full, and that nobody notices while it is not."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.bulkhead import Bulkhead, BulkheadPermit, BulkheadSettings
from sluicegate.policies.class_reserve import FIRST_US, WINDOW_US
from sluicegate.testing import SeededChance

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
SECOND = 1_000_000
PLACES = 32
WORK_US = 500_000
CAN_DO = PLACES * SECOND // WORK_US  # a second
FULL = (16, 48, 48, 48)  # two and a half times that, a tenth of it CRITICAL


class Served(NamedTuple):
    """What of each class was, and what part of the places was at work."""

    classes: list[float]
    busy: float


def serve(per_s: Sequence[float], *, classes: bool = True, seed: int = 0, s: int = 40) -> Served:
    """Memoryless arrivals of each class; the first two seconds do not count."""
    rng = random.Random(seed)
    settings = BulkheadSettings(cap=PLACES, pool=2 * PLACES, classes=classes)
    part = Bulkhead(settings, SeededChance(seed))
    events: list[tuple[float, int, Criticality | BulkheadPermit]] = []
    for criticality, rate in zip(Criticality, per_s, strict=True):
        at_us = rng.expovariate(rate) * SECOND
        while at_us < s * SECOND:
            events.append((at_us, len(events), criticality))
            at_us += rng.expovariate(rate) * SECOND
    heapq.heapify(events)
    asked, served, count = [0] * 4, [0] * 4, len(events)
    while events:
        at_us, _, what = heapq.heappop(events)
        if isinstance(what, BulkheadPermit):
            what.end(Outcome.SUCCESS, round(at_us))
            continue
        permit = part.admit(Request("k", shard="s", criticality=what), round(at_us))
        counts = at_us >= 2 * SECOND
        asked[what] += counts
        if isinstance(permit, BulkheadPermit):
            served[what] += counts
            count += 1
            heapq.heappush(events, (at_us + WORK_US, count, permit))
    return Served(
        [one / max(1, of) for one, of in zip(served, asked, strict=True)],
        sum(served) / (CAN_DO * (s - 2)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_full_part_serves_critical_and_then_by_class(seed: int) -> None:
    found = serve(FULL, seed=seed)
    assert found.classes[CRITICAL] > 0.95
    assert found.classes[DEGRADED] > found.classes[BEST_EFFORT] > found.classes[BULK] > 0.04
    assert found.busy > 0.85
    # The control: who asks first is served, whatever matters.
    without = serve(FULL, seed=seed, classes=False)
    assert without.classes[CRITICAL] < 0.5
    assert without.classes[BULK] == pytest.approx(without.classes[CRITICAL], abs=0.08)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [0.3, 0.6])
def test_a_part_with_room_refuses_nobody_that_it_did_not_refuse_before(
    load: float, seed: int
) -> None:
    per_s = [share * CAN_DO * load for share in (0.1, 0.3, 0.3, 0.3)]
    found, without = serve(per_s, seed=seed), serve(per_s, seed=seed, classes=False)
    assert min(found.classes) >= min(without.classes) - 0.01
    assert min(found.classes) > 0.98


def test_critical_alone_above_what_can_be_done_leaves_some_of_each_class() -> None:
    found = serve((3 * CAN_DO, 10, 10, 10))
    assert min(found.classes) > 0.1
    assert found.busy > 0.95


def full(now_us: int = 0) -> tuple[Bulkhead, list[BulkheadPermit]]:
    """A part whose places are all taken by BULK."""
    part = Bulkhead(BulkheadSettings(cap=32, pool=64), SeededChance())
    return part, [enter(part, BULK, now_us) for _ in range(32)]


def enter(part: Bulkhead, criticality: Criticality, now_us: int) -> BulkheadPermit:
    permit = part.admit(Request("k", shard="s", criticality=criticality), now_us)
    assert isinstance(permit, BulkheadPermit)
    return permit


def is_refused(part: Bulkhead, criticality: Criticality, now_us: int) -> bool:
    permit = part.admit(Request("k", shard="s", criticality=criticality), now_us)
    if isinstance(permit, BulkheadPermit):
        permit.end(Outcome.IGNORE, now_us)
        return False
    return True


def test_the_last_places_are_kept_soon_after_a_refusal_and_while_higher_classes_come() -> None:
    part, permits = full()
    for _ in range(10):
        assert is_refused(part, CRITICAL, 0)
    permits.pop().end(Outcome.SUCCESS, 0)
    assert not is_refused(part, BULK, FIRST_US - 1)
    assert is_refused(part, BULK, FIRST_US)  # the place is CRITICAL's now
    assert not is_refused(part, CRITICAL, FIRST_US)
    assert is_refused(part, BULK, FIRST_US + WINDOW_US)  # CRITICAL asked in the window before
    assert not is_refused(part, BULK, FIRST_US + 2 * WINDOW_US)  # and in this one not


def test_after_a_pause_nothing_is_kept() -> None:
    part, permits = full()
    assert is_refused(part, CRITICAL, 0)
    permits.pop().end(Outcome.SUCCESS, 0)
    assert not is_refused(part, BULK, 5 * SECOND)


def test_a_request_that_is_raised_at_work_leaves_as_what_it_entered() -> None:
    part = Bulkhead(BulkheadSettings(cap=2, pool=4), SeededChance())
    request = Request("k", shard="s", criticality=BULK)
    held = enter(part, DEGRADED, 0)  # so that the part is not forgotten
    permit = part.admit(request, 0)
    assert isinstance(permit, BulkheadPermit)
    request.criticality = CRITICAL
    permit.end(Outcome.SUCCESS, 0)
    reserve = part._compartments["s"].reserve
    assert reserve is not None
    assert reserve._at_work == [0, 1, 0, 0]
    held.end(Outcome.SUCCESS, 0)
    assert part.stats().inflight == 0


def test_nothing_is_kept_of_so_few_places_that_a_quarter_of_them_is_none() -> None:
    part = Bulkhead(BulkheadSettings(cap=2, pool=4), SeededChance())
    enter(part, BULK, 0)
    permit = enter(part, BULK, 0)
    assert is_refused(part, CRITICAL, 0)
    assert is_refused(part, CRITICAL, FIRST_US)
    permit.end(Outcome.SUCCESS, FIRST_US)
    assert not is_refused(part, BULK, FIRST_US)
