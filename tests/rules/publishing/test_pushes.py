"""A plain `git push` by a person becomes a proposal, and history that was rewritten is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import FAILED
from sluicegate.rules.publishing.settings import LEDGER_REF, PublishingSettings
from tests.rules.publishing.world import (
    BOB,
    FIRST,
    LIVE_REF,
    MAIN,
    READER,
    HandJudge,
    Make,
    World,
    rules,
)

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="there is no git here")

NEW = {"web.yaml": rules(login=5, search=100)}


class Clone:
    """Somebody's clone of the rulebook, used through git alone."""

    def __init__(self, world: World, folder: Path, name: str = "Dan") -> None:
        self.folder = folder
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": f"{name.lower()}@example.org",
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": f"{name.lower()}@example.org",
        }
        folder.mkdir()
        self.git("clone", "--quiet", world.repository.path, ".")

    def git(self, *arguments: str) -> str:
        assert GIT is not None
        done = subprocess.run(
            [GIT, *arguments],
            cwd=self.folder,
            env=self._env,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, changes: dict[str, str], message: str = "Less logins") -> str:
        for name, text in changes.items():
            (self.folder / name).write_text(text)
        self.git("add", ".")
        if "\n\n" not in message:
            message += "\n\nConfirm: true"  # most limits here change a lot
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self, changes: dict[str, str], message: str = "Less logins") -> str:
        commit = self.commit(changes, message)
        self.git("push", "--quiet", "origin", "HEAD:main")
        return commit


@pytest.fixture
def clone(world: World, tmp_path: Path) -> Clone:
    return Clone(world, tmp_path / "clone")


def only(world: World) -> dict[str, object]:
    """The one proposal there is."""
    [proposal] = world.admin.proposals(by=READER)
    return dict(world.admin.proposal(str(proposal["id"]), by=READER))


@pytest.mark.parametrize(("line", "state"), [("So.", "rejected"), ("Confirm: true", "open")])
def test_push_of_large_change_requires_its_line(
    world: World, clone: Clone, line: str, state: str
) -> None:
    clone.push({"web.yaml": rules(login=100, search=100)}, f"More logins\n\n{line}")
    world.look()
    proposal = only(world)
    assert proposal["state"] == state
    history = json.dumps(proposal["history"])
    assert "'login' changes from 10/minute to 100/minute" in history
    assert ("with the line 'Confirm: true' in its message" in history) == (state == "rejected")


def test_a_push_becomes_a_proposal_by_its_author(world: World, clone: Clone) -> None:
    commit = clone.push(NEW, "Less logins\n\nBots.")
    world.look()
    proposal = only(world)
    assert proposal["commit"] == commit
    assert proposal["proposer"] == "git:Dan <dan@example.org>"
    assert (proposal["message"], proposal["reason"], proposal["source"]) == (
        "Less logins",
        "Bots.",
        "push",
    )
    assert proposal["state"] == "open"
    assert world.files() == FIRST
    assert world.store.versions() == [1]
    world.look()
    assert len(world.admin.proposals(by=READER)) == 1


def test_a_push_that_is_published_is_what_clones_see(world: World, clone: Clone) -> None:
    commit = clone.push(NEW)
    world.look()
    proposal = only(world)
    world.admin.approve(str(proposal["id"]), override="a test", by=BOB)
    world.admin.publish(str(proposal["id"]), by=BOB)
    assert world.tip(LIVE_REF) == world.tip(MAIN) == commit
    # And what the admin publishes, they fetch.
    world.live({"api.yaml": rules(orders=7)})
    clone.git("pull", "--quiet", "--ff-only", "origin", "main")
    assert (clone.folder / "api.yaml").read_text() == rules(orders=7)
    clone.push({"api.yaml": rules(orders=8)})
    world.look()
    assert len(world.admin.proposals("open", by=READER)) == 1


def test_a_push_is_judged_as_any_proposal_is(make: Make, tmp_path: Path) -> None:
    world = make(judge=HandJudge(FAILED, "it would refuse 6% of CRITICAL")).begin()
    clone = Clone(world, tmp_path / "clone")
    commit = clone.push(NEW)
    world.look()
    assert only(world)["state"] == "rejected"
    clone.git("fetch", "--quiet", "origin", "refs/notes/sluicegate:refs/notes/sluicegate")
    assert "6% of CRITICAL" in clone.git("notes", "--ref=sluicegate", "show", commit)
    assert world.files() == FIRST


