from __future__ import annotations

import json
import os
import struct
import tempfile
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from zlib import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.capture.codec import Damaged, QueryDecoder, QueryEncoder
from sluicegate.shadow.capture.format import (
    MAGIC,
    MARK,
    Block,
    Head,
    block_bytes,
    blocks,
    head_bytes,
    read_head,
)
from sluicegate.shadow.capture.log import CaptureLog
from sluicegate.shadow.capture.reader import CaptureRead, read_capture
from sluicegate.shadow.query_keys import check_key
from sluicegate.shadow.redaction import Redaction, Vocabulary
from sluicegate.testing import HandClock
from tests.shadow.capture.world import (
    KEY,
    Request,
    key_of,
    rows_of,
    segment_files,
    settings,
    written,
)

REQUESTS: list[Request] = [
    # Each block brings users of its own, and one that all blocks have.
    (1_000 + n, n % 2, CheckRequest(f"user-{n // 3 if n % 4 else 0}", f"/path/{n % 5}"))
    for n in range(60)
]


def whole(folder: Path) -> tuple[bytes, CaptureRead]:
    written(folder, REQUESTS, batch=12)
    (path,) = segment_files(folder)
    return path.read_bytes(), read_capture(folder, key=KEY)


with tempfile.TemporaryDirectory() as made_in:
    DATA, WHOLE = whole(Path(made_in))
ROWS = Counter(rows_of(WHOLE.traffic))


def read_bytes(data: bytes) -> CaptureRead:
    with tempfile.TemporaryDirectory() as name:
        Path(name, f"capture-{1:020d}-1-0.sgc").write_bytes(data)
        return read_capture(name, key=KEY)


def check_told(read: CaptureRead) -> None:
    """Nothing but what was there; and what is missing is told."""
    rows = Counter(rows_of(read.traffic))
    assert rows <= ROWS
    if rows != ROWS:
        assert read.damage
    if any("not ended" in one or "passed over" in one for one in read.damage):
        return
    assert read.traffic.lost == len(REQUESTS) - len(read.traffic)


@given(st.integers(0, len(DATA) - 1))
def test_a_torn_tail_is_passed_over_and_told(size: int) -> None:
    read = read_bytes(DATA[:size])
    check_told(read)
    assert read.damage


@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(1, 255)), min_size=1))
def test_flipped_bits_never_make_a_request(flips: list[tuple[int, int]]) -> None:
    data = bytearray(DATA)
    for place, bits in flips:
        data[place] ^= bits
    read = read_bytes(bytes(data))
    check_told(read)
    assert bytes(data) == DATA or read.damage


@given(st.integers(0, len(DATA)), st.integers(0, len(DATA)), st.binary(max_size=50))
def test_cut_out_or_put_in_never_makes_a_request(begin: int, end: int, put: bytes) -> None:
    check_told(read_bytes(DATA[:begin] + put + DATA[end:]))


def parts() -> tuple[bytes, list[bytes]]:
    head = read_head(DATA, "")
    assert not isinstance(head, str)
    pieces = [DATA[one.begin : one.end] for one in blocks(DATA, head[1], head[0].salt)]
    return DATA[: head[1]], pieces


@given(st.permutations(range(6)), st.integers(0, 6))
def test_blocks_that_are_swapped_dropped_or_doubled_never_make_a_request(
    order: list[int], count: int
) -> None:
    head, pieces = parts()
    assert len(pieces) == 6
    check_told(read_bytes(head + b"".join(pieces[which] for which in order[:count])))
    check_told(read_bytes(head + b"".join(pieces) + pieces[order[0]]))


@pytest.mark.parametrize("lost", range(5))
def test_a_block_that_is_missing_is_counted_to_the_request(lost: int) -> None:
    head, pieces = parts()
    read = read_bytes(head + b"".join(pieces[:lost] + pieces[lost + 1 :]))
    missing = len(REQUESTS) - len(read.traffic)
    assert missing >= 12
    assert (read.traffic.lost, read.damaged) == (missing, missing)


def test_what_follows_a_damaged_block_is_read_all_the_same() -> None:
    head, pieces = parts()
    broken = bytearray(pieces[2])
    broken[-1] ^= 1
    read = read_bytes(head + b"".join([*pieces[:2], bytes(broken), *pieces[3:]]))
    assert (len(read.traffic), read.traffic.lost) == (48, 12)
    assert any("are damaged" in one for one in read.damage)


def test_a_head_with_any_byte_changed_is_not_believed() -> None:
    head, _ = parts()
    for place in range(len(head)):
        data = bytearray(head)
        data[place] ^= 1
        assert isinstance(read_head(bytes(data), ""), str)


