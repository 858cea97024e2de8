from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import Author, FileChange
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from tests.rules.repository.stories import (
    ANN,
    AT_US,
    BOB,
    LIVE,
    MAIN,
    SECOND_US,
    commit,
    git,
    is_sound,
    needs_git,
)


def tip(repository: Repository, ref: str = MAIN) -> str:
    found = repository.tip(ref)
    assert found is not None
    return found


def bounded(repository: Repository, **bounds: int) -> Repository:
    return Repository.open(repository.path, settings=RepositorySettings(**bounds))


def test_a_new_repository_has_one_commit_with_the_files_it_was_given(
    repository: Repository,
) -> None:
    first = repository.info(tip(repository))
    assert first.parents == ()
    assert first.message == "Begin"
    assert first.at_us == AT_US
    assert repository.files(first.id, suffixes=()) == {
        "README.md": b"Ours\n",
        "a.yaml": b"a: 1\n",
        "web/b.yaml": b"b: 1\n",
    }


def test_the_commit_says_who_when_and_why(repository: Repository) -> None:
    at_us = AT_US + 5 * SECOND_US
    made = commit(
        repository, {"a.yaml": b"a: 2\n"}, author=BOB, message="Raise a\n\nMore came.", at_us=at_us
    )
    assert repository.info(made.id) == made
    assert made.author == BOB
    assert made.at_us == at_us
    assert made.message == "Raise a\n\nMore came."


def test_an_instant_is_cut_to_the_second_as_git_keeps_it(repository: Repository) -> None:
    assert commit(repository, {}, at_us=AT_US + 999_999).at_us == AT_US


@needs_git
def test_git_reads_what_was_written(repository: Repository) -> None:
    made = commit(repository, {"web/deep/c.yaml": "ü\n".encode(), "a.yaml": None}, message="Zwölf")
    assert git(repository.path, "log", "-1", "--format=%H|%an|%ae|%at|%s", "main") == (
        f"{made.id}|Ann|ann@example.org|{AT_US // SECOND_US}|Zwölf"
    )
    names = git(repository.path, "ls-tree", "-r", "--name-only", "main")
    assert names.split() == ["README.md", "web/b.yaml", "web/deep/c.yaml"]
    assert git(repository.path, "show", "main:web/deep/c.yaml") == "ü"
    assert is_sound(repository)


def test_a_commit_changes_nothing_until_a_ref_is_moved(repository: Repository) -> None:
    before = tip(repository)
    made = commit(repository, {"a.yaml": b"a: 9\n"}, on=before, ref=None)
    assert tip(repository) == before
    assert repository.files(before)["a.yaml"] == b"a: 1\n"
    assert repository.files(made.id)["a.yaml"] == b"a: 9\n"


def test_going_back_is_a_new_commit_with_the_old_tree(repository: Repository) -> None:
    old = tip(repository)
    new = commit(repository, {"a.yaml": b"a: 2\n", "web/b.yaml": None})
    back = repository.write(
        {}, parents=[new.id], tree_of=old, author=ANN, message="Back", at_us=AT_US
    )
    assert repository.files(back.id, suffixes=()) == repository.files(old, suffixes=())
    assert repository.is_ancestor(new.id, back.id)


def test_all_parents_are_kept(repository: Repository) -> None:
    one = commit(repository, {"a.yaml": b"1"}, ref=None, on=tip(repository))
    two = commit(repository, {"web/b.yaml": b"2"}, ref=None, on=tip(repository))
    merge = repository.write(
        {"web/b.yaml": b"2"}, parents=[one.id, two.id], author=ANN, message="Both", at_us=AT_US
    )
    assert merge.parents == (one.id, two.id)
    assert repository.files(merge.id) == {"a.yaml": b"1", "web/b.yaml": b"2"}


def test_only_files_of_rules_are_read_and_in_order(repository: Repository) -> None:
    made = commit(
        repository,
        {"z.YAML": b"z", "a/x.toml": b"x", "a.yml": b"y", "a-b.yaml": b"m", "notes.txt": b"n"},
    )
    assert list(repository.files(made.id)) == [
        "a-b.yaml",
        "a.yaml",
        "a.yml",
        "a/x.toml",
        "web/b.yaml",
        "z.YAML",
    ]


def test_a_folder_is_read_alone_and_its_names_stay_whole(repository: Repository) -> None:
    made = commit(repository, {"web/deep/c.yaml": b"c", "website/d.yaml": b"d"})
    assert list(repository.files(made.id, folder="web")) == ["web/b.yaml", "web/deep/c.yaml"]
    assert list(repository.files(made.id, folder="web/deep/")) == ["web/deep/c.yaml"]
    assert repository.files(made.id, folder="nowhere") == {}
    assert repository.files(made.id, folder="a.yaml") == {}
    with pytest.raises(BadValue, match="folder"):
        repository.files(made.id, folder="web/../..")