def test_a_push_of_bad_rules_is_rejected_with_what_is_wrong(world: World, clone: Clone) -> None:
    commit = clone.push({"web.yaml": "version: 1\nrules: 7\n"})
    world.look()
    proposal = only(world)
    assert proposal["state"] == "rejected"
    assert "web.yaml" in world.repository.notes(commit)
    assert any("web.yaml" in str(one["why"]) for one in world.admin.audit(by=READER))
    listed = world.admin.rules(commit, by=READER)
    assert "web.yaml" in listed["problem"]
    assert [(one["name"], one["rules"]) for one in listed["files"]] == [
        ("api.yaml", None),
        ("web.yaml", None),
    ]
    # Whoever mends it pushes on.
    clone.push(NEW, "mended")
    world.look()
    assert world.admin.proposals("open", by=READER)[0]["message"] == "mended"


def test_nobody_approves_their_own_push(world: World, clone: Clone) -> None:
    clone.push(NEW)
    world.look()
    id = str(only(world)["id"])  # noqa: A001 - it is what it is called
    for name in ("dan", "Dan", "dan@example.org"):
        with pytest.raises(BadValue, match="somebody else"):
            world.admin.approve(id, override="a test", by=Identity(name, EVERY_GRANT))
    world.admin.approve(id, override="a test", by=BOB)


def test_several_commits_at_once_are_one_proposal(world: World, clone: Clone) -> None:
    between = clone.commit(NEW)
    clone.commit({"api.yaml": rules(orders=1)})
    last = clone.push({"api.yaml": rules(orders=2)})
    world.look()
    proposal = only(world)
    assert proposal["commit"] == last
    world.admin.approve(str(proposal["id"]), override="a test", by=BOB)
    world.admin.publish(str(proposal["id"]), by=BOB)
    assert world.files() == {**NEW, "api.yaml": rules(orders=2)}
    # What stood between was never live, and nobody has tried it.
    with pytest.raises(BadValue, match="was live"):
        world.admin.roll_back(between, reason="a way round the gate", by=BOB)


def test_a_push_beside_what_went_live_meanwhile_is_merged(world: World, clone: Clone) -> None:
    clone.push(NEW)
    world.look()
    id = str(only(world)["id"])  # noqa: A001 - it is what it is called
    world.live({"api.yaml": rules(orders=7)})
    world.admin.approve(id, override="a test", by=BOB)
    world.admin.publish(id, by=BOB)
    assert world.files() == {**NEW, "api.yaml": rules(orders=7)}
    # It is a commit that their branch does not have, so the branch stays as they pushed it.
    assert world.tip(MAIN) != world.tip(LIVE_REF)
    # They go on from there, and what they push next is only what is new.
    clone.push({"api.yaml": rules(orders=7), "more.yaml": rules(more=1)}, "more")
    world.look()
    proposal = world.admin.proposals("open", by=READER)[0]
    diff = world.admin.diff("live", str(proposal["id"]), by=READER)
    assert [one["name"] for one in diff["files"]] == ["more.yaml"]


def test_a_push_that_conflicts_with_live_is_rejected(world: World, clone: Clone) -> None:
    clone.push({"more.yaml": rules(more=1)})  # so the branch stays behind
    world.live({"web.yaml": rules(login=7)})
    commit = clone.commit({"web.yaml": rules(login=3)})
    clone.git("push", "--quiet", "origin", "HEAD:main")
    world.look()
    assert state_of_commit(world, commit) == "rejected"
    assert "web.yaml" in world.repository.notes(commit)
    assert world.files()["web.yaml"] == rules(login=7)


def state_of_commit(world: World, commit: str) -> str:
    """What the proposal of a commit is."""
    [proposal] = [one for one in world.admin.proposals(by=READER) if one["commit"] == commit]
    return str(proposal["state"])