def test_a_block_of_another_segment_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    written(tmp_path, REQUESTS, batch=12)
    (path,) = segment_files(tmp_path)
    theirs = path.read_bytes()
    head, pieces = parts()
    read = read_bytes(head + theirs[-len(b"".join(pieces)) :])
    assert len(read.traffic) == 0
    assert read.damage


def test_a_block_of_an_unknown_kind_is_passed_over_in_silence() -> None:
    head, pieces = parts()
    head_and_size = read_head(DATA, "")
    assert not isinstance(head_and_size, str)
    strange = block_bytes(head_and_size[0].salt, 77, 5, b"of a later program")
    end = block_bytes(head_and_size[0].salt, 2, 6, next_end())
    read = read_bytes(head + b"".join(pieces[:-1]) + strange + end)
    assert Counter(rows_of(read.traffic)) == ROWS
    assert read.damage == ()


def test_asks_of_a_later_program_are_missing_and_their_later_fields_passed_over() -> None:
    writer = QueryEncoder(Redaction(None))
    current = writer.record(check_key(CheckRequest("ann", "/a"), ()))
    strange = b"\x63" + current[1:]
    classless = bytearray(current)
    classless[3] = 9
    for record in (current + b"later", strange, bytes(classless), current):
        writer.add(record)
    texts, queries = writer.take()
    reader = QueryDecoder(Vocabulary())
    reader.texts(0, texts)
    ann = ("ann", "/a", 1, -1, ())
    assert reader.queries(queries) == [ann, None, None, ann]


@pytest.mark.parametrize("data", [b"\x05", b"\x80" * 20, b"\x03\x00\x00"])
def test_bytes_that_are_no_asks_are_damage(data: bytes) -> None:
    reader = QueryDecoder(Vocabulary())
    with pytest.raises(Damaged):
        reader.queries(data)
    with pytest.raises(Damaged):
        reader.texts(1 << 31, b"")


def next_end() -> bytes:
    head = read_head(DATA, "")
    assert not isinstance(head, str)
    last: list[Block] = list(blocks(DATA, head[1], head[0].salt))
    return last[-1].data


def test_unknown_fields_of_a_head_are_passed_over_and_a_newer_version_is_refused() -> None:
    head = Head(b"s" * 16, 5, 100, "k", ("tenant",))
    data = head_bytes(head)
    length = int.from_bytes(data[12:16], "little")
    fields = {**json.loads(data[16 : 16 + length]), "later": [1]}
    for version in (1, 2):
        text = json.dumps(fields).encode()
        begin = MAGIC + version.to_bytes(2, "little") + len(text).to_bytes(4, "little") + text
        made = begin + blake2b(begin, digest_size=8).digest()
        if version == 1:
            assert read_head(made, "x") == (head, len(made))
        else:
            with pytest.raises(BadValue, match="upgrade sluicegate"):
                read_head(made, "x")


@pytest.mark.parametrize("size", [10, 999_999, 1_000_001])
def test_a_block_that_unpacks_to_another_size_than_it_says_is_not_read(size: int) -> None:
    salt, packed = b"s" * 16, compress(b"a" * 1_000_000)
    signed = struct.pack("<BIII", 1, 0, len(packed), size)
    digest = blake2b(signed + packed, digest_size=8, key=salt).digest()
    assert [one.kind for one in blocks(MARK + signed + digest + packed, 0, salt)] == [0]
    right = block_bytes(salt, 1, 0, b"a" * 1_000_000)
    assert [one.kind for one in blocks(right, 0, salt)] == [1]


def test_what_is_being_written_is_not_called_damaged(tmp_path: Path) -> None:
    log = CaptureLog(settings(tmp_path), KEY, clock=HandClock())
    log.write([(1, 0, key_of(CheckRequest("ann", "/a")))])
    read = read_capture(tmp_path, key=KEY)
    assert (len(read.traffic), read.damage) == (1, ())
    log.close()


def test_a_folder_without_a_capture_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no capture"):
        read_capture(tmp_path)
    with pytest.raises(BadValue, match="give a folder"):
        read_capture(tmp_path / "nothing")


def test_captures_of_different_shares_are_not_mixed(tmp_path: Path) -> None:
    written(tmp_path / "a", REQUESTS, share=100)
    written(tmp_path / "b", REQUESTS, share=200)
    with pytest.raises(BadValue, match="share"):
        read_capture([tmp_path / "a", tmp_path / "b"], key=KEY)


def test_a_segment_beyond_its_bound_is_refused(tmp_path: Path) -> None:
    written(tmp_path, REQUESTS)
    (path,) = segment_files(tmp_path)
    with pytest.raises(BadValue, match="segment_bytes_max"):
        read_capture(path, key=KEY, segment_bytes_max=100)
    assert os.path.getsize(path) > 100