def test_changes_tell_what_a_file_was_and_became(repository: Repository) -> None:
    first = tip(repository)
    made = commit(repository, {"a.yaml": b"a: 2\n", "web/b.yaml": None, "c/d/e.yaml": b"e\n"})
    assert repository.changes(first, made.id) == [
        FileChange("a.yaml", b"a: 1\n", b"a: 2\n"),
        FileChange("c/d/e.yaml", None, b"e\n"),
        FileChange("web/b.yaml", b"b: 1\n", None),
    ]
    assert repository.changes(made.id, made.id) == []
    assert [c.name for c in repository.changes(None, first)] == [
        "README.md",
        "a.yaml",
        "web/b.yaml",
    ]
    assert [c.name for c in repository.changes(None, first, suffixes=(".md",))] == ["README.md"]
    assert [c.name for c in repository.changes(first, made.id, folder="web")] == ["web/b.yaml"]


def test_a_file_may_become_a_folder_and_a_folder_a_file(repository: Repository) -> None:
    first = tip(repository)
    made = commit(
        repository,
        {"a.yaml": None, "a.yaml/x.yaml": b"x", "web/b.yaml": None, "web": b"flat"},
    )
    assert repository.files(made.id, suffixes=()) == {
        "README.md": b"Ours\n",
        "a.yaml/x.yaml": b"x",
        "web": b"flat",
    }
    assert [change.name for change in repository.changes(first, made.id)] == [
        "a.yaml",
        "a.yaml/x.yaml",
        "web",
        "web/b.yaml",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"a.yaml/x.yaml": b"x"},  # below a file
        {"web": b"flat"},  # in place of a folder that has files
        {"web": None},  # a folder is no file
        {"missing.yaml": None},
        {"web/missing.yaml": None},
        {"x": b"", "x/y": b""},
    ],
)
def test_what_cannot_be_changed_is_refused(
    repository: Repository, changes: dict[str, bytes | None]
) -> None:
    with pytest.raises(BadValue):
        repository.write(
            changes, parents=[tip(repository)], author=ANN, message="Change", at_us=AT_US
        )


def test_the_last_file_may_go(repository: Repository) -> None:
    made = commit(repository, {"a.yaml": None, "web/b.yaml": None, "README.md": None})
    assert repository.files(made.id, suffixes=()) == {}
    assert list(repository.files(commit(repository, {"n.yaml": b""}).id)) == ["n.yaml"]


@needs_git
def test_a_tree_without_files_is_sound(repository: Repository) -> None:
    commit(repository, {"a.yaml": None, "web/b.yaml": None, "README.md": None})
    assert is_sound(repository)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a.yaml",
        "a//b.yaml",
        "a/",
        "../a.yaml",
        "a/../b.yaml",
        "./a.yaml",
        "a\0.yaml",
        "a\n.yaml",
        "a\x1b[31m.yaml",
        ".git/config",
        "x/.GIT/hooks/y",
        ".gitmodules",
        ".g\u200cit/config",
        "git~1/config",
        "a\\b.yaml",
        "c:a.yaml",
        "a.yaml ",
        "x" * 256,
        "/".join("x" * 33) + "/a.yaml",
        "a/" * 500 + "b",
        "\udcff.yaml",
    ],
)
def test_a_name_that_could_do_harm_somewhere_is_refused(repository: Repository, name: str) -> None:
    with pytest.raises(BadValue):
        repository.write({name: b""}, parents=(), author=ANN, message="Change", at_us=AT_US)


@pytest.mark.parametrize(
    "author",
    [Author("", "x@y"), Author("A\nB", "x@y"), Author("A <b>", "x@y"), Author("A", "x>y")],
)
def test_an_author_that_git_cannot_keep_is_refused(repository: Repository, author: Author) -> None:
    with pytest.raises(BadValue, match="author"):
        repository.write({}, parents=(), author=author, message="Change", at_us=AT_US)


@pytest.mark.parametrize("message", ["", " \n ", "a\0b", "x" * 100_000, "\udcff"])
def test_a_message_that_says_nothing_or_too_much_is_refused(
    repository: Repository, message: str
) -> None:
    with pytest.raises(BadValue, match="message"):
        repository.write({}, parents=(), author=ANN, message=message, at_us=AT_US)


