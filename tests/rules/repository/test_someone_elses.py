from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from dulwich.object_store import DiskObjectStore

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.repository.repository import Repository
from tests.rules.repository.stories import (
    ANN,
    AT_US,
    LIVE,
    MAIN,
    commit,
    git,
    is_sound,
    needs_git,
    pushed,
    work_tree,
)

pytestmark = needs_git


@pytest.fixture
def used_clone(repository: Repository, tmp_path: Path) -> Path:
    """A work tree with everything that years of use bring: packs, packed refs, tags, merges."""
    clone = work_tree(repository, tmp_path / "work")
    for number in range(6):
        pushed(clone, {f"limits/{number}.yaml": f"n: {number}\n" * 50}, f"Add {number}")
    git(clone, "tag", "-a", "v1", "-m", "one")
    git(clone, "gc", "--quiet", "--aggressive", "--prune=now")
    git(clone, "pack-refs", "--all")
    return clone


@pytest.mark.parametrize("where", ["", ".git"])
def test_a_work_tree_is_opened_and_left_alone(used_clone: Path, where: str) -> None:
    repository = Repository.open(used_clone / where)
    before = git(used_clone, "rev-parse", "HEAD")
    assert repository.tip(MAIN) == repository.tip("HEAD") == before
    assert len(repository.files(before, folder="limits")) == 6
    made = commit(repository, {"limits/0.yaml": b"n: 9\n"}, on=before, ref=None)
    repository.move(LIVE, made.id, expected=None)
    assert git(used_clone, "status", "--porcelain") == ""
    assert git(used_clone, "rev-parse", "HEAD") == before
    assert git(used_clone, "log", "-1", "--format=%s", LIVE) == "Change"
    assert is_sound(repository)


def test_a_linked_work_tree_leads_to_the_same(used_clone: Path, tmp_path: Path) -> None:
    git(used_clone, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    repository = Repository.open(tmp_path / "side")
    assert repository.tip("HEAD") == repository.tip("refs/heads/side")
    commit(repository, {"side.yaml": b"s"}, ref="refs/heads/other", on=repository.tip(MAIN))
    assert Repository.open(used_clone).tip("refs/heads/other") == repository.tip("refs/heads/other")


def test_a_git_folder_elsewhere_is_followed(used_clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--separate-git-dir", str(tmp_path / "store"), str(used_clone))
    assert (used_clone / ".git").is_file()
    repository = Repository.open(used_clone)
    assert repository.tip(MAIN) == git(used_clone, "rev-parse", "main")


def test_ids_are_found_in_packs_too(used_clone: Path) -> None:
    repository = Repository.open(used_clone)
    for line in git(used_clone, "rev-list", "--all").split():
        assert repository.find(line[:12]) == line
        assert repository.find(git(used_clone, "rev-parse", f"--short={9}", line)) == line


def test_objects_may_be_borrowed_from_another_repository(
    repository: Repository, tmp_path: Path
) -> None:
    git(
        tmp_path,
        *("clone", "--quiet", "--bare", "--shared", repository.path, str(tmp_path / "lean.git")),
    )
    lean = Repository.open(tmp_path / "lean.git")
    tip = lean.tip(MAIN)
    assert tip is not None
    assert not list(Path(lean.path, "objects").rglob(f"{tip[2:]}"))
    assert lean.files(tip) == repository.files(tip)
    assert lean.find(tip[:8]) == tip
    made = commit(lean, {"a.yaml": b"2"})
    assert is_sound(lean)
    assert not repository.knows(made.id)


def test_git_may_pack_everything_under_an_open_repository(repository: Repository) -> None:
    made = [commit(repository, {"a.yaml": b"%d" % number}) for number in range(5)]
    repository.files(made[0].id)
    for number in range(3):
        git(repository.path, "gc", "--quiet", "--prune=now")
        git(repository.path, "repack", "-adq", f"--depth={number + 1}")
        made.append(commit(repository, {"a.yaml": b"again %d" % number}))
        assert [repository.files(one.id)["a.yaml"] for one in made[:2]] == [b"0", b"1"]
    git(repository.path, "multi-pack-index", "write")
    git(repository.path, "commit-graph", "write", "--reachable")
    assert repository.files(made[0].id)["a.yaml"] == b"0"
    git(repository.path, "repack", "-adq")
    fresh = Repository.open(repository.path)
    assert fresh.is_ancestor(made[0].id, made[-1].id)
    assert is_sound(fresh)
    fresh.close()


def test_an_object_that_is_packed_between_two_looks_is_found(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = repository.tip(MAIN)
    assert tip is not None
    look, looks = DiskObjectStore.get_raw, 0

    def missed_once(store: DiskObjectStore, name: Any) -> tuple[int, bytes]:
        nonlocal looks
        looks += 1
        if looks == 1:  # no pack had it yet, and then its file was gone
            raise KeyError(name)
        return look(store, name)

    monkeypatch.setattr(DiskObjectStore, "get_raw", missed_once)
    assert repository.info(tip).id == tip


def test_only_what_is_new_is_written(repository: Repository) -> None:
    git(repository.path, "gc", "--quiet", "--prune=now")
    made = commit(repository, {})
    back = commit(repository, {"web/b.yaml": b"b: 2\n"}, on=made.id, ref=None)
    loose = list(Path(repository.path, "objects").glob("??/*"))
    assert len(loose) == 1 + 4  # a commit, and then a file, two folders, a commit
    assert repository.info(back.id).parents == (made.id,)


def test_what_no_ref_leads_to_outlives_a_usual_gc(repository: Repository) -> None:
    made = commit(repository, {"a.yaml": b"2"}, ref=None, on=repository.tip(MAIN))
    git(repository.path, "gc", "--quiet")
    repository.move(LIVE, made.id, expected=None)
    assert repository.files(made.id)["a.yaml"] == b"2"
    assert is_sound(repository)


def test_a_repository_shared_by_a_group_stays_shared(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "--shared=group", "-b", "main", "rules.git")
    repository = Repository.open(tmp_path / "rules.git")
    made = commit(repository, {"a.yaml": b"1"})
    blob = Path(repository.path, "objects", made.id[:2])
    assert stat.S_IMODE(blob.stat().st_mode) & 0o2070 == 0o2070
    assert stat.S_IMODE((blob / made.id[2:]).stat().st_mode) == 0o444
    assert stat.S_IMODE(Path(repository.path, MAIN).stat().st_mode) == 0o664


def test_a_repository_of_one_user_is_read_by_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "rules.git").mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "-b", "main", "rules.git")
    for folder, _, _ in os.walk(tmp_path / "rules.git"):
        os.chmod(folder, 0o700)
    repository = Repository.open(tmp_path / "rules.git")
    made = commit(repository, {"a.yaml": b"1"})
    path = Path(repository.path, "objects", made.id[:2], made.id[2:])
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(Path(repository.path, MAIN).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"core.repositoryformatversion": "2"}, "format is 2"),
        (
            {"core.repositoryformatversion": "1", "extensions.objectformat": "sha256"},
            "objectformat = sha256",
        ),
        (
            {"core.repositoryformatversion": "1", "extensions.refstorage": "reftable"},
            "refstorage = reftable",
        ),
        ({"core.repositoryformatversion": "1", "extensions.unheard": "of"}, "unheard = of"),
        ({"core.repositoryformatversion": "many"}, "config"),
    ],
)
def test_a_format_that_is_not_known_is_refused(
    repository: Repository, settings: dict[str, str], named: str
) -> None:
    for name, value in settings.items():
        git("/", "config", "--file", f"{repository.path}/config", name, value)
    with pytest.raises(BadValue, match=named):
        Repository.open(repository.path)