def test_a_rewritten_history_is_refused_and_not_followed(world: World, clone: Clone) -> None:
    before = world.tip(LIVE_REF)
    clone.git("checkout", "--quiet", "--orphan", "other")
    commit = clone.commit(NEW, "a new history")
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    world.look()
    proposal = only(world)
    assert proposal["state"] == "rejected"
    history = proposal["history"]
    assert isinstance(history, list)
    assert "rewritten" in history[-1]["why"]
    assert "rewritten" in world.repository.notes(commit)
    assert any("rewritten" in str(one["why"]) for one in world.admin.audit(by=READER))
    assert "branch" in world.admin.status(by=READER)["troubles"]
    assert world.tip(LIVE_REF) == before
    with pytest.raises(BadValue, match="rejected"):
        world.admin.approve(str(proposal["id"]), override="please", by=BOB)
    # What is pushed on top of it is no better.
    clone.push({"web.yaml": rules(login=6)}, "on top")
    world.look()
    assert [one["state"] for one in world.admin.proposals(by=READER)] == ["rejected"] * 2
    # Publishing goes on; only the branch is left alone.
    world.live({"api.yaml": rules(orders=7)})
    assert world.tip(MAIN) != world.tip(LIVE_REF)


def test_a_push_that_drops_what_was_live_is_refused(world: World, clone: Clone) -> None:
    first = world.tip(LIVE_REF)
    world.live({"api.yaml": rules(orders=7)})
    clone.git("reset", "--quiet", "--hard", first)
    commit = clone.commit({"web.yaml": rules(login=3)})
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    world.look()
    assert state_of_commit(world, commit) == "rejected"
    assert "rewritten" in str(world.admin.audit(by=READER)[0]["why"])


def test_a_branch_that_was_put_right_is_followed_again(world: World, clone: Clone) -> None:
    clone.git("checkout", "--quiet", "--orphan", "other")
    clone.commit(NEW)
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    world.look()
    clone.git("fetch", "--quiet", "origin", "refs/sluicegate/live")
    clone.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    world.look()
    assert world.admin.status(by=READER)["troubles"] == {}
    clone.push({"web.yaml": rules(login=4)}, "after all")
    world.look()
    assert [one["message"] for one in world.admin.proposals("open", by=READER)] == ["after all"]


def test_a_proposal_may_be_mended_by_pushing_it_anew(world: World, clone: Clone) -> None:
    clone.push(NEW)
    world.look()
    (clone.folder / "web.yaml").write_text(rules(login=6))
    clone.git("commit", "--quiet", "--amend", "-am", "mended\n\nConfirm: true")
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    world.look()
    assert [one["state"] for one in world.admin.proposals(by=READER)] == ["open", "open"]


def test_a_branch_that_was_set_back_moves_forward_again(world: World, clone: Clone) -> None:
    first = world.tip(LIVE_REF)
    world.live(NEW)
    clone.git("push", "--quiet", "--force", "origin", f"{first}:main")
    world.look()
    assert world.tip(MAIN) == world.tip(LIVE_REF)
    assert any("set back" in sentence for sentence in world.sentences())


@pytest.mark.parametrize(
    "ref", [LIVE_REF, LEDGER_REF, "refs/sluicegate/x", "refs/notes/sluicegate"]
)
def test_nobody_pushes_to_the_refs_that_decide_what_is_live(
    world: World, clone: Clone, ref: str
) -> None:
    was = world.repository.tip(ref)
    clone.commit({"api.yaml": rules(orders=1)})
    with pytest.raises(subprocess.CalledProcessError) as refused:
        clone.git("push", "--quiet", "--force", "origin", f"HEAD:{ref}")
    assert "hidden" in refused.value.stderr
    assert world.repository.tip(ref) == was