@pytest.mark.parametrize("at_us", [-1, 1 << 60])
def test_an_instant_out_of_range_is_refused(repository: Repository, at_us: int) -> None:
    with pytest.raises(BadValue, match="at_us"):
        repository.write({}, parents=(), author=ANN, message="Change", at_us=at_us)


@pytest.mark.parametrize(
    ("bounds", "call"),
    [
        ({"files_max": 1}, "files"),
        ({"file_bytes_max": 4}, "a.yaml"),
        ({"bytes_max": 9}, "bytes"),
        ({"entries_max": 2}, "entries"),
    ],
)
def test_reading_is_bounded(repository: Repository, bounds: dict[str, int], call: str) -> None:
    with pytest.raises(BadValue, match=call):
        bounded(repository, **bounds).files(tip(repository))
    if "entries" not in bounds:
        with pytest.raises(BadValue, match=call):
            bounded(repository, **bounds).changes(None, tip(repository), suffixes=(".yaml",))


@pytest.mark.parametrize(
    ("bounds", "changes"),
    [
        ({"files_max": 1}, {"x.yaml": b"", "y.yaml": b""}),
        ({"file_bytes_max": 4}, {"x.yaml": b"12345"}),
        ({"bytes_max": 9}, {"x.yaml": b"12345", "y.yaml": b"12345"}),
        ({"depth_max": 1}, {"x/y/z.yaml": b""}),
        ({"name_bytes_max": 16}, {"x" * 17: b""}),
        ({"message_bytes_max": 64}, {}),
    ],
)
def test_writing_is_bounded(
    repository: Repository, bounds: dict[str, int], changes: dict[str, bytes | None]
) -> None:
    with pytest.raises(BadValue):
        bounded(repository, **bounds).write(
            changes, parents=(), author=ANN, message="Change" * 11, at_us=AT_US
        )


def test_bounds_are_met_exactly(repository: Repository) -> None:
    exact = bounded(repository, files_max=2, file_bytes_max=5, bytes_max=10, entries_max=5)
    assert len(exact.files(tip(repository))) == 2


@pytest.mark.parametrize("bounds", [{"files_max": 0}, {"walk_max": -1}, {"lock_us_max": 1 << 60}])
def test_bounds_out_of_range_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(BadValue, match=next(iter(bounds))):
        RepositorySettings(**bounds)


@needs_git
def test_a_link_that_is_called_like_a_file_of_rules_is_refused(
    repository: Repository, tmp_path: Path
) -> None:
    made = by_git(repository, "120000", "web/link.yaml", "../a.yaml")
    with pytest.raises(BadValue, match=r"web/link\.yaml.*link"):
        repository.files(made)
    assert list(repository.files(made, folder="web", suffixes=("b.yaml",))) == ["web/b.yaml"]


@needs_git
def test_another_repository_mounted_here_is_passed_over_with_a_reason(
    repository: Repository,
) -> None:
    tree = git(repository.path, "ls-tree", "main") + f"\n160000 commit {'1' * 40}\tthere.yaml\n"
    made = committed(repository, git(repository.path, "mktree", text=tree))
    assert list(repository.files(made)) == ["a.yaml", "web/b.yaml"]
    assert list(repository.skipped(made)) == ["there.yaml"]
    assert "submodule" in repository.skipped(made)["there.yaml"]
    assert repository.changes(tip(repository), made) == []


@needs_git
@pytest.mark.parametrize("name", ["a\x1bb.yaml", "a\\b.yaml", "x\u200c.yaml"])
def test_a_bad_name_that_somebody_pushed_is_refused_where_it_could_be_rules(
    repository: Repository, name: str
) -> None:
    made = by_git(repository, "100644", name, "x")
    with pytest.raises(BadValue, match="file"):
        repository.files(made)
    assert list(repository.files(made, folder="web")) == ["web/b.yaml"]
    (change,) = repository.changes(tip(repository), made)
    assert change.name.isprintable()


@needs_git
def test_a_name_that_is_no_utf_8_is_refused(repository: Repository) -> None:
    made = by_git(repository, "100644", "\udcff.yaml", "x")
    with pytest.raises(BadValue, match="UTF-8"):
        repository.files(made)


@needs_git
def test_how_a_file_is_kept_stays(repository: Repository) -> None:
    made = by_git(repository, "100755", "run.sh", "x")
    repository.move(MAIN, made, expected=repository.tip(MAIN))
    commit(repository, {"run.sh": b"y"})
    assert git(repository.path, "ls-tree", "main", "run.sh").startswith("100755")


