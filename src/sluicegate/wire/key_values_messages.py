"""The messages of sluicegate.v1.KeyValues, from bytes and to bytes.

The published `protos/sluicegate/v1/key_values.proto` says what they mean; the tests hold this
against the classes that a protobuf compiler makes of it. What is left of a row's time is whole
milliseconds, rounded down, and at least one: 0 is for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.engine import (
    BYTES_MAX_DEFAULT,
    ROWS_MAX_DEFAULT,
    VALUE_BYTES_MAX,
    KeyRange,
    Place,
)
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
from sluicegate.kernels.native import i64
from sluicegate.wire.protobuf import (
    FIELDS_MAX,
    UINT32_MAX,
    count_field,
    require_positive,
    skip_field,
    span,
    span_bytes,
    tag_at,
    text,
    text_bytes,
    too_many,
    under_field,
    unsigned64,
    varint,
    varint_bytes,
)

SHA256_BYTES: Final = 32
NAME_BYTES_MAX: Final = (
    256  # of tables, uploads and modes; shorter ones are the dispatcher's to ask
)
TTL_MS_MAX: Final = 3_660 * 86_400_000  # ten years

_PLACE: Final = ("partition", "sort")
_GET: Final = ("table", "partition", "sort")
_GET_EACH: Final = ("table", "places")
_SCAN: Final = (
    "table",
    "partition",
    "begin",
    "end",
    "reverse",
    "rows_max",
    "bytes_max",
    "token",
)
_WALK: Final = ("table", "after", "rows_max")
_WRITE: Final = ("partition", "sort", "value", "delete", "ttl_ms")
_WRITES: Final = ("table", "writes")
_CONDITION: Final = ("absent", "present", "tag")
_WRITE_IF: Final = ("table", "write", "condition")
_EXPIRE: Final = ("table", "partition", "sort", "ttl_ms")
_UPLOAD: Final = ("table", "name", "mode")
_PART: Final = ("table", "name", "number", "rows", "sha256")
_COMMIT: Final = ("table", "name", "parts", "rows", "sha256")


@final
class KvBounds:
    """How much one message may hold or ask for."""

    __slots__ = ("answer_bytes_max", "places_max", "rows_max", "value_bytes_max", "writes_max")

    def __init__(
        self,
        *,
        places_max: int = 1_000,
        writes_max: int = 1_000,
        rows_max: int = 10_000,
        answer_bytes_max: int = 4 << 20,
        value_bytes_max: int = 1 << 20,
    ) -> None:
        self.places_max = require_positive("places_max", places_max)
        self.writes_max = require_positive("writes_max", writes_max)
        self.rows_max = require_positive("rows_max", rows_max)
        self.answer_bytes_max = require_positive("answer_bytes_max", answer_bytes_max)
        self.value_bytes_max = require_positive("value_bytes_max", value_bytes_max)
        if value_bytes_max > VALUE_BYTES_MAX:
            raise BadValue("value_bytes_max", value_bytes_max, f"give at most {VALUE_BYTES_MAX:,}")


KV_BOUNDS: Final = KvBounds()


def bounded_count(field: str, wanted: int, default: int, most: int) -> int:
    """Return the default for 0, else what is wanted, at most the bound."""
    if wanted == 0:
        return min(default, most)
    if not 0 < wanted <= most:
        raise BadValue(
            field, wanted, f"give a whole number from 1 to {most:,}, or 0 for {default:,}"
        )
    return wanted


def ttl_us_of(ttl_ms: int, field: str = "ttl_ms") -> int:
    """A time to live; 0 is for ever."""
    if not 0 <= ttl_ms <= TTL_MS_MAX:
        raise BadValue(field, ttl_ms, f"give milliseconds up to {TTL_MS_MAX:,}; 0 is for ever")
    return ttl_ms * 1_000


def ttl_ms_of(expires_us: int, now_us: int) -> int:
    """What is left of a row's time; 0 is for ever, so what is nearly over has a millisecond."""
    if expires_us <= 0:
        return 0
    return max((expires_us - now_us) // 1_000, 1)


# Reading: each message is an object while it is read, for what is given twice is merged.


@final
class PlaceRequest:
    """GetRequest and ExpireRequest: a place in a table, and perhaps for how long."""

    __slots__ = ("partition", "sort", "table", "ttl_us")

    def __init__(self, data: bytes, *, expires: bool = False) -> None:
        self.table = ""
        self.partition = b""
        self.sort = b""
        self.ttl_us = 0
        known = _EXPIRE if expires else _GET
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "partition")
                self.partition = data[begin:at]
            elif tag == 0x1A:
                begin, at = span(data, at, end, "sort")
                self.sort = data[begin:at]
            elif tag == 0x20 and expires:
                ttl_ms, at = varint(data, at, end, "ttl_ms")
                self.ttl_us = ttl_us_of(unsigned64(ttl_ms))
            else:
                at = skip_field(data, at, end, tag, known)


