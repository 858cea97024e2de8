"""What all stores read alike of their URLs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.urls import (
    as_truth,
    check_numbers,
    check_written_plainly,
    pairs_in,
    split_folder_url,
    split_url,
)


def test_a_url_has_parts_and_pairs() -> None:
    parts, pairs = split_url("x://me:secret@a:1/b?c=1&d=", "engine", "x://host")
    assert (parts.netloc, parts.path) == ("me:secret@a:1", "/b")
    assert pairs == [("c", "1"), ("d", "")]


@pytest.mark.parametrize("url", ["x://me:secret@[a", "x://me:secret@a?c"])
def test_one_that_cannot_be_read_is_shown_without_its_secrets(url: str) -> None:
    with pytest.raises(BadValue, match=r"^engine: .*write x://host$") as refused:
        split_url(url, "engine", "x://host")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("query", ["", "a=1"])
def test_a_query_may_be_empty(query: str) -> None:
    assert pairs_in(query, "x:", "engine", "x:") == ([("a", "1")] if query else [])


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("x:a/b", "a/b"),
        ("x:/a", "/a"),
        ("x:///a", "/a"),
        ("x://a", "/a"),
        ("x:a%20b?c=1", "a b"),
        ("x:", ""),
    ],
)
def test_a_folder_may_be_written_with_and_without_slashes(url: str, folder: str) -> None:
    folder_path, pairs = split_folder_url(url, "x:", "engine")
    assert folder_path == folder
    assert pairs == ([("c", "1")] if "?" in url else [])


def test_the_folder_of_another_scheme_is_refused() -> None:
    with pytest.raises(BadValue, match="begin it with x:"):
        split_folder_url("y:a", "x:", "engine")
    with pytest.raises(BadValue, match="write x:DIR"):
        split_folder_url("x:a?b", "x:", "engine")


@pytest.mark.parametrize("url", ["x://a/b@c", "x://a?b=c@d", "x://a#b", "x://a/#b@c"])
def test_a_sign_that_cuts_a_password_short_is_refused(url: str) -> None:
    parts, _ = split_url(url, "engine", "x://host")
    with pytest.raises(BadValue, match="write /"):
        check_written_plainly(parts, "engine", "x://***")
    parts, _ = split_url("x://me:a%40b@c/d?e=1", "engine", "x://host")
    check_written_plainly(parts, "engine", "x://***")


def test_numbers_are_within_their_bounds_and_both_ends_belong_to_them() -> None:
    bounds = {"one": (1, 3), "two": (0, 0)}
    for one in (1, 3):
        check_numbers(SimpleNamespace(one=one, two=0), bounds, "store")
    for one in (0, 4):
        with pytest.raises(BadValue, match=r"^store\.one: .*give a number from 1 to 3"):
            check_numbers(SimpleNamespace(one=one, two=0), bounds, "store")
    with pytest.raises(BadValue, match=r"^store\.two: "):
        check_numbers(SimpleNamespace(one=1, two=1), bounds, "store")


def test_yes_and_no_have_the_usual_words() -> None:
    assert [as_truth(text) for text in ("1", "TRUE", "Yes", "on")] == [True] * 4
    assert [as_truth(text) for text in ("0", "false", "NO", "off")] == [False] * 4
    with pytest.raises(KeyError):
        as_truth("maybe")
