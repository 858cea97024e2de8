"""Places: what is found is in force everywhere before the engine."""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import Admission
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.lane_search import LEAST
from sluicegate.policies.bulkhead import Bulkhead, BulkheadPermit, BulkheadSettings
from sluicegate.policies.places import Places
from sluicegate.policies.queue.operation_queue import OperationQueue
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.testing import SeededChance

MS = 1_000


class World:
    """A queue of 64 places, half of them for scans, at most 32 in a shard."""

    def __init__(self) -> None:
        self.queue = Queue(QueueSettings(places=64))
        self.heavy = OperationQueue(("scan",), QueueSettings(places=32))
        self.bulkhead = Bulkhead(BulkheadSettings(cap=32, pool=64), SeededChance())
        self.places = Places(self.queue, self.heavy, self.bulkhead)
        self.now_us = 0
        self.scans: list[Admission] = []

    def end(
        self, outcome: Outcome = Outcome.SUCCESS, *, measured: bool = True, late: bool = False
    ) -> None:
        """One more has ended while all places are taken; a place each ms, 64 of them in a line."""
        self.now_us += MS * (20 if late else 1)
        request = Request("k", operation="get", deadline_us=self.now_us if late else None)
        if measured:
            request.measured = Measured(self.queue.places * MS)
        self.places.record_end(request, outcome, self.now_us)

    def crowd(self, ends: int) -> None:
        for _ in range(ends):
            self.queue.inflight = self.queue.places
            self.end()


def with_scans(world: World, count: int) -> None:
    """Have so many of them under way."""
    permits = [world.heavy.admit_now(Request("k", operation="scan"), 0) for _ in range(count)]
    world.scans, ended = permits, world.scans
    for permit in ended:
        assert not isinstance(permit, Decision)
        permit.end(Outcome.IGNORE, world.now_us)


def test_what_is_found_is_in_force_in_the_queue_the_lane_and_the_compartments() -> None:
    world = World()
    world.crowd(2_000)
    places = world.places.stats().places
    assert places < 32
    assert world.queue.places == places
    assert world.heavy.stats().places == max(1, places // 2)
    assert world.bulkhead.limit("s1") == max(1, places // 2)


def test_who_was_given_a_place_before_there_were_fewer_is_not_refused_behind_the_queue() -> None:
    world = World()
    request = Request("k", shard="s1", criticality=Criticality.CRITICAL)
    for shard in range(63):
        world.bulkhead.admit(Request("k", shard=f"s{shard % 3}"), 0)
    while world.places.stats().tries == 0:  # 63 are at work, and one has a place and comes to it
        world.crowd(1)
    assert world.queue.places == 32
    assert isinstance(world.bulkhead.admit(request, world.now_us), BulkheadPermit)
    assert world.bulkhead.limit("s1") == 32
    world.queue.inflight = 32
    world.end()
    assert world.bulkhead.limit("s1") == 16


def test_whoever_wants_to_know_hears_of_fewer_places_that_do_as_much_and_of_nothing_else() -> None:
    world = World()
    heard: list[int] = []
    world.places = Places(
        world.queue, world.heavy, world.bulkhead, 0, lambda: heard.append(world.queue.places)
    )
    world.crowd(2_000)
    assert len(heard) == world.places.stats().accepted > 0
    assert world.places.stats().tries >= len(heard)


def test_whoever_wants_to_know_hears_again_when_no_more_are_at_work() -> None:
    """Else the price of a line that was still in the engine was raised beside fewer places."""
    world = World()
    heard: list[int] = []
    world.places = Places(
        world.queue, world.heavy, world.bulkhead, 0, lambda: heard.append(world.queue.inflight)
    )
    world.queue.inflight = 64
    while not heard:
        world.end(late=True)
    places = world.queue.places
    for world.queue.inflight in range(63, places - 1, -1):
        world.end()
    assert places < 32
    assert heard == [64, places]


@pytest.mark.parametrize("dear", [True, False])
def test_while_a_price_keeps_work_away_a_free_place_gives_none_back(dear: bool) -> None:
    world = World()
    world.places = Places(world.queue, world.heavy, world.bulkhead, is_dear=lambda _: dear)
    world.crowd(2_000)
    few = world.queue.places
    for _ in range(2_000):
        world.queue.inflight = 0
        world.end()
    assert few < 32
    assert world.queue.places == (few if dear else 64)


def test_with_places_to_spare_nothing_changes() -> None:
    world = World()
    for _ in range(2_000):
        world.queue.inflight = 8
        world.end()
    assert world.places.stats() == (64, 64, 0, 0)


@pytest.mark.parametrize(
    ("outcome", "measured"), [(Outcome.IGNORE, True), (Outcome.SUCCESS, False)], ids=str
)
def test_what_says_nothing_of_the_engine_teaches_nothing(outcome: Outcome, measured: bool) -> None:
    world = World()
    for _ in range(2_000):
        world.queue.inflight = 64
        world.end(outcome, measured=measured)
    assert world.places.stats().tries == 0


def test_scans_beside_which_reads_take_longer_have_fewer_places() -> None:
    world = World()
    for number in range(400):
        world.now_us += 3 * MS
        many = number // 50 % 2  # scans under way
        for operation, service_us in (("get", 10 * MS), ("put", 50 * MS)):
            request = Request("k", operation=operation)
            request.measured = Measured(service_us * (2 if many and number >= 200 else 1))
            with_scans(world, 10 if many else 0)
            world.places.record_end(request, Outcome.SUCCESS, world.now_us)
        if number == 199:
            assert world.heavy.stats().places == 32
    assert world.heavy.stats().places == LEAST


def test_a_slow_shard_has_the_same_share_of_few_places_as_of_many() -> None:
    bulkhead = Bulkhead(BulkheadSettings(cap=32, pool=64), SeededChance())
    held = [bulkhead.admit(Request("k", shard="slow"), 0) for _ in range(6)]
    bulkhead.resize(8)
    assert bulkhead.limit("slow") == bulkhead.limit("other") == 4
    assert not isinstance(bulkhead.admit(Request("k", shard="slow"), 0), BulkheadPermit)
    assert isinstance(bulkhead.admit(Request("k", shard="other"), 0), BulkheadPermit)
    bulkhead.resize(64)
    assert isinstance(bulkhead.admit(Request("k", shard="slow"), 0), BulkheadPermit)
    assert all(isinstance(one, BulkheadPermit) for one in held)  # nobody was sent away
