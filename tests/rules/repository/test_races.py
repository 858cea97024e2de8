from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sluicegate.rules.repository.repository import Repository
from tests.rules.repository.stories import MAIN, git, is_sound, needs_git, run_git, work_tree
from tests.rules.repository.writer import add

WRITER = Path(__file__).with_name("writer.py")


class Writer:
    """A process that commits, once it is let go."""

    def __init__(self, repository: Repository, name: str, count: int, die_at: int = -1) -> None:
        arguments = [repository.path, name, str(count)] + ([str(die_at)] if die_at >= 0 else [])
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def commits(self) -> dict[str, str]:
        """What it told to be safe: a file's name, and the commit."""
        out, _ = self.process.communicate(timeout=120)
        return dict(line.split() for line in out.splitlines() if line.count(" ") == 1)


def names(repository: Repository) -> set[str]:
    tip = repository.tip(MAIN)
    assert tip is not None
    return {name.removesuffix(".yaml") for name in repository.files(tip, suffixes=(".yaml",))}


@needs_git
def test_four_processes_that_commit_at_once_lose_nothing(repository: Repository) -> None:
    writers = [Writer(repository, f"w{number}", 8) for number in range(4)]
    for writer in writers:
        writer.go()
    commits = {name: commit for writer in writers for name, commit in writer.commits().items()}
    assert len(commits) == 32
    assert set(commits) <= names(repository)
    tip = repository.tip(MAIN)
    assert tip is not None
    line = [commit.id for commit in repository.log(tip, count_max=99)]
    assert set(commits.values()) <= set(line)
    assert len(line) == 33
    assert is_sound(repository)


@needs_git
def test_people_who_push_meanwhile_lose_nothing_either(
    repository: Repository, tmp_path: Path
) -> None:
    clone = work_tree(repository, tmp_path / "clone")
    writers = [Writer(repository, f"w{number}", 8) for number in range(2)]
    for writer in writers:
        writer.go()
    pushed = set()
    for number in range(6):
        (clone / f"hand-{number}.yaml").write_text("x")
        git(clone, "add", "-A")
        git(clone, "commit", "--quiet", "-m", f"By hand {number}")
        while run_git(clone, "push", "--quiet", "origin", "HEAD:main").returncode:
            git(clone, "pull", "--quiet", "--rebase", "origin", "main")
        pushed.add(f"hand-{number}")
        git(repository.path, "pack-refs", "--all")  # as a `git gc` does, at any moment
    commits = {name for writer in writers for name in writer.commits()}
    assert len(commits) == 16
    assert commits | pushed <= names(repository)
    assert is_sound(repository)


def test_threads_that_share_a_repository_lose_nothing(repository: Repository) -> None:
    def write(who: int) -> None:
        for number in range(6):
            add(repository, f"t{who}-{number}")

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {f"t{who}-{number}" for who in range(4) for number in range(6)} <= names(repository)


@needs_git
def test_git_may_pack_everything_while_threads_read(repository: Repository) -> None:
    for number in range(20):
        add(repository, f"f{number}-x")
    tip = repository.tip(MAIN)
    assert tip is not None
    files = repository.files(tip)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                if repository.files(tip) != files or repository.tip(MAIN) is None:
                    wrong.append("something else")
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(4):
        add(repository, f"g{number}-x")
        git(repository.path, "gc", "--quiet", "--prune=now")
    stop.set()
    for reader in readers:
        reader.join(60)
    assert wrong == []


def crash(repository: Repository, name: str, die_at: int) -> tuple[bool, dict[str, str]]:
    writer = Writer(repository, name, 1, die_at)
    writer.go()
    commits = writer.commits()
    return writer.process.returncode == -signal.SIGKILL, commits


def check_after(repository: Repository, before: set[str], commits: dict[str, str]) -> None:
    """Nothing that was told is lost, no ref leads to what is not there, and all goes on."""
    fresh = Repository.open(repository.path)
    assert before | set(commits) <= names(fresh)
    assert is_sound(fresh)
    add(fresh, "after-x")
    assert "after-x" in names(fresh)
    assert not list(Path(fresh.path, "refs").rglob("*.lock"))
    fresh.close()


@needs_git
@pytest.mark.parametrize("die_at", [0, 6, 12, 17, 20, 22, 24, 26])
def test_whoever_is_killed_at_any_step_leaves_it_whole(repository: Repository, die_at: int) -> None:
    before = names(repository)
    _, commits = crash(repository, "w", die_at)
    check_after(repository, before, commits)


@needs_git
@pytest.mark.prove
@pytest.mark.parametrize("packs", [False, True])
def test_every_single_step_is_one_where_it_may_be_killed(
    repository: Repository, packs: bool
) -> None:
    for die_at in range(60):
        if packs:
            git(repository.path, "pack-refs", "--all")
        before = names(repository)
        killed, commits = crash(repository, f"w{die_at}", die_at)
        check_after(repository, before, commits)
        if not killed:
            assert commits
            assert die_at > 20  # it has as many steps at least
            return
    pytest.fail("it never came to its end")


@needs_git
def test_processes_that_are_killed_while_others_write_are_in_nobodys_way(
    repository: Repository,
) -> None:
    survivor = Writer(repository, "survivor", 8)
    victims = [Writer(repository, f"v{at}", 9, at) for at in (19, 23, 40, 67)]
    for writer in (*victims, survivor):
        writer.go()
    commits = set(survivor.commits()).union(*(victim.commits() for victim in victims))
    assert {f"survivor-{number}" for number in range(8)} <= commits <= names(repository)
    assert is_sound(repository)
