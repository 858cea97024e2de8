from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.rules.repository.repository import Repository
from tests.rules.repository.stories import ANN, AT_US, MAIN, commit, git, is_sound, needs_git


def first(repository: Repository) -> str:
    found = repository.tip(MAIN)
    assert found is not None
    return found


def object_file(repository: Repository, hex_id: str) -> Path:
    return Path(repository.path, "objects", hex_id[:2], hex_id[2:])


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: len(content) // 2])


def empty(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"")


def swap(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 4\0evil"))


def garbage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"\0\xff garbage " * 9)


def bad_type(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blub 1\0x"))


HARM = [os.unlink, cut, empty, swap, garbage, bad_type]


@needs_git
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("what", ["main", "main^{tree}", "main:web", "main:a.yaml"])
def test_what_is_missing_or_damaged_is_named(
    repository: Repository, what: str, harm: Callable[[Path], None]
) -> None:
    hex_id = git(repository.path, "rev-parse", what)
    harm(object_file(repository, hex_id))
    with pytest.raises(Unavailable) as error:
        repository.files(first(repository))
    assert repository.path in str(error.value)
    assert hex_id in str(error.value)
    assert "missing" in str(error.value) if harm is os.unlink else "damaged" in str(error.value)


@needs_git
def test_nothing_moves_to_a_commit_whose_tree_lacks(repository: Repository) -> None:
    made = commit(repository, {"a.yaml": b"2"}, on=first(repository), ref=None)
    os.unlink(object_file(repository, git(repository.path, "rev-parse", f"{made.id}^{{tree}}")))
    with pytest.raises(Unavailable, match="missing"):
        repository.move(MAIN, made.id, expected=first(repository))


@needs_git
def test_nothing_moves_to_a_packed_commit_whose_tree_lacks_either(repository: Repository) -> None:
    made = commit(repository, {"a.yaml": b"2"}, on=first(repository), ref=None).id
    base = os.path.join(repository.path, "objects", "pack", "pack")
    git(repository.path, "pack-objects", "--quiet", base, text=f"{made}\n")
    os.unlink(object_file(repository, made))
    os.unlink(object_file(repository, git(repository.path, "rev-parse", f"{made}^{{tree}}")))
    with pytest.raises(Unavailable, match="missing"):
        repository.move(MAIN, made, expected=first(repository))


@needs_git
@pytest.mark.parametrize("harm", [cut, empty, garbage, swap])
def test_writing_the_same_again_heals_what_a_power_cut_left(
    repository: Repository, harm: Callable[[Path], None]
) -> None:
    made = commit(repository, {"n.yaml": b"n: 1\n"})
    blob = git(repository.path, "rev-parse", "main:n.yaml")
    harm(object_file(repository, blob))
    with pytest.raises(Unavailable):
        repository.files(made.id)
    commit(repository, {"other.yaml": b"n: 1\n"})
    assert repository.files(made.id)["n.yaml"] == b"n: 1\n"
    assert is_sound(repository)


def test_what_is_written_again_is_young_again(repository: Repository) -> None:
    def write() -> str:
        return repository.write(
            {"n.yaml": b"n"}, parents=(), author=ANN, message="Same", at_us=AT_US
        ).id

    path = object_file(repository, write())
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    write()
    assert path.stat().st_mtime > 1_000_000
    assert path.stat().st_ino == inode  # it was left as it is


@needs_git
@pytest.mark.parametrize("ending", [".pack", ".idx"])
@pytest.mark.parametrize("harm", [os.unlink, cut, garbage, empty])
def test_a_damaged_pack_is_told_by_our_own_error(
    repository: Repository, ending: str, harm: Callable[[Path], None]
) -> None:
    tip = first(repository)
    git(repository.path, "gc", "--quiet", "--prune=now")
    (path,) = Path(repository.path, "objects", "pack").glob(f"*{ending}")
    harm(path)
    fresh = Repository.open(repository.path)
    with pytest.raises(SluicegateError) as error:
        fresh.files(fresh.find(tip), suffixes=())
    assert repository.path in str(error.value)
    fresh.close()


@needs_git
def test_a_byte_that_turned_in_a_pack_is_noticed(repository: Repository) -> None:
    tip = first(repository)
    git(repository.path, "gc", "--quiet", "--prune=now")
    (path,) = Path(repository.path, "objects", "pack").glob("*.pack")
    path.chmod(0o644)
    content = path.read_bytes()
    errors = 0
    for at in range(12, len(content) - 20, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        fresh = Repository.open(repository.path)
        try:
            assert fresh.files(tip, suffixes=()) == {
                "README.md": b"Ours\n",
                "a.yaml": b"a: 1\n",
                "web/b.yaml": b"b: 1\n",
            }
        except Unavailable:
            errors += 1
        finally:
            fresh.close()
    assert errors > 5


@needs_git
@pytest.mark.parametrize(
    "raw",
    [
        "tree 1\n\nx\n",
        "author A <a@b> 1 +0000\n\nno tree\n",
        "tree {tree}\nauthor A <a@b> never +0000\ncommitter A <a@b> 1 +0000\n\nx\n",
        "tree {tree}\nparent xyz\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n",
        "\n",
        "",
    ],
)
def test_a_commit_that_is_none_is_told(repository: Repository, raw: str) -> None:
    text = raw.format(tree=git(repository.path, "rev-parse", "main^{tree}"))
    hex_id = git(
        repository.path, "hash-object", "-w", "--literally", "-t", "commit", "--stdin", text=text
    )
    for ask in (repository.info, repository.files):
        with pytest.raises(Unavailable, match=hex_id):
            ask(hex_id)
    with pytest.raises(Unavailable, match=hex_id):
        repository.move(MAIN, hex_id, expected=first(repository))


@needs_git
def test_a_tree_that_is_none_is_told(repository: Repository) -> None:
    path = Path(repository.path, "raw")
    path.write_bytes(b"100644 a.yaml\0short")
    tree = git(repository.path, "hash-object", "-w", "--literally", "-t", "tree", str(path))
    raw = f"tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n"
    made = git(repository.path, "hash-object", "-w", "-t", "commit", "--stdin", text=raw)
    with pytest.raises(Unavailable, match=tree):
        repository.files(made)


@needs_git
def test_a_file_that_is_a_folder_by_its_id_is_told(repository: Repository) -> None:
    inner = git(repository.path, "rev-parse", "main^{tree}")
    path = Path(repository.path, "raw")
    path.write_bytes(b"100644 a.yaml\0" + bytes.fromhex(inner))
    tree = git(repository.path, "hash-object", "-w", "--literally", "-t", "tree", str(path))
    raw = f"tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n"
    made = git(repository.path, "hash-object", "-w", "-t", "commit", "--stdin", text=raw)
    with pytest.raises(Unavailable, match=f"{inner} should be a file"):
        repository.files(made)


def test_a_repository_that_went_away_is_told(repository: Repository) -> None:
    tip = first(repository)
    shutil.rmtree(repository.path)
    with pytest.raises(Unavailable, match=r"rules\.git"):
        repository.files(tip)
    with pytest.raises(SluicegateError):
        repository.note(tip, "x", author=ANN, at_us=AT_US)
    with pytest.raises(BadValue):
        Repository.open(repository.path)
