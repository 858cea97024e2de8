"""The key-value messages: what we read and write is what the generated classes read and write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.engine import VALUE_BYTES_MAX, KeyRange
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    PlacePage,
    Row,
    RowPage,
    Upload,
    Write,
    WriteCondition,
    WriteIfResult,
)
from sluicegate.protos import key_values_pb2 as pb
from sluicegate.wire import key_values_messages as ours
from sluicegate.wire.key_values_messages import KV_BOUNDS, TTL_MS_MAX, KvBounds
from sluicegate.wire.protobuf import varint_bytes

NOW_US: Final = 1_700_000_000_000_000
UINT32: Final = st.integers(0, 2**32 - 1)
NAME: Final = st.text(max_size=12)
BYTES: Final = st.binary(max_size=20)
TTL_MS: Final = st.integers(0, TTL_MS_MAX)
PLACES: Final = st.builds(pb.Place, partition=BYTES, sort=BYTES)
PUTS: Final = st.builds(pb.Write, partition=BYTES, sort=BYTES, value=BYTES, ttl_ms=TTL_MS)
DELETES: Final = st.builds(pb.Write, partition=BYTES, sort=BYTES, delete=st.just(True))
DIGEST: Final = st.binary(min_size=32, max_size=32)
ROW: Final = st.builds(Row, BYTES, BYTES, st.just(0) | st.integers(NOW_US - 10**7, NOW_US + 2**50))

# A field that nobody knows, of each wire type, before and behind the others.
UNKNOWN: Final = (
    b"\xa8\x06\x07" + b"\xb2\x06\x02hi" + b"\xb9\x06" + b"\0" * 8 + b"\xbd\x06" + b"\0" * 4
)


def read(message: Message) -> bytes:
    """As it comes, with what a newer client may add."""
    return UNKNOWN + message.SerializeToString() + UNKNOWN


def write_of(theirs: pb.Write) -> Write:
    """What theirs says, in our words."""
    if theirs.delete:
        return Write(theirs.partition, theirs.sort, None)
    return Write(theirs.partition, theirs.sort, theirs.value, theirs.ttl_ms * 1_000)


def place_of(theirs: pb.Place) -> tuple[bytes, bytes]:
    """Likewise."""
    return theirs.partition, theirs.sort


@given(st.builds(pb.ExpireRequest, table=NAME, partition=BYTES, sort=BYTES, ttl_ms=TTL_MS))
def test_a_place_says_what_theirs_says(theirs: pb.ExpireRequest) -> None:
    request = ours.PlaceRequest(read(theirs), expires=True)
    assert (request.table, request.partition, request.sort) == (
        theirs.table,
        theirs.partition,
        theirs.sort,
    )
    assert request.ttl_us == theirs.ttl_ms * 1_000
    get = pb.GetRequest(table=theirs.table, partition=theirs.partition, sort=theirs.sort)
    again = ours.PlaceRequest(read(get))
    assert (again.table, again.partition, again.sort, again.ttl_us) == (
        theirs.table,
        theirs.partition,
        theirs.sort,
        0,
    )


@given(st.builds(pb.GetEachRequest, table=NAME, places=st.lists(PLACES, max_size=4)))
def test_places_say_what_theirs_say_in_order(theirs: pb.GetEachRequest) -> None:
    request = ours.PlacesRequest(read(theirs), KV_BOUNDS)
    assert (request.table, request.places) == (
        theirs.table,
        [place_of(one) for one in theirs.places],
    )


@given(
    st.builds(
        pb.ScanRequest,
        table=NAME,
        partition=BYTES,
        begin=BYTES,
        end=BYTES,
        reverse=st.booleans(),
        rows_max=st.integers(0, 10_000),
        bytes_max=st.integers(0, 4 << 20),
        token=BYTES,
    )
)
def test_a_scan_says_what_theirs_says(theirs: pb.ScanRequest) -> None:
    request = ours.ScanRequest(read(theirs), KV_BOUNDS)
    assert (request.table, request.partition, request.token) == (
        theirs.table,
        theirs.partition,
        theirs.token,
    )
    assert request.span == KeyRange(
        theirs.begin,
        theirs.end or None,
        theirs.reverse,
        theirs.rows_max or 100,
        theirs.bytes_max or 1 << 20,
    )


@given(
    st.builds(pb.WalkRequest, table=NAME, after=st.none() | PLACES, rows_max=st.integers(0, 10_000))
)
def test_a_walk_says_what_theirs_says(theirs: pb.WalkRequest) -> None:
    request = ours.WalkRequest(read(theirs), KV_BOUNDS)
    after = place_of(theirs.after) if theirs.HasField("after") else None
    assert (request.table, request.after, request.rows_max) == (
        theirs.table,
        after,
        theirs.rows_max or 100,
    )


@given(st.builds(pb.WriteRequest, table=NAME, writes=st.lists(PUTS | DELETES, max_size=4)))
def test_writes_say_what_theirs_say_in_order(theirs: pb.WriteRequest) -> None:
    request = ours.WriteRequest(read(theirs), KV_BOUNDS)
    assert (request.table, request.writes) == (
        theirs.table,
        [write_of(one) for one in theirs.writes],
    )


@given(
    NAME,
    PUTS | DELETES,
    st.just(pb.Condition(absent=True))
    | st.just(pb.Condition(present=True))
    | st.builds(pb.Condition, tag=st.binary(min_size=1, max_size=20)),
)
def test_a_conditional_write_says_what_theirs_says(
    table: str, write: pb.Write, condition: pb.Condition
) -> None:
    theirs = pb.WriteIfRequest(table=table, write=write, condition=condition)
    request = ours.WriteIfRequest(read(theirs), KV_BOUNDS)
    assert (request.table, request.write) == (table, write_of(write))
    assert request.condition == WriteCondition(condition.absent, condition.present, condition.tag)


@given(NAME, NAME, NAME, UINT32, st.integers(0, 2**64 - 1), BYTES, DIGEST)
def test_what_uploads_are_asked_says_what_theirs_says(
    table: str, name: str, mode: str, number: int, rows: int, body: bytes, digest: bytes
) -> None:
    begun = ours.UploadRequest(read(pb.BeginUploadRequest(table=table, name=name, mode=mode)), 3)
    assert (begun.table, begun.name, begun.mode) == (table, name, mode)
    request = ours.UploadRequest(read(pb.ShowUploadRequest(table=table, name=name)), 2)
    assert (request.table, request.name, request.mode) == (table, name, "")
    assert ours.UploadRequest(read(pb.ListUploadsRequest(table=table)), 1).table == table
    theirs = pb.UploadPartRequest(table=table, name=name, number=number, rows=body, sha256=digest)
    part = ours.UploadPartRequest(read(theirs))
    assert (part.table, part.name, part.number, part.rows, part.sha256) == (
        table,
        name,
        number,
        body,
        digest,
    )
    whole = pb.CommitUploadRequest(table=table, name=name, parts=number, rows=rows, sha256=digest)
    commit = ours.CommitUploadRequest(read(whole))
    assert (commit.table, commit.name, commit.parts, commit.rows, commit.sha256) == (
        table,
        name,
        number,
        rows,
        digest,
    )


@given(PUTS, PUTS, PLACES, PLACES)
def test_what_is_said_twice_is_one_merged(
    one: pb.Write, other: pb.Write, first: pb.Place, second: pb.Place
) -> None:
    must = pb.Condition(present=True)
    data = b"".join(
        pb.WriteIfRequest(write=write, condition=must).SerializeToString() for write in (one, other)
    )
    merged = pb.WriteIfRequest.FromString(data)
    assert ours.WriteIfRequest(data, KV_BOUNDS).write == write_of(merged.write)
    data = b"".join(pb.WalkRequest(after=at).SerializeToString() for at in (first, second))
    assert ours.WalkRequest(data, KV_BOUNDS).after == place_of(
        pb.WalkRequest.FromString(data).after
    )


SMALL: Final = KvBounds(
    places_max=1, writes_max=1, rows_max=10, answer_bytes_max=50, value_bytes_max=4
)
TWO: Final = [pb.Place(), pb.Place()]
READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "get": ours.PlaceRequest,
    "expire": lambda data: ours.PlaceRequest(data, expires=True),
    "places": lambda data: ours.PlacesRequest(data, SMALL),
    "scan": lambda data: ours.ScanRequest(data, SMALL),
    "walk": lambda data: ours.WalkRequest(data, SMALL),
    "write": lambda data: ours.WriteRequest(data, SMALL),
    "write_if": lambda data: ours.WriteIfRequest(data, SMALL),
    "upload": lambda data: ours.UploadRequest(data, 3),
    "part": ours.UploadPartRequest,
    "commit": ours.CommitUploadRequest,
}


@pytest.mark.parametrize(
    ("reader", "message", "field"),
    [
        ("expire", pb.ExpireRequest(ttl_ms=TTL_MS_MAX + 1), "ttl_ms"),
        ("expire", pb.ExpireRequest(ttl_ms=2**64 - 1), "ttl_ms"),
        ("places", pb.GetEachRequest(places=TWO), "places"),
        ("scan", pb.ScanRequest(rows_max=11), "rows_max"),
        ("scan", pb.ScanRequest(bytes_max=51), "bytes_max"),
        ("walk", pb.WalkRequest(rows_max=11), "rows_max"),
        ("write", pb.WriteRequest(writes=[pb.Write(), pb.Write()]), "writes"),
        ("write", pb.WriteRequest(writes=[pb.Write(value=b"12345")]), "writes[0].value"),
        ("write", pb.WriteRequest(writes=[pb.Write(value=b"1", delete=True)]), "writes[0].delete"),
        ("write", pb.WriteRequest(writes=[pb.Write(ttl_ms=1, delete=True)]), "writes[0].delete"),
        ("write_if", pb.WriteIfRequest(), "condition"),
        (
            "write_if",
            pb.WriteIfRequest(condition=pb.Condition(absent=True, tag=b"1")),
            "condition",
        ),
        ("write_if", pb.WriteIfRequest(write=pb.Write(value=b"12345")), "write.value"),
        ("write_if", pb.WriteIfRequest(write=pb.Write(ttl_ms=1, delete=True)), "write.delete"),
        ("part", pb.UploadPartRequest(sha256=b"1"), "sha256"),
        ("commit", pb.CommitUploadRequest(), "sha256"),
        ("upload", pb.BeginUploadRequest(mode="x" * 257), "mode"),
        ("get", pb.GetRequest(table="x" * 257), "table"),
    ],
)
def test_what_cannot_be_asked_names_the_field(reader: str, message: Message, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        READERS[reader](message.SerializeToString())
    assert caught.value.field == field


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "data", [b"\x08\x01", b"\x0a\x05a", b"\x0a\x01\xff", b"\x0b", b"\x0a", b"\x07", b"\xff" * 11]
)
def test_what_is_no_message_is_refused_and_never_another_error(reader: str, data: bytes) -> None:
    with pytest.raises(BadValue):
        READERS[reader](data)


@pytest.mark.parametrize(
    ("reader", "tag", "path"),
    [
        ("places", 0x12, "places[0].partition"),
        ("write", 0x12, "writes[0].partition"),
        ("write_if", 0x12, "write.partition"),
        ("write_if", 0x1A, "condition.absent"),
        ("walk", 0x12, "after.partition"),
    ],
)
def test_a_wrong_type_inside_names_the_whole_path(reader: str, tag: int, path: str) -> None:
    inner = b"\x0d" + b"\0" * 4
    with pytest.raises(BadValue) as caught:
        READERS[reader](bytes((tag,)) + varint_bytes(len(inner)) + inner)
    assert caught.value.field == path


def test_what_is_wrong_is_told_by_its_number() -> None:
    good, wrong = b"\x12\x00", b"\x12\x02\x0a\x05"
    with pytest.raises(BadValue) as caught:
        ours.PlacesRequest(good + wrong, KV_BOUNDS)
    assert caught.value.field == "places[1].partition"
    with pytest.raises(BadValue) as caught:
        ours.WriteRequest(good + wrong, KV_BOUNDS)
    assert caught.value.field == "writes[1].partition"


def test_a_bound_may_be_reached_and_what_is_not_said_stays_within_it() -> None:
    scan = ours.ScanRequest(pb.ScanRequest(rows_max=10, bytes_max=50).SerializeToString(), SMALL)
    unsaid = ours.ScanRequest(b"", SMALL)
    assert scan.span == unsaid.span == KeyRange(b"", None, False, 10, 50)
    assert ours.WalkRequest(b"", SMALL).rows_max == 10
    write = pb.Write(partition=b"p", value=b"1234", ttl_ms=TTL_MS_MAX)
    request = ours.WriteRequest(pb.WriteRequest(writes=[write]).SerializeToString(), SMALL)
    assert request.writes == [write_of(write)]
    name = "x" * 256
    ask = pb.BeginUploadRequest(table=name, name=name, mode=name)
    assert ours.UploadRequest(ask.SerializeToString(), 3).name == name
    with pytest.raises(BadValue) as caught:
        ours.UploadRequest(pb.ShowUploadRequest(name=name + "x").SerializeToString(), 2)
    assert caught.value.field == "name"
    assert TTL_MS_MAX == 3_660 * 24 * 3_600 * 1_000
    with pytest.raises(BadValue, match=r"'5 bytes' .* send at most 4 \(value_bytes_max\)"):
        ours.WriteRequest(
            pb.WriteRequest(writes=[pb.Write(value=b"12345")]).SerializeToString(), SMALL
        )


def test_numbers_beyond_their_field_are_cut_as_theirs_are() -> None:
    long = varint_bytes((7 << 32) + 5)
    data = b"\x30" + long + b"\x38" + long
    theirs = pb.ScanRequest.FromString(data)
    assert (
        ours.ScanRequest(data, KV_BOUNDS).span[3:] == (theirs.rows_max, theirs.bytes_max) == (5, 5)
    )
    assert ours.WalkRequest(b"\x18" + long, KV_BOUNDS).rows_max == 5
    digest = b"\x2a\x20" + bytes(32)
    assert ours.UploadPartRequest(b"\x18" + long + digest).number == 5
    most = b"\x20" + varint_bytes(2**64 - 1)
    commit = ours.CommitUploadRequest(b"\x18" + long + most + digest)
    assert (commit.parts, commit.rows) == (5, 2**64 - 1)


def test_what_is_said_to_be_false_is_false() -> None:
    write = ours.WriteRequest(b"\x12\x05\x1a\x01v\x20\x00", KV_BOUNDS).writes[0]
    assert write == Write(b"", b"", b"v")
    for data, condition in (
        (b"\x08\x00\x10\x01", WriteCondition(present=True)),
        (b"\x08\x01\x10\x00", WriteCondition(absent=True)),
    ):
        assert ours.WriteIfRequest(b"\x1a\x04" + data, KV_BOUNDS).condition == condition


def test_a_message_takes_no_field_of_the_longer_one_that_is_read_by_the_same_reader() -> None:
    # Whatever stands there once these messages grow, it is no time to live, name or mode.
    assert ours.PlaceRequest(b"\x20\x05").ttl_us == 0
    assert ours.PlaceRequest(b"\x22\x01x").ttl_us == 0
    request = ours.UploadRequest(b"\x12\x01n\x1a\x01m", 2)
    assert (request.name, request.mode) == ("n", "")
    listed = ours.UploadRequest(b"\x12\x01n\x18\x01", 1)
    assert (listed.name, listed.mode) == ("", "")
    with pytest.raises(BadValue) as caught:
        ours.PlaceRequest(b"\x22\x01x", expires=True)
    assert caught.value.field == "ttl_ms"


@pytest.mark.parametrize("reader", ["part", "commit"])
@pytest.mark.parametrize("size", [31, 33])
def test_a_digest_has_its_length(reader: str, size: int) -> None:
    with pytest.raises(BadValue, match="sha256"):
        READERS[reader](b"\x2a" + varint_bytes(size) + bytes(size))


@given(st.sampled_from(list(READERS)), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(reader: str, data: bytes) -> None:
    with contextlib.suppress(BadValue):
        assert READERS[reader](data) is not None


# Writing.


def row_theirs(row: Row) -> pb.Row:
    """Their row that says what ours does."""
    left_ms = max((row.expires_us - NOW_US) // 1_000, 1) if row.expires_us else 0
    return pb.Row(sort=row.sort, value=row.value, ttl_ms=left_ms)


@given(st.lists(st.none() | ROW, max_size=4))
def test_rows_that_were_found_are_theirs(rows: list[Row | None]) -> None:
    theirs = [pb.GetResponse(row=None if row is None else row_theirs(row)) for row in rows]
    data = ours.encode_get_each_response(rows, NOW_US)
    assert data == pb.GetEachResponse(found=theirs).SerializeToString()
    for row, one in zip(rows, theirs, strict=True):
        assert ours.encode_get_response(row, NOW_US) == one.SerializeToString()
        assert pb.GetResponse.FromString(ours.encode_get_response(row, NOW_US)) == one


@given(st.lists(ROW, max_size=4), BYTES)
def test_rows_of_a_scan_are_theirs(rows: list[Row], token: bytes) -> None:
    theirs = pb.ScanResponse(rows=[row_theirs(row) for row in rows], token=token)
    assert ours.encode_scan_response(RowPage(rows, token), NOW_US) == theirs.SerializeToString()


@given(st.lists(st.tuples(BYTES, BYTES), max_size=4), st.none() | st.tuples(BYTES, BYTES))
def test_places_of_a_walk_are_theirs(
    places: list[tuple[bytes, bytes]], after: tuple[bytes, bytes] | None
) -> None:
    theirs = pb.WalkResponse(
        places=[pb.Place(partition=one, sort=other) for one, other in places],
        after=None if after is None else pb.Place(partition=after[0], sort=after[1]),
    )
    assert ours.encode_walk_response(PlacePage(places, after)) == theirs.SerializeToString()


@given(st.booleans(), st.none() | ROW, UINT32)
def test_what_became_of_a_write_is_theirs(done: bool, row: Row | None, count: int) -> None:
    theirs = pb.WriteIfResponse(done=done, row=None if row is None else row_theirs(row))
    assert (
        ours.encode_write_if_response(WriteIfResult(done, row), NOW_US)
        == theirs.SerializeToString()
    )
    assert ours.encode_number(count) == pb.RemoveResponse(removed=count).SerializeToString()
    assert ours.encode_number(int(done)) == pb.ExpireResponse(there=done).SerializeToString()


def test_a_count_that_its_field_cannot_hold_is_the_most_that_it_can() -> None:
    most = pb.RemoveResponse(removed=2**32 - 1).SerializeToString()
    assert ours.encode_number(2**32) == ours.encode_number(2**32 - 1) == most
    assert ours.encode_number(-1) == b""


UPLOADS: Final = st.builds(
    Upload,
    NAME,
    NAME,
    NAME,
    NAME,
    st.lists(UINT32, max_size=5),
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.integers(0, 2**60),
    NAME,
)


@given(st.lists(UPLOADS, max_size=3))
def test_uploads_are_theirs(uploads: list[Upload]) -> None:
    theirs = [
        pb.Upload(
            table=one.table,
            name=one.name,
            mode=one.mode,
            state=one.state,
            parts=one.parts,
            rows=one.rows,
            bytes=one.bytes,
            begun_ms=one.begun_us // 1_000,
            by=one.by,
        )
        for one in uploads
    ]
    data = ours.encode_uploads(uploads)
    assert data == pb.ListUploadsResponse(uploads=theirs).SerializeToString()


@pytest.mark.parametrize(
    ("left_us", "ms"), [(1, 1), (999, 1), (1_000, 1), (1_999, 1), (2_000, 2), (-5, 1)]
)
def test_what_is_left_of_a_time_is_rounded_down_and_never_for_ever(left_us: int, ms: int) -> None:
    assert ours.ttl_ms_of(NOW_US + left_us, NOW_US) == ms
    assert ours.ttl_ms_of(0, NOW_US) == 0


def test_a_bound_must_leave_room() -> None:
    for name in ("places_max", "writes_max", "rows_max", "answer_bytes_max", "value_bytes_max"):
        with pytest.raises(BadValue, match=name):
            KvBounds(**{name: 0})
    with pytest.raises(BadValue, match="value_bytes_max"):
        KvBounds(value_bytes_max=(16 << 20) + 1)
    assert KvBounds(value_bytes_max=16 << 20).value_bytes_max == VALUE_BYTES_MAX


def test_the_bounds_are_those_that_are_promised() -> None:
    assert (KV_BOUNDS.places_max, KV_BOUNDS.writes_max, KV_BOUNDS.rows_max) == (
        1_000,
        1_000,
        10_000,
    )
    assert (KV_BOUNDS.answer_bytes_max, KV_BOUNDS.value_bytes_max) == (4 << 20, 1 << 20)