@needs_git
def test_a_commit_in_another_charset_is_shown_as_well_as_can_be(repository: Repository) -> None:
    raw = (
        f"tree {git(repository.path, 'rev-parse', 'main^{tree}')}\n"
        "author J\udcf6rg <j@x> 1700000000 +0200\ncommitter J <j@x> 1700000009 +0200\n"
        "encoding ISO-8859-1\n\nGr\udcfc\udcdfe\n"
    )
    path = Path(repository.path) / "raw"
    path.write_bytes(raw.encode("utf-8", "surrogateescape"))
    made = repository.info(git(repository.path, "hash-object", "-t", "commit", "-w", str(path)))
    assert made.author.name == "Jörg"
    assert made.message == "Grüße"
    assert made.at_us == AT_US


@needs_git
def test_a_tag_stands_for_its_commit(repository: Repository) -> None:
    git(repository.path, "tag", "-a", "v1", "-m", "one", "main")
    tag = tip(repository, "refs/tags/v1")
    assert repository.info(tag).id == tip(repository)
    assert repository.is_ancestor(tag, tip(repository))
    with pytest.raises(BadValue, match="commit"):
        repository.move(LIVE, tag, expected=None)


def test_what_is_no_commit_is_refused(repository: Repository) -> None:
    for wrong in ("", "main", "z" * 40, "1" * 39, "1" * 41, " " + "1" * 39):
        with pytest.raises(BadValue, match="hex"):
            repository.info(wrong)
    with pytest.raises(Unavailable, match=r"rules\.git.*1111"):
        repository.info("1" * 40)


def test_an_id_may_be_in_capitals(repository: Repository) -> None:
    assert repository.info(tip(repository).upper()).id == tip(repository)


def test_a_commit_is_found_by_how_its_id_begins(repository: Repository) -> None:
    whole = tip(repository)
    assert repository.find(whole) == repository.find(whole[:6]) == whole
    assert repository.find(whole[:7].upper()) == whole
    for short in (whole[:5], "", "xyzxyz", "0" * 41, "f" * 40, "0" * 6):
        with pytest.raises(BadValue, match="commit"):
            repository.find(short)


@needs_git
def test_a_prefix_of_several_commits_is_refused_and_of_other_objects_ignored(
    repository: Repository,
) -> None:
    tree = git(repository.path, "rev-parse", "main^{tree}")
    with pytest.raises(BadValue, match="no such commit"):
        repository.find(tree[:8])
    twins = twin_commits(repository)
    assert repository.find(twins[0]) == twins[0]
    with pytest.raises(BadValue, match="may be any of"):
        repository.find(twins[0][:6])


