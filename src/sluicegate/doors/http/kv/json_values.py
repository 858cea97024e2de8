"""Rows, places and writes as JSON.

JSON has no bytes. What is UTF-8 is fields as text under its name; what is not, as base64 under its
name and `_base64`. Whoever sends may use either, and one of them:

    {"partition": "ann", "sort": "1", "value": "tea", "ttl_ms": 60000}
    {"partition": "ann", "sort_base64": "/w==", "value_base64": "gICA"}

`ttl_ms` is what is left of its time, and left out for ever. Pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from sluicegate.contracts.engine import Place
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import Row, RowPage, Upload, Write
from sluicegate.wire.json_objects import at, fields_of, list_of, parse_json, utf8_of, whole_of
from sluicegate.wire.key_values_messages import (
    SHA256_BYTES,
    TTL_MS_MAX,
    KvBounds,
    ttl_ms_of,
    value_too_long,
)
from sluicegate.wire.row_stream import StreamRow

BASE64: Final = "_base64"
TEXT_CHARS_MAX: Final = 4_096  # of a name, a folder, a mode

_KEYS: Final = {one: one for name in ("partition", "sort") for one in (name, name + BASE64)}
_ROW: Final = {
    **_KEYS,
    "value": "value",
    "value" + BASE64: "value" + BASE64,
    "ttl_ms": "ttl_ms",
}
_WRITE: Final = {**_ROW, "delete": "delete"}
_EXPIRE: Final = {**_KEYS, "ttl_ms": "ttl_ms"}
_PLACES: Final = {"places": "places"}
_WRITES: Final = {"writes": "writes"}
_COMMIT: Final = {"parts": "parts", "rows": "rows", "sha256": "sha256"}


# Reading.


def places_of(body: bytes, bounds: KvBounds) -> list[Place]:
    """`{"places": [...]}`."""
    fields = fields_of(parse_json(body), "", _PLACES)
    listed = list_of(fields.get("places"), "places", bounds.places_max, "places_max")
    return [
        _place(fields_of(one, f"places[{number}]", _KEYS), f"places[{number}]")
        for number, one in enumerate(listed)
    ]


def writes_of(body: bytes, bounds: KvBounds) -> list[Write]:
    """`{"writes": [...]}`."""
    fields = fields_of(parse_json(body), "", _WRITES)
    listed = list_of(fields.get("writes"), "writes", bounds.writes_max, "writes_max")
    return [_write(one, f"writes[{number}]", bounds) for number, one in enumerate(listed)]


def _write(value: object, place: str, bounds: KvBounds) -> Write:
    fields = fields_of(value, place, _WRITE)
    partition, sort = _place(fields, place)
    deletes = fields.get("delete", False)
    if not isinstance(deletes, bool):
        raise BadValue(at(place, "delete"), deletes, "send true or false")
    if not deletes:
        return Write(partition, sort, _value(fields, place, bounds), _ttl_us(fields, place))
    for name in ("value", "value" + BASE64, "ttl_ms"):
        if name in fields:
            raise BadValue(at(place, name), fields[name], "send it, or delete; not both")
    return Write(partition, sort, None)


def expiry_of(body: bytes) -> tuple[Place, int]:
    """A place, and for how long what is there is to stay."""
    fields = fields_of(parse_json(body), "", _EXPIRE)
    if "ttl_ms" not in fields:
        raise BadValue("ttl_ms", None, "send milliseconds; 0 is for ever")
    return _place(fields, ""), _ttl_us(fields, "")


def stream_row_of(line: bytes, number: int, bounds: KvBounds) -> StreamRow:
    """One line of a part."""
    place = f"line {number}"
    try:
        value = parse_json(line)
    except BadValue as error:
        raise BadValue(place, error.value, error.remedy) from None
    fields = fields_of(value, place, _ROW)
    partition, sort = _place(fields, place)
    return StreamRow(partition, sort, _value(fields, place, bounds), _ttl_us(fields, place))


def text_in(body: bytes, name: str) -> str:
    """An object of one text."""
    text = fields_of(parse_json(body), "", {name: name}).get(name)
    if not isinstance(text, str) or not text or len(text) > TEXT_CHARS_MAX:
        raise BadValue(name, text, f"send a text of 1 to {TEXT_CHARS_MAX:,} characters")
    utf8_of(text, name)
    return text


def commit_of(body: bytes) -> tuple[int, int, bytes]:
    """How many parts and rows there are, and the digest of the parts' own digests."""
    fields = fields_of(parse_json(body), "", _COMMIT)
    parts = whole_of(fields.get("parts"), "parts", 0, 2**32 - 1)
    rows = whole_of(fields.get("rows"), "rows", 0, 2**63 - 1)
    value = fields.get("sha256")
    try:
        digest = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        digest = b""
    if len(digest) != SHA256_BYTES:
        raise BadValue("sha256", value, f"send its {SHA256_BYTES} bytes as hexadecimal digits")
    return parts, rows, digest


