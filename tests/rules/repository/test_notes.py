from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from tests.rules.repository.stories import ANN, AT_US, BOB, MAIN, commit, git, is_sound, needs_git

NOTES = "refs/notes/sluicegate"


def first(repository: Repository) -> str:
    found = repository.tip(MAIN)
    assert found is not None
    return found


def test_what_is_noted_is_appended(repository: Repository) -> None:
    assert repository.notes(first(repository)) == ""
    repository.note(first(repository), "Judged: passed", author=ANN, at_us=AT_US)
    repository.note(first(repository), "Approved\nby Bob\n", author=BOB, at_us=AT_US)
    assert repository.notes(first(repository)) == "Judged: passed\n\nApproved\nby Bob"
    other = commit(repository, {"a.yaml": b"2"}, on=first(repository), ref=None).id
    assert repository.notes(other) == ""
    repository.note(other, "Other", author=ANN, at_us=AT_US)
    assert repository.notes(first(repository)).startswith("Judged")
    assert repository.notes(other) == "Other"


def test_the_notes_tell_who_noted_and_when(repository: Repository) -> None:
    repository.note(first(repository), "One", author=BOB, at_us=AT_US)
    repository.note(first(repository), "Two", author=ANN, at_us=AT_US)
    tip = repository.tip(NOTES)
    assert tip is not None
    assert [commit.author for commit in repository.log(tip, count_max=9)] == [ANN, BOB]


@needs_git
def test_git_shows_what_is_noted(repository: Repository) -> None:
    repository.note(first(repository), "Judged", author=ANN, at_us=AT_US)
    repository.note(first(repository), "Approved", author=ANN, at_us=AT_US)
    assert git(repository.path, "notes", "--ref=sluicegate", "show", "main") == "Judged\n\nApproved"
    output = git(repository.path, "log", "--notes=sluicegate", "main")
    assert "Notes (sluicegate):\n    Judged\n    \n    Approved" in output
    assert is_sound(repository)


@needs_git
@pytest.mark.parametrize("folders", [0, 2])
def test_what_git_noted_is_found_however_deep_it_lies(repository: Repository, folders: int) -> None:
    git(repository.path, "notes", "--ref=sluicegate", "add", "-m", "By git", "main")
    if folders:
        # As git arranges very many of them.
        blob = git(repository.path, "rev-parse", f"{NOTES}:{first(repository)}")
        rest, tree = first(repository)[2 * folders :], ""
        row = f"100644 blob {blob}\t{rest}\n"
        for at in reversed(range(folders)):
            tree = git(repository.path, "mktree", text=row)
            row = f"040000 tree {tree}\t{first(repository)[2 * at : 2 * at + 2]}\n"
        tree = git(repository.path, "mktree", text=row)
        noted = git(repository.path, "commit-tree", tree, "-m", "Deep")
        git(repository.path, "update-ref", NOTES, noted)
    assert repository.notes(first(repository)) == "By git"
    repository.note(first(repository), "By us", author=ANN, at_us=AT_US)
    assert git(repository.path, "notes", "--ref=sluicegate", "show", "main") == "By git\n\nBy us"
    assert git(repository.path, "notes", "--ref=sluicegate", "list").count("\n") == 0


@needs_git
def test_git_appends_to_what_we_noted(repository: Repository) -> None:
    repository.note(first(repository), "By us", author=ANN, at_us=AT_US)
    git(repository.path, "notes", "--ref=sluicegate", "append", "-m", "By git", "main")
    assert repository.notes(first(repository)) == "By us\n\nBy git"


def test_many_who_note_at_once_lose_nothing(repository: Repository) -> None:
    def note(who: int) -> None:
        for number in range(5):
            repository.note(first(repository), f"{who}.{number}", author=ANN, at_us=AT_US)

    threads = [threading.Thread(target=note, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    noted = repository.notes(first(repository)).split("\n\n")
    assert sorted(noted) == [f"{who}.{number}" for who in range(4) for number in range(5)]
    for who in range(4):
        mine = [line for line in noted if line.startswith(f"{who}.")]
        assert mine == sorted(mine)


def test_whoever_is_always_late_gives_up_after_so_many_tries(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Repository.open(repository.path, settings=RepositorySettings(note_tries_max=3))
    moves: list[str] = []

    def always_late(_self: Repository, ref: str, _to: str, *, expected: str | None) -> None:
        moves.append(ref)
        raise Conflict(ref, str(expected))

    monkeypatch.setattr(Repository, "move", always_late)
    with pytest.raises(Unavailable, match="3 times"):
        late.note(first(repository), "x", author=ANN, at_us=AT_US)
    assert len(moves) == 3


@pytest.mark.parametrize("text", ["", "\n \n", "a\0b", "\udcff"])
def test_what_is_no_note_is_refused(repository: Repository, text: str) -> None:
    with pytest.raises(BadValue, match="note"):
        repository.note(first(repository), text, author=ANN, at_us=AT_US)


def test_the_notes_of_a_commit_are_bounded(repository: Repository) -> None:
    bound = Repository.open(repository.path, settings=RepositorySettings(notes_bytes_max=64))
    bound.note(first(repository), "x" * 50, author=ANN, at_us=AT_US)
    with pytest.raises(BadValue, match="64 bytes"):
        bound.note(first(repository), "y" * 50, author=ANN, at_us=AT_US)
    assert bound.notes(first(repository)) == "x" * 50


def test_only_what_is_there_is_noted(repository: Repository) -> None:
    with pytest.raises(Unavailable, match="missing"):
        repository.note("1" * 40, "x", author=ANN, at_us=AT_US)
    assert not Path(repository.path, NOTES).exists()
