"""An entry that is whole is read; of anything else it is said what it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import KIND_CHARS_MAX, Event
from sluicegate.stores.files.entries import (
    BODY_BYTES_MAX,
    ENTRY_BYTES_MIN,
    HEADER_BYTES,
    MARK,
    Header,
    encode_kind,
    find_entry,
    pack_entry,
    pack_header,
    parse_entry,
    parse_header,
)

SALT = 77


@given(
    st.integers(0, 2**63), st.integers(-(2**40), 2**60), st.text(min_size=1, max_size=60),
    st.binary(max_size=300), st.integers(0, 2**32 - 1), st.binary(max_size=40),
)  # fmt: skip
def test_what_is_written_is_read_wherever_it_stands(
    offset: int, at_us: int, kind: str, body: bytes, salt: int, before: bytes
) -> None:
    kind = kind.encode("utf-8", "replace").decode()
    data = before + pack_entry(salt, offset, at_us, encode_kind(kind, body, at_us), body)

    entry = parse_entry(data, len(before), salt)

    assert entry.event == Event(offset, at_us, kind, body)
    assert entry.end == len(data)


def test_every_cut_of_an_entry_is_one_that_may_still_come() -> None:
    whole = pack_entry(SALT, 5, 9, b"news", b"body")

    for cut in range(len(whole)):
        entry = parse_entry(whole[:cut], 0, SALT)
        assert (entry.event, entry.end, entry.more) == (None, 0, True)
    assert parse_entry(b"no entry here", 0, SALT).more is False
    assert parse_entry(b"no", 0, SALT).more is False


def test_every_flipped_bit_is_noticed() -> None:
    whole = pack_entry(SALT, 5, 9, b"news", b"body")

    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert parse_entry(bytes(flipped), 0, SALT).event is None


def test_the_next_good_entry_is_found_behind_damage_and_not_within_a_body() -> None:
    stranger = pack_entry(SALT + 1, 99, 1, b"news", b"of another segment")
    first = pack_entry(SALT, 1, 1, b"news", b"x" + stranger)
    second = pack_entry(SALT, 2, 1, b"news", b"y")
    data = b"?" + first[1:] + MARK + b"rubbish" + second

    assert find_entry(data, 0, SALT, 0) == len(data) - len(second)
    assert find_entry(data, 0, SALT, 2) == len(data) - len(second)
    assert find_entry(data, 0, SALT, 3) == -1
    assert find_entry(MARK[:2] + MARK + second, 0, SALT, 0) == len(MARK) + 2
    assert len(pack_entry(SALT, 0, 0, b"k", b"")) == ENTRY_BYTES_MIN


def test_a_header_says_salt_and_base_or_what_is_wrong_with_it() -> None:
    head = pack_header(SALT, 1_234)

    assert len(head) == HEADER_BYTES
    assert parse_header(head + b"more") == Header(SALT, 1_234)
    assert "not whole" in str(parse_header(head[:-1]))
    assert "no segment" in str(parse_header(b"x" * 40))
    assert "checksum" in str(parse_header(head[:-1] + bytes([head[-1] ^ 1])))


def test_a_header_of_a_later_version_is_named() -> None:
    import struct
    from zlib import crc32

    fixed = struct.pack(">10sIIQ", b"sluicegate", 2, SALT, 0)

    assert "version 2" in str(parse_header(fixed + struct.pack(">I", crc32(fixed))))


@pytest.mark.parametrize(
    ("kind", "body", "at_us", "field"),
    [
        ("", b"", 0, "event.kind"),
        ("k" * (KIND_CHARS_MAX + 1), b"", 0, "event.kind"),
        ("\U0001f600" * KIND_CHARS_MAX, b"", 0, "event.kind"),
        ("k", bytes(BODY_BYTES_MAX + 1), 0, "event.body"),
        ("k", b"", 1 << 62, "event.at_us"),
    ],
)
def test_what_cannot_be_an_entry_is_refused(kind: str, body: bytes, at_us: int, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        encode_kind(kind, body, at_us)
    assert caught.value.field == field
