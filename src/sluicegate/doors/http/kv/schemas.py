"""Schemas: the shapes of the key-value service's JSON, for its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.doors.http.audit import AUDIT_SCHEMA
from sluicegate.doors.http.schemas import (
    BOOL,
    EVERYWHERE,
    FREE,
    TEXT,
    fields,
    ref,
    several,
    text,
    whole,
)

_BASE64: Final = {"type": "string", "contentEncoding": "base64"}
_TTL_MS: Final = whole(0, "Milliseconds; 0, or left out, is for ever.")


def _bytes(name: str) -> dict[str, object]:
    """A field of bytes under either of its names."""
    return {name: text("If it is UTF-8."), f"{name}_base64": {**_BASE64}}


_PLACE: Final = {**_bytes("partition"), **_bytes("sort")}
_UPLOAD: Final = {
    "table": TEXT,
    "name": TEXT,
    "mode": {"type": "string", "enum": ["merge", "replace"]},
    "state": {"type": "string", "enum": ["open", "sealing", "folding", "done", "abandoned"]},
    "parts": several(whole(0)),
    "rows": whole(0),
    "bytes": whole(0),
    "begun_ms": whole(0, "Since 1970."),
    "by": TEXT,
}
_SHA256: Final = text("64 hexadecimal digits.", pattern="^[0-9a-fA-F]{64}$")

KV_SCHEMAS: Final[Mapping[str, Mapping[str, object]]] = {
    "Place": fields(
        _PLACE,
        sentence="Each under its name if it is UTF-8, else under its name and _base64. "
        "Without a sort key it is the empty one.",
    ),
    "Places": fields({"places": several(ref("Place"))}, ["places"]),
    "Row": fields(
        {**_bytes("sort"), **_bytes("value"), "ttl_ms": whole(1, "What is left of its time.")},
        sentence="A row of a partition that is known already.",
    ),
    "Found": fields(
        {"rows": several({"anyOf": [ref("Row"), {"type": "null"}]})},
        ["rows"],
        "In the order asked for; null where nothing is.",
    ),
    "Rows": fields(
        {"rows": several(ref("Row")), "token": text("Goes on behind the last; empty at the end.")},
        ["rows", "token"],
    ),
    "Write": fields(
        {**_PLACE, **_bytes("value"), "ttl_ms": _TTL_MS, "delete": BOOL},
        sentence="A value, or delete.",
    ),
    "Writes": fields({"writes": several(ref("Write"))}, ["writes"]),
    "Written": fields({"written": whole(0)}, ["written"]),
    "Removed": fields({"removed": whole(0, "How many of them were there.")}, ["removed"]),
    "Expiry": fields({**_PLACE, "ttl_ms": _TTL_MS}, ["ttl_ms"]),
    "There": fields({"there": BOOL}, ["there"]),
    "Walked": fields(
        {"places": several(ref("Place")), "after": text("Goes on behind it; empty at the end.")},
        ["places", "after"],
    ),
    "UploadRequest": fields({"mode": _UPLOAD["mode"]}, ["mode"]),
    "Upload": fields(_UPLOAD, list(_UPLOAD)),
    "Part": fields(
        {**_UPLOAD, "sha256": {**_SHA256, "description": "Of this part, as the commit has it."}},
        [*_UPLOAD, "sha256"],
    ),
    "Uploads": fields({"uploads": several(ref("Upload"))}, ["uploads"]),
    "Commit": fields(
        {"parts": whole(0), "rows": whole(0), "sha256": _SHA256},
        ["parts", "rows", "sha256"],
        "What is to be there: the digest is that of the parts' own, one behind the other.",
    ),
    "BackupRequest": fields(
        {"folder": text("On the service's machine; empty or new.")}, ["folder"]
    ),
    "Backup": fields({"bytes": whole(0)}, ["bytes"]),
    "State": {**FREE, "description": "What the service is doing now."},
    "Audit": AUDIT_SCHEMA,
    "Hot": {**FREE, "description": "Which keys are hot."},
    **EVERYWHERE,
}
