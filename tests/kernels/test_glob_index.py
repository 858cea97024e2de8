from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.glob_index import GlobIndex, matches, parse

texts = st.text(alphabet="ab", max_size=8)
globs = st.text(alphabet="ab*", min_size=1, max_size=7).map(
    lambda text: text if "*" in text else text + "*"
)


def slow_matches(pattern: str, value: str) -> bool:
    """The oracle: every way of dividing the value among the stars, by recursion."""
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(slow_matches(pattern[1:], value[at:]) for at in range(len(value) + 1))
    return value[:1] == pattern[0] and slow_matches(pattern[1:], value[1:])


def slow_find(patterns: list[str], value: str) -> int:
    return next((at for at, one in enumerate(patterns) if slow_matches(one, value)), -1)


def found(patterns: list[str], value: str) -> str | None:
    at = GlobIndex(patterns).find(value)
    return None if at < 0 else patterns[at]


def test_a_star_stands_for_any_run_also_none() -> None:
    assert [matches(parse("a*c"), value) for value in ("ac", "abc", "abbc", "ab", "xac")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_beginning_and_the_end_may_not_overlap() -> None:
    assert not matches(parse("aba*aba"), "aba")
    assert not matches(parse("aba*aba"), "ababa")
    assert matches(parse("aba*aba"), "abaaba")


def test_the_parts_between_come_in_order_and_before_the_end() -> None:
    assert matches(parse("*b*c*"), "abc")
    assert matches(parse("*b*c*"), "bc")
    assert not matches(parse("*c*b*"), "abc")
    assert not matches(parse("a*b*b"), "ab")
    assert not matches(parse("*bb*bb*"), "bbb")
    assert not matches(parse("a*xx*d"), "axd")


def test_a_star_alone_matches_everything() -> None:
    assert matches(parse("*"), "")
    assert matches(parse("*"), "anything")


def test_stars_in_a_row_are_one_star() -> None:
    assert parse("a**b***c") == parse("a*b*c") == ("a", "b", "c")
    assert parse("**") == parse("*") == ("", "")


def test_nothing_but_the_star_is_special() -> None:
    assert matches(parse("a.*[x]?"), "a.1[x]?")
    assert not matches(parse("a.*[x]?"), "ab1x")


def test_a_pattern_that_cannot_win_by_backtracking_takes_no_time() -> None:
    # 40 stars against 20,000 characters: by backtracking, longer than the universe is old.
    assert not matches(parse("a*" * 40 + "b"), "a" * 20_000)


def test_the_first_pattern_in_order_wins_wherever_it_is_filed() -> None:
    assert found(["*z", "a*", "*m*"], "amz") == "*z"
    assert found(["a*", "*z", "*m*"], "amz") == "a*"
    assert found(["*m*", "*z", "a*"], "amz") == "*m*"
    assert found(["ab*", "a*"], "abc") == "ab*"
    assert found(["a*", "ab*"], "abc") == "a*"
    assert found(["a*y", "a*z", "a*"], "amz") == "a*z"


def test_nothing_found_is_minus_one() -> None:
    assert GlobIndex([]).find("x") == -1
    assert GlobIndex(["a*", "*b", "*cc*"]).find("") == -1
    assert GlobIndex(["longer*", "*longer"]).find("long") == -1


def test_a_hundred_thousand_prefixes_take_as_many_tries_as_they_have_lengths() -> None:
    index = GlobIndex([f"tenant-{n}-*" for n in range(100_000)], tries_max=10)
    assert index.find("tenant-99999-eu") == 99_999
    assert index.find("tenant-7-eu") == 7
    assert index.find("tenant-7") == -1
    assert len(index) == 100_000


def test_a_hundred_thousand_suffixes_likewise() -> None:
    index = GlobIndex([f"*.host-{n}.example" for n in range(100_000)], tries_max=10)
    assert index.find("api.host-4711.example") == 4_711


def test_patterns_that_would_all_have_to_be_tried_are_refused_with_their_number() -> None:
    alike = [f"*{n}*" for n in range(20)]
    assert GlobIndex(alike, tries_max=20).find("x19x") == 1  # "*1*" comes first
    with pytest.raises(ValueError, match=r"these 21 patterns could take 21 tries"):
        GlobIndex([*alike, "*20*"], tries_max=20)
    with pytest.raises(ValueError, match="tries_max"):
        GlobIndex([f"same*{n}*" for n in range(20)], tries_max=20)


def test_the_tries_counted_are_the_lengths_and_the_fullest_anchor_of_each() -> None:
    patterns = ["aa*", "bb*", "bb*x", "c*", "*d", "*f*"]  # 2 lengths + 2 + 1, 1 + 1, 1
    GlobIndex(patterns, tries_max=8)
    with pytest.raises(ValueError, match="8 tries"):
        GlobIndex(patterns, tries_max=7)


@pytest.mark.parametrize("tries_max", [0, 1_000_001])
def test_a_bound_out_of_range_is_refused(tries_max: int) -> None:
    with pytest.raises(ValueError, match=r"^tries_max must be"):
        GlobIndex([], tries_max=tries_max)
    GlobIndex(["a*"], tries_max=1_000_000)


def test_a_pattern_without_a_star_is_refused() -> None:
    with pytest.raises(ValueError, match="'plain'"):
        GlobIndex(["a*", "plain"])


def test_a_value_of_ten_megabytes_is_matched_in_one_pass() -> None:
    value = "ab" * 5_000_000
    assert matches(parse("a*ba*b"), value)
    assert not matches(parse("a*bb*b"), value)


@given(globs, texts)
def test_it_matches_what_every_division_of_the_value_matches(pattern: str, value: str) -> None:
    assert matches(parse(pattern), value) == slow_matches(pattern, value)
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(parse(pattern), value) == (re.fullmatch(expression, value) is not None)


@given(st.lists(globs, max_size=12), texts)
def test_it_finds_what_trying_all_in_order_finds(patterns: list[str], value: str) -> None:
    assert GlobIndex(patterns).find(value) == slow_find(patterns, value)
