"""Rows of an upload on the wire: whatever the pieces, the same rows; and errors that say where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.row_stream import (
    HEADER,
    TTL_US_MAX,
    RowReader,
    StreamRow,
    row_bytes,
    rows_of,
    stream_of,
)

ROWS = st.builds(
    StreamRow,
    st.binary(min_size=1, max_size=240),
    st.binary(max_size=240),
    st.binary(max_size=300),
    st.integers(0, TTL_US_MAX),
)
ROW = StreamRow(b"p", b"s", b"value", 7)


@given(st.lists(ROWS, max_size=6))
def test_rows_come_back(rows: list[StreamRow]) -> None:
    assert rows_of(stream_of(rows)) == rows


@given(st.lists(ROWS, max_size=5), st.lists(st.integers(1, 400), max_size=40))
def test_pieces_of_any_size_tell_the_same(rows: list[StreamRow], sizes: list[int]) -> None:
    data, reader, rows_read = stream_of(rows), RowReader(), []
    for size in [*sizes, len(data)]:
        rows_read += reader.feed(data[:size])
        data = data[size:]
    reader.end()
    assert rows_read == rows
    assert reader.rows == len(rows)


@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
def test_a_stream_that_is_cut_is_an_error_at_its_last_row(
    rows: list[StreamRow], data: st.DataObject
) -> None:
    whole = stream_of(rows)
    starts = [len(stream_of(rows[:at])) for at in range(len(rows) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut in starts:
        assert len(rows_of(whole[:cut])) == starts.index(cut)
        return
    with pytest.raises(BadValue) as raised:
        rows_of(whole[:cut])
    begun = max([0, *[start for start in starts if start < cut]])
    assert raised.value.field.startswith(f"rows at byte {begun}")


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_an_error(noise: bytes) -> None:
    for data in (noise, HEADER + noise):
        try:
            rows = rows_of(data)
        except BadValue:
            continue
        assert stream_of(rows) == data


@given(st.binary(max_size=40), st.lists(ROWS, max_size=3))
def test_what_is_wrong_is_told_before_more_is_kept(noise: bytes, rows: list[StreamRow]) -> None:
    reader = RowReader(value_bytes_max=300)
    reader.feed(stream_of(rows))
    for at in range(len(noise)):
        try:
            reader.feed(noise[at : at + 1])
        except BadValue:
            return
        assert len(reader._left) <= 1 + 240 + 1 + 240 + 12 + 300


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (b"\x00", "rows at byte 4: bytes of partition"),
        (b"\xf1", "rows at byte 4: bytes of partition"),
        (b"\x01p\xf1", "rows at byte 4: bytes of sort key"),
        (b"\x01p\x00" + b"\xff" * 8 + b"\0\0\0\0", "rows at byte 4: ttl_us"),
        (b"\x01p\x00" + b"\0" * 8 + b"\x01\0\0\1", "rows at byte 4: bytes of value"),
    ],
)
def test_a_wrong_row_names_its_offset(row: bytes, field: str) -> None:
    with pytest.raises(BadValue) as raised:
        rows_of(HEADER + row)
    assert raised.value.field == field
    with pytest.raises(BadValue) as raised:
        rows_of(stream_of([ROW]) + row)
    assert raised.value.field == field.replace("4", str(len(stream_of([ROW]))))


@pytest.mark.parametrize("data", [b"", b"SG", b"SGX\x01", b"SGR", b"no"])
def test_what_is_no_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BadValue, match="SGR"):
        rows_of(data)


def test_a_newer_version_is_refused_with_a_remedy() -> None:
    with pytest.raises(BadValue, match="newer release"):
        rows_of(b"SGR\x02")


@pytest.mark.parametrize(
    "row",
    [
        StreamRow(b"", b"", b""),
        StreamRow(b"p" * 241, b"", b""),
        StreamRow(b"p", b"s" * 241, b""),
        StreamRow(b"p", b"", b"v" * ((16 << 20) + 1)),
        StreamRow(b"p", b"", b"", -1),
        StreamRow(b"p", b"", b"", TTL_US_MAX + 1),
    ],
)
def test_what_no_stream_can_say_is_a_wrong_value(row: StreamRow) -> None:
    with pytest.raises(BadValue):
        row_bytes(row)


@pytest.mark.parametrize("piece_bytes", [1, 7, 4_096])
def test_a_large_value_is_put_together_once(piece_bytes: int) -> None:
    """Until it is whole, what is kept grows in its place, and is not made anew for each piece."""
    size = 20_000
    data, reader = stream_of([StreamRow(b"p", b"", b"x" * size)]), RowReader()
    head = len(HEADER) + 1 + 1 + 1 + 12
    reader.feed(data[:head])
    buffer = reader._left
    rows = []
    for at in range(head, len(data), piece_bytes):
        assert reader._left is buffer
        rows += reader.feed(data[at : at + piece_bytes])
    reader.end()
    assert rows == [StreamRow(b"p", b"", b"x" * size)]
