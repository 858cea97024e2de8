from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.rulebook import Author, Commit
from sluicegate.rules.repository.repository import Repository
from tests.rules.repository.stories import (
    ANN,
    AT_US,
    BOB,
    MAIN,
    SECOND_US,
    commit,
    git,
    is_sound,
    needs_git,
    run_git,
    work_tree,
)


def first(repository: Repository) -> str:
    found = repository.tip(MAIN)
    assert found is not None
    return found


def beside(
    repository: Repository,
    on: str,
    changes: dict[str, bytes | None],
    *,
    message: str = "Change",
    author: Author = ANN,
) -> Commit:
    return commit(repository, changes, on=on, ref=None, message=message, author=author)


def test_changes_to_different_files_come_together(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"theirs", "new.yaml": b"n"}).id
    ours = beside(
        repository, base, {"web/b.yaml": b"ours", "README.md": None}, message="Ours", author=BOB
    )
    rebased = repository.rebase(ours.id, theirs)
    assert repository.files(rebased.id, suffixes=()) == {
        "a.yaml": b"theirs",
        "new.yaml": b"n",
        "web/b.yaml": b"ours",
    }
    assert rebased.parents == (theirs,)
    assert (rebased.author, rebased.message, rebased.at_us) == (BOB, "Ours", ours.at_us)


def test_several_commits_become_one_with_the_message_of_the_last(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"theirs"}).id
    one = beside(repository, base, {"web/b.yaml": b"1"}).id
    two = beside(repository, one, {"c.yaml": b"2"}, message="Both")
    rebased = repository.rebase(two.id, theirs)
    assert [change.name for change in repository.changes(theirs, rebased.id)] == [
        "c.yaml",
        "web/b.yaml",
    ]
    assert rebased.message == "Both"


def test_a_file_changed_on_both_sides_is_named(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"theirs", "web/b.yaml": None}).id
    ours = beside(repository, base, {"a.yaml": b"ours", "web/b.yaml": b"ours", "c.yaml": b"c"}).id
    with pytest.raises(Conflict) as error:
        repository.rebase(ours, theirs)
    assert error.value.what == "a.yaml, web/b.yaml"
    for one in (ours, theirs, base):
        assert one[:12] in error.value.detail


def test_of_many_such_files_some_are_named_and_the_rest_counted(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {f"{n:02}.yaml": b"theirs" for n in range(12)}).id
    ours = beside(repository, base, {f"{n:02}.yaml": b"ours" for n in range(12)}).id
    with pytest.raises(Conflict, match=r"00\.yaml, .*09\.yaml and 2 more"):
        repository.rebase(ours, theirs)


def test_the_same_change_on_both_sides_is_no_conflict(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"same", "web/b.yaml": None}).id
    ours = beside(repository, base, {"a.yaml": b"same", "web/b.yaml": None, "c.yaml": b"c"}).id
    rebased = repository.rebase(ours, theirs)
    assert [change.name for change in repository.changes(theirs, rebased.id)] == ["c.yaml"]


def test_what_is_on_top_already_is_returned_as_it_is(repository: Repository) -> None:
    base = first(repository)
    ours = beside(repository, base, {"a.yaml": b"ours"})
    assert repository.rebase(ours.id, base) == ours
    assert repository.rebase(ours.id, ours.id) == ours


def test_what_is_contained_already_is_refused(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"theirs"}).id
    with pytest.raises(BadValue, match="already"):
        repository.rebase(base, theirs)


def test_what_shares_no_history_is_refused(repository: Repository) -> None:
    stranger = repository.write(
        {"a.yaml": b"x"}, parents=(), author=ANN, message="Stranger", at_us=AT_US
    )
    with pytest.raises(BadValue, match="shares no history"):
        repository.rebase(stranger.id, first(repository))


def test_doing_it_again_gives_the_same_commit(repository: Repository) -> None:
    base = first(repository)
    theirs = beside(repository, base, {"a.yaml": b"theirs"}).id
    ours = beside(repository, base, {"web/b.yaml": b"ours"}).id
    assert repository.rebase(ours, theirs) == repository.rebase(ours, theirs)
    later = repository.rebase(ours, theirs, at_us=AT_US + 60 * SECOND_US)
    assert later.id != repository.rebase(ours, theirs).id
    assert later.at_us == AT_US


@needs_git
def test_a_merge_of_theirs_into_ours_counts_only_what_is_ours(
    repository: Repository, tmp_path: Path
) -> None:
    base = first(repository)
    ours = beside(repository, base, {"web/b.yaml": b"ours"}).id
    repository.move("refs/heads/ours", ours, expected=None)
    theirs = commit(repository, {"a.yaml": b"theirs"}).id
    clone = work_tree(repository, tmp_path / "clone")
    git(clone, "checkout", "--quiet", "ours")
    git(clone, "merge", "--quiet", "--no-edit", "origin/main")
    git(clone, "push", "--quiet", "origin", "ours")
    merged = repository.tip("refs/heads/ours")
    assert merged is not None
    assert repository.rebase(merged, theirs).id == merged
    further = commit(repository, {"c.yaml": b"further"}).id
    rebased = repository.rebase(merged, further)
    assert [change.name for change in repository.changes(further, rebased.id)] == ["web/b.yaml"]
    assert is_sound(repository)


states = st.dictionaries(st.sampled_from(["a", "b", "c/x", "c/y"]), st.binary(max_size=1))


@needs_git
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(base=states, ours=states, theirs=states)
def test_git_merges_to_the_same_tree_where_files_are_changed_on_one_side_only(
    repository: Repository, base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes]
) -> None:
    def on(parent: str | None, before: dict[str, bytes], after: dict[str, bytes]) -> str:
        changes: dict[str, bytes | None] = {name: None for name in before if name not in after}
        changes |= {name: text for name, text in after.items() if before.get(name) != text}
        return repository.write(
            changes,
            parents=() if parent is None else (parent,),
            author=ANN,
            message="Change",
            at_us=AT_US,
        ).id

    root = on(None, {}, base)
    left, right = on(root, base, ours), on(root, base, theirs)
    clashes = [
        name
        for name in {*base, *ours, *theirs}
        if len({base.get(name), ours.get(name), theirs.get(name)}) == 3
    ]
    if left in (root, right) or right == root:
        return
    if clashes:
        with pytest.raises(Conflict) as error:
            repository.rebase(left, right)
        assert error.value.what == ", ".join(sorted(clashes))
        return
    rebased = repository.rebase(left, right)
    result = run_git(repository.path, "merge-tree", "--write-tree", left, right)
    if result.returncode == 0:  # git looks for renames, and may see a conflict in one
        tree = git(repository.path, "rev-parse", f"{rebased.id}^{{tree}}")
        assert result.stdout.split()[0] == tree
