"""The envelope of a stored value: what it says comes back, and what is unknown is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.wire.row_envelope import (
    ENVELOPE_BYTES_MAX,
    EPOCH_MAX,
    EXPIRES_US_MAX,
    RowEnvelope,
    open_row,
    seal_row,
)

EPOCHS = st.integers(0, EPOCH_MAX)


@given(st.binary(max_size=40), st.integers(0, EXPIRES_US_MAX), EPOCHS)
def test_what_was_said_comes_back(value: bytes, expires_us: int, epoch: int) -> None:
    stored = seal_row(value, expires_us=expires_us, epoch=epoch)
    assert open_row(stored) == RowEnvelope(value, expires_us, epoch)
    assert len(stored) <= len(value) + ENVELOPE_BYTES_MAX


@given(EPOCHS)
def test_a_tombstone_is_no_value(epoch: int) -> None:
    assert open_row(seal_row(None, expires_us=0, epoch=epoch)) == RowEnvelope(None, 0, epoch)


def test_the_bytes_are_those_of_version_1() -> None:
    assert seal_row(b"v", expires_us=0, epoch=0) == b"\x10v"
    assert seal_row(b"v", expires_us=258, epoch=0) == b"\x11\0\0\0\0\0\0\1\2v"
    assert seal_row(b"v", expires_us=258, epoch=3) == b"\x15\0\0\0\3\0\0\0\0\0\0\1\2v"
    assert seal_row(None, expires_us=0, epoch=0) == b"\x12"
    assert seal_row(None, expires_us=0, epoch=3) == b"\x16\0\0\0\3"


@given(st.binary(max_size=20))
def test_any_bytes_are_an_envelope_or_an_error(stored: bytes) -> None:
    try:
        row = open_row(stored)
    except Unavailable:
        return
    assert 0x10 <= stored[0] <= 0x17
    assert row.value is None or stored.endswith(row.value)


@pytest.mark.parametrize(
    "stored",
    [b"", b"\x00v", b"\x13v", b"\x18v", b"\x20v", b"\x11\0\0\0\0\0\0\1", b"\x14\0\0", b"\x12v"],
)
def test_what_is_unknown_or_cut_is_an_error(stored: bytes) -> None:
    with pytest.raises(Unavailable, match="newer release"):
        open_row(stored)


@pytest.mark.parametrize(("expires_us", "epoch"), [(-1, 0), (1 << 63, 0), (0, -1), (0, 1 << 32)])
def test_what_does_not_fit_is_a_wrong_value(expires_us: int, epoch: int) -> None:
    with pytest.raises(BadValue):
        seal_row(b"", expires_us=expires_us, epoch=epoch)
