from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.path_index import PathIndex, plain_path, plain_pattern

Rules = list[tuple[str, str]]


def index(*patterns: str) -> PathIndex[str]:
    return PathIndex([(pattern, pattern) for pattern in patterns])


RULES = index(
    "/api/v1/playback",
    "/api/*",
    "/users/me",
    "/users/{id}",
    "/users/{id}/orders",
    "/users/me/{part}",
    "/users/{id}/*",
)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/api/v1/playback", "/api/v1/playback"),
        ("/api/v1/playback/next", "/api/*"),
        ("/api/v1", "/api/*"),
        ("/api", "/api/*"),  # a prefix includes the place itself
        ("/apiary", None),  # and only whole segments
        ("/users/me", "/users/me"),
        ("/users/7", "/users/{id}"),
        ("/users/7/orders", "/users/{id}/orders"),
        ("/users/me/orders", "/users/me/{part}"),  # the earlier literal wins
        ("/users/7/orders/9", "/users/{id}/*"),
        ("/users/7/profile", "/users/{id}/*"),
        ("/users", None),
        ("/", None),
    ],
)
def test_exact_goes_before_template_and_template_before_prefix(path: str, rule: str | None) -> None:
    assert RULES.find(path) == rule


@pytest.mark.parametrize(
    "path", ["/api/v1/playback/", "//api/v1/playback", "/api///v1//playback//", "api/v1/playback"]
)
def test_doubled_slashes_are_no_way_around_a_rule(path: str) -> None:
    assert RULES.find(path) == "/api/v1/playback"


def test_a_rule_for_one_path_takes_nothing_from_its_neighbours() -> None:
    rules = index("/users/me/settings/all", "/users/me/{part}/none", "/users/{id}/orders/{order}")
    assert rules.find("/users/me/orders/9") == "/users/{id}/orders/{order}"
    assert rules.find("/users/me/orders/none") == "/users/me/{part}/none"


def test_the_longest_prefix_wins_and_then_the_earlier_literal() -> None:
    rules = index("/*", "/a/*", "/{x}/b/*", "/a/{y}/*", "/{x}/{y}/*")
    assert rules.find("/a/b/c") == "/a/{y}/*"
    assert rules.find("/z/b/c") == "/{x}/b/*"
    assert rules.find("/z/z/c") == "/{x}/{y}/*"
    assert rules.find("/a") == "/a/*"
    assert rules.find("/z") == "/*"
    assert rules.find("/") == "/*"


def test_a_longer_prefix_on_a_less_literal_branch_still_wins() -> None:
    assert index("/a/*", "/{x}/b/*").find("/a/b/c") == "/{x}/b/*"


def test_a_template_stands_for_one_segment_and_never_for_none() -> None:
    rules = index("/users/{id}/orders")
    assert rules.find("/users/7/8/orders") is None
    assert rules.find("/users//orders") is None
    assert rules.find("/users/orders") is None


def test_the_root_can_have_a_rule_of_its_own() -> None:
    rules = index("/", "/*")
    assert (rules.find("/"), rules.find(""), rules.find("/x")) == ("/", "/", "/*")


def test_the_index_counts_its_rules() -> None:
    assert len(RULES) == 7
    assert len(index()) == 0
    assert index().find("/") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/a/b", "/a/b/"),
        ("/a/{x}", "/a/{other}"),
        ("/a/{x}/*", "/a/{y}/*"),
        ("/", "//"),
        ("/*", "/**"),
    ],
)
def test_two_rules_for_the_same_paths_are_rejected_unless_they_join(
    first: str, second: str
) -> None:
    with pytest.raises(ValueError, match=r"rule 3, .* another rule matches the same") as error:
        index("/other", first, second)
    assert repr(second) in str(error.value)
    joined: PathIndex[list[str]] = PathIndex()
    for pattern in ("/other", first, second):
        joined.add(plain_pattern(pattern), [pattern], list.__add__)
    assert len(joined) == 3
    assert joined.find(first.replace("*", "x").replace("{x}", "x")) == [first, second]


def test_alike_is_not_the_same() -> None:
    assert len(index("/a", "/{a}", "/a/*", "/{a}/*", "/*", "/")) == 6


@pytest.mark.parametrize(
    "pattern",
    ["/a/*/b", "/a*", "/{}", "/{a}b", "/a{b}", "/{a}{b}", "/{*}", "/a}", "/{", "/{{a}}", "/**/a"],
)
def test_stars_and_braces_out_of_place_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"rule 2, .*: {name} stands for a whole segment"):
        index("/ok", pattern)


@pytest.mark.parametrize("pattern", ["", "a/b", "*"])
def test_a_rule_that_does_not_start_at_the_root_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"rule 1, .*: start it with a slash"):
        index(pattern)


def test_a_rule_with_too_many_segments_is_refused() -> None:
    long = "/a" * 3
    assert PathIndex([(long, "x")], segments_max=3).find(long) == "x"
    with pytest.raises(ValueError, match=r"rule 1, .*: it has more than 2 segments"):
        PathIndex([(long, "x")], segments_max=2)


