"""Publishing and real nodes together: what is decided here is what they run."""

from __future__ import annotations

import pytest

from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.publishing.canary import CanarySettings, count_name
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.testing import SeededChance
from tests.rules.publishing.world import BOB, READER, Make, World, rules

NEW = {"web.yaml": rules(login=5, search=100)}
SETTINGS = PublishingSettings(canary=CanarySettings(hold_us=0, critical_min=100))


@pytest.fixture
def world(make: Make) -> World:
    return make(settings=SETTINGS).begin()


class Node:
    """A follower without threads; what it has decided is said by hand."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.counts: dict[str, tuple[int, int]] = {}
        self.handed: list[FleetBooks] = []
        self.follower = Follower(
            world.store,
            self.handed.append,
            node=name,
            folder=world.folder / name,
            clock=world.clock,
            chance=SeededChance(1),
            counts=lambda: self.counts,
        )
        self.follower.begin()

    def look(self) -> tuple[int, int]:
        """Follow and report; the versions it runs."""
        self.follower.poll()
        self.world.store.put_report(self.follower.report())
        return self.follower.books.live_version, self.follower.books.canary_version


@pytest.fixture
def nodes(world: World) -> list[Node]:
    return [Node(world, f"n{n}") for n in range(4)]


def run(nodes: list[Node]) -> list[tuple[int, int]]:
    return [node.look() for node in nodes]


def test_nodes_run_what_was_published_and_say_so(world: World, nodes: list[Node]) -> None:
    world.live(NEW)
    world.live({"api.yaml": rules(orders=1)})
    assert run(nodes) == [(3, 0)] * 4
    assert world.admin.wait(3, nodes=4, timeout_s=0, by=READER)["reached"]
    world.admin.roll_back("1", reason="help", by=BOB)
    assert run(nodes) == [(4, 0)] * 4
    assert not [node for node in world.admin.status(by=READER)["nodes"] if node["trouble"]]


def test_a_canary_that_is_taken_back_leaves_no_node_behind(world: World, nodes: list[Node]) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=10_000 - 1, kind=BY_NODES, by=BOB)
    assert (2, 0) in run(nodes)
    away = nodes.pop()
    world.admin.canary(id, share=0, kind=BY_NODES, by=BOB)
    assert run(nodes) == [(1, 0)] * 3
    world.admin.pin("n9", 1, reason="something else", by=BOB)
    assert away.look() == (1, 0)  # it never saw the rollout that took it back


def test_callers_of_all_nodes_try_it_and_it_goes_live(world: World, nodes: list[Node]) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=2_500, kind=BY_CALLERS, by=BOB)
    assert run(nodes) == [(1, 2)] * 4
    world.look()
    world.clock.advance(s=1)
    for node in nodes:
        node.counts = {count_name(1): (1_000, 10), count_name(2): (25, 1)}  # 1% and 4%
    run(nodes)
    world.look()
    assert world.state_of(id) == "live"
    assert run(nodes) == [(2, 0)] * 4


def test_callers_who_are_refused_more_end_it(world: World, nodes: list[Node]) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=2_500, kind=BY_CALLERS, by=BOB)
    run(nodes)
    world.look()
    world.clock.advance(s=1)
    for node in nodes:
        node.counts = {count_name(1): (1_000, 10), count_name(2): (50, 4)}  # 1% and 8%
    run(nodes)
    world.look()
    assert world.state_of(id) == "rolled back"
    assert run(nodes) == [(1, 0)] * 4


def test_a_pinned_node_stays_and_is_let_go(world: World, nodes: list[Node]) -> None:
    world.live(NEW)
    world.admin.pin("n2", 1, reason="to compare", by=BOB)
    assert run(nodes) == [(2, 0), (2, 0), (1, 0), (2, 0)]
    world.live({"api.yaml": rules(orders=1)})
    assert run(nodes) == [(3, 0), (3, 0), (1, 0), (3, 0)]
    world.admin.pin("n2", 0, reason="done", by=BOB)
    assert run(nodes) == [(3, 0)] * 4


def test_a_rollout_is_renewed_before_it_expires_and_nobody_hears_of_it(make: Make) -> None:
    world = make(settings=PublishingSettings(rollout_valid_us=3_600_000_000)).begin()
    node = Node(world, "n1")
    assert world.rollout().expires_us == world.rollout().at_us + 3_600_000_000
    for _ in range(20):
        world.clock.advance(s=600)
        world.look()
        node.follower.look()
        assert node.follower.record.failures == {}
    assert 4 <= world.rollout().number <= 8
    assert len(node.handed) == 1
    assert [one["call"] for one in world.admin.audit(by=READER)] == ["begin"]
    world.clock.advance(s=7_200)  # nobody looks
    node.follower.look()
    assert "expiry" in node.follower.record.failures


def test_a_change_is_valid_from_when_it_is_made_and_a_command_gives_none(make: Make) -> None:
    world = make().begin()
    world.live(NEW)
    assert world.rollout().expires_us == 0
    number = world.rollout().number
    world.clock.advance(s=10**6)
    world.look()
    assert world.rollout().number == number
