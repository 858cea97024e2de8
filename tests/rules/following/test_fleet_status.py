from __future__ import annotations

import threading

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.following.fleet_status import FleetReports
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.system import SystemClock
from sluicegate.testing import START_US, HandClock
from tests.rules.following.node import Line
from tests.rules.releases.press import Press


def report(
    node: str, version: int, *, canary: int = 0, at_us: int = START_US, failure: str = ""
) -> NodeReport:
    return NodeReport(node, 1, version, canary, at_us, 0, 0, failure, {})


class World:
    def __init__(self) -> None:
        press = Press()
        self.line = Line(press.blobs)
        self.store = ReleaseStore(self.line, press.signer.verifier())
        self.clock = HandClock()
        self.fleet = FleetReports(self.store, self.clock, stale_us=60_000_000)

    def say(self, *reports: NodeReport) -> None:
        for one in reports:
            self.store.put_report(one)


def test_all_nodes_are_told_with_what_they_run() -> None:
    world = World()
    assert world.fleet.look().nodes == ()
    world.say(report("b", 2), report("a", 1, canary=2), report("c", 2, failure="disk: full"))
    reports = world.fleet.look()
    assert [node.node for node in reports.nodes] == ["a", "b", "c"]
    assert reports.versions() == {1: 1, 2: 2}
    assert [reports.count_running(version) for version in (1, 2, 3)] == [3, 3, 0]
    assert [node.node for node in reports.failing] == ["c"]
    assert reports.at_us == START_US


def test_a_canary_is_run_by_who_runs_it_and_by_nobody_who_runs_another() -> None:
    world = World()
    world.say(report("a", 4, canary=5), report("b", 4, canary=6), report("c", 7))
    assert [world.fleet.look().count_running(version) for version in (4, 5, 6, 7)] == [3, 2, 2, 1]


def test_a_node_that_says_nothing_for_long_is_stale_and_does_not_count() -> None:
    world = World()
    world.say(report("a", 1), report("b", 1, at_us=START_US + 10_000_000))
    world.clock.advance(s=60)
    assert [node.node for node in world.fleet.look().stale] == []
    world.clock.advance(us=1)
    reports = world.fleet.look()
    assert [(node.node, node.age_us) for node in reports.stale] == [("a", 60_000_001)]
    assert (reports.count_running(1), reports.versions()) == (1, {1: 1})


def test_a_report_from_a_clock_that_is_ahead_is_young() -> None:
    world = World()
    world.say(report("a", 1, at_us=START_US + 5))
    assert world.fleet.look().nodes[0].age_us == 0


def test_a_report_that_cannot_be_read_is_a_node_in_trouble() -> None:
    world = World()
    world.say(report("a", 1))
    world.store.blobs.put("nodes/b.json", b"{")
    world.store.blobs.put("nodes/c.json", b"x" * (2 << 20))
    world.store.blobs.put("nodes/d.json", world.store.report_blob("a").data)  # type: ignore[union-attr]
    reports = world.fleet.look()
    assert [node.node for node in reports.nodes] == ["a", "b", "c", "d"]
    assert [node.node for node in reports.failing] == ["b", "c", "d"]
    assert "under the name d" in reports.nodes[3].wrong
    assert reports.count_running(1) == 1


def test_a_store_that_does_not_answer_is_not_a_fleet_without_nodes() -> None:
    world = World()
    world.say(report("a", 1))
    for cut in ("", "nodes/a"):
        world.line.cut = cut
        with pytest.raises(Unavailable):
            world.fleet.look()


def test_who_waits_is_told_when_so_many_run_it() -> None:
    world = World()
    fleet = FleetReports(world.store, SystemClock(), stale_us=1 << 60)
    world.say(report("a", 1), report("b", 2))
    assert fleet.wait_for(2, nodes=1, timeout_s=0)[0]
    assert not fleet.wait_for(2, nodes=2, timeout_s=0)[0]
    timer = threading.Timer(0.05, world.say, [report("a", 2)])
    timer.start()
    there, reports = fleet.wait_for(2, nodes=2, timeout_s=30)
    timer.join()
    assert there
    assert reports.versions() == {2: 2}


def test_who_waits_in_vain_is_told_how_it_stands() -> None:
    world = World()
    world.say(report("a", 1))
    there, reports = FleetReports(world.store, SystemClock()).wait_for(2, nodes=1, timeout_s=0.1)
    assert not there
    assert reports.nodes[0].node == "a"


def test_a_node_that_runs_it_is_not_asked_again_until_the_end() -> None:
    world = World()
    world.say(report("a", 2), report("b", 1))
    world.line.calls.clear()
    FleetReports(world.store, SystemClock(), stale_us=1 << 60).wait_for(2, nodes=2, timeout_s=0.2)
    assert world.line.calls.count("nodes/a.json") == 2
    assert world.line.calls.count("nodes/b.json") > 2


def test_what_cannot_be_waited_for_is_refused() -> None:
    world = World()
    with pytest.raises(BadValue, match="nodes"):
        world.fleet.wait_for(1, nodes=0, timeout_s=1)
    with pytest.raises(BadValue, match="timeout_s"):
        world.fleet.wait_for(1, nodes=1, timeout_s=-1)
    with pytest.raises(BadValue, match="stale_us"):
        FleetReports(world.store, world.clock, stale_us=0)
