from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate import BadValue
from sluicegate.telemetry.keys import KEY_CHARS_MAX, key_hasher, plain_key

SECRET = b"sixteen bytes or"


def test_a_hash_is_the_same_for_the_same_secret_and_no_other() -> None:
    digest = key_hasher(SECRET)("user:1")
    assert digest == key_hasher(SECRET)("user:1")
    # Lines of different versions are compared by it, so it stays as it is.
    assert digest == "d677407557bef445"
    assert digest != key_hasher(SECRET)("user:2")
    assert digest != key_hasher(b"another sixteen!")("user:1")


@given(st.text(st.characters(exclude_categories=()), max_size=50))
@example("\ud800")
def test_any_key_can_be_hashed_and_none_is_in_its_hash(key: str) -> None:
    digest = key_hasher(SECRET)(key)
    assert len(digest) == 16
    assert len(key) < 5 or key not in digest


@pytest.mark.parametrize("secret", [b"", b"fifteen bytes o"])
def test_a_secret_that_can_be_guessed_is_told_and_not_shown(secret: bytes) -> None:
    with pytest.raises(BadValue, match="at least 16") as refusal:
        key_hasher(secret)
    assert "fifteen" not in str(refusal.value)


@given(st.text(st.characters(exclude_categories=())))
def test_a_plain_key_is_one_line_of_bounded_length(key: str) -> None:
    line = plain_key(key)
    assert line.isprintable()
    assert len(line) <= 10 * (KEY_CHARS_MAX + 3)
    if key.isprintable() and len(key) <= KEY_CHARS_MAX:
        assert line == key


def test_a_key_cannot_forge_a_line() -> None:
    assert plain_key("a\nERROR b") == "a\\nERROR b"
    assert plain_key("x" * 300) == "x" * 200 + "..."
