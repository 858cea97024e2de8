"""A token goes on where it was told to, or is refused: never from somewhere else."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluicegate.apps.kv.tables.tokens import read_token, span_after, token_after
from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, KeyRange
from sluicegate.contracts.errors import BadValue

ALL = KeyRange(b"", None)
TABLES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)
PARTITIONS = st.binary(min_size=1, max_size=PARTITION_BYTES_MAX)
SORTS = st.binary(max_size=SORT_BYTES_MAX)
SPANS = st.booleans().map(lambda reverse: KeyRange(b"", None, reverse))


def refused(token: bytes, table: str, partition: bytes, span: KeyRange) -> bool:
    try:
        read_token(token, table, partition, span)
    except BadValue as error:
        return error.field == "token"
    return False


@given(TABLES, PARTITIONS, SPANS, SORTS)
def test_a_whole_token_goes_on_behind_its_row(
    table: str, partition: bytes, span: KeyRange, sort: bytes
) -> None:
    token = token_after(table, partition, span, sort)
    assert read_token(token, table, partition, span) == span_after(span, sort)


@given(TABLES, PARTITIONS, SPANS, SORTS, st.data())
def test_a_token_that_is_cut_or_changed_anywhere_is_refused(
    table: str, partition: bytes, span: KeyRange, sort: bytes, data: st.DataObject
) -> None:
    token = token_after(table, partition, span, sort)
    begin = data.draw(st.integers(0, len(token)), label="begin")
    end = data.draw(st.integers(begin, len(token)), label="end")
    put = data.draw(st.binary(max_size=12), label="put")
    changed = token[:begin] + put + token[end:]
    assume(changed not in {token, b""})  # an empty token is none: it begins
    assert refused(changed, table, partition, span)


@given(PARTITIONS, SPANS, SORTS)
def test_every_cut_and_every_changed_byte_is_refused(
    partition: bytes, span: KeyRange, sort: bytes
) -> None:
    token = token_after("t", partition, span, sort)
    for at in range(len(token)):
        one = bytes((token[at] ^ 1,))
        assert refused(token[:at] + one + token[at + 1 :], "t", partition, span)
        assert refused(token[:at] + token[at + 1 :], "t", partition, span)
        if at:
            assert refused(token[:at], "t", partition, span)
        assert refused(token + token[at:], "t", partition, span)


@given(TABLES, PARTITIONS, SPANS, SORTS, TABLES, PARTITIONS, st.booleans())
def test_a_token_is_of_its_table_partition_and_direction(
    table: str,
    partition: bytes,
    span: KeyRange,
    sort: bytes,
    other: str,
    another: bytes,
    turn: bool,
) -> None:
    assume(other != table or another != partition or turn)
    token = token_after(table, partition, span, sort)
    other_span = span._replace(reverse=span.reverse != turn)
    assert refused(token, other, another, other_span)


@pytest.mark.parametrize(
    ("table", "partition", "sort"), [("a", b"bc", b"d"), ("ab", b"c", b"d"), ("a", b"b", b"cd")]
)
def test_no_two_places_are_taken_for_each_other(table: str, partition: bytes, sort: bytes) -> None:
    check = token_after("a", b"b", ALL, b"cd")[1:9]
    assert (token_after(table, partition, ALL, sort)[1:9] == check) == (
        (table, partition, sort) == ("a", b"b", b"cd")
    )


def test_a_token_of_another_release_says_so() -> None:
    token = token_after("t", b"p", ALL, b"k")
    with pytest.raises(BadValue, match="newer release; upgrade, or begin without one"):
        read_token(b"\x03" + token[1:], "t", b"p", ALL)
    old = b"\x01" + blake2b(b"\x00\x00\x01tp", digest_size=8).digest() + b"k"
    for one in (old, old[:-1], b"\x00" + token[1:]):
        with pytest.raises(BadValue, match="older release; begin without one"):
            read_token(one, "t", b"p", ALL)
    with pytest.raises(BadValue, match="send it whole, as it was told"):
        read_token(token[:-1], "t", b"p", ALL)


def test_a_token_longer_than_any_is_not_even_looked_at() -> None:
    token = token_after("t", b"p", ALL, b"k" * SORT_BYTES_MAX)
    assert read_token(token, "t", b"p", ALL).begin == b"k" * SORT_BYTES_MAX + b"\x00"
    with pytest.raises(BadValue, match="token"):
        read_token(token_after("t", b"p", ALL, b"k" * (SORT_BYTES_MAX + 1)), "t", b"p", ALL)