def test_live_that_was_moved_by_hand_stops_publishing(world: World, clone: Clone) -> None:
    was = world.tip(LIVE_REF)
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    commit = clone.commit({"api.yaml": rules(orders=1)})
    clone.git("push", "--quiet", "origin", "HEAD:refs/heads/other")
    moved = [str(GIT), "update-ref", LIVE_REF, commit]
    subprocess.run(moved, cwd=world.repository.path, check=True, timeout=60)
    admin = world.admin
    calls: list[Callable[[], object]] = [
        partial(admin.publish, id, by=BOB),
        partial(admin.canary, id, share=100, kind="nodes", by=BOB),
        partial(admin.roll_back, "1", reason="help", by=BOB),
        partial(admin.pin, "n1", 1, reason="help", by=BOB),
    ]
    for call in calls:
        with pytest.raises(Unavailable) as error:
            call()
        assert was in str(error.value)
        assert commit in str(error.value)
        assert f"git update-ref {LIVE_REF} {was}" in str(error.value)
    world.look()
    assert "moved what is live" in world.admin.status(by=READER)["troubles"]["publishing"]
    assert world.store.versions() == [1]
    assert world.admin.rules(by=READER)["commit"] == was  # reading goes on
    # As it says, so it is repaired.
    subprocess.run(
        [str(GIT), "update-ref", LIVE_REF, was], cwd=world.repository.path, check=True, timeout=30
    )
    world.admin.publish(id, by=BOB)
    assert world.files()["web.yaml"] == NEW["web.yaml"]
    assert world.admin.status(by=READER)["troubles"] == {}


def test_live_that_was_taken_away_stops_publishing(world: World) -> None:
    world.repository.remove(LIVE_REF, expected=world.tip(LIVE_REF))
    with pytest.raises(Unavailable, match="nothing is there"):
        world.admin.pin("n1", 1, reason="help", by=BOB)


def test_a_rewritten_ledger_is_refused(world: World) -> None:
    was = world.tip("refs/sluicegate/ledger")
    world.live(NEW)
    now = world.tip("refs/sluicegate/ledger")
    world.repository.move("refs/sluicegate/ledger", was, expected=now)
    with pytest.raises(Unavailable, match=f"git update-ref refs/sluicegate/ledger {now}"):
        world.propose({"api.yaml": rules(orders=1)})


def test_a_ledger_that_has_lost_its_end_tells_nobody_anything(world: World, make: Make) -> None:
    was, live = world.tip("refs/sluicegate/ledger"), world.tip(LIVE_REF)
    world.live(NEW)
    world.repository.move(
        "refs/sluicegate/ledger", was, expected=world.tip("refs/sluicegate/ledger")
    )
    world.repository.move(LIVE_REF, live, expected=world.tip(LIVE_REF))
    world.close()
    other = make()
    other.clock.advance(s=100)
    id = other.approved({"api.yaml": rules(orders=1)})  # noqa: A001 - it is what it is called
    proposal = other.admin.publish(id, by=BOB)
    assert "lost its end" in proposal["troubles"]["publishing"]
    release = other.store.release(2)
    assert release is not None
    assert release.release.commit != other.ledger.state().versions[2].commit


def test_nobody_pushes_where_there_is_no_branch(make: Make, tmp_path: Path) -> None:
    world = make(settings=PublishingSettings(branch=""))
    world.admin.begin(NEW, message="begin", by=Identity("cat", EVERY_GRANT))
    clone = Clone(world, tmp_path / "clone")
    clone.push({"web.yaml": rules(login=1)})
    world.look()
    assert world.admin.proposals(by=READER) == []


def test_git_finds_nothing_wrong_with_what_was_written(world: World, clone: Clone) -> None:
    clone.push(NEW)
    world.look()
    world.live({"api.yaml": rules(orders=7)})
    world.admin.roll_back("1", reason="a test", by=BOB)
    done = subprocess.run(
        [str(GIT), "fsck", "--strict", "--full"],
        cwd=world.repository.path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_whoever_wrote_any_commit_of_a_push_cannot_approve_it(world: World, clone: Clone) -> None:
    clone.git("config", "user.name", "unused")
    clone._env |= {"GIT_AUTHOR_NAME": "bob", "GIT_AUTHOR_EMAIL": "bob@example.org"}
    clone.commit(NEW, "What bob wants")
    clone._env |= {"GIT_AUTHOR_NAME": "Dan", "GIT_AUTHOR_EMAIL": "dan@example.org"}
    clone.push({"README": "nothing"}, "Nothing of note")
    world.look()
    proposal = only(world)
    assert proposal["proposer"] == "git:Dan <dan@example.org>"
    with pytest.raises(BadValue, match="proposed"):
        world.admin.approve(str(proposal["id"]), override="mine", by=BOB)
