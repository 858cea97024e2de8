from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.kernels.path_index import PathIndex, plain_path, plain_pattern
from sluicegate.rules.resources.paths import CELL_MAX, ResourceIndex
from sluicegate.rules.resources.rule import ANY_PRIORITY, LimitKind, Per, ResourceRule


def kind(count: int = 1, *, per: Per = Per.USER, shadow: bool = False, s: int = 1) -> LimitKind:
    limit = Limit(count, period_us=s * 1_000_000, algorithm=Algorithm.FIXED_WINDOW)
    return LimitKind(f"~{count}", limit, per, shadow=shadow)


def rule(
    path: str,
    client_type: str = "",
    priority: int = ANY_PRIORITY,
    limit_kind: LimitKind | None = None,
) -> ResourceRule:
    name = f"{path} {client_type} {priority}"
    pattern = plain_pattern(path) if path else path
    return ResourceRule(name, limit_kind or kind(), pattern, client_type, priority)


def index_of(*rules: ResourceRule) -> ResourceIndex:
    index = ResourceIndex()
    for one in rules:
        index.add(one)
    return index


def found(index: ResourceIndex, path: str, client_type: str = "", priority: int = 1) -> list[str]:
    return [one.rule_id for one in index.find(plain_path(path), client_type, priority)]


def test_the_path_decides_first_and_the_client_before_the_priority() -> None:
    every, tv, bulk = rule("/a"), rule("/a", "TV"), rule("/a", priority=3)
    both, wide = rule("/a", "TV", 3), rule("/*", "TV", 3)
    index = index_of(every, tv, bulk, both, wide)
    assert found(index, "/a", "TV", 3) == [both.rule_id]
    assert found(index, "/a", "TV", 0) == [tv.rule_id]
    assert found(index, "/a", "PHONE", 3) == [bulk.rule_id]
    assert found(index, "/a", "PHONE", 0) == [every.rule_id]
    assert found(index, "/a", "", 3) == [bulk.rule_id]
    assert found(index, "/b", "TV", 3) == [wide.rule_id]
    assert found(index, "/b", "TV", 2) == []


def test_where_the_best_path_is_for_others_the_next_best_counts() -> None:
    exact, template = rule("/users/me", "TV"), rule("/users/{id}", "PHONE")
    near, far, bare = rule("/users/*", priority=3), rule("/*", priority=2), rule("")
    index = index_of(bare, far, near, template, exact)
    assert found(index, "/users/me", "TV") == [exact.rule_id]
    assert found(index, "/users/me", "PHONE") == [template.rule_id]
    assert found(index, "/users/me", "", 3) == [near.rule_id]
    assert found(index, "/users/me", "", 2) == [far.rule_id]
    assert found(index, "/users/me", "", 0) == [bare.rule_id]


def test_rules_that_are_the_same_in_all_three_apply_together_and_trials_last() -> None:
    trial = rule("/a", limit_kind=kind(9, shadow=True))
    minute, hour = rule("/a", limit_kind=kind(1, s=60)), rule("/a", limit_kind=kind(2, s=3_600))
    assert index_of(trial, minute, hour).find("/a", "", 0) == (minute, hour, trial)


def test_a_rule_that_can_never_matter_is_refused() -> None:
    index = index_of(rule("/a"))
    with pytest.raises(ValueError, match="keep one of them"):
        index.add(rule("/a", limit_kind=kind(5)))
    index.add(rule("/a", limit_kind=kind(5, per=Per.RESOURCE)))
    index.add(rule("/a", limit_kind=kind(5, shadow=True)))
    for seconds in range(2, CELL_MAX - 1):
        index.add(rule("/a", limit_kind=kind(s=seconds)))
    with pytest.raises(ValueError, match="at most 16"):
        index.add(rule("/a", limit_kind=kind(s=999)))


def test_the_names_in_braces_do_not_tell_two_paths_apart() -> None:
    index = index_of(rule("/a/{x}/b", "TV"), rule("/a/{y}/b", "PHONE"))
    assert found(index, "/a/1/b", "PHONE")
    assert found(index, "/a/1/b", "TV")


def test_a_query_and_doubled_slashes_are_no_way_around_a_rule() -> None:
    index = index_of(rule("/api/v1"), rule("/"))
    for path in ("/api/v1", "/api/v1/", "//api//v1", "api/v1", "/api/v1?x=1", "/api/v1#a?b"):
        assert found(index, path) == [rule("/api/v1").rule_id], path
    for path in ("/", "", "//", "?", "/?a=/api/v1"):
        assert found(index, path) == [rule("/").rule_id], path


def test_names_in_braces_at_too_many_places_are_refused() -> None:
    index = ResourceIndex(shapes_max=3)
    index.add(rule("/a/{b}"))
    index.add(rule("/c/{d}/*"))
    with pytest.raises(ValueError, match="more than 3 different places"):
        index.add(rule("/{a}/b"))


SEGMENTS = ("a", "b", "{x}")
PATTERNS = [
    "/" + "/".join(parts) + end
    for depth in range(4)
    for parts in product(SEGMENTS, repeat=depth)
    for end in ("", "/*")
]
PATHS = ["/" + "/".join(parts) for depth in range(5) for parts in product("abc", repeat=depth)]


@given(
    patterns=st.sets(
        st.tuples(st.sampled_from(PATTERNS), st.sampled_from(["", "TV"]), st.sampled_from([1, 4])),
        max_size=16,
    )
)
def test_it_finds_what_dropping_the_unfit_rules_first_would_find(
    patterns: set[tuple[str, str, int]],
) -> None:
    distinct = sorted({(plain_pattern(path), client, bucket) for path, client, bucket in patterns})
    index = index_of(*[ResourceRule(f"{one}", kind(), one[0], one[1], one[2]) for one in distinct])
    for client, bucket in product(["", "TV"], [0, 1]):
        fit = [one for one in distinct if one[1] in {"", client} and one[2] in {4, bucket}]
        best: dict[str, tuple[str, str, int]] = {}
        for one in sorted(fit, key=lambda one: (one[1] != "", one[2] != 4)):
            best[one[0]] = one
        oracle = PathIndex([(path.replace("{}", "{x}"), f"{one}") for path, one in best.items()])
        for path in PATHS[::3]:
            expected = oracle.find(path)
            got = [one.rule_id for one in index.find(path, client, bucket)]
            assert got == ([expected] if expected else []), (path, client, bucket)
