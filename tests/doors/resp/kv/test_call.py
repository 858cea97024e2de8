"""_SetOptions a place is written as a key."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.resp.kv.call import (
    KEY_BYTES_MAX,
    escape,
    key_of,
    normalize_key,
    partition_of,
    place_of,
    table_of,
    unescape,
)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (b"users:42", ("users", b"42", b"")),
        (b"users:42:", ("users", b"42", b"")),
        (b"users:42:name", ("users", b"42", b"name")),
        (b"users:42:a:b:c", ("users", b"42", b"a:b:c")),
        (b"users:4%3A2:a%3ab", ("users", b"4:2", b"a:b")),
        (b"users:%00%ff:%25", ("users", b"\x00\xff", b"%")),
        (b"users:\x00\xff: ", ("users", b"\x00\xff", b" ")),
    ],
)
def test_the_first_colon_ends_the_table_and_the_next_the_partition(
    key: bytes, place: tuple[str, bytes, bytes]
) -> None:
    assert place_of(key) == place


@pytest.mark.parametrize("key", [b"", b":", b"users", b":42", b"users:", b"users::name"])
def test_what_is_no_key_is_told_how_one_is_written(key: bytes) -> None:
    with pytest.raises(BadValue, match="write it table:partition or table:partition:sort"):
        place_of(key)


@pytest.mark.parametrize("key", [b"t:%", b"t:%4", b"t:a:%4g", b"t:%g4", b"t:%%41"])
def test_an_escape_that_is_none_is_an_error(key: bytes) -> None:
    with pytest.raises(BadValue, match="write % as %25"):
        place_of(key)


def test_a_table_is_plain_text_and_a_partition_has_no_sort_key() -> None:
    with pytest.raises(BadValue, match=r"table: .* use a-z"):
        table_of(b"\xffx")
    assert partition_of(b"t:a%3Ab") == ("t", b"a:b")
    with pytest.raises(BadValue, match="write table:partition; sort keys come behind it"):
        partition_of(b"t:a:b")


@given(st.binary(min_size=1, max_size=240), st.binary(max_size=240))
@example(b":%:", b":%")
def test_a_written_place_is_read_back(partition: bytes, sort: bytes) -> None:
    key = key_of("t-1", partition, sort)
    assert place_of(key) == ("t-1", partition, sort)
    assert unescape(escape(sort)) == sort
    assert normalize_key(key) == key


@given(st.binary(min_size=1, max_size=8), st.binary(max_size=8), st.data())
def test_every_way_to_write_a_place_has_one_plain_way(
    partition: bytes, sort: bytes, data: st.DataObject
) -> None:
    def somehow(text: bytes, must: bytes) -> bytes:
        return b"".join(
            b"%%%02x" % byte if byte in must or data.draw(st.booleans()) else bytes((byte,))
            for byte in text
        )

    key = b"t:" + somehow(partition, b"%:") + b":" + somehow(sort, b"%")
    assert normalize_key(key) == key_of("t", partition, sort)


def test_what_is_no_key_is_plain_as_it_is() -> None:
    assert normalize_key(b"t:%zz") == b"t:%zz"
    assert normalize_key(b"t:") == b"t:"


def test_the_longest_key_is_one_and_a_longer_one_is_refused_before_it_is_read() -> None:
    longest = b"t" * 64 + b":" + b"%41" * 240 + b":" + b"%42" * 240
    assert len(longest) == KEY_BYTES_MAX
    assert place_of(longest) == ("t" * 64, b"A" * 240, b"B" * 240)
    # What is wrong with it besides is never found, because nobody looks.
    for wrong in (longest + b"%zz", b"t:" + b"%zz" * 2_000_000, b"x" * (KEY_BYTES_MAX + 1)):
        for read in (place_of, partition_of, unescape):
            with pytest.raises(BadValue, match=r"key: '[0-9,]+ bytes' .* at most 1,506 bytes"):
                read(wrong)
        assert normalize_key(wrong) is wrong
