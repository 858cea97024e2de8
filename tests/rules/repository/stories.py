"""What the tests of the repository share: a git to ask, and commits told in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from sluicegate.contracts.rulebook import Author, Commit
from sluicegate.rules.repository.repository import Repository

MAIN = "refs/heads/main"
LIVE = "refs/sluicegate/live"
ANN = Author("Ann", "ann@example.org")
BOB = Author("Bob", "bob@example.org")
AT_US = 1_700_000_000_000_000
SECOND_US = 1_000_000

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git to ask")

# Nobody's own settings, and nobody to ask for a password.
QUIET = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Git",
    "GIT_AUTHOR_EMAIL": "git@example.org",
    "GIT_COMMITTER_NAME": "Git",
    "GIT_COMMITTER_EMAIL": "git@example.org",
}


def git(where: str | Path, *arguments: str, text: str | None = None) -> str:
    """What git says; a failed test where it fails."""
    done = run_git(where, *arguments, text=text)
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.rstrip("\n")


def run_git(
    where: str | Path, *arguments: str, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(where), *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=QUIET,
        timeout=60,
        check=False,
    )


def is_sound(repository: Repository) -> bool:
    """Whether git finds nothing to say against it, but for what no ref leads to."""
    output = git(repository.path, "fsck", "--strict", "--full", "--no-dangling")
    return output == ""


def commit(
    repository: Repository,
    changes: Mapping[str, bytes | None],
    *,
    on: str | None = None,
    ref: str | None = MAIN,
    message: str = "Change",
    at_us: int = AT_US,
    author: Author = ANN,
) -> Commit:
    """Write a commit on top of one (or of the ref), and move the ref there."""
    tip = repository.tip(ref) if ref is not None else None
    parent = on if on is not None else tip
    made = repository.write(
        changes,
        parents=() if parent is None else (parent,),
        author=author,
        message=message,
        at_us=at_us,
    )
    if ref is not None:
        repository.move(ref, made.id, expected=tip)
    return made


def work_tree(repository: Repository, folder: Path) -> Path:
    """A clone that a person works in."""
    git(folder.parent, "clone", "--quiet", repository.path, str(folder))
    return folder


def pushed(clone: Path, files: Mapping[str, str], message: str = "By hand") -> str:
    """Commit these in a clone and push them; the commit."""
    for name, text in files.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", message)
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    return git(clone, "rev-parse", "HEAD")