@final
class PlacesRequest:
    """GetEachRequest and RemoveRequest."""

    __slots__ = ("places", "table")

    def __init__(self, data: bytes, bounds: KvBounds) -> None:
        self.table = ""
        self.places: list[Place] = []
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX + bounds.places_max)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "places")
                count = len(self.places)
                if count >= bounds.places_max:
                    raise too_many("places", bounds.places_max, "places_max")
                try:
                    self.places.append(_place(data, begin, at, (b"", b"")))
                except BadValue as error:
                    raise under_field(error, f"places[{count}]") from None
            else:
                at = skip_field(data, at, end, tag, _GET_EACH)


def _place(data: bytes, at: i64, end: i64, so_far: Place) -> Place:
    partition, sort = so_far
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "partition")
            partition = data[begin:at]
        elif tag == 0x12:
            begin, at = span(data, at, end, "sort")
            sort = data[begin:at]
        else:
            at = skip_field(data, at, end, tag, _PLACE)
    return partition, sort


@final
class ScanRequest:
    """ScanRequest."""

    __slots__ = ("partition", "span", "table", "token")

    def __init__(self, data: bytes, bounds: KvBounds) -> None:
        self.table = ""
        self.partition = b""
        self.token = b""
        first = b""
        last = b""
        reverse: i64 = 0
        rows_max: i64 = 0
        bytes_max: i64 = 0
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "partition")
                self.partition = data[begin:at]
            elif tag == 0x1A:
                begin, at = span(data, at, end, "begin")
                first = data[begin:at]
            elif tag == 0x22:
                begin, at = span(data, at, end, "end")
                last = data[begin:at]
            elif tag == 0x28:
                reverse, at = varint(data, at, end, "reverse")
            elif tag == 0x30:
                rows_max, at = varint(data, at, end, "rows_max")
            elif tag == 0x38:
                bytes_max, at = varint(data, at, end, "bytes_max")
            elif tag == 0x42:
                begin, at = span(data, at, end, "token")
                self.token = data[begin:at]
            else:
                at = skip_field(data, at, end, tag, _SCAN)
        self.span = KeyRange(
            first,
            last or None,
            reverse != 0,
            bounded_count("rows_max", rows_max & UINT32_MAX, ROWS_MAX_DEFAULT, bounds.rows_max),
            bounded_count(
                "bytes_max", bytes_max & UINT32_MAX, BYTES_MAX_DEFAULT, bounds.answer_bytes_max
            ),
        )


@final
class WalkRequest:
    """WalkRequest."""

    __slots__ = ("after", "rows_max", "table")

    def __init__(self, data: bytes, bounds: KvBounds) -> None:
        self.table = ""
        self.after: Place | None = None
        rows_max: i64 = 0
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "after")
                so_far: Place = (b"", b"") if self.after is None else self.after
                try:
                    self.after = _place(data, begin, at, so_far)
                except BadValue as error:
                    raise under_field(error, "after") from None
            elif tag == 0x18:
                rows_max, at = varint(data, at, end, "rows_max")
            else:
                at = skip_field(data, at, end, tag, _WALK)
        self.rows_max = bounded_count(
            "rows_max", rows_max & UINT32_MAX, ROWS_MAX_DEFAULT, bounds.rows_max
        )


@final
class _Draft:
    """A write while it is read."""

    __slots__ = ("delete", "partition", "sort", "ttl_us", "value")

    def __init__(self) -> None:
        self.partition = b""
        self.sort = b""
        self.value = b""
        self.delete = False
        self.ttl_us = 0

    def read(self, data: bytes, at: i64, end: i64, bounds: KvBounds) -> None:
        """Add what lies between the two positions."""
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "partition")
                self.partition = data[begin:at]
            elif tag == 0x12:
                begin, at = span(data, at, end, "sort")
                self.sort = data[begin:at]
            elif tag == 0x1A:
                begin, at = span(data, at, end, "value")
                if at - begin > bounds.value_bytes_max:
                    raise value_too_long(at - begin, bounds)
                self.value = data[begin:at]
            elif tag == 0x20:
                delete, at = varint(data, at, end, "delete")
                self.delete = delete != 0
            elif tag == 0x28:
                ttl_ms, at = varint(data, at, end, "ttl_ms")
                self.ttl_us = ttl_us_of(unsigned64(ttl_ms))
            else:
                at = skip_field(data, at, end, tag, _WRITE)

    def write(self) -> Write:
        """The write, now that it is whole."""
        if not self.delete:
            return Write(self.partition, self.sort, self.value, self.ttl_us)
        if self.value or self.ttl_us:
            raise BadValue("delete", True, "give a value, or delete; not both")
        return Write(self.partition, self.sort, None)


