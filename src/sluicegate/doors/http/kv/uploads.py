"""Uploads: what the routes of bulk uploads do.

A part is a stream of rows as `wire/row_stream.py` has it, or lines of JSON, one row each. Lines are
made a stream here, some in each turn of the loop, so that whoever reads meanwhile does not wait. A
part's digest is that of the stream, whichever way it came; the answer tells it, and a commit is
made of these.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import KeyValues
from sluicegate.doors.http.fields import whole_of
from sluicegate.doors.http.kv.json_values import commit_of, stream_row_of, text_in, upload_json
from sluicegate.doors.http.kv.request_fields import call_of, digest_of, name_of
from sluicegate.doors.http.kv.rows import Places
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_reply
from sluicegate.wire.key_values_messages import KvBounds
from sluicegate.wire.row_stream import HEADER, ROWS_MEDIA_TYPE, row_bytes

NDJSON: Final = "application/x-ndjson"
PART_TYPES: Final = (ROWS_MEDIA_TYPE, NDJSON)
LINES_A_TURN: Final = 256
_BINARY: Final = ROWS_MEDIA_TYPE.encode("ascii")
_LINES: Final = NDJSON.encode("ascii")


@final
class KvUploads:
    """Translates for the uploads of a table."""

    def __init__(self, service: KeyValues, bounds: KvBounds, places: Places) -> None:
        self._service: Final = service
        self._bounds: Final = bounds
        self._places: Final = places

    async def begin_upload(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """PUT /v1/tables/{table}/uploads/{name}."""
        table, name = self._upload_of(request)
        mode = text_in(body, "mode")
        call = call_of(request, by)
        return json_reply(upload_json(await self._service.uploads.begin(table, name, mode, call)))

    async def upload_part(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """PUT /v1/tables/{table}/uploads/{name}/parts/{number}."""
        table, name = self._upload_of(request)
        value = name_of(self._places(request.raw_path), "number")
        number = whole_of("number", value, 0, 2**32 - 1)
        digest = digest_of(request)
        kind = request.header(b"content-type").partition(b";")[0].strip().lower()
        if kind == _LINES:
            if sha256(body).digest() != digest:
                raise BadValue("content-digest", digest.hex(), "send the part again, whole")
            body = await stream_of_lines(body, self._bounds)
            digest = sha256(body).digest()
        elif kind != _BINARY:
            kinds = " or ".join(PART_TYPES)
            raise BadValue("content-type", kind.decode("latin-1"), f"send rows as {kinds}")
        call = call_of(request, by)
        upload = await self._service.uploads.part(table, name, number, body, digest, call)
        return json_reply({**upload_json(upload), "sha256": digest.hex()})

    async def commit_upload(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/tables/{table}/uploads/{name}:commit."""
        table, name = self._upload_of(request)
        parts, rows, digest = commit_of(body)
        call = call_of(request, by)
        done = await self._service.uploads.commit(table, name, parts, rows, digest, call)
        return json_reply(upload_json(done))

    async def abandon_upload(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """DELETE /v1/tables/{table}/uploads/{name}."""
        table, name = self._upload_of(request)
        upload = await self._service.uploads.abandon(table, name, call_of(request, by))
        return json_reply(upload_json(upload))

    async def show_upload(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/tables/{table}/uploads/{name}."""
        table, name = self._upload_of(request)
        upload = await self._service.uploads.show(table, name, call_of(request, by))
        return json_reply(upload_json(upload))

    async def list_uploads(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/tables/{table}/uploads."""
        table = name_of(self._places(request.raw_path), "table")
        uploads = await self._service.uploads.all(table, call_of(request, by))
        return json_reply({"uploads": [upload_json(one) for one in uploads]})

    def _upload_of(self, request: HttpRequest) -> tuple[str, str]:
        places = self._places(request.raw_path)
        return name_of(places, "table"), name_of(places, "name")


async def stream_of_lines(body: bytes, bounds: KvBounds) -> bytes:
    """Lines of JSON as a stream of rows; empty lines are none. Others have their turn meanwhile."""
    pieces = [HEADER]
    for number, line in enumerate(body.split(b"\n"), 1):
        if number % LINES_A_TURN == 0:
            await asyncio.sleep(0)
        if not line.strip():
            continue
        row = stream_row_of(line, number, bounds)
        try:
            pieces.append(row_bytes(row))
        except BadValue as error:
            raise BadValue(f"line {number}.{error.field}", error.value, error.remedy) from None
    return b"".join(pieces)
