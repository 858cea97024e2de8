from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.rules.web.paths import EVERY_PATH, Pattern, file_paths, parse_pattern

# Few letters, so that patterns overlap in every way there is.
segments = st.sampled_from(["a", "b", "c"])
patterns = st.builds(
    lambda parts, below: "/" + "/".join([*parts, "**"] if below else parts),
    st.lists(st.sampled_from(["a", "b", "{x}", "{y}"]), max_size=4),
    st.booleans(),
).filter(lambda text: text.count("{x}") <= 1 and text.count("{y}") <= 1)
paths = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts))


def fits(pattern: str, path: str) -> bool:
    """What a pattern means, in the plainest way."""
    pattern_parts = [part for part in pattern.split("/") if part]
    path_parts = [part for part in path.split("/") if part]
    if pattern_parts and pattern_parts[-1] == "**":
        pattern_parts.pop()
        path_parts = path_parts[: len(pattern_parts)]
    return len(pattern_parts) == len(path_parts) and all(
        want in ("{x}", "{y}", part) for want, part in zip(pattern_parts, path_parts, strict=True)
    )


@example(["/{x}/b", "/{x}/b/**", "/a/{x}"], ["/a/b"])
@example(["/{x}/b/**", "/{x}/b", "/a/{x}"], ["/a/b"])
@given(st.lists(patterns, max_size=7), st.lists(paths, min_size=1, max_size=10))
def test_all_patterns_that_match_are_found_and_no_others(
    texts: list[str], asked_paths: list[str]
) -> None:
    index = file_paths(
        [(EVERY_PATH, 0), *((parse_pattern(text), 1 << at) for at, text in enumerate(texts))],
        lambda bits: bits,
    )
    for path in asked_paths:
        expected = sum(1 << at for at, text in enumerate(texts) if fits(text, path))
        assert index.find(path) == expected, path


@given(patterns, patterns, paths)
def test_a_pattern_that_covers_another_matches_all_that_it_does(
    one: str, other: str, path: str
) -> None:
    if parse_pattern(one).covers(parse_pattern(other)) and fits(other, path):
        assert fits(one, path)


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        ("/**", "/", True),
        ("/api/**", "/api", True),
        ("/api/**", "/api/{id}/x", True),
        ("/{x}", "/a", True),
        ("/{x}", "/{y}", True),
        ("/a", "/{x}", False),
        ("/api/{x}", "/api/**", False),
        ("/api/x", "/api/**", False),
        ("/a/**", "/b/**", False),
        ("/a/{x}/c", "/a/b/{y}", False),
    ],
)
def test_covering(one: str, other: str, covers: bool) -> None:
    assert parse_pattern(one).covers(parse_pattern(other)) is covers


def test_doubled_and_trailing_slashes_are_no_way_around() -> None:
    index = file_paths([(EVERY_PATH, 0), (parse_pattern("/login/"), 1)], lambda bits: bits)
    assert [index.find(path) for path in ("/login", "//login", "/login/", "login")] == [1] * 4
    assert index.find("/login/x") == 0


def test_a_pattern_is_written_as_it_was_read() -> None:
    for text in ("/", "/a", "/a/{x}/b", "/users/{id}/**", "/**"):
        assert str(parse_pattern(text)) == text
    assert parse_pattern("/users/{id}/x").names == (("id", 1),)
    assert parse_pattern("/a/**") == Pattern(("a",), True)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("login", "start it with a slash"),
        ("", "start it with a slash"),
        ("/a/*", "'/{name}' for one segment, or '/\\*\\*' for all below"),
        ("/*/a", "whole segment"),
        ("/a/*.png", "whole segment"),
        ("/{a b}", "is no name"),
        ("/{id}/{id}", "twice"),
        ("/a" * 33, "more than 32 segments"),
    ],
)
def test_a_pattern_that_is_none_is_told_what_to_do(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        parse_pattern(text)


def test_patterns_that_overlap_without_end_are_refused() -> None:
    # Each has a literal at another place, so their overlaps are all the subsets.
    texts = [
        "/" + "/".join("a" if at == here else f"{{s{at}}}" for at in range(11))
        for here in range(11)
    ]
    rows = [(parse_pattern(text), 1) for text in texts]
    file_paths(rows[:6], lambda bits: bits, overlaps_max=63)
    with pytest.raises(ValueError, match="overlap in more than 62 ways"):
        file_paths(rows[:6], lambda bits: bits, overlaps_max=62)
    # And the index has bounds of its own.
    with pytest.raises(ValueError, match="different places"):
        file_paths(rows, lambda bits: bits)