def value_too_long(size: int, bounds: KvBounds) -> BadValue:
    """The error of a value beyond the bound."""
    most = f"{bounds.value_bytes_max:,} (value_bytes_max)"
    return BadValue("value", f"{size:,} bytes", f"send at most {most}")


@final
class WriteRequest:
    """WriteRequest."""

    __slots__ = ("table", "writes")

    def __init__(self, data: bytes, bounds: KvBounds) -> None:
        self.table = ""
        self.writes: list[Write] = []
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX + bounds.writes_max)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "writes")
                count = len(self.writes)
                if count >= bounds.writes_max:
                    raise too_many("writes", bounds.writes_max, "writes_max")
                draft = _Draft()
                try:
                    draft.read(data, begin, at, bounds)
                    self.writes.append(draft.write())
                except BadValue as error:
                    raise under_field(error, f"writes[{count}]") from None
            else:
                at = skip_field(data, at, end, tag, _WRITES)


@final
class WriteIfRequest:
    """WriteIfRequest."""

    __slots__ = ("_absent", "_present", "_tag", "condition", "table", "write")

    def __init__(self, data: bytes, bounds: KvBounds) -> None:
        self.table = ""
        self._absent = False
        self._present = False
        self._tag = b""
        draft = _Draft()
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "write")
                try:
                    draft.read(data, begin, at, bounds)
                except BadValue as error:
                    raise under_field(error, "write") from None
            elif tag == 0x1A:
                begin, at = span(data, at, end, "condition")
                try:
                    self._read_condition(data, begin, at)
                except BadValue as error:
                    raise under_field(error, "condition") from None
            else:
                at = skip_field(data, at, end, tag, _WRITE_IF)
        try:
            self.write = draft.write()
        except BadValue as error:
            raise under_field(error, "write") from None
        given = int(self._absent) + int(self._present) + int(self._tag != b"")
        if given != 1:
            raise BadValue("condition", f"{given} conditions", "give one: absent, present or tag")
        self.condition = WriteCondition(self._absent, self._present, self._tag)

    def _read_condition(self, data: bytes, at: i64, end: i64) -> None:
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x08:
                absent, at = varint(data, at, end, "absent")
                self._absent = absent != 0
            elif tag == 0x10:
                present, at = varint(data, at, end, "present")
                self._present = present != 0
            elif tag == 0x1A:
                begin, at = span(data, at, end, "tag")
                self._tag = data[begin:at]
            else:
                at = skip_field(data, at, end, tag, _CONDITION)


@final
class UploadRequest:
    """BeginUploadRequest, and what asks for an upload by its name, or for all of a table."""

    __slots__ = ("mode", "name", "table")

    def __init__(self, data: bytes, fields: int) -> None:
        self.table = ""
        self.name = ""
        self.mode = ""
        known = _UPLOAD[:fields]
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12 and fields >= 2:
                begin, at = span(data, at, end, "name")
                self.name = text(data, begin, at, "name", NAME_BYTES_MAX)
            elif tag == 0x1A and fields >= 3:
                begin, at = span(data, at, end, "mode")
                self.mode = text(data, begin, at, "mode", NAME_BYTES_MAX)
            else:
                at = skip_field(data, at, end, tag, known)


@final
class UploadPartRequest:
    """UploadPartRequest."""

    __slots__ = ("name", "number", "rows", "sha256", "table")

    def __init__(self, data: bytes) -> None:
        self.table = ""
        self.name = ""
        self.number = 0
        self.rows = b""
        self.sha256 = b""
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "name")
                self.name = text(data, begin, at, "name", NAME_BYTES_MAX)
            elif tag == 0x18:
                number, at = varint(data, at, end, "number")
                self.number = number & UINT32_MAX
            elif tag == 0x22:
                begin, at = span(data, at, end, "rows")
                self.rows = data[begin:at]
            elif tag == 0x2A:
                begin, at = span(data, at, end, "sha256")
                self.sha256 = data[begin:at]
            else:
                at = skip_field(data, at, end, tag, _PART)
        require_sha256(self.sha256)


