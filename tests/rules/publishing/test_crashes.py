"""Kill -9 of a real publisher at every step: nobody sees half a version, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.rules.publishing.outbox import (
    ANNOUNCED,
    CRASH_POINTS,
    DECIDED,
    DELIVERED,
    LIVE_MOVED,
    MERGED,
    NOTED,
    RELEASE_PUT,
    ROLLOUT_PUT,
    SNAPSHOT_PUT,
)
from tests.rules.publishing.dying import Processes
from tests.rules.publishing.world import BOB, LIVE_REF, MAIN, READER, Make, World, rules

MANY = {f"r{n}": n + 1 for n in range(200)}  # so that a delta is worth its while
OLD = {"web.yaml": rules(**MANY)}
NEW = {"web.yaml": rules(**{**MANY, "r7": 1_000})}


def some(*plain: str) -> list[object]:
    """All points; those that are not plain belong to the long proofs."""
    return [
        one if one in plain else pytest.param(one, marks=pytest.mark.prove) for one in CRASH_POINTS
    ]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.close()


def prepared(folder: Path) -> str:
    """Two versions, and a proposal that was approved; nobody has it open."""
    world = World(folder).begin()
    world.live(OLD)
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.close()
    return id


def check_whole(world: World, versions: int) -> None:
    """Everything that was decided is everywhere, once."""
    state = world.ledger.state()
    assert state.fleet.versions == versions
    assert state.fleet.delivered == (versions, state.fleet.rollouts)
    assert state.fleet.notes == ()
    assert world.store.versions() == [*range(1, versions + 1)]
    assert state.live is not None
    for number in world.store.versions():
        release = world.store.release(number)
        assert release is not None
        assert release.release.commit == state.versions[number].commit
    assert world.tip(LIVE_REF) == world.tip(MAIN) == state.live.commit
    assert world.rollout() == state.rollouts[state.fleet.rollouts]
    numbers = [] if world.events is None else [rollouts.number for rollouts in world.announced()]
    assert numbers == sorted(numbers)  # some may come twice
    assert world.events is None or numbers[-1] == state.fleet.rollouts
    for number in range(1, state.fleet.rollouts + 1):
        assert world.store.rollout_at(number) is not None
    # And it rests: there is nothing more to do.
    tip = world.tip("refs/sluicegate/ledger")
    world.look()
    assert world.publishing.upkeep.failures == {}
    assert world.tip("refs/sluicegate/ledger") == tip
    assert world.events is None or len(world.announced()) == len(numbers)


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_publication_goes_through_exactly_once(
    point: str, make: Make, tmp_path: Path, processes: Processes
) -> None:
    id = prepared(tmp_path)  # noqa: A001 - it is what it is called
    with processes.watched(tmp_path) as report:
        assert processes.run(tmp_path, call="publish", id=id, point=point) == -signal.SIGKILL
        world = make()
        if point == MERGED:
            # Nothing was decided, so nothing happens until somebody asks again.
            world.look()
            assert world.state_of(id) == "approved"
            world.admin.publish(id, by=BOB)
        else:
            assert world.state_of(id) == "live"
        world.look()
        check_whole(world, 3)
    assert report["wrong"] == []
    assert report["lives"] in ([2, 3], [3])
    assert report["numbers"] == sorted(report["numbers"])
    assert world.files() == {**world.files(), **NEW}
    assert world.repository.notes(world.tip(LIVE_REF)).count("Live as version 3") == 1
    proposal = world.admin.proposal(id, by=READER)
    assert (proposal["state"], proposal["version"]) == ("live", 3)
    release = world.store.release(3)
    assert release is not None
    assert len(release.release.deltas) == 1


@pytest.mark.parametrize("point", some(LIVE_MOVED, SNAPSHOT_PUT, ROLLOUT_PUT, NOTED))
def test_a_roll_back_goes_through_exactly_once(
    point: str, make: Make, tmp_path: Path, processes: Processes
) -> None:
    prepared(tmp_path)
    with processes.watched(tmp_path) as report:
        # The rules of version 1 are small; only the whole is put.
        code = processes.run(tmp_path, call="roll back", point=point)
        assert code == (0 if point == "delta put" else -signal.SIGKILL)
        world = make()
        world.look()
        if point == MERGED:
            assert world.ledger.state().fleet.versions == 2
            world.admin.roll_back("1", reason="again", by=BOB)
        check_whole(world, 3)
    assert report["wrong"] == []


@pytest.mark.parametrize("point", some(DECIDED, RELEASE_PUT, ANNOUNCED))
def test_a_canary_begins_exactly_once(
    point: str, make: Make, tmp_path: Path, processes: Processes
) -> None:
    id = prepared(tmp_path)  # noqa: A001 - it is what it is called
    with processes.watched(tmp_path) as report:
        code = processes.run(tmp_path, call="canary", id=id, point=point)
        assert code == (0 if point == "live moved" else -signal.SIGKILL)
        world = make()
        world.look()
        if point != MERGED:
            check_whole(world, 3)
            canary = world.rollout().canary
            assert canary is not None
            assert (canary.version, canary.share, world.rollout().live) == (3, 100, 2)
    assert report["wrong"] == []
    assert report["lives"] == [2]


def test_the_healing_may_be_killed_too(make: Make, tmp_path: Path, processes: Processes) -> None:
    id = prepared(tmp_path)  # noqa: A001 - it is what it is called
    with processes.watched(tmp_path) as report:
        assert processes.run(tmp_path, call="publish", id=id, point=DECIDED) == -signal.SIGKILL
        for point in CRASH_POINTS[2:]:  # those that come before DECIDED are behind us
            assert processes.run(tmp_path, call="look", point=point) == -signal.SIGKILL
        assert processes.run(tmp_path, call="look", point=DELIVERED) == 0
        check_whole(make(), 3)
    assert report["wrong"] == []
    assert report["numbers"] in ([2, 3], [3])
