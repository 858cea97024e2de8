"""Blocks that we send: the kept decoder reads back what was encode_reply, on any connection."""

from __future__ import annotations

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.h2.blocks import HeaderBlock, block

NAMES = st.sampled_from([b"content-type", b"grpc-status", b"allow", b"x", b"n" * 200])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=400)), max_size=8)
STATUSES = st.sampled_from([b"200", b"204", b"404", b"415", b"431", b"500", b"503"])


@given(STATUSES, FIELDS)
def test_a_block_is_read_back(status: bytes, fields: list[tuple[bytes, bytes]]) -> None:
    decoder = Decoder()
    encoded = block([(b":status", status), *fields]).encoded
    for _ in range(2):
        assert decoder.decode(encoded, raw=True) == [(b":status", status), *fields]
    assert not decoder.header_table.dynamic_entries


def test_a_block_knows_the_first_bytes_of_its_frame() -> None:
    made = block([(b":status", b"200")])
    assert (made.encoded, made.opening, made.ending) == (
        b"\x88",
        b"\0\0\x01\x01\x04",
        b"\0\0\x01\x01\x05",
    )


def test_a_block_that_no_frame_holds_is_refused() -> None:
    assert HeaderBlock(bytes(16_383)).opening[:3] == b"\0\x3f\xff"
    with pytest.raises(BadValue, match=r"h2\.block"):
        HeaderBlock(bytes(16_384))
