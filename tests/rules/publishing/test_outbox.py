"""The outbox: what is decided is told as often as it takes, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from sluicegate.contracts.blob_store import Blob, BlobStore
from sluicegate.contracts.errors import HasWriter, Unavailable
from sluicegate.contracts.event_log import EventLog, Reader
from sluicegate.rules.publishing.outbox import BRANCH_MOVED
from sluicegate.rules.publishing.parts import Publishing, open_publishing
from sluicegate.rules.publishing.review import record_rejection
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.signatures import Signer, new_key
from tests.rules.publishing.test_crashes import check_whole
from tests.rules.publishing.world import (
    BOB,
    LIVE_REF,
    MAIN,
    READER,
    Make,
    World,
    rules,
)

HOUR_US = 3_600_000_000
NEW = {"web.yaml": rules(login=5, search=100)}


class Failing:
    """A blob store of which every put beyond so many fails, after or before it has happened."""

    def __init__(self, inner: BlobStore, *, puts: int, happens: bool) -> None:
        self.inner = inner
        self.puts = puts
        self.happens = happens

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        return self.inner.get(name, bytes_max=bytes_max)

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        self.puts -= 1
        if self.puts < 0:
            if self.happens:
                self.inner.put(name, data, if_absent=if_absent, if_tag=if_tag)
            raise Unavailable("the blob store", "it is being moved")
        return self.inner.put(name, data, if_absent=if_absent, if_tag=if_tag)

    def names(self, prefix: str = "", *, names_max: int = 10_000) -> Sequence[str]:
        return self.inner.names(prefix, names_max=names_max)

    def delete(self, name: str) -> None:
        self.inner.delete(name)

    def close(self) -> None:
        """It is the inner one's to close."""


class Deaf:
    """An event log that keeps what it is given, and acknowledges it only when it should."""

    def __init__(self, inner: EventLog, answer: Callable[[Future[int]], None]) -> None:
        self.inner = inner
        self.answer = answer

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        self.inner.append(kind, body, at_us).result(60)
        promise: Future[int] = Future()
        self.answer(promise)
        return promise

    def reader(self, offset: int = 0) -> Reader:
        return self.inner.reader(offset)

    def close(self, grace_us: int = 0) -> None:
        """It is the inner one's to close."""


def beside(
    world: World, *, blobs: BlobStore | None = None, events: EventLog | None = None
) -> Publishing:
    """Another publisher of the same rulebook, with some parts that fail."""
    return open_publishing(
        world.repository,
        world.blobs if blobs is None else blobs,
        world.signer,
        events=world.events if events is None else events,
        settings=PublishingSettings(event_us_max=10_000),
        clock=world.clock,
    )


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("puts", range(6))  # snapshot, delta, release, rollouts, current rollout
def test_a_store_that_fails_keeps_nothing_from_going_through_later(
    world: World, puts: int, happens: bool
) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    other = beside(world, blobs=Failing(world.blobs, puts=puts, happens=happens))
    proposal = other.admin.publish(id, by=BOB)
    assert proposal["state"] == "live"  # it is decided
    if puts < 5:
        assert "being moved" in proposal["troubles"]["publishing"]
        assert proposal["told"] != proposal["decided"]
        assert world.rollout().live == (2 if puts == 4 and happens else 1)
    world.look()
    check_whole(world, 2)


def test_an_announcement_that_was_not_acknowledged_is_sent_again(world: World) -> None:
    def fail(promise: Future[int]) -> None:
        promise.set_exception(Unavailable("the event log", "no leader"))

    assert world.events is not None
    for answer in (fail, lambda _: None):
        id = world.approved({"web.yaml": rules(login=len(world.announced()))})  # noqa: A001
        other = beside(world, events=Deaf(world.events, answer))
        proposal = other.admin.publish(id, by=BOB)
        assert "event log" in proposal["troubles"]["publishing"]
        before = len(world.announced())
        world.look()
        assert world.announced()[-1] == world.announced()[-2] == world.rollout()
        assert len(world.announced()) == before + 1
    check_whole(world, 3)


