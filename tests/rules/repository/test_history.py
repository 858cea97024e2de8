from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import Commit
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from tests.rules.repository.stories import (
    ANN,
    AT_US,
    MAIN,
    SECOND_US,
    commit,
    git,
    needs_git,
    pushed,
    run_git,
    work_tree,
)


def grow(repository: Repository, *parents: str, at_s: int = 0, says: str = "Grow") -> str:
    return repository.write(
        {}, parents=parents, author=ANN, message=says, at_us=AT_US + at_s * SECOND_US
    ).id


def messages(commits: list[Commit]) -> list[str]:
    return [commit.message for commit in commits]


def test_the_log_is_newest_first_and_ends_where_it_is_told_to(repository: Repository) -> None:
    made = [commit(repository, {}, message=f"c{number}").id for number in range(5)]
    assert messages(repository.log(made[-1], count_max=3)) == ["c4", "c3", "c2"]
    assert messages(repository.log(made[-1], count_max=99)) == [
        "c4",
        "c3",
        "c2",
        "c1",
        "c0",
        "Begin",
    ]
    assert messages(repository.log(made[-1], until=made[1], count_max=99)) == ["c4", "c3", "c2"]
    assert messages(repository.log(made[-1], until=made[1], count_max=2)) == ["c4", "c3"]
    assert repository.log(made[1], until=made[1], count_max=9) == []
    assert repository.log(made[0], until=made[1], count_max=9) == []
    assert repository.log(made[0], count_max=0) == []


def test_the_log_keeps_to_the_line_that_was_merged_into(repository: Repository) -> None:
    base = grow(repository, says="base")
    ours = grow(repository, base, says="ours")
    theirs = grow(repository, grow(repository, base, says="theirs 1"), says="theirs 2")
    merge = grow(repository, ours, theirs, says="merge")
    top = grow(repository, merge, says="top")
    assert messages(repository.log(top, count_max=9)) == ["top", "merge", "ours", "base"]
    # Whoever saw the other side only has all of this line that it does not descend from before him.
    assert messages(repository.log(top, until=theirs, count_max=9)) == ["top", "merge", "ours"]


def test_a_commit_descends_from_itself_and_from_all_before(repository: Repository) -> None:
    one = grow(repository)
    two = grow(repository, one)
    side = grow(repository, one, says="Side")
    merge = grow(repository, two, side)
    for older, newer, expected in (
        (one, one, True),
        (one, merge, True),
        (side, merge, True),
        (merge, one, False),
        (two, side, False),
    ):
        assert repository.is_ancestor(older, newer) is expected


def test_histories_that_share_nothing_have_no_base(repository: Repository) -> None:
    one, other = grow(repository, says="one"), grow(repository, says="other")
    assert repository.merge_base(one, other) is None
    assert not repository.is_ancestor(one, other)


def test_wrong_dates_change_no_answer(repository: Repository) -> None:
    old = grow(repository, at_s=5_000)
    base = grow(repository, old, at_s=-9_000)
    one = grow(repository, base, at_s=9_000)
    two = grow(repository, grow(repository, base, at_s=-20_000), at_s=-30_000)
    assert repository.merge_base(one, two) == base
    assert repository.is_ancestor(base, two)
    assert repository.is_ancestor(old, two)
    assert not repository.is_ancestor(one, two)


def test_an_old_commit_with_a_young_date_does_not_end_the_walk(repository: Repository) -> None:
    root = grow(repository, at_s=1_000)
    base = grow(repository, root, at_s=10)
    older = grow(repository, base, at_s=50, says="older")
    late = grow(repository, older, at_s=-100, says="late")
    newer = grow(repository, base, late, at_s=100, says="newer")
    assert repository.is_ancestor(older, newer)
    assert repository.merge_base(older, newer) == older


def test_a_walk_that_is_too_long_says_so(repository: Repository) -> None:
    tip = repository.tip(MAIN)
    assert tip is not None
    for number in range(6):
        tip = grow(repository, tip, at_s=number)
    bound = Repository.open(repository.path, settings=RepositorySettings(walk_max=5))
    with pytest.raises(BadValue, match="walk_max"):
        bound.is_ancestor(grow(repository, says="Other"), tip)


