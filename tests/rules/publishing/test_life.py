"""The life of a change, from a proposal to a fleet that is told to run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, Conflict, Forbidden, Unavailable
from sluicegate.contracts.rulebook import FAILED, NOT_JUDGED, PASSED, Files, GateFinding
from sluicegate.rules.problems import BadRules
from sluicegate.rules.publishing.parts import open_publishing
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.signatures import Signer, new_key
from tests.rules.publishing.world import (
    ANN,
    BOB,
    CAT,
    FIRST,
    LIVE_REF,
    MAIN,
    READER,
    HandJudge,
    Make,
    World,
    rules,
)

NEW = {"web.yaml": rules(login=5, search=100)}


def test_the_branch_becomes_version_one(make: Make) -> None:
    world = make()
    status = world.admin.begin(None, message="the first rules", by=CAT)
    assert status["live"]["version"] == 1
    assert world.tip(LIVE_REF) == world.tip(MAIN)
    assert world.files() == FIRST
    assert world.store.versions() == [1]
    assert [rollouts.live for rollouts in world.announced()] == [1]
    with pytest.raises(Conflict):
        world.admin.begin(None, message="again", by=CAT)


def test_a_rulebook_may_begin_with_files_that_are_given(make: Make) -> None:
    world = make()
    world.admin.begin(NEW, message="begin", by=CAT)
    assert world.files() == NEW
    assert world.tip(MAIN) == world.tip(LIVE_REF)


def test_nothing_can_be_proposed_before_the_first_version(make: Make) -> None:
    with pytest.raises(Unavailable, match="begin"):
        make().propose(NEW)


def test_a_change_goes_from_a_proposal_to_a_fleet(make: Make) -> None:
    judge = HandJudge()
    world = make(judge=judge).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.proposal(id, by=READER)
    assert (proposal["state"], proposal["judged"], proposal["proposer"]) == (
        "open",
        "passed",
        "ann",
    )
    assert judge.requests[0][0]["web.yaml"] == FIRST["web.yaml"].encode()
    assert judge.requests[0][1]["web.yaml"] == NEW["web.yaml"].encode()
    assert judge.requests[0][1]["api.yaml"] == FIRST["api.yaml"].encode()
    assert world.files() == FIRST

    assert world.admin.approve(id, by=BOB)["state"] == "approved"
    assert world.files() == FIRST
    proposal = world.admin.publish(id, by=BOB)
    assert (proposal["state"], proposal["version"]) == ("live", 2)
    assert world.files() == {**FIRST, **NEW}
    assert world.tip(MAIN) == world.tip(LIVE_REF)
    assert [rollouts.live for rollouts in world.announced()] == [1, 2]
    assert world.rollout().live == 2
    release = world.store.release(2)
    assert release is not None
    assert release.release.commit == world.tip(LIVE_REF)
    assert release.release.rules == 3
    assert [one["what"] for one in proposal["history"]] == [
        "proposed",
        "judged: passed",
        "approved",
        "live as version 2",
    ]


def test_author_message_and_reason_are_kept_in_the_commit(world: World) -> None:
    world.admin.propose(NEW, base="live", message="Less logins", reason="Bots.\nMany.", by=ANN)
    [proposal] = world.admin.proposals(by=READER)
    commit = world.repository.info(proposal["commit"])
    assert (commit.author.name, commit.message) == ("ann", "Less logins\n\nBots.\nMany.")
    assert proposal["reason"] == "Bots.\nMany."
    assert commit.parents == (world.tip(LIVE_REF),)


def test_an_edition_has_deltas_that_lead_to_it_from_those_before(make: Make) -> None:
    many = {f"r{n}": n + 1 for n in range(300)}
    world = make().begin()
    world.live({"many.yaml": rules(**many)})
    world.live({"many.yaml": rules(**{**many, "r7": 1_000})})
    releases = [world.store.release(version) for version in (2, 3)]
    assert all(one is not None for one in releases)
    before, after = [one.release for one in releases if one is not None]
    assert list(after.deltas) == [before.content]
    assert after.deltas[before.content].bytes < after.snapshot.bytes
    have = world.store.snapshot(before).snapshot
    assert world.store.snapshot(after, [have]).before == before.content


def test_as_many_deltas_as_the_setting_says(make: Make) -> None:
    many = {f"r{n}": n + 1 for n in range(300)}
    world = make(settings=PublishingSettings(deltas=2)).begin()
    for limit in range(1_000, 1_005):
        world.live({"many.yaml": rules(**{**many, "r7": limit})})
    release = world.store.release(6)
    assert release is not None
    assert len(release.release.deltas) == 2


def test_bad_rules_are_no_proposal(world: World) -> None:
    with pytest.raises(BadRules, match=r"web\.yaml"):
        world.propose({"web.yaml": "version: 1\nrules: 7\n"})
    assert world.admin.proposals(by=READER) == []


def test_a_change_that_changes_nothing_is_none(world: World) -> None:
    with pytest.raises(BadValue, match="other files"):
        world.propose(FIRST)
    with pytest.raises(BadValue, match="at least one"):
        world.propose({})


@pytest.mark.parametrize("base", ["nowhere", "999", "pffffff", "0" * 40, "abc"])
def test_the_base_must_be_known(world: World, base: str) -> None:
    with pytest.raises(BadValue):
        world.propose(NEW, base=base)


def test_a_message_is_needed_and_bounded(world: World) -> None:
    for message in ("", "  ", "x" * 10_001):
        with pytest.raises(BadValue, match="message"):
            world.admin.propose(NEW, base="live", message=message, by=ANN)


def test_a_file_that_changed_since_the_base_is_a_conflict_that_names_it(world: World) -> None:
    base = world.tip(LIVE_REF)
    world.live(NEW)
    with pytest.raises(Conflict, match=r"web\.yaml"):
        world.propose({"web.yaml": rules(login=7)}, base=base)
    world.propose({"api.yaml": rules(orders=7)}, base=base)


def test_what_others_have_changed_meanwhile_stays(make: Make) -> None:
    judge = HandJudge()
    world = make(judge=judge).begin()
    other = world.propose({"api.yaml": rules(orders=7)})
    mine = world.propose(NEW)
    for id in (other, mine):  # noqa: A001 - it is what it is called
        world.admin.approve(id, by=BOB)
    world.admin.publish(other, by=BOB)
    before = len(judge.requests)
    world.admin.publish(mine, by=BOB)
    assert world.files() == {**NEW, "api.yaml": rules(orders=7)}
    # It is judged again, for what would be live is not what it was.
    assert len(judge.requests) == before + 1
    assert judge.requests[-1][0]["api.yaml"] == rules(orders=7).encode()
    assert judge.requests[-1][1]["web.yaml"] == NEW["web.yaml"].encode()
    assert world.admin.proposal(other, by=READER)["state"] == "replaced"


def test_what_is_judged_again_and_fails_does_not_go_live(make: Make) -> None:
    judge = HandJudge()
    world = make(judge=judge).begin()
    other = world.propose({"api.yaml": rules(orders=7)})
    mine = world.propose(NEW)
    for id in (other, mine):  # noqa: A001 - it is what it is called
        world.admin.approve(id, by=BOB)
    world.admin.publish(other, by=BOB)
    judge.result, judge.sentence = FAILED, "it would refuse 6% of CRITICAL"
    with pytest.raises(BadValue, match="6% of CRITICAL"):
        world.admin.publish(mine, by=BOB)
    assert world.state_of(mine) == "rejected"
    assert world.files()["web.yaml"] == FIRST["web.yaml"]


def test_what_cannot_be_judged_again_needs_a_new_approval(make: Make) -> None:
    judge = HandJudge()
    world = make(judge=judge).begin()
    other = world.propose({"api.yaml": rules(orders=7)})
    mine = world.propose(NEW)
    for id in (other, mine):  # noqa: A001 - it is what it is called
        world.admin.approve(id, by=BOB)
    world.admin.publish(other, by=BOB)
    judge.result = NOT_JUDGED
    with pytest.raises(BadValue, match="override"):
        world.admin.publish(mine, by=BOB)
    assert world.state_of(mine) == "open"
    world.admin.approve(mine, override="it is small", by=BOB)
    assert world.admin.publish(mine, by=BOB)["state"] == "live"


def test_a_merge_that_is_not_plain_is_a_conflict(world: World) -> None:
    mine = world.approved({"web.yaml": rules(login=3)})
    world.live(NEW)
    with pytest.raises(Conflict, match=r"web\.yaml"):
        world.admin.publish(mine, by=BOB)
    assert world.files()["web.yaml"] == NEW["web.yaml"]


def test_what_the_gate_fails_is_rejected_with_a_note(make: Make) -> None:
    world = make(judge=HandJudge(FAILED, "it would refuse 6% of CRITICAL")).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.proposal(id, by=READER)
    assert proposal["state"] == "rejected"
    assert "6% of CRITICAL" in world.repository.notes(proposal["commit"])
    assert any("6% of CRITICAL" in str(one["why"]) for one in world.admin.audit(by=READER))
    with pytest.raises(BadValue, match="an override that says why"):
        world.admin.approve(id, by=BOB)
    assert world.state_of(id) == "rejected"


FAILING = "it would refuse 6% of CRITICAL"
WHY = "playback is down, login can wait"


def test_a_second_person_overrides_what_the_gate_failed_and_the_audit_says_why(make: Make) -> None:
    world = make(judge=HandJudge(FAILED, FAILING)).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.approve(id, override=WHY, by=BOB)
    assert (proposal["state"], proposal["override"], proposal["judged"]) == (
        "approved",
        WHY,
        "failed",
    )
    assert world.admin.publish(id, by=BOB)["state"] == "live"
    [entry] = [one for one in world.admin.audit(by=READER) if one["call"] == "approve"]
    assert (entry["by"], entry["why"]) == ("bob", f"although the gate failed it: {WHY}")
    assert WHY in world.repository.notes(proposal["commit"])
    assert world.files()["web.yaml"] == NEW["web.yaml"]


@pytest.mark.parametrize("alone", [False, True])
def test_nobody_overrides_the_gate_for_their_own_proposal(make: Make, alone: bool) -> None:
    world = make(
        judge=HandJudge(FAILED, FAILING), settings=PublishingSettings(own_approval=alone)
    ).begin()
    id = world.propose(NEW, by=BOB)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="somebody else"):
        world.admin.approve(id, override=WHY, by=BOB)
    assert world.state_of(id) == "rejected"
    assert "refused" in [one["result"] for one in world.admin.audit(by=READER)]
    assert world.admin.approve(id, override=WHY, by=CAT)["state"] == "approved"


def test_who_may_not_approve_may_not_override_either(make: Make) -> None:
    world = make(judge=HandJudge(FAILED, FAILING)).begin()
    id = world.propose(NEW, by=BOB)  # noqa: A001 - it is what it is called
    for who in (READER, ANN):
        with pytest.raises(Forbidden):
            world.admin.approve(id, override=WHY, by=who)
    assert world.state_of(id) == "rejected"


def test_an_override_counts_as_one_of_the_approvals_that_are_needed(make: Make) -> None:
    settings = PublishingSettings(own_approval=True, approvals_min=2)
    world = make(judge=HandJudge(FAILED, FAILING), settings=settings).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    dan = Identity("ann", BOB.grants)  # who proposed it, with the grant to approve
    assert world.admin.approve(id, override=WHY, by=BOB)["state"] == "open"
    with pytest.raises(BadValue, match="somebody else"):
        world.admin.approve(id, by=dan)
    assert world.admin.approve(id, by=CAT)["state"] == "approved"


def test_what_a_person_rejected_after_an_override_stays_rejected(make: Make) -> None:
    world = make(judge=HandJudge(FAILED, FAILING)).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    world.admin.approve(id, override=WHY, by=BOB)
    world.admin.reject(id, reason="the incident is over", by=CAT)
    with pytest.raises(BadValue, match="it is rejected"):
        world.admin.approve(id, override=WHY, by=BOB)


def test_what_a_person_rejected_takes_no_override(make: Make) -> None:
    world = make(judge=HandJudge()).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    world.admin.reject(id, reason="too little", by=CAT)
    with pytest.raises(BadValue, match="it is rejected"):
        world.admin.approve(id, override=WHY, by=BOB)


def test_a_passed_gate_is_never_recorded_as_overridden(make: Make) -> None:
    world = make(judge=HandJudge()).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.approve(id, override=WHY, by=BOB)
    assert (proposal["state"], proposal["override"]) == ("approved", "")
    [entry] = [one for one in world.admin.audit(by=READER) if one["call"] == "approve"]
    assert entry["why"] == WHY


def test_a_gate_that_passes_later_leaves_no_override(make: Make) -> None:
    judge = HandJudge(NOT_JUDGED, "nothing captured")
    world = make(judge=judge, settings=PublishingSettings(approvals_min=2)).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    assert world.admin.approve(id, override=WHY, by=BOB)["override"] == WHY
    judge.result = PASSED
    assert world.admin.judge(id, by=ANN)["override"] == ""


def test_an_override_is_of_one_finding_and_not_of_the_next(make: Make) -> None:
    judge = HandJudge(FAILED, FAILING)
    world = make(judge=judge).begin()
    other = world.propose({"api.yaml": rules(orders=7)})
    mine = world.propose(NEW)
    for id in (other, mine):  # noqa: A001 - it is what it is called
        world.admin.approve(id, override=WHY, by=BOB)
    world.admin.publish(other, by=BOB)
    judge.sentence = "now it would refuse 60% of CRITICAL"
    with pytest.raises(BadValue, match="60% of CRITICAL"):
        world.admin.publish(mine, by=BOB)
    assert world.state_of(mine) == "rejected"
    world.admin.approve(mine, override=WHY, by=BOB)
    assert world.admin.publish(mine, by=BOB)["state"] == "live"


def test_without_a_verdict_an_approval_needs_a_word(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="override"):
        world.admin.approve(id, by=BOB)
    proposal = world.admin.approve(id, override="there is no traffic yet", by=BOB)
    assert (proposal["state"], proposal["override"]) == ("approved", "there is no traffic yet")
    assert "there is no traffic yet" in str(world.admin.audit(by=READER)[0]["why"])


def test_a_judge_who_is_away_has_not_judged(make: Make) -> None:
    judge = HandJudge()
    judge.error = Unavailable("the capture", "its disk is gone")
    world = make(judge=judge).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.proposal(id, by=READER)
    assert (proposal["state"], proposal["judged"]) == ("open", "not judged")
    assert "its disk is gone" in proposal["verdict"]["sentence"]
    with pytest.raises(Unavailable):
        world.admin.judge(id, by=ANN)
    judge.error = None
    assert world.admin.judge(id, by=ANN)["judged"] == "passed"
    assert world.admin.approve(id, by=BOB)["state"] == "approved"


def test_nobody_approves_their_own_proposal_unless_that_is_set(make: Make) -> None:
    world = make(judge=HandJudge()).begin()
    id = world.propose(NEW, by=BOB)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="somebody else"):
        world.admin.approve(id, by=BOB)
    world.admin.approve(id, by=CAT)


def test_a_small_team_may_set_that_they_do(make: Make) -> None:
    world = make(judge=HandJudge(), settings=PublishingSettings(own_approval=True)).begin()
    id = world.propose(NEW, by=BOB)  # noqa: A001 - it is what it is called
    assert world.admin.approve(id, by=BOB)["state"] == "approved"


def test_two_people_may_be_needed(make: Make) -> None:
    world = make(judge=HandJudge(), settings=PublishingSettings(approvals_min=2)).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    assert world.admin.approve(id, by=BOB)["state"] == "open"
    with pytest.raises(BadValue, match="already"):
        world.admin.approve(id, by=BOB)
    assert world.admin.approve(id, by=CAT)["state"] == "approved"


def test_only_what_is_approved_goes_live(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="it is open"):
        world.admin.publish(id, by=BOB)
    world.admin.reject(id, reason="not now", by=BOB)
    with pytest.raises(BadValue, match="it is rejected"):
        world.admin.publish(id, by=BOB)
    proposal = world.admin.proposal(id, by=READER)
    assert (proposal["history"][-1]["what"], proposal["history"][-1]["why"]) == (
        "rejected",
        "not now",
    )
    assert "not now" in world.repository.notes(proposal["commit"])


def test_going_back_is_a_new_version_with_the_old_rules(world: World) -> None:
    first = world.tip(LIVE_REF)
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.admin.publish(id, by=BOB)
    second = world.tip(LIVE_REF)
    status = world.admin.roll_back("1", reason="logins fail", by=BOB)
    assert status["live"]["version"] == 3
    assert world.files() == FIRST
    commit = world.repository.info(world.tip(LIVE_REF))
    assert commit.parents == (second,)
    assert "logins fail" in commit.message
    assert world.state_of(id) == "rolled back"
    assert "logins fail" in world.repository.notes(second)
    release, old = world.store.release(3), world.store.release(1)
    assert release is not None
    assert old is not None
    assert release.release.content == old.release.content
    assert world.repository.is_ancestor(first, commit.id)
    assert world.tip(MAIN) == commit.id


def test_one_can_only_go_back_to_what_was_live(world: World) -> None:
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="was live"):
        world.admin.roll_back(id, reason="a way round the gate", by=BOB)
    with pytest.raises(BadValue, match="live already"):
        world.admin.roll_back("live", reason="nothing to do", by=BOB)
    with pytest.raises(BadValue, match="why"):
        world.admin.roll_back("1", reason=" ", by=BOB)


def test_a_pin_is_part_of_the_orders(world: World) -> None:
    world.live(NEW)
    world.admin.pin("n7", 1, reason="to compare", by=BOB)
    assert dict(world.rollout().pins) == {"n7": 1}
    assert world.announced()[-1] == world.rollout()
    number = world.rollout().number
    world.admin.pin("n7", 1, reason="again", by=BOB)
    assert world.rollout().number == number
    world.admin.pin("n7", 0, reason="done", by=BOB)
    assert dict(world.rollout().pins) == {}
    for node, version in (("n7", 9), ("../n7", 1)):
        with pytest.raises(BadValue):
            world.admin.pin(node, version, reason="no", by=BOB)


def test_versions_and_orders_have_no_gaps(world: World) -> None:
    for limit in range(1, 6):
        world.live({"web.yaml": rules(login=limit)})
    assert world.store.versions() == [1, 2, 3, 4, 5, 6]
    assert [rollouts.number for rollouts in world.announced()] == [1, 2, 3, 4, 5, 6]
    versions = world.admin.versions(by=READER)
    assert [one["version"] for one in versions] == [6, 5, 4, 3, 2, 1]
    assert [one["live"] for one in versions] == [True, *[False] * 5]
    assert len(world.admin.versions(count_max=2, by=READER)) == 2


def test_a_report_that_is_too_large_is_cut(make: Make) -> None:
    class Wordy:
        def judge(self, current: object, candidate: object) -> GateFinding:
            return GateFinding("passed", "fine", 1.0, {"all": "x" * 2_000})

    world = make(judge=Wordy(), settings=PublishingSettings(report_bytes_max=1_024)).begin()
    id = world.propose(NEW)  # noqa: A001 - it is what it is called
    assert "report_bytes_max" in world.admin.proposal(id, by=READER)["verdict"]["report"]["cut"]


def test_a_proposal_may_stand_on_another_one(world: World) -> None:
    first = world.propose(NEW)
    second = world.propose({"api.yaml": rules(orders=1)}, base=first)
    world.admin.approve(second, override="both", by=BOB)
    world.admin.publish(second, by=BOB)
    assert world.files() == {**NEW, "api.yaml": rules(orders=1)}


def test_rules_may_be_in_a_folder(make: Make) -> None:
    world = make(settings=PublishingSettings(folder="limits"))
    inside = {f"limits/{name}": text for name, text in FIRST.items()}
    with pytest.raises(BadValue, match="folder limits"):
        world.admin.begin(FIRST, message="begin", by=CAT)
    world.admin.begin(inside, message="begin", by=CAT)
    assert world.store.versions() == [1]
    with pytest.raises(BadValue, match="folder limits"):
        world.propose(NEW)
    world.live({"limits/web.yaml": NEW["web.yaml"]})
    release = world.store.release(2)
    assert release is not None
    assert release.release.rules == 3
    # What else there is in the repository is none of our business, and goes live with it.
    author = world.repository.info(world.tip(MAIN)).author
    commit = world.repository.write(
        {"compose.yaml": b"services: {}\n", "limits/api.yaml": rules(orders=11).encode()},
        parents=(world.tip(MAIN),),
        author=author,
        message="theirs",
        at_us=1,
    )
    world.repository.move(MAIN, commit.id, expected=world.tip(MAIN))
    world.look()
    [proposal] = world.admin.proposals("open", by=READER)
    world.admin.approve(proposal["id"], override="a test", by=BOB)
    world.admin.publish(proposal["id"], by=BOB)
    assert [one["name"] for one in world.admin.rules(by=READER)["files"]] == [*inside][::-1]
    assert "compose.yaml" in world.files()


def test_the_same_change_proposed_again_at_once_is_another_proposal(world: World) -> None:
    changes = {"web.yaml": rules(login=5, search=100)}

    def proposed() -> str:
        answer = world.admin.propose(changes, base="live", message="Less", by=ANN)
        return str(answer["id"])

    first = proposed()
    assert proposed() == first  # it is open: it is the same
    world.admin.reject(first, reason="not now", by=BOB)
    again = proposed()
    assert again != first
    assert world.admin.proposal(again, by=READER)["state"] == "open"


def test_what_is_approved_while_it_is_judged_does_not_go_round_the_judge(make: Make) -> None:
    class Slow:
        """Somebody approves in a hurry while it judges; it then finds what it finds."""

        def __init__(self) -> None:
            self.world: World | None = None

        def judge(self, current: Files, candidate: Files) -> GateFinding:
            world = self.world
            if world is not None:
                self.world = None
                [one] = world.admin.proposals("open", by=READER)
                world.admin.approve(one["id"], override="no time", by=BOB)
                with pytest.raises(BadValue, match="must not go live"):
                    world.admin.publish(one["id"], by=BOB)
            return GateFinding(FAILED, "it would refuse 6% of CRITICAL", 0.9, {})

    judge = Slow()
    world = make(judge=judge).begin()
    judge.world = world
    proposal = world.admin.propose(
        {"web.yaml": rules(login=5)}, base="live", message="Less", confirm=True, by=ANN
    )
    assert proposal["state"] == "rejected"
    assert world.admin.status(by=READER)["live"]["version"] == 1


def test_a_key_that_is_not_trusted_is_told_before_anything_is_signed(
    world: World, tmp_path: Path
) -> None:
    other = Signer.read(new_key(tmp_path / "other").private)
    with pytest.raises(BadValue, match="trusted_keys"):
        open_publishing(world.repository, world.blobs, other, verifier=world.signer.verifier())
