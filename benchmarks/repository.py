"""The repository: what a change of rules costs in git, by us and by git's own plumbing.

    python -m benchmarks.repository [ROUNDS]

A bare repository of 300 files. Each candidate takes its turn in each round; times are of the wall,
since git works in processes of its own; medians are compared. Ours is on the disk when it returns
(objects, ref, folders); git is measured as it comes, which leaves loose objects and refs to the
system, and once more told to sync what we do (core.fsync).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

from benchmarks.rounds import Bars
from sluicegate.contracts.rulebook import Author
from sluicegate.rules.repository.repository import Repository

FILES = 300
ROUNDS = 15
MAIN = "refs/heads/main"
ANN = Author("Ann", "ann@example.org")
ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_NAME": "Ann" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ann@example.org" for who in ("AUTHOR", "COMMITTER")},
}


def rule_file(number: int) -> bytes:
    """A file of rules as people write them."""
    rows = [f"  - id: r{number}-{at}\n    path: /v1/{at}\n    limit: {number}\n" for at in range(9)]
    return ("rules:\n" + "".join(rows)).encode()


def git(path: str, *arguments: str, given: bytes = b"", index: str = "") -> bytes:
    """What git answers."""
    environment = {**ENVIRONMENT, "GIT_INDEX_FILE": index} if index else ENVIRONMENT
    return subprocess.run(
        ["git", "-C", path, *arguments],
        input=given,
        env=environment,
        capture_output=True,
        check=True,
    ).stdout


class Both:
    """The same work by us and by git, each in a repository of its own."""

    def __init__(self, folder: str) -> None:
        files = {f"team{n % 10}/{n:03}.yaml": rule_file(n) for n in range(FILES)}
        self.ours = Repository.create(f"{folder}/ours.git", files=files, at_us=0)
        git(folder, "clone", "--quiet", "--bare", self.ours.path, "git.git")
        self.git = f"{folder}/git.git"
        self.index = f"{folder}/index"
        git(self.git, "read-tree", "main", index=self.index)
        self.number = 0
        for path in (self.ours.path, self.git):  # as a repository is after some time
            git(path, "gc", "--quiet")

    def commit_ours(self) -> None:
        """One file, a commit, and the ref."""
        self.number += 1
        tip = self.ours.tip(MAIN)
        assert tip is not None
        made = self.ours.write(
            {"team7/007.yaml": rule_file(1_000 + self.number)},
            parents=[tip],
            author=ANN,
            message="Change",
            at_us=self.number * 1_000_000,
        )
        self.ours.move(MAIN, made.id, expected=tip)

    def commit_git(self, *settings: str) -> None:
        """The same by plumbing, with an index that is kept between commits."""
        self.number += 1
        tip = git(self.git, "rev-parse", MAIN).decode().strip()
        given = rule_file(1_000 + self.number)
        blob = git(self.git, *settings, "hash-object", "-w", "--stdin", given=given).decode()
        entry = f"100644,{blob.strip()},team7/007.yaml"
        git(self.git, "update-index", "--cacheinfo", entry, index=self.index)
        tree = git(self.git, *settings, "write-tree", index=self.index).decode().strip()
        wanted = ("commit-tree", tree, "-p", tip, "-m", "Change")
        made = git(self.git, *settings, *wanted).decode().strip()
        git(self.git, *settings, "update-ref", MAIN, made, tip)

    def commit_git_synced(self) -> None:
        """The same, on the disk when it returns."""
        self.commit_git("-c", "core.fsync=committed,reference")

    def read_ours(self) -> None:
        """All files of the tip."""
        assert len(self.ours.files(self.ours.tip(MAIN) or "")) == FILES

    def read_git(self) -> None:
        """The same, as one stream."""
        assert len(git(self.git, "archive", "--format=tar", "main")) > FILES * 100

    def log_ours(self) -> None:
        """The last twenty commits."""
        assert len(self.ours.log(self.ours.tip(MAIN) or "", count_max=20)) == 20

    def log_git(self) -> None:
        """The same."""
        told = git(self.git, "log", "-20", "--first-parent", "--format=%H%n%an%n%at%n%B", "main")
        assert told.count(b"Ann") == 20

    def move_ours(self) -> None:
        """A ref to the tip and back."""
        tip = self.ours.tip(MAIN) or ""
        self.ours.move("refs/sluicegate/live", tip, expected=None)
        self.ours.remove("refs/sluicegate/live", expected=tip)

    def move_git(self) -> None:
        """The same."""
        tip = git(self.git, "rev-parse", MAIN).decode().strip()
        git(self.git, "update-ref", "refs/sluicegate/live", tip, "")
        git(self.git, "update-ref", "-d", "refs/sluicegate/live", tip)


def measure(candidates: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each, taking turns."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.perf_counter()
            candidates[name]()
            if turn:  # the first is to warm up
                seen[name].append((time.perf_counter() - started) * 1e3)
    return seen


def main() -> None:
    """Measure, print, and say whether the one bar is met."""
    if shutil.which("git") is None:
        print("there is no git to compare with")
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    bars = Bars()
    with tempfile.TemporaryDirectory() as folder:
        both = Both(folder)
        for _ in range(20):
            both.commit_ours()
            both.commit_git()
        tables: dict[str, dict[str, Callable[[], None]]] = {
            "commit one file of 300": {
                "ours": both.commit_ours,
                "git": both.commit_git,
                "git, synced": both.commit_git_synced,
            },
            "read 300 files": {"ours": both.read_ours, "git": both.read_git},
            "log of 20": {"ours": both.log_ours, "git": both.log_git},
            "make and remove a ref": {"ours": both.move_ours, "git": both.move_git},
        }
        for title, candidates in tables.items():
            seen = measure(candidates, rounds)
            print(f"\n{title}")
            for name, times in seen.items():
                ratio = statistics.median(
                    one / ours for one, ours in zip(times, seen["ours"], strict=True)
                )
                print(
                    f"  {name:<12} {statistics.median(times):8.2f} ms"
                    f"  ({min(times):.2f} to {max(times):.2f})  {ratio:6.2f} x ours"
                )
            if title.startswith("commit"):
                faster = statistics.median(
                    one / ours for one, ours in zip(seen["git"], seen["ours"], strict=True)
                )
                bars.check(faster > 1, "a commit, synced, is faster than git's plumbing, unsynced")
    bars.exit()


if __name__ == "__main__":
    main()