def twin_commits(repository: Repository) -> tuple[str, str]:
    """Two commits whose ids begin with the same six digits."""
    import hashlib

    tree = git(repository.path, "rev-parse", "main^{tree}")
    seen: dict[str, str] = {}
    number = 0
    while True:
        text = f"tree {tree}\nauthor A <a@b> {number} +0000\ncommitter A <a@b> 1 +0000\n\nx\n"
        body = text.encode()
        digest = hashlib.sha1(b"commit %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
        if digest[:6] in seen:
            texts = (seen[digest[:6]], text)
            one, two = (
                git(repository.path, "hash-object", "-t", "commit", "-w", "--stdin", text=each)
                for each in texts
            )
            return one, two
        seen[digest[:6]] = text
        number += 1


@needs_git
def test_a_tree_that_holds_itself_very_often_is_not_walked(repository: Repository) -> None:
    blob = git(repository.path, "hash-object", "-w", "--stdin", text="x")
    tree = git(repository.path, "mktree", text=f"100644 blob {blob}\tx.yaml\n")
    for _ in range(12):
        rows = "".join(f"040000 tree {tree}\t{name}\n" for name in "abcdefghij")
        tree = git(repository.path, "mktree", text=rows)
    made = committed(repository, tree)
    with pytest.raises(BadValue, match="entries"):
        bounded(repository, entries_max=10_000).files(made)
    with pytest.raises(BadValue, match="entries"):
        bounded(repository, entries_max=10_000).changes(None, made)
    with pytest.raises(BadValue, match="folder"):
        bounded(repository, depth_max=3).files(made)


def test_two_hundred_files_at_once_become_a_pack(repository: Repository) -> None:
    files: dict[str, bytes | None] = {f"many/{n}.yaml": b"n: %d\n" % n for n in range(200)}
    made = commit(repository, files)
    assert len(repository.files(made.id, folder="many")) == 200
    packs = Path(repository.path, "objects", "pack")
    assert sorted(path.suffix for path in packs.iterdir()) == [".idx", ".pack"]


@needs_git
def test_git_reads_a_pack_of_ours(repository: Repository) -> None:
    commit(repository, {f"many/{n}.yaml": b"n: %d\n" % (n // 2) for n in range(200)})
    assert is_sound(repository)
    assert len(git(repository.path, "ls-tree", "-r", "main").splitlines()) == 203


def test_something_is_there_already(tmp_path: Path, repository: Repository) -> None:
    (tmp_path / "file").write_text("")
    for path in (repository.path, str(tmp_path), str(tmp_path / "file"), "", "a\0b"):
        with pytest.raises(BadValue, match=r"repository\.path"):
            Repository.create(path)
    (tmp_path / "empty").mkdir()
    assert Repository.create(tmp_path / "empty").tip(MAIN)


def test_a_repository_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadValue):
        Repository.create(tmp_path / "rules.git", files={"../x": b""})
    with pytest.raises(BadValue):
        Repository.create(tmp_path / "rules.git", branch="a..b")
    assert list(tmp_path.iterdir()) == []


@needs_git
def test_a_new_repository_is_one_that_git_takes(tmp_path: Path) -> None:
    made = Repository.create(tmp_path / "deep" / "er" / "rules.git", branch="trunk")
    assert git(made.path, "rev-parse", "--is-bare-repository") == "true"
    assert git(made.path, "symbolic-ref", "HEAD") == "refs/heads/trunk"
    assert made.tip("HEAD") == made.tip("refs/heads/trunk")
    assert is_sound(made)
    assert stat.S_IMODE(os.stat(made.path).st_mode) == stat.S_IMODE(
        os.stat(tmp_path / "deep").st_mode
    )


@pytest.mark.parametrize("what", ["nothing", "a folder", "a file", "a .git that leads nowhere"])
def test_what_is_no_repository_is_told_so(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    if what != "nothing":
        path.mkdir()
    if what == "a file":
        path.rmdir()
        path.write_text("hello")
    if what == "a .git that leads nowhere":
        (path / ".git").write_text("gitdir: ../nowhere")
    with pytest.raises(BadValue, match="no git repository"):
        Repository.open(path)


texts = st.binary(max_size=40)
names = st.lists(
    st.sampled_from(["a", "b", "c.yaml", "d-", "e.toml", "z"]), min_size=1, max_size=3
).map("/".join)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(states=st.lists(st.dictionaries(names, texts, max_size=6), min_size=1, max_size=4))
def test_a_commit_holds_what_a_dictionary_would(
    repository: Repository, states: list[dict[str, bytes]]
) -> None:
    last: dict[str, bytes] = {}
    parents: tuple[str, ...] = ()
    for state in states:
        expected = flat(state)
        changes: dict[str, Any] = {name: None for name in last if name not in expected}
        changes |= {name: text for name, text in expected.items() if last.get(name) != text}
        made = repository.write(changes, parents=parents, author=ANN, message="Change", at_us=AT_US)
        assert repository.files(made.id, suffixes=()) == dict(
            sorted(expected.items(), key=lambda item: item[0].encode())
        )
        before = parents[0] if parents else None
        answer = {c.name: (c.before, c.after) for c in repository.changes(before, made.id)}
        assert answer == {name: (last.get(name), expected.get(name)) for name in changes}
        last, parents = expected, (made.id,)


def flat(state: dict[str, bytes]) -> dict[str, bytes]:
    """Without files that are below a file."""
    return {
        name: text
        for name, text in state.items()
        if not any(name.startswith(f"{other}/") for other in state)
    }


def by_git(repository: Repository, mode: str, name: str, text: str) -> str:
    """A commit of git's own on top of main, with one more file, kept as told."""
    index = Path(repository.path) / "test-index"
    blob = git(repository.path, "hash-object", "-w", "--stdin", text=text)
    row = os.fsencode(f"{mode} {blob} 0\t{name}") + b"\0"
    import subprocess

    from tests.rules.repository.stories import QUIET

    environment = {**QUIET, "GIT_INDEX_FILE": str(index)}
    for arguments, input_text in (
        (["read-tree", "main"], b""),
        (["update-index", "-z", "--add", "--index-info"], row),
    ):
        subprocess.run(
            ["git", "-C", repository.path, *arguments],
            input=input_text,
            env=environment,
            check=True,
            timeout=60,
        )
    written = subprocess.run(
        ["git", "-C", repository.path, "write-tree"],
        env=environment,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    return committed(repository, written.stdout.strip())


def committed(repository: Repository, tree: str) -> str:
    return git(repository.path, "commit-tree", tree, "-p", "main", "-m", "By git")
