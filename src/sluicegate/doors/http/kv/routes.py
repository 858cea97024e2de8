"""The table of the key-value service's routes. Whoever wants to know what it answers begins here.

A path is looked up as it was sent, for a key may have any bytes. The rows that are asked for most
stand first.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.access import TableGrant
from sluicegate.doors.http.kv.rows import KvRows
from sluicegate.doors.http.kv.uploads import PART_TYPES, KvUploads
from sluicegate.doors.http.openapi import PROBLEM_TYPE
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import BOOL, TEXT, whole

TABLE: Final = "/v1/tables/{table}"
ROW: Final = f"{TABLE}/rows/{{partition}}/{{sort}}"
ROW_ALONE: Final = f"{TABLE}/rows/{{partition}}"
PART: Final = f"{TABLE}/uploads/{{name}}/parts/{{number}}"
UPLOAD: Final = f"{TABLE}/uploads/{{name}}"

_BYTES: Final = "application/octet-stream"
_CLAIMS: Final = (
    Parameter(
        "X-Sluicegate-Criticality",
        "How much it matters: critical, degraded, best-effort or bulk.",
        TEXT,
        "header",
    ),
    Parameter(
        "X-Sluicegate-Deadline-Ms",
        "How long the caller waits.",
        whole(0),
        "header",
    ),
    Parameter("X-Sluicegate-Strong", "Pass by every cache.", BOOL, "header"),
)
_IF_MATCH: Final = Parameter(
    "If-Match", "The ETag of what must be there; * is anything.", TEXT, "header"
)
_READS: Final = (
    Parameter("If-None-Match", "ETags that are known: 304.", TEXT, "header"),
    _IF_MATCH,
    *_CLAIMS,
)
_WRITES: Final = (
    Parameter("If-None-Match", "*: nothing may be there.", TEXT, "header"),
    _IF_MATCH,
    *_CLAIMS,
)
_TTL: Final = Parameter("ttl_ms", "How long it is to stay; 0 is for ever.", whole(0))
_RANGE: Final = (
    Parameter("begin", "The first sort key that counts.", TEXT),
    Parameter("end", "The first that counts no more.", TEXT),
    Parameter("reverse", "From the last to the first.", BOOL),
    Parameter("rows_max", "At most so many rows; 100.", whole(1)),
    Parameter("bytes_max", "No further row beyond so many bytes; 1 MiB.", whole(1)),
    Parameter("token", "Goes on where an earlier answer ended.", TEXT),
    *_CLAIMS,
)
_WALK: Final = (
    Parameter("after", "Goes on where an earlier answer ended.", TEXT),
    Parameter("rows_max", "At most so many; 100.", whole(1)),
    *_CLAIMS,
)
# Values are bounded by 16 MiB together, and are a third longer in JSON; the rest is for keys.
ROWS_BYTES_MAX: Final = 32 << 20
_DIGEST: Final = Parameter(
    "Content-Digest", "sha-256=:base64: of the body (RFC 9530).", TEXT, "header", required=True
)
_NOT_SO: Final = RouteResponse("The row is not as the condition says.", "Problem", PROBLEM_TYPE)
_GOT: Final = {
    200: RouteResponse("The value, its ETag, and X-Sluicegate-Ttl-Ms if it expires.", "", _BYTES),
    304: RouteResponse("What is known is still so.", empty=True),
    404: RouteResponse("Nothing is there.", "Problem", PROBLEM_TYPE),
    412: _NOT_SO,
}
_PUT: Final = {204: RouteResponse("Written; its ETag.", empty=True), 412: _NOT_SO}
_DELETED: Final = {204: RouteResponse("Nothing is there now.", empty=True), 412: _NOT_SO}


def row_routes(rows: KvRows) -> tuple[Route, ...]:
    """The routes of rows, those that are asked for most first."""
    return tuple(
        route._replace(reply_bytes_max=ROWS_BYTES_MAX)
        for route in (*_place_routes(rows), *_table_routes(rows))
    )


def _place_routes(to: KvRows) -> tuple[Route, ...]:
    read, write = TableGrant.READ, TableGrant.WRITE
    routes: list[Route] = []
    for path, alone, end in ((ROW, "", ""), (ROW_ALONE, " with the empty sort key", "_alone")):
        routes += (
            Route(
                "GET",
                path,
                to.get_row,
                f"The value of a row{alone}.",
                _GOT,
                name=f"get_row{end}",
                table_grant=read,
                parameters=_READS,
            ),
            Route(
                "PUT",
                path,
                to.put_row,
                f"Write a row{alone}.",
                _PUT,
                name=f"put_row{end}",
                table_grant=write,
                any_type=True,
                content_types=(_BYTES, "*/*"),
                parameters=(_TTL, *_WRITES),
            ),
            Route(
                "DELETE",
                path,
                to.delete_row,
                f"Delete a row{alone}.",
                _DELETED,
                name=f"delete_row{end}",
                table_grant=write,
                parameters=_WRITES,
            ),
        )
    return tuple(routes)


def _table_routes(to: KvRows) -> tuple[Route, ...]:
    read, write = TableGrant.READ, TableGrant.WRITE
    return (
        Route(
            "GET",
            f"{TABLE}/range/{{partition}}",
            to.get_range,
            "Rows of one partition.",
            {200: RouteResponse("The rows, and how to go on.", "Rows")},
            table_grant=read,
            parameters=_RANGE,
        ),
        Route(
            "POST",
            f"{TABLE}/rows:get",
            to.get_rows,
            "Several rows at once.",
            {200: RouteResponse("The rows, in the order asked for.", "Found")},
            request_schema="Places",
            table_grant=read,
            parameters=_CLAIMS,
        ),
        Route(
            "POST",
            f"{TABLE}/rows:write",
            to.write_rows,
            "Put and delete rows; those of one partition all or none.",
            {200: RouteResponse("All of them are done.", "Written")},
            request_schema="Writes",
            table_grant=write,
            parameters=_CLAIMS,
        ),
        Route(
            "POST",
            f"{TABLE}/rows:remove",
            to.remove_rows,
            "Delete rows, and return how many existed.",
            {200: RouteResponse("How many.", "Removed")},
            request_schema="Places",
            table_grant=write,
            parameters=_CLAIMS,
        ),
        Route(
            "POST",
            f"{TABLE}/rows:expire",
            to.expire_row,
            "Set the time after which a row expires.",
            {200: RouteResponse("Whether the row existed.", "There")},
            request_schema="Expiry",
            table_grant=write,
            parameters=_CLAIMS,
        ),
        Route(
            "GET",
            f"{TABLE}/keys",
            to.walk_keys,
            "Places of the whole table, in no order to rely on.",
            {200: RouteResponse("Places, and how to go on.", "Walked")},
            table_grant=read,
            parameters=_WALK,
        ),
    )


def upload_routes(to: KvUploads) -> tuple[Route, ...]:
    """The routes of bulk uploads."""
    bulk = TableGrant.BULK
    state = {200: RouteResponse("How it stands.", "Upload")}
    return (
        Route(
            "PUT",
            PART,
            to.upload_part,
            "Keep a part of an upload; the same part again changes nothing.",
            {200: RouteResponse("How it stands, and the part's digest.", "Part")},
            table_grant=bulk,
            any_type=True,
            content_types=PART_TYPES,
            parameters=(_DIGEST, *_CLAIMS),
        ),
        Route(
            "POST",
            f"{UPLOAD}:commit",
            to.commit_upload,
            "Make an upload visible, if it is whole.",
            state,
            request_schema="Commit",
            table_grant=bulk,
            parameters=_CLAIMS,
        ),
        Route(
            "PUT",
            UPLOAD,
            to.begin_upload,
            "Start an upload, or return the one that is open.",
            state,
            request_schema="UploadRequest",
            table_grant=bulk,
            parameters=_CLAIMS,
        ),
        Route(
            "GET",
            UPLOAD,
            to.show_upload,
            "The state of an upload.",
            state,
            table_grant=bulk,
            parameters=_CLAIMS,
        ),
        Route(
            "DELETE",
            UPLOAD,
            to.abandon_upload,
            "Abort an upload and delete its parts.",
            state,
            table_grant=bulk,
            parameters=_CLAIMS,
        ),
        Route(
            "GET",
            f"{TABLE}/uploads",
            to.list_uploads,
            "Open uploads, and the latest that have ended.",
            {200: RouteResponse("The uploads.", "Uploads")},
            table_grant=bulk,
            parameters=_CLAIMS,
        ),
    )
