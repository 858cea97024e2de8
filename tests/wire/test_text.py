"""Any bytes are text, no two the same, and all of it can be kept and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.wire.text import ODD_BYTES_MAX, shorten, text_again, text_of

# What an escape is made of, and what only looks like one.
PIECES = [b"\\", b"x", b"5", b"c", b"f", b"8", b"\xff", b"\xc3", b"\xa9", b"\x5c", b"a", b"\x1f"]
TRICKY = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=30)


@given(TRICKY, TRICKY)
def test_no_two_become_one_and_any_store_can_hold_them(one: bytes, other: bytes) -> None:
    assert (text_of(one) == text_of(other)) is (one == other)
    text_of(one).encode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("ann \u00fc \U0001f388".encode(), "ann \u00fc \U0001f388"),
        (b"/a/\xff.png", "/a/\\xff.png"),
        (b"\xc3\xa9\xc3", "\u00e9\\xc3"),
        (b"\\xff", "\\x5cxff"),
        (b"\\x5c", "\\x5cx5c"),
        (b"\\x41 \\n \\", "\\x41 \\n \\"),
        (b"\0\r\n", "\0\r\n"),
    ],
)
def test_text_is_what_it_says_and_other_bytes_are_numbers(data: bytes, text: str) -> None:
    assert text_of(data) == text


def test_what_is_long_and_no_text_is_its_beginning_and_a_digest() -> None:
    long = b"\xff" * (ODD_BYTES_MAX - 1)
    assert text_of(long + b"\xff") == "\\xff" * ODD_BYTES_MAX
    found = [text_of(long + tail) for tail in (b"\xff\xff", b"\xff\xfe", b"\xff\xff\xff")]
    assert len({*found}) == 3
    assert {len(text) for text in found} == {4 * ODD_BYTES_MAX + 4 + 32}
    assert text_of(b"a" * 1_000_000) == "a" * 1_000_000


def test_text_that_came_as_text_is_treated_as_its_bytes() -> None:
    assert text_again("zo\u00eb") == "zo\u00eb"
    assert text_again("\\xff") == text_of(b"\\xff")
    assert text_again("\ud800") == text_of(b"\xed\xa0\x80")


def test_what_is_short_enough_never_looks_shortened() -> None:
    assert shorten("a" * 40, 40) == "a" * 40
    found = [shorten(text, 40) for text in ("a" * 41, "a" * 42, "\ud800" * 41)]
    assert len({*found}) == 3
    assert {len(text) for text in found} == {41}