def test_harmless_extensions_are_fine(repository: Repository) -> None:
    git(repository.path, "config", "extensions.preciousObjects", "true")
    git(repository.path, "config", "core.repositoryformatversion", "1")
    assert Repository.open(repository.path).tip(MAIN)


def test_commits_of_git_are_told_as_git_tells_them(used_clone: Path) -> None:
    repository = Repository.open(used_clone)
    tip = repository.tip(MAIN)
    assert tip is not None
    expected = git(used_clone, "log", "--first-parent", "--format=%H|%an|%ae|%at|%s").splitlines()
    commits = [
        f"{one.id}|{one.author.name}|{one.author.email}|{one.at_us // 1_000_000}|{one.message}"
        for one in repository.log(tip, count_max=99)
    ]
    assert commits == expected


def test_an_author_that_git_let_through_is_shown(repository: Repository) -> None:
    tree = git(repository.path, "rev-parse", "main^{tree}")
    for raw, name, email in (
        ("A <>", "A", ""),
        (" <a@b>", "", "a@b"),
        ("Ann B. <a@b>", "Ann B.", "a@b"),
    ):
        text = f"tree {tree}\nauthor {raw} 1 +0100\ncommitter {raw} 1 +0000\n\nx\n"
        made = git(
            repository.path,
            *("hash-object", "-w", "-t", "commit", "--literally", "--stdin"),
            text=text,
        )
        assert repository.info(made).author == (name, email)


def test_merged_commits_can_be_built_upon(used_clone: Path) -> None:
    git(used_clone, "checkout", "--quiet", "-b", "side", "HEAD~3")
    (used_clone / "side.yaml").write_text("s")
    git(used_clone, "add", "-A")
    git(used_clone, "commit", "--quiet", "-m", "Side")
    git(used_clone, "checkout", "--quiet", "main")
    git(used_clone, "merge", "--quiet", "--no-ff", "-m", "Merge", "side")
    repository = Repository.open(used_clone)
    tip = repository.tip(MAIN)
    assert tip is not None
    assert len(repository.info(tip).parents) == 2
    made = repository.write(
        {"side.yaml": None}, parents=[tip], author=ANN, message="Less", at_us=AT_US
    )
    assert "side.yaml" in repository.files(tip)
    assert "side.yaml" not in repository.files(made.id)
    side = repository.tip("refs/heads/side")
    assert side is not None
    assert repository.is_ancestor(side, made.id)
