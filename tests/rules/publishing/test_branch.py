"""The branch is kept elsewhere too: pushes there become proposals, and what is live goes there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.publishing.settings import PublishingSettings
from tests.rules.publishing.test_pushes import NEW, Clone, only
from tests.rules.publishing.world import BOB, MAIN, READER, Make, World, rules

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="there is no git here; apt-get install git")


class Elsewhere(Clone):
    """Somebody's clone of the other place."""

    def __init__(self, remote: Path, folder: Path, name: str = "Dan") -> None:
        at = type("At", (), {"repository": type("Repository", (), {"path": str(remote)})})
        super().__init__(at, folder, name)  # type: ignore[arg-type] # only the path is asked for


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository of somebody else's, empty."""
    path = tmp_path / "elsewhere.git"
    assert GIT is not None
    subprocess.run([GIT, "init", "--quiet", "--bare", "-b", "main", str(path)], check=True)
    return path


@pytest.fixture
def world(make: Make, remote: Path) -> World:
    settings = PublishingSettings(remote=str(remote), remote_look_us=1_000_000)
    world = make(settings=settings).begin()
    look(world)
    return world


def look(world: World) -> None:
    world.clock.advance(s=2)
    world.look()


def tip(remote: Path) -> str:
    assert GIT is not None
    command = [GIT, "-C", str(remote), "rev-parse", "refs/heads/main"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_is_live_goes_there(world: World, remote: Path) -> None:
    assert tip(remote) == world.tip(MAIN)
    world.live(NEW)
    look(world)
    assert tip(remote) == world.tip(MAIN)


def test_a_push_there_is_a_proposal_here(world: World, remote: Path, tmp_path: Path) -> None:
    clone = Elsewhere(remote, tmp_path / "clone")
    commit = clone.push(NEW)
    look(world)
    proposal = only(world)
    assert (proposal["commit"], proposal["proposer"]) == (commit, "git:Dan <dan@example.org>")
    world.admin.approve(str(proposal["id"]), override="a test", by=BOB)
    world.admin.publish(str(proposal["id"]), by=BOB)
    look(world)
    assert tip(remote) == world.tip(MAIN) == commit


def test_a_push_there_while_something_else_goes_live_here_loses_neither(
    world: World, remote: Path, tmp_path: Path
) -> None:
    clone = Elsewhere(remote, tmp_path / "clone")
    world.live({"api.yaml": rules(orders=7)})
    clone.push(NEW)
    look(world)
    [one] = world.admin.proposals("open", by=READER)
    world.admin.approve(one["id"], override="a test", by=BOB)
    world.admin.publish(one["id"], by=BOB)
    assert world.files()["api.yaml"] == rules(orders=7)
    assert world.files()["web.yaml"] == NEW["web.yaml"]
    look(world)
    look(world)
    assert tip(remote) == world.tip(MAIN)


def test_a_rewritten_history_there_is_refused_here(
    world: World, remote: Path, tmp_path: Path
) -> None:
    clone = Elsewhere(remote, tmp_path / "clone")
    clone.git("checkout", "--quiet", "--orphan", "other")
    clone.commit({"web.yaml": rules(login=1)}, "From nothing")
    clone.git("push", "--quiet", "--force", "origin", "HEAD:main")
    look(world)
    proposal = only(world)
    assert proposal["state"] == "rejected"
    assert "rewritten" in str(proposal["history"])
    assert world.admin.status(by=READER)["live"]["version"] == 1


def test_a_place_that_is_gone_is_told_and_holds_up_nothing(world: World, remote: Path) -> None:
    remote.rename(remote.with_suffix(".gone"))
    look(world)
    assert "remote" in world.publishing.upkeep.failures
    world.live(NEW)
    assert world.admin.status(by=READER)["live"]["version"] == 2
    remote.with_suffix(".gone").rename(remote)
    look(world)
    assert world.publishing.upkeep.failures == {}
    assert tip(remote) == world.tip(MAIN)


def test_it_is_not_asked_at_every_look(world: World, remote: Path) -> None:
    remote.rename(remote.with_suffix(".gone"))
    world.look()  # no time has gone by, and there is nothing to send
    assert world.publishing.upkeep.failures == {}


def test_how_often_is_bounded() -> None:
    with pytest.raises(BadValue, match="remote_look_us"):
        PublishingSettings(remote_look_us=0)
