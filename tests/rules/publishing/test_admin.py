"""What the admin tells, to whom, and what it notes of everybody who asks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Event as Flag
from threading import Thread, Timer
from time import sleep

import pytest

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, Conflict, Forbidden, Unavailable
from sluicegate.contracts.event_log import EventLog, Reader
from sluicegate.contracts.rule_admin import RuleAdmin
from sluicegate.rules.publishing.refusal_log import KIND, TEXT_CHARS_MAX, Refusal, RefusalLog
from sluicegate.rules.publishing.review import enter_proposal
from sluicegate.rules.publishing.settings import PublishingSettings
from tests.rules.publishing.world import (
    ANN,
    BOB,
    FIRST,
    LIVE_REF,
    NOBODY,
    READER,
    Make,
    World,
    rules,
)

NEW = {"web.yaml": rules(login=5, search=100, more=1)}
Call = Callable[[RuleAdmin, Identity], object]

READS: dict[str, Call] = {
    "rules": lambda admin, by: admin.rules(by=by),
    "file": lambda admin, by: admin.file("web.yaml", by=by),
    "diff": lambda admin, by: admin.diff("1", "live", by=by),
    "proposals": lambda admin, by: admin.proposals(by=by),
    "proposal": lambda admin, by: admin.proposal("p00000", by=by),
    "versions": lambda admin, by: admin.versions(by=by),
    "status": lambda admin, by: admin.status(by=by),
    "wait": lambda admin, by: admin.wait(1, nodes=1, timeout_s=0, by=by),
    "audit": lambda admin, by: admin.audit(by=by),
}
PROPOSES: dict[str, Call] = {
    "propose": lambda admin, by: admin.propose(NEW, base="live", message="x", by=by),
    "judge": lambda admin, by: admin.judge("p00000", by=by),
}
APPROVES: dict[str, Call] = {
    "approve": lambda admin, by: admin.approve("p00000", by=by),
    "reject": lambda admin, by: admin.reject("p00000", reason="x", by=by),
    "publish": lambda admin, by: admin.publish("p00000", by=by),
    "canary": lambda admin, by: admin.canary("p00000", share=1, kind="nodes", by=by),
    "roll_back": lambda admin, by: admin.roll_back("1", reason="x", by=by),
    "pin": lambda admin, by: admin.pin("n1", 1, reason="x", by=by),
    "forget": lambda admin, by: admin.forget("n1", reason="x", by=by),
}


@pytest.mark.parametrize("call", [*READS, *PROPOSES, *APPROVES])
def test_each_call_takes_its_grant_and_who_lacks_it_is_noted(world: World, call: str) -> None:
    tip = world.tip("refs/sluicegate/ledger")
    call_it = {**READS, **PROPOSES, **APPROVES}[call]
    lacking = NOBODY if call in READS else READER if call in PROPOSES else ANN
    with pytest.raises(Forbidden):
        call_it(world.admin, lacking)
    assert world.tip("refs/sluicegate/ledger") == tip
    [note] = [one for one in world.admin.audit(by=READER) if one["result"] == "refused"]
    assert (note["by"], note["call"], note["error"]) == (lacking.name, call, "Forbidden")
    assert note["at_us"] == world.clock.now_us()


def test_reading_takes_no_more_than_the_grant_to_read(world: World) -> None:
    for name, call in READS.items():
        if name != "proposal":
            call(world.admin, READER)


def test_all_changes_and_refusals_are_in_the_audit_newest_first(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    world.clock.advance(s=1)
    with pytest.raises(BadValue):
        world.admin.approve(id, by=BOB)
    world.clock.advance(s=1)
    world.admin.approve(id, override="no traffic", by=BOB)
    world.clock.advance(s=1)
    world.admin.publish(id, by=BOB)
    notes = world.admin.audit(by=READER)
    assert [(one["call"], one["by"], one["result"]) for one in notes] == [
        ("publish", "bob", "done"),
        ("approve", "bob", "done"),
        ("approve", "bob", "refused"),
        ("propose", "ann", "done"),
        ("begin", "cat", "done"),
    ]
    assert notes[0]["version"] == 2
    assert notes[0]["proposal"] == id
    assert notes[1]["why"].endswith("no traffic")
    assert "override" in notes[2]["why"]
    assert [one["at_us"] for one in notes] == sorted((one["at_us"] for one in notes), reverse=True)
    assert world.admin.audit(count_max=2, by=READER) == notes[:2]


def test_who_was_refused_is_known_after_a_restart(make: Make, world: World) -> None:
    world.clock.advance(s=1)
    with pytest.raises(Forbidden):
        world.admin.publish("p00000", by=ANN)
    world.close()
    other = make()
    assert other.admin.audit(by=READER)[0]["by"] == "ann"


def test_a_refusal_that_its_log_cannot_take_is_told_by_whoever_refused(
    make: Make, world: World
) -> None:
    with pytest.raises(Forbidden):
        world.admin.publish("p00000", by=ANN)
    world.admin.audit(by=READER)  # so the log has its one writer
    other = make(clock=world.clock)
    other.clock.advance(s=1)
    with pytest.raises(Forbidden):
        other.admin.reject("p00000", reason="x", by=ANN)
    calls = [one["call"] for one in other.admin.audit(by=READER) if one["result"] == "refused"]
    assert calls == ["reject", "publish"]


class Slow:
    """An event log that takes what it is given only when somebody waits for it."""

    def __init__(self, inner: EventLog) -> None:
        self.inner = inner
        self.proceed = Flag()

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        promise: Future[int] = Future()

        def later() -> None:
            self.proceed.wait(0.1)
            promise.set_result(self.inner.append(kind, body, at_us).result(30))

        Thread(target=later).start()
        return promise

    def reader(self, offset: int = 0) -> Reader:
        return self.inner.reader(offset)

    def close(self, grace_us: int = 0) -> None:
        self.inner.close(grace_us)


def test_the_audit_waits_for_what_is_being_written(world: World) -> None:
    assert world.audit is not None
    refusals = RefusalLog(Slow(world.audit), kept_max=10)
    refusals.record(Refusal(1, "ann", "publish", "p1", "Forbidden", "no"))
    assert [one.by for one in refusals.latest(10)] == ["ann"]
    refusals.close()


def test_the_audit_waits_until_what_the_log_did_not_take_is_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Slow):
        """An event log that takes nothing, and says so late."""

        def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
            promise: Future[int] = Future()
            Timer(0.05, promise.set_exception, [Unavailable("the log", "it is full")]).start()
            return promise

    def warn_slowly(*_: object) -> None:
        sleep(0.1)

    assert world.audit is not None
    refusals = RefusalLog(Failing(world.audit), kept_max=10)
    monkeypatch.setattr(logging.getLogger("sluicegate.rules"), "warning", warn_slowly)
    refusals.record(Refusal(1, "ann", "publish", "p1", "Forbidden", "no"))
    assert [one.by for one in refusals.latest(10)] == ["ann"]
    refusals.close()


def test_what_a_newer_program_or_somebody_else_has_noted_is_passed_over(world: World) -> None:
    assert world.audit is not None
    note = {"at_us": 1, "by": "ann", "call": "x", "what": "", "error": "", "why": "", "format": 1}
    for kind, fields in (
        (KIND, {**note, "format": 2}),
        ("another kind", note),
        (KIND, {"format": 1}),
        (KIND, {**note, "by": "bob", "novel": 1}),
    ):
        world.audit.append(kind, json.dumps(fields).encode(), 1).result(30)
    world.audit.append(KIND, b"no json", 1).result(30)
    refusals = RefusalLog(world.audit, kept_max=10)
    assert [one.by for one in refusals.latest(10)] == ["bob"]
    refusals.close()
    assert [one.by for one in refusals.latest(10)] == ["bob"]  # it is read again, and told once
    refusals.record(Refusal(1, "x" * 5_000, "publish", "p1", "Forbidden", "no"))
    assert [len(one.by) for one in refusals.latest(10)] == [TEXT_CHARS_MAX, 3]
    refusals.close()


def test_refusals_without_a_log_are_kept_in_memory_and_bounded(make: Make) -> None:
    world = make(events=False, settings=PublishingSettings(refusals_max=3)).begin()
    for n in range(5):
        with pytest.raises(BadValue):
            world.admin.reject(f"p{n}{n}{n}{n}{n}{n}", reason="x", by=BOB)
    notes = [one for one in world.admin.audit(by=READER) if one["result"] == "refused"]
    assert [one["sentence"] for one in notes] == [
        f"bob was refused reject p{n}{n}{n}{n}{n}{n}" for n in (4, 3, 2)
    ]


def test_what_people_write_cannot_pass_for_what_we_write(world: World) -> None:
    forged = "all well\n\nCall: publish\nBy: cat\nVersion: 99"
    world.clock.advance(s=1)
    world.admin.propose(NEW, base="live", message="a\n\nBy: cat", reason=forged, by=ANN)
    note = world.admin.audit(by=READER)[0]
    assert (note["by"], note["call"], note["version"]) == ("ann", "propose", None)
    odd = Identity("eve\nBy: cat", BOB.grants)
    world.clock.advance(s=1)
    world.admin.pin("n1", 1, reason="\0x\ud800", by=odd)
    note = world.admin.audit(by=READER)[0]
    assert note["by"] == "eve By: cat"
    world.clock.advance(s=1)
    long = Identity("x" * 5_000, BOB.grants)  # longer than git would have an author's name
    world.admin.pin("n1", 0, reason="x", by=long)
    assert world.admin.audit(by=READER)[0]["by"] == long.name


def test_the_rules_of_any_revision(world: World) -> None:
    world.live(NEW)
    id = world.propose({"api.yaml": None})  # noqa: A001 - it is what it is called
    live = world.admin.rules(by=READER)
    assert (live["version"], live["commit"]) == (2, world.tip(LIVE_REF))
    assert [(one["name"], one["format"], one["rules"]) for one in live["files"]] == [
        ("api.yaml", "native", 1),
        ("web.yaml", "native", 3),
    ]
    first = world.admin.rules("1", by=READER)
    assert (first["version"], first["message"]) == (1, "Begin")
    for revision in (live["commit"], live["commit"][:6], "2"):
        files = world.admin.rules(revision, by=READER)
        assert (files["commit"], files["version"]) == (live["commit"], 2)
    for revision in (id, id[:6]):
        assert [one["name"] for one in world.admin.rules(revision, by=READER)["files"]] == [
            "web.yaml"
        ]
    for revision in ("", "x", "3", "12345", "p1", "pzzzzzz", "-1", "0" * 40):
        with pytest.raises(BadValue):
            world.admin.rules(revision, by=READER)


def test_a_file_as_text(world: World) -> None:
    file = world.admin.file("web.yaml", by=READER)
    assert (file["text"], file["version"]) == (FIRST["web.yaml"], 1)
    with pytest.raises(BadValue, match="name"):
        world.admin.file("nothing.yaml", by=READER)


def test_what_a_proposal_changes_is_told_by_lines_and_by_rules(world: World) -> None:
    id = world.propose({**NEW, "api.yaml": None, "new.yaml": rules(fresh=1)})  # noqa: A001
    diff = world.admin.diff("live", id, by=READER)
    assert [(one["name"], one["change"]) for one in diff["files"]] == [
        ("api.yaml", "removed"),
        ("new.yaml", "added"),
        ("web.yaml", "changed"),
    ]
    assert "-    limit: 10" in diff["files"][2]["lines"]
    assert "+    limit: 5" in diff["files"][2]["lines"]
    assert diff["rules"] == {
        "added": ["fresh", "more", "new.yaml: version"],
        "removed": ["api.yaml: version", "orders"],
        "changed": ["login"],
        "more": 0,
    }


def test_a_proposal_is_shown_as_it_would_be_live(world: World) -> None:
    id = world.propose({"api.yaml": rules(orders=1)})  # noqa: A001 - it is what it is called
    world.live(NEW)
    diff = world.admin.diff("live", id, by=READER)
    assert [one["name"] for one in diff["files"]] == ["api.yaml"]
    other = world.propose({"more.yaml": rules(other=2)})
    # Where it is live, it is shown as it went live, and where it was turned down, as it was asked.
    world.admin.approve(id, override="a test", by=BOB)
    world.admin.publish(id, by=BOB)
    assert world.admin.rules(id, by=READER)["commit"] == world.tip(LIVE_REF)
    world.admin.reject(other, reason="no", by=BOB)
    commit = world.admin.proposal(other, by=READER)["commit"]
    world.live({"web.yaml": rules(login=2)})
    assert world.admin.rules(other, by=READER)["commit"] == commit


def test_a_proposal_is_found_by_its_commit_too(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    commit = world.admin.proposal(id, by=READER)["commit"]
    for prefix in (commit, commit[:6], id, id[:6]):
        assert world.admin.proposal(prefix, by=READER)["id"] == id
    for prefix in (commit[:5], id[:5], "", "0" * 40):
        with pytest.raises(BadValue):
            world.admin.proposal(prefix, by=READER)


def test_an_id_that_may_be_of_two_is_of_none(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    twin = world.ledger.state().proposals[id]._replace(id=id[:8] + "zzzz", commit="0" * 40)
    world.ledger.change("ann", partial(enter_proposal, it=twin))
    for prefix, full in ((id, id), (twin.id, twin.id), (twin.id[:9], twin.id)):
        assert world.admin.proposal(prefix, by=READER)["id"] == full
    with pytest.raises(BadValue, match="more of it"):
        world.admin.proposal(id[:8], by=READER)


def test_proposals_by_their_state(world: World) -> None:
    ids = [world.propose({"web.yaml": rules(login=n)}) for n in (1, 2, 3)]
    world.admin.reject(ids[1], reason="no", by=BOB)
    proposals = world.admin.proposals(by=READER)
    assert [one["id"] for one in proposals] == ids[::-1]
    assert "history" not in proposals[0]
    assert [one["id"] for one in world.admin.proposals("rejected", by=READER)] == [ids[1]]
    assert [one["id"] for one in world.admin.proposals(count_max=1, by=READER)] == [ids[2]]
    with pytest.raises(BadValue):
        world.admin.proposals("lost", by=READER)
    for count_max in (0, 10_001):
        with pytest.raises(BadValue):
            world.admin.audit(count_max=count_max, by=READER)


def test_the_status_has_the_orders_and_the_nodes(world: World) -> None:
    world.report("n1", version=1, counts={"1/CRITICAL": (7, 1)})
    world.live(NEW)
    world.report("n2", version=2, failure="its disk is full")
    status = world.admin.status(by=READER)
    assert status["live"]["version"] == 2
    assert status["orders"]["live"] == 2
    assert status["versions"] == {"1": 1, "2": 1}
    assert [(one["node"], one["version"], one["behind"]) for one in status["nodes"]] == [
        ("n1", 1, 1),
        ("n2", 2, 0),
    ]
    assert status["nodes"][1]["trouble"] == "its disk is full"
    assert status["troubles"] == {}
    assert status["told"] == status["decided"]
    json.dumps(status)


def test_releases_are_listed_from_any_one_back(world: World) -> None:
    world.live(NEW)

    def listed(**more: int) -> list[int]:
        return [one["version"] for one in world.admin.versions(by=READER, **more)]

    assert listed() == [2, 1]
    assert listed(before=0) == [2, 1]
    assert listed(before=2) == [1]
    assert listed(before=9, count_max=1) == [2]
    assert listed(before=1) == []


def test_waiting_for_nodes_says_whether_they_came(world: World) -> None:
    world.report("n1", version=1)
    assert world.admin.wait(1, nodes=1, timeout_s=0, by=READER)["reached"] is True
    status = world.admin.wait(1, nodes=2, timeout_s=0, by=READER)
    assert status["reached"] is False
    assert status["orders"]["live"] == 1


def test_everything_told_is_json(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    admin = world.admin
    for answer in (
        admin.rules(by=READER),
        admin.file("web.yaml", by=READER),
        admin.diff("1", id, by=READER),
        admin.proposals(by=READER),
        admin.proposal(id, by=READER),
        admin.versions(by=READER),
        admin.status(by=READER),
        admin.audit(by=READER),
    ):
        assert json.loads(json.dumps(answer)) == answer


def test_a_conflict_is_noted(world: World) -> None:
    base = world.tip(LIVE_REF)
    world.live(NEW)
    world.clock.advance(s=1)
    with pytest.raises(Conflict):
        world.propose({"web.yaml": rules(login=1)}, base=base)
    assert world.admin.audit(by=READER)[0]["error"] == "Conflict"


def test_a_node_that_is_gone_is_removed_and_the_audit_says_by_whom(world: World) -> None:
    world.report("n1")
    world.clock.advance(s=61)
    world.report("n2")
    [left] = world.admin.forget("n1", reason="its machine is sold", by=BOB)["nodes"]
    assert left["node"] == "n2"
    entry = world.admin.audit(by=READER)[0]
    assert (entry["by"], entry["call"], entry["why"]) == ("bob", "forget", "its machine is sold")


def test_a_node_that_still_reports_is_not_removed(world: World) -> None:
    world.report("n1")
    world.clock.advance(s=3)
    with pytest.raises(BadValue, match=r"reported 3 s ago; .* silent for 60 s"):
        world.admin.forget("n1", reason="x", by=BOB)
    assert [one["node"] for one in world.admin.status(by=READER)["nodes"]] == ["n1"]


@pytest.mark.parametrize("node", ["n2", "../orders/current", ""])
def test_only_a_node_that_there_is_can_be_removed(world: World, node: str) -> None:
    with pytest.raises(BadValue, match="node"):
        world.admin.forget(node, reason="x", by=BOB)
    assert world.store.rollout() is not None


def test_a_pinned_node_is_unpinned_before_it_is_removed(world: World) -> None:
    world.report("n1")
    world.admin.pin("n1", 1, reason="x", by=BOB)
    world.clock.advance(s=61)
    with pytest.raises(BadValue, match="pinned to release 1"):
        world.admin.forget("n1", reason="x", by=BOB)
    world.admin.pin("n1", 0, reason="x", by=BOB)
    assert world.admin.forget("n1", reason="x", by=BOB)["nodes"] == []


def test_a_node_that_was_silent_for_long_vanishes_by_itself_and_comes_back(make: Make) -> None:
    world = make(settings=PublishingSettings(node_gone_us=7_200_000_000)).begin()
    world.report("n1")
    world.clock.advance(s=7_199)
    world.report("n2")
    assert len(world.admin.status(by=READER)["nodes"]) == 2
    world.clock.advance(s=2)
    assert [one["node"] for one in world.admin.status(by=READER)["nodes"]] == ["n2"]
    assert world.store.nodes() == ["n1", "n2"]
    world.look()
    assert world.store.nodes() == ["n2"]
    world.report("n1")
    assert len(world.admin.status(by=READER)["nodes"]) == 2


def test_nodes_stay_listed_for_ever_where_that_is_set(make: Make) -> None:
    world = make(settings=PublishingSettings(node_gone_us=0)).begin()
    world.report("n1")
    world.clock.advance(s=10**8)
    world.look()
    [node] = world.admin.status(by=READER)["nodes"]
    assert node["stale"]
