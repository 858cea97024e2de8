"""The memo of header blocks is right as long as the dynamic table is as it was, and not longer."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.wire.h2.header_memo import (
    BLOCK_BYTES_MAX,
    BadBlock,
    HeaderMemo,
    table_is_readable,
)

HOUR_US = 3_600_000_000
INDEX_62 = b"\xbe"  # whatever was added last


def literal(name: bytes, value: bytes, first: int = 0x40) -> bytes:
    """A literal; 0x40 adds it to the table, 0 does not."""
    return bytes((first, len(name))) + name + bytes((len(value),)) + value


def memo(entries_max: int = 8, us_max: int = HOUR_US) -> HeaderMemo:
    return HeaderMemo(entries_max, us_max, 16_384)


def read(cache: HeaderMemo, block: bytes, now_us: int = 0) -> Any:
    """As a connection does: look, or else decode and keep."""
    fields = cache.get(block, now_us)
    if fields is None:
        fields = cache.decode(block)
        cache.keep(block, fields, now_us)
    return fields


def test_a_block_without_effect_is_decoded_once() -> None:
    cache = memo()
    for _ in range(5):
        assert read(cache, b"\x82\x84") == [(b":method", b"GET"), (b":path", b"/")]
    assert cache.decodes == 1


def test_the_same_bytes_mean_another_thing_once_the_table_has_grown() -> None:
    cache, oracle = memo(), Decoder()
    blocks = [literal(b"who", b"ann"), INDEX_62, INDEX_62, literal(b"who", b"bob"), INDEX_62]
    lists = [read(cache, block) for block in blocks]
    assert lists == [oracle.decode(block, raw=True) for block in blocks]
    # A memo that had not forgotten would have taken bob for ann.
    assert lists[1] != lists[4]
    assert cache.decodes == 4


def test_a_block_that_adds_to_the_table_is_decoded_each_time() -> None:
    cache = memo()
    adding = literal(b"a", b"1")
    for _ in range(3):
        read(cache, adding)
    assert cache.decodes == 3
    assert read(cache, b"\xc0") == [(b"a", b"1")]  # the third entry


def test_an_addition_that_pushes_one_out_is_seen_although_the_length_is_the_same() -> None:
    cache, oracle = memo(), Decoder()
    full = [b"\x3f\x19"] + [literal(b"k", bytes((65 + i,)) * 15) for i in range(2)]  # of 56 bytes
    for block in [b"".join(full[:2]), INDEX_62, INDEX_62, full[2], INDEX_62]:
        assert read(cache, block) == oracle.decode(block, raw=True)


def test_a_size_update_empties_the_table_and_the_memo() -> None:
    cache = memo()
    read(cache, literal(b"a", b"1"))
    read(cache, INDEX_62)
    read(cache, b"\x20\x82")
    with pytest.raises(BadBlock):
        read(cache, INDEX_62)


def test_a_block_that_sets_a_size_is_decoded_each_time() -> None:
    cache = memo()
    read(cache, b"\x3f\x45\x82")  # to 100
    read(cache, b"\x3f\xe1\x1f\x82")  # back to 4,096
    read(cache, b"\x3f\x45\x82")
    assert cache.decodes == 3


def test_an_entry_too_large_for_the_table_empties_it() -> None:
    cache = memo()
    read(cache, b"\x3f\x45")
    read(cache, literal(b"a", b"1"))
    read(cache, INDEX_62)
    read(cache, literal(b"b", b"x" * 100))
    with pytest.raises(BadBlock):
        read(cache, INDEX_62)


def test_what_is_known_is_forgotten_after_its_time() -> None:
    cache = memo(us_max=1_000)
    read(cache, b"\x82", now_us=0)
    read(cache, b"\x83", now_us=900)
    assert cache.get(b"\x82", 999) is not None
    assert cache.get(b"\x83", 1_000) is None
    assert cache.get(b"\x82", 1_000) is None


def test_it_holds_no_more_than_its_entries_and_no_long_block() -> None:
    cache = memo(entries_max=2)
    for block in (b"\x82", b"\x83", b"\x84"):
        read(cache, block)
    assert [cache.get(block, 0) is not None for block in (b"\x82", b"\x83", b"\x84")] == [
        False,
        False,
        True,
    ]
    long = b"\x82" * (BLOCK_BYTES_MAX + 1)
    wide = HeaderMemo(8, HOUR_US, 1 << 20)
    read(wide, long[:-1])
    read(wide, long)
    assert wide.get(long[:-1], 0) is not None
    assert wide.get(long, 0) is None


def test_a_memo_of_no_entries_keeps_none() -> None:
    cache = memo(entries_max=0)
    read(cache, b"\x82")
    assert cache.get(b"\x82", 0) is None


def test_a_small_block_that_stands_for_a_huge_list_is_refused() -> None:
    cache = HeaderMemo(8, HOUR_US, 1_024)
    cache.decode(literal(b"a", b"x" * 100))
    with pytest.raises(BadBlock, match="larger"):
        cache.decode(INDEX_62 * 100)


@pytest.mark.parametrize("size", [b"\x20", b"\x3f\xe1\x1f"])
def test_a_block_may_resize_the_table_twice_and_no_more(size: bytes) -> None:
    assert memo().decode(size * 2 + b"\x82") == [(b":method", b"GET")]
    found = memo()
    with pytest.raises(BadBlock, match="sizes"):
        found.decode(size * 3 + b"\x82")


def test_the_kept_decoder_writes_down_no_token(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        memo().decode(literal(b"authorization", b"Bearer secret"))
    assert not caplog.records


FIELDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "bb", ":path", "authorization", "x-long-name"]),
        st.sampled_from(["", "1", "/t.T/Check", "Bearer abcdef", "x" * 700, "y" * 1_500]),
    ),
    min_size=1,
    max_size=6,
)


@given(st.lists(FIELDS, max_size=40), st.integers(0, 4_096))
def test_it_tells_what_the_kept_decoder_tells_for_any_conversation(
    lists: list[list[tuple[str, str]]], size: int
) -> None:
    encoder, oracle, cache = Encoder(), Decoder(), memo(entries_max=3)
    for number, fields in enumerate(lists):
        if number == 5:
            encoder.header_table_size = size
        block = encoder.encode(fields)
        assert read(cache, block, now_us=number) == oracle.decode(block, raw=True)


RESIZED_THRICE = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]?){3}")


@given(st.lists(st.binary(max_size=30).filter(lambda b: not RESIZED_THRICE.match(b)), max_size=20))
def test_any_bytes_are_decoded_or_refused_as_the_kept_decoder_does(blocks: list[bytes]) -> None:
    oracle, cache = Decoder(max_header_list_size=65_536), memo()
    for block in blocks:
        try:
            expected = oracle.decode(block, raw=True)
        except Exception:
            with pytest.raises(BadBlock):
                cache.decode(block)
            return
        assert read(cache, block) == expected


def test_without_a_readable_table_each_block_is_decoded() -> None:
    cache, oracle = HeaderMemo(8, HOUR_US, 16_384, readable=False), Decoder()
    blocks = [literal(b"who", b"ann"), INDEX_62, INDEX_62, literal(b"who", b"bob"), INDEX_62]
    assert [read(cache, each) for each in blocks] == [
        oracle.decode(each, raw=True) for each in blocks
    ]
    assert cache.decodes == len(blocks)
    with pytest.raises(BadBlock):
        cache.decode(b"\x80")


def test_a_table_that_is_not_as_we_know_it_is_noticed() -> None:
    class Table(list[tuple[bytes, bytes]]):
        maxsize = 4_096

        @property
        def dynamic_entries(self) -> object:
            return list(self)  # a copy

    class Other:
        def __init__(self, table: object = None) -> None:
            self.header_table = table

        def decode(self, block: bytes, raw: bool = False) -> None:
            if isinstance(self.header_table, Table) and block[0] == 0x40:
                self.header_table.insert(0, (b"a", b"b"))

    assert table_is_readable(Decoder())
    assert not table_is_readable(Other())
    assert not table_is_readable(Other(Table()))