def test_who_cannot_write_the_log_because_another_publisher_does_lets_it_tell(
    world: World,
) -> None:
    def refuse(promise: Future[int]) -> None:
        promise.set_exception(HasWriter("the event log", "process 1 writes it already"))

    def refuse_and_look(promise: Future[int]) -> None:
        refuse(promise)
        looking.append(Thread(target=world.look))
        looking[0].start()

    assert world.events is not None
    looking: list[Thread] = []
    id = world.approved(NEW)  # noqa: A001
    other = beside(world, events=Deaf(world.events, refuse_and_look))
    assert "publishing" not in other.admin.publish(id, by=BOB)["troubles"]
    looking[0].join(60)
    check_whole(world, 2)

    id = world.approved({"web.yaml": rules(login=1)})  # noqa: A001
    alone = beside(world, events=Deaf(world.events, refuse))
    assert "writes it already" in alone.admin.publish(id, by=BOB)["troubles"]["publishing"]
    world.look()
    check_whole(world, 3)


def test_several_decisions_are_told_in_turn_after_an_outage(world: World) -> None:
    other = beside(world, blobs=Failing(world.blobs, puts=0, happens=False))
    ids = [world.approved({f"f{n}.yaml": rules(**{f"r{n}": 1})}) for n in range(3)]
    for id in ids:  # noqa: A001 - it is what it is called
        other.admin.publish(id, by=BOB)
    assert world.store.versions() == [1]
    status = other.admin.status(by=READER)
    assert (status["told"]["versions"], status["decided"]["versions"]) == (1, 4)
    versions = other.admin.versions(by=READER)
    assert [one["told"] for one in versions] == [False, False, False, True]
    world.look()
    # Only the latest rollout are announced; those between can be read.
    assert [rollouts.number for rollouts in world.announced()] == [1, 4]
    check_whole(world, 4)