def test_out_of_the_box_a_rule_has_at_most_32_segments_and_all_together_64_shapes() -> None:
    assert len(index("/a" * 32)) == 1
    with pytest.raises(ValueError, match="more than 32 segments"):
        index("/a" * 33)
    many = ["/{x}" + "/a" * 31, "/a/{x}" + "/a" * 30]  # 32 shapes each
    assert len(index(*many)) == 2
    with pytest.raises(ValueError, match="more than 64 different places"):
        index(*many, "/a/b/*")


def test_rules_of_too_many_shapes_are_refused() -> None:
    patterns = [("/{x}/a/b", 1), ("/a/{x}/c", 2), ("/b/{x}/d", 3), ("/a/e/*", 4)]
    # Shapes, / literal and { template: {, {/, {//, /, /{, /{/, //
    assert PathIndex(patterns, shapes_max=7).find("/b/q/d") == 3
    with pytest.raises(ValueError, match="more than 6 different places"):
        PathIndex(patterns, shapes_max=6)


@pytest.mark.parametrize(
    ("field", "value"),
    [("segments_max", 0), ("segments_max", 1_001), ("shapes_max", 0), ("shapes_max", 1_000_001)],
)
def test_a_bound_out_of_range_is_refused(field: str, value: int) -> None:
    segments_max = value if field == "segments_max" else 1
    shapes_max = value if field == "shapes_max" else 1
    with pytest.raises(ValueError, match=rf"^{field} must be"):
        PathIndex([], segments_max=segments_max, shapes_max=shapes_max)
    PathIndex([], segments_max=1, shapes_max=1)
    PathIndex([], segments_max=1_000, shapes_max=1_000_000)


def test_a_walk_that_has_to_go_back_stays_within_the_shapes() -> None:
    # Every combination of literal and template over six segments, none of which ends in "z".
    patterns = [
        "/" + "/".join("a" if bits >> at & 1 else "{x}" for at in range(6)) + "/y"
        for bits in range(64)
    ]
    with pytest.raises(ValueError, match="different places"):
        PathIndex([(pattern, pattern) for pattern in patterns])
    rules = PathIndex([(pattern, pattern) for pattern in patterns], shapes_max=190)
    assert rules.find("/a/a/a/a/a/a/z") is None
    assert rules.find("/a/b/a/b/a/a/y") == "/a/{x}/a/{x}/a/a/y"


def test_a_path_of_a_million_segments_gets_its_prefix() -> None:
    assert RULES.find("/api" + "/x" * 1_000_000) == "/api/*"
    assert RULES.find("/nope" * 1_000_000) is None


segment = st.sampled_from(["a", "b", "{x}"])
patterns = st.tuples(st.lists(segment, max_size=4), st.booleans()).map(
    lambda made: "/" + "/".join([*made[0], "*"] if made[1] else made[0])
)
paths = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)


def slow_walk(rules: Rules, path: str) -> list[str]:
    """The oracle: try every rule, and rank those that fit."""
    parts = [part for part in path.split("/") if part]
    fitting: list[tuple[tuple[int, int, list[bool]], str]] = []
    for pattern, payload in rules:
        written = [part for part in pattern.split("/") if part]
        prefix = written[-1:] == ["*"]
        written = written[:-1] if prefix else written
        fits = len(parts) >= len(written) if prefix else len(parts) == len(written)
        if fits and all(one in ("{x}", other) for one, other in zip(written, parts, strict=False)):
            rank = (0 if prefix else 1, len(written), [part != "{x}" for part in written])
            fitting.append((rank, payload))
    return [payload for _, payload in sorted(fitting, reverse=True)]


@given(st.lists(patterns, max_size=14, unique=True), st.lists(paths, min_size=1, max_size=8))
def test_it_finds_what_ranking_all_rules_finds(written: list[str], queries: list[str]) -> None:
    rules: Rules = [(one, one) for one in written]
    path_index = PathIndex(rules)
    for path in queries:
        ranked = slow_walk(rules, path)
        exact = path_index.exact.get(path)
        segments = path.split("/") if len(path) > 1 else [""]
        assert [*([exact] if exact else []), *path_index.walk(segments)] == ranked
        assert path_index.find(path) == (ranked[0] if ranked else None)


def test_a_query_and_doubled_slashes_are_no_part_of_a_plain_path() -> None:
    for path in ("/api/v1", "/api/v1/", "//api//v1", "api/v1", "/api/v1?x=1", "/api/v1#a?b"):
        assert plain_path(path) == "/api/v1", path
    for path in ("/", "", "//", "?", "/?a=/api/v1"):
        assert plain_path(path) == "/", path


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("api", "start it with a slash"),
        ("/a?b", "no query"),
        ("/a#b", "no query"),
        ("/a/**/b", "at the end"),
        ("/" + "a" * 1_024, "longer than 1,024"),
        ("/\ud800", "UTF-8"),
    ],
)
def test_invalid_pattern_has_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        plain_pattern(text)


def test_a_plain_pattern_has_no_names_and_one_spelling() -> None:
    assert plain_pattern("//a/{id}/") == "/a/{}"
    assert plain_pattern("/a/*") == plain_pattern("/a/**") == "/a/*"
    assert plain_pattern("/") == "/"