def test_a_walk_ends_soon_after_where_two_lines_meet(repository: Repository) -> None:
    base = grow(repository)
    for number in range(1, 30):
        base = grow(repository, base, at_s=number)
    one, other = grow(repository, base, at_s=40, says="one"), grow(repository, base, at_s=41)
    bound = Repository.open(repository.path, settings=RepositorySettings(walk_max=6))
    assert bound.merge_base(one, other) == base
    assert bound.is_ancestor(base, other)
    assert not bound.is_ancestor(one, other)


def test_what_is_remembered_of_a_history_is_bounded(repository: Repository) -> None:
    first = last = grow(repository)
    for number in range(9):
        last = grow(repository, last, at_s=number)
    bound = Repository.open(repository.path, settings=RepositorySettings(parents_kept_max=2))
    assert bound.is_ancestor(first, last)
    assert bound.merge_base(first, last) == first
    assert len(bound._history._steps) <= 2


@needs_git
def test_a_history_that_a_person_rewrote_is_told(repository: Repository, tmp_path: Path) -> None:
    clone = work_tree(repository, tmp_path / "clone")
    pushed(clone, {"a.yaml": "a: 2\n"})
    live = repository.tip(MAIN)
    assert live is not None
    git(clone, "commit", "--quiet", "--amend", "-m", "Another story")
    assert run_git(clone, "push", "--quiet", "origin", "HEAD:main").returncode != 0
    git(clone, "push", "--quiet", "--force", "origin", "HEAD:main")
    rewritten = repository.tip(MAIN)
    assert rewritten is not None
    assert not repository.is_ancestor(live, rewritten)
    assert repository.merge_base(live, rewritten) == repository.info(live).parents[0]
    assert messages(repository.log(rewritten, until=live, count_max=9)) == ["Another story"]


@needs_git
def test_a_shallow_clone_ends_where_it_was_cut(repository: Repository, tmp_path: Path) -> None:
    for number in range(4):
        commit(repository, {}, message=f"c{number}")
    git(
        tmp_path,
        *("clone", "--quiet", "--bare", "--depth", "2", f"file://{repository.path}", "cut.git"),
    )
    cut = Repository.open(tmp_path / "cut.git")
    tip = cut.tip(MAIN)
    assert tip is not None
    assert messages(cut.log(tip, count_max=9)) == ["c3", "c2"]
    assert cut.merge_base(tip, cut.log(tip, count_max=9)[-1].id)


graphs = st.lists(
    st.tuples(st.lists(st.integers(0, 1 << 20), max_size=3), st.integers(-3, 3)),
    min_size=2,
    max_size=9,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(graph=graphs, picks=st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)))
def test_the_walk_finds_what_sets_of_ancestors_tell(
    repository: Repository,
    graph: list[tuple[list[int], int]],
    picks: tuple[int, int],
) -> None:
    ids: list[str] = []
    above: dict[str, set[str]] = {}
    for number, (drawn, at_s) in enumerate(graph):
        parents = sorted({ids[one % number] for one in drawn}) if number else []
        made = grow(repository, *parents, at_s=at_s, says=f"c{number}")
        ids.append(made)
        above[made] = {made}.union(*(above[parent] for parent in parents))
    one, other = (ids[pick % len(ids)] for pick in picks)
    common = above[one] & above[other]
    best = {c for c in common if not any(c != d and c in above[d] for d in common)}
    fresh = Repository.open(repository.path)
    assert fresh.is_ancestor(one, other) == (one in above[other])
    found = fresh.merge_base(one, other)
    assert (found in best) if best else found is None
    assert found == fresh.merge_base(other, one)


@needs_git
def test_git_finds_the_same_base(repository: Repository) -> None:
    base = grow(repository)
    left = [base]
    right = [base]
    for number in range(1, 5):
        # Each merges what the other was before: there are two bases at every step but the newest.
        newer = (
            grow(repository, left[-1], *right[-2:-1], at_s=10 * number, says="l"),
            grow(repository, right[-1], *left[-2:-1], at_s=10 * number + 1, says="r"),
        )
        left.append(newer[0])
        right.append(newer[1])
    for one, other in [*zip(left, right, strict=True), *pairwise(left), (left[4], right[2])]:
        bases = git(repository.path, "merge-base", "--all", one, other).split()
        assert repository.merge_base(one, other) in bases
