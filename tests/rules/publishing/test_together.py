"""Several people and several publishers at once: no change is lost, no number is given twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread

import pytest

from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError
from sluicegate.rules.publishing.outbox import ANNOUNCED, BRANCH_MOVED, CRASH_POINTS
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.repository.repository import Repository
from tests.rules.publishing.dying import RACE_CHANGES, Processes
from tests.rules.publishing.test_crashes import check_whole
from tests.rules.publishing.world import (
    ANN,
    BOB,
    CAT,
    LIVE_REF,
    MAIN,
    READER,
    HandJudge,
    Make,
    World,
    rules,
)

NEW = {"web.yaml": rules(login=5, search=100)}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.close()


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Call all of them at once, each in a thread of its own; what each gave or raised."""
    gate = Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        gate.wait(60)
        try:
            results[place] = calls[place]()
        except SluicegateError as error:
            results[place] = error

    threads = [Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_two_admins_who_publish_at_once_lose_nothing(world: World) -> None:
    ids = [world.approved({f"f{n}.yaml": rules(**{f"r{n}": n + 1})}) for n in range(6)]
    results = at_once(*(partial(world.admin.publish, one, by=BOB) for one in ids))
    assert not [one for one in results if isinstance(one, Exception)]
    for n in range(6):
        assert world.files()[f"f{n}.yaml"] == rules(**{f"r{n}": n + 1})
    assert sorted(one["version"] for one in results) == [2, 3, 4, 5, 6, 7]  # type: ignore[index]
    states = [world.state_of(id) for id in ids]  # noqa: A001 - it is what it is called
    assert sorted(states) == ["live", *["replaced"] * 5]
    check_whole(world, 7)


def test_of_two_who_change_the_same_file_one_is_told(world: World) -> None:
    ids = [world.approved({"web.yaml": rules(login=n)}) for n in (3, 4)]
    results = at_once(*(partial(world.admin.publish, one, by=BOB) for one in ids))
    assert sorted(isinstance(one, Conflict) for one in results) == [False, True]
    won = ids[0 if isinstance(results[1], Conflict) else 1]
    assert world.state_of(won) == "live"
    check_whole(world, 2)


def test_a_proposal_is_published_once_however_many_ask(world: World) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    results = at_once(*[lambda: world.admin.publish(id, by=BOB)] * 4)
    assert len([one for one in results if not isinstance(one, Exception)]) == 1
    assert all(isinstance(one, BadValue) for one in results if isinstance(one, Exception))
    check_whole(world, 2)


def test_approval_and_rejection_at_once_end_in_one_of_them(make: Make) -> None:
    world = make(judge=HandJudge()).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    at_once(
        lambda: world.admin.approve(id, by=BOB),
        lambda: world.admin.reject(id, reason="no", by=CAT),
        lambda: world.admin.approve(id, by=CAT),
    )
    assert world.state_of(id) == "rejected"  # from either order
    assert [one["what"] for one in world.admin.proposal(id, by=READER)["history"]][-1] == "rejected"


def test_proposals_at_once_are_all_kept(world: World) -> None:
    def propose(n: int) -> Callable[[], object]:
        files = {f"f{n}.yaml": rules(**{f"r{n}": 1})}
        return lambda: world.admin.propose(files, base="live", message=f"change {n}", by=ANN)

    at_once(*map(propose, range(8)))
    proposals = world.admin.proposals(by=READER)
    assert sorted(one["message"] for one in proposals) == [f"change {n}" for n in range(8)]


def test_two_publishers_of_one_repository_give_each_number_once(make: Make) -> None:
    first = make(events=False).begin()
    second = make(events=False, clock=first.clock)
    ids = [first.approved({f"f{n}.yaml": rules(**{f"r{n}": 1})}) for n in range(6)]
    results = at_once(
        *(
            partial(world.admin.publish, one, by=BOB)
            for one, world in zip(ids, [first, second] * 3, strict=True)
        )
    )
    assert not [one for one in results if isinstance(one, Exception)]
    first.look()
    second.look()
    assert first.publishing.upkeep.failures == second.publishing.upkeep.failures == {}
    assert sorted(one["version"] for one in results) == [2, 3, 4, 5, 6, 7]  # type: ignore[index]
    assert first.store.versions() == [1, 2, 3, 4, 5, 6, 7]
    assert first.ledger.state() == second.ledger.state()
    assert first.rollout().number == 7
    assert set(first.files()) >= {f"f{n}.yaml" for n in range(6)}


@pytest.mark.parametrize("point", [one for one in CRASH_POINTS if one != ANNOUNCED])
def test_another_publisher_may_do_all_the_rest_at_any_point(make: Make, point: str) -> None:
    many = {f"r{n}": n + 1 for n in range(200)}
    other = make(events=False, settings=PublishingSettings(deltas=0)).begin()
    other.live({"web.yaml": rules(**many)})
    done: list[str] = []

    def at(reached: str) -> None:
        if reached == point and not done:
            done.append(reached)
            other.look()

    world = make(events=False, clock=other.clock, at=at)
    version = world.live({"web.yaml": rules(**{**many, "r7": 1_000})})
    assert (done, version) == ([point], 3)
    assert world.publishing.upkeep.failures == {}
    check_whole(world, 3)
    check_whole(other, 3)


def test_what_was_told_is_not_taken_back_by_somebody_slower(make: Make) -> None:
    other = make(events=False).begin()
    ids = [other.approved({f"f{n}.yaml": rules(**{f"r{n}": 1})}) for n in range(2)]

    def at(reached: str) -> None:
        if reached == BRANCH_MOVED and len(ids) > 1:
            other.admin.publish(ids.pop(), by=BOB)

    world = make(events=False, clock=other.clock, at=at)
    world.admin.publish(ids[0], by=BOB)
    assert world.ledger.state().fleet.delivered == (3, 3)
    check_whole(world, 3)


@pytest.mark.parametrize("ref", [LIVE_REF, MAIN])
def test_who_is_overtaken_at_a_ref_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    move = Repository.move
    done: list[str] = []

    def overtaken(self: Repository, moved: str, to: str, *, expected: str | None) -> None:
        if moved == ref and not done:
            done.append(moved)
            move(self, moved, to, expected=expected)
        move(self, moved, to, expected=expected)

    monkeypatch.setattr(Repository, "move", overtaken)
    assert world.live(NEW) == 2
    assert done == [ref]
    assert world.publishing.upkeep.failures == {}
    world.look()
    check_whole(world, 2)


def test_processes_that_publish_at_once_lose_nothing(
    make: Make, tmp_path: Path, processes: Processes
) -> None:
    make(events=False).begin()
    names = ["a", "b", "c"]
    with processes.watched(tmp_path) as report:
        pids = [processes.start(tmp_path, call="race", id=name) for name in names]
        assert [processes.wait(pid) for pid in pids] == [0, 0, 0]
    assert report["wrong"] == []
    assert report["numbers"] == sorted(report["numbers"])
    world = make(events=False)
    world.look()
    state = world.ledger.state()
    count = 1 + RACE_CHANGES * len(names)
    assert state.fleet.versions == state.fleet.delivered.versions == count
    assert world.store.versions() == [*range(1, count + 1)]
    lives = [state.versions[number].commit for number in range(1, count + 1)]
    for before, after in pairwise(lives):
        assert world.repository.info(after).parents == (before,)
    assert world.tip(LIVE_REF) == lives[-1]
    for name in names:
        assert f"limit: {RACE_CHANGES}," in world.files()[f"{name}.yaml"]
        changed = [
            commit
            for before, commit in pairwise(lives)
            if world.repository.changes(before, commit)[0].name == f"{name}.yaml"
        ]
        assert len(changed) == RACE_CHANGES