def test_another_rulebook_in_the_blob_store_is_not_overwritten(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = World(tmp_path_factory.mktemp("other"))
    mine = open_publishing(other.repository, world.blobs, world.signer, clock=world.clock)
    world.live({"api.yaml": rules(orders=1)})
    before = world.store.release(2)
    with pytest.raises(Unavailable, match="another rulebook"):
        mine.publisher.begin({"web.yaml": rules(other=1).encode()}, message="mine", by="eve")
    # One that began elsewhere, and was then given the wrong store.
    other.begin()
    other.clock.advance(s=1)
    id = other.approved(NEW)  # noqa: A001 - it is what it is called
    proposal = mine.admin.publish(id, by=BOB)
    assert "another rulebook" in proposal["troubles"]["publishing"]
    assert world.store.release(2) == before
    other.close()


def test_what_nobody_needs_goes_after_a_while(tmp_path: Path) -> None:
    settings = PublishingSettings(
        proposals_max=2, keep_releases=1, tidy_us=HOUR_US, releases_max=100, deltas=0
    )
    world = World(tmp_path, settings=settings).begin()
    for limit in range(1, 6):
        world.live({"web.yaml": rules(login=limit)})
    proposals = "refs/sluicegate/proposals/"
    assert len(world.repository.refs(proposals)) == 5
    assert len(world.blobs.names("snapshots/")) == 6
    world.look()
    assert not world.blobs.names("sweep")  # it is not time yet
    for _ in range(3):  # what is swept is marked first, and goes an hour later
        world.clock.advance(s=3_700)
        world.look()
    assert world.publishing.upkeep.failures == {}
    proposals_left = world.ledger.state().proposals
    assert sorted(world.repository.refs(proposals)) == sorted(
        proposals + one for one in proposals_left
    )
    assert len(world.blobs.names("snapshots/")) == 1
    # What is young may be of a call that is under way.
    young = world.repository.write(
        {},
        parents=(world.tip(LIVE_REF),),
        author=world.repository.info(world.tip(LIVE_REF)).author,
        message="just being proposed",
        at_us=world.clock.now_us(),
    )
    world.repository.move(f"{proposals}pyoung", young.id, expected=None)
    for there in (True, False):
        world.clock.advance(s=0 if there else 3_700)
        world.publishing.upkeep.look()
        world.publishing.upkeep.cleanup.refs(world.clock.now_us())
        assert (f"{proposals}pyoung" in world.repository.refs(proposals)) == there
    # An old version that is to run again is made again.
    world.admin.pin("n1", 2, reason="to compare", by=BOB)
    release = world.store.release(2)
    assert release is not None
    assert world.store.snapshot(release.release).snapshot.content == release.release.content
    world.close()


def test_an_edition_that_somebody_else_signed_is_not_taken_for_ours(world: World) -> None:
    keys = new_key(world.folder / "others")
    stranger = Signer.read(keys.private)
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    other = open_publishing(world.repository, world.blobs, stranger, clock=world.clock)
    proposal = other.admin.publish(id, by=BOB)
    assert "cannot be trusted" in proposal["troubles"]["publishing"]
    world.look()
    check_whole(world, 2)


def test_a_branch_that_is_pushed_to_meanwhile_is_left_alone(world: World) -> None:
    author = world.repository.info(world.tip(MAIN)).author
    commit = world.repository.write(
        {"api.yaml": rules(orders=30).encode()},
        parents=(world.tip(MAIN),),
        author=author,
        message="theirs",
        at_us=world.clock.now_us(),
    )
    world.repository.move(MAIN, commit.id, expected=world.tip(MAIN))
    world.live(NEW)
    assert world.tip(MAIN) == commit.id
    assert world.tip(LIVE_REF) != commit.id
    world.look()
    assert world.tip(MAIN) == commit.id
    assert len(world.admin.proposals("open", by=READER)) == 1


def test_a_branch_that_was_taken_away_comes_back_with_live(world: World) -> None:
    world.repository.remove(MAIN, expected=world.tip(MAIN))
    world.look()
    assert world.tip(MAIN) == world.tip(LIVE_REF)


def test_a_note_too_many_stops_nothing(world: World) -> None:
    world.live(NEW)
    live = world.tip(LIVE_REF)
    author = world.repository.info(live).author
    most = world.repository.settings.notes_bytes_max
    world.repository.note(live, "x" * (most - 200), author=author, at_us=1)
    world.admin.roll_back("1", reason="y" * 200, by=BOB)
    assert "yy" not in world.repository.notes(live)
    check_whole(world, 3)


def test_a_note_that_is_decided_while_others_are_told_is_not_lost(make: Make) -> None:
    done: list[str] = []

    def at(reached: str) -> None:
        if reached == BRANCH_MOVED and not done:
            done.append(reached)
            world.ledger.change(
                "bob", lambda state: record_rejection(state, other, "not now", at_us=1, by="bob")
            )

    world = make(at=at)
    done.append("not yet")
    world.begin()
    other = world.propose({"api.yaml": rules(orders=1)})
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    done.clear()
    world.admin.publish(id, by=BOB)
    world.look()
    commit = world.ledger.state().proposals[other].commit
    assert "not now" in world.repository.notes(commit)
    check_whole(world, 2)


class Blind(Failing):
    """A blob store that tells nobody which nodes there are."""

    def names(self, prefix: str = "", *, names_max: int = 10_000) -> Sequence[str]:
        raise Unavailable("the blob store", "it does not list")


def test_who_decides_is_answered_although_the_nodes_cannot_be_seen(world: World) -> None:
    world.live(NEW)
    id = world.approved({"api.yaml": rules(orders=1)})  # noqa: A001 - it is what it is called
    other = beside(world, blobs=Blind(world.blobs, puts=1_000, happens=True))
    with pytest.raises(Unavailable, match="does not list"):
        other.admin.canary(id, share=100, kind="nodes", by=BOB)  # not without seeing what it does
    world.admin.canary(id, share=100, kind="nodes", by=BOB)
    assert other.admin.canary(id, share=0, kind="nodes", by=BOB)["state"] == "rolled back"
    status = other.admin.roll_back("1", reason="help", by=BOB)
    assert status["live"]["version"] == 4
    assert status["nodes"] == []
    assert "does not list" in status["troubles"]["nodes"]
    world.look()
    check_whole(world, 4)


def test_it_looks_by_itself(world: World) -> None:
    flag = Flag()
    settings = PublishingSettings(look_us=10_000)
    other = open_publishing(
        world.repository, world.blobs, world.signer, settings=settings, clock=world.clock
    )
    author = world.repository.info(world.tip(MAIN)).author
    other.start()
    try:
        commit = world.repository.write(
            {"api.yaml": rules(orders=30).encode()},
            parents=(world.tip(MAIN),),
            author=author,
            message="theirs",
            at_us=world.clock.now_us(),
        )
        world.repository.move(MAIN, commit.id, expected=world.tip(MAIN))
        for _ in range(1_000):
            if world.admin.proposals(by=READER):
                break
            flag.wait(0.02)
    finally:
        other.close()
    assert [one["message"] for one in world.admin.proposals(by=READER)] == ["theirs"]