def _place(fields: Mapping[str, object], place: str) -> Place:
    partition = _bytes_in(fields, place, "partition")
    if partition is None:
        raise BadValue(at(place, "partition"), None, f"send it, or partition{BASE64}")
    return partition, _bytes_in(fields, place, "sort") or b""


def _value(fields: Mapping[str, object], place: str, bounds: KvBounds) -> bytes:
    value = _bytes_in(fields, place, "value")
    if value is None:
        raise BadValue(at(place, "value"), None, f"send it, or value{BASE64}")
    if len(value) > bounds.value_bytes_max:
        error = value_too_long(len(value), bounds)
        raise BadValue(at(place, "value"), error.value, error.remedy)
    return value


def _ttl_us(fields: Mapping[str, object], place: str) -> int:
    return whole_of(fields.get("ttl_ms", 0), at(place, "ttl_ms"), 0, TTL_MS_MAX) * 1_000


def _bytes_in(fields: Mapping[str, object], place: str, name: str) -> bytes | None:
    text, packed = fields.get(name), fields.get(name + BASE64)
    if text is not None and packed is not None:
        raise BadValue(at(place, name + BASE64), packed, f"send it, or {name}; not both")
    if packed is not None:
        if isinstance(packed, str):
            try:
                return b64decode(packed, validate=True)
            except ValueError:
                pass
        raise BadValue(at(place, name + BASE64), packed, "send base64 with its padding")
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadValue(at(place, name), text, "send a string")
    return utf8_of(text, at(place, name))


# Writing.


def _put(into: dict[str, object], name: str, data: bytes) -> None:
    try:
        into[name] = data.decode("utf-8")
    except UnicodeDecodeError:
        into[name + BASE64] = b64encode(data).decode("ascii")


def place_json(place: Place) -> dict[str, object]:
    """A place."""
    fields: dict[str, object] = {}
    _put(fields, "partition", place[0])
    _put(fields, "sort", place[1])
    return fields


def row_json(row: Row, now_us: int) -> dict[str, object]:
    """A row, without its partition."""
    fields: dict[str, object] = {}
    _put(fields, "sort", row.sort)
    _put(fields, "value", row.value)
    if row.expires_us:
        fields["ttl_ms"] = ttl_ms_of(row.expires_us, now_us)
    return fields


def found_json(rows: Sequence[Row | None], now_us: int) -> dict[str, object]:
    """Rows in the order asked for; null where there is none."""
    return {"rows": [None if row is None else row_json(row, now_us) for row in rows]}


def rows_json(rows: RowPage, token: str, now_us: int) -> dict[str, object]:
    """Rows of a partition, and how to go on."""
    return {"rows": [row_json(row, now_us) for row in rows.rows], "token": token}


def upload_json(upload: Upload) -> dict[str, object]:
    """An upload as it stands."""
    return {
        "table": upload.table,
        "name": upload.name,
        "mode": upload.mode,
        "state": upload.state,
        "parts": list(upload.parts),
        "rows": upload.rows,
        "bytes": upload.bytes,
        "begun_ms": upload.begun_us // 1_000,
        "by": upload.by,
    }