@final
class CommitUploadRequest:
    """CommitUploadRequest."""

    __slots__ = ("name", "parts", "rows", "sha256", "table")

    def __init__(self, data: bytes) -> None:
        self.table = ""
        self.name = ""
        self.parts = 0
        self.rows = 0
        self.sha256 = b""
        end: i64 = len(data)
        at: i64 = 0
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "table")
                self.table = text(data, begin, at, "table", NAME_BYTES_MAX)
            elif tag == 0x12:
                begin, at = span(data, at, end, "name")
                self.name = text(data, begin, at, "name", NAME_BYTES_MAX)
            elif tag == 0x18:
                parts, at = varint(data, at, end, "parts")
                self.parts = parts & UINT32_MAX
            elif tag == 0x20:
                rows, at = varint(data, at, end, "rows")
                self.rows = unsigned64(rows)
            elif tag == 0x2A:
                begin, at = span(data, at, end, "sha256")
                self.sha256 = data[begin:at]
            else:
                at = skip_field(data, at, end, tag, _COMMIT)
        require_sha256(self.sha256)


def require_sha256(digest: bytes) -> None:
    """`BadValue` for what cannot be a digest."""
    if len(digest) != SHA256_BYTES:
        raise BadValue("sha256", f"{len(digest):,} bytes", f"send its {SHA256_BYTES} bytes")


# Writing. Nothing that is empty or 0 is written.


def row_bytes(row: Row, now_us: int) -> bytes:
    """Row."""
    parts = []
    if row.sort:
        parts.append(b"\x0a" + span_bytes(row.sort))
    if row.value:
        parts.append(b"\x12" + span_bytes(row.value))
    if row.expires_us:
        parts.append(b"\x18" + varint_bytes(ttl_ms_of(row.expires_us, now_us)))
    return b"".join(parts)


def encode_get_response(row: Row | None, now_us: int) -> bytes:
    """GetResponse."""
    return b"" if row is None else b"\x0a" + span_bytes(row_bytes(row, now_us))


def encode_get_each_response(rows: Sequence[Row | None], now_us: int) -> bytes:
    """GetEachResponse."""
    return b"".join([b"\x0a" + span_bytes(encode_get_response(row, now_us)) for row in rows])


def encode_scan_response(rows: RowPage, now_us: int) -> bytes:
    """ScanResponse."""
    parts = [b"\x0a" + span_bytes(row_bytes(row, now_us)) for row in rows.rows]
    if rows.token:
        parts.append(b"\x12" + span_bytes(rows.token))
    return b"".join(parts)


def encode_walk_response(walked: PlacePage) -> bytes:
    """WalkResponse."""
    parts = [b"\x0a" + span_bytes(_place_bytes(place)) for place in walked.places]
    if walked.after is not None:
        parts.append(b"\x12" + span_bytes(_place_bytes(walked.after)))
    return b"".join(parts)


def _place_bytes(place: Place) -> bytes:
    partition, sort = place
    out = b"\x0a" + span_bytes(partition) if partition else b""
    return out + b"\x12" + span_bytes(sort) if sort else out


def encode_write_if_response(tried: WriteIfResult, now_us: int) -> bytes:
    """WriteIfResponse."""
    out = b"\x08\x01" if tried.done else b""
    if tried.row is None:
        return out
    return out + b"\x12" + span_bytes(row_bytes(tried.row, now_us))


def encode_number(value: int) -> bytes:
    """RemoveResponse and ExpireResponse: one number, or whether."""
    return b"\x08" + varint_bytes(min(value, UINT32_MAX)) if value > 0 else b""


def encode_upload(upload: Upload) -> bytes:
    """Upload."""
    parts = []
    for tag, given in (
        (b"\x0a", upload.table),
        (b"\x12", upload.name),
        (b"\x1a", upload.mode),
        (b"\x22", upload.state),
    ):
        if given:
            parts.append(tag + text_bytes(given))
    if upload.parts:
        parts.append(b"\x2a" + span_bytes(b"".join([varint_bytes(one) for one in upload.parts])))
    for tag, count in (
        (b"\x30", upload.rows),
        (b"\x38", upload.bytes),
        (b"\x40", upload.begun_us // 1_000),
    ):
        if count:
            parts.append(tag + varint_bytes(count))
    if upload.by:
        parts.append(b"\x4a" + text_bytes(upload.by))
    return b"".join(parts)


def encode_uploads(uploads: Sequence[Upload]) -> bytes:
    """ListUploadsResponse."""
    return b"".join([b"\x0a" + span_bytes(encode_upload(upload)) for upload in uploads])
