"""Rows: what the routes of rows do. Each is a few lines: read, call, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.key_values import KeyValues, Write
from sluicegate.doors.http.etags import IF_MATCH, IF_NONE_MATCH, wanted_tags
from sluicegate.doors.http.kv.json_values import (
    expiry_of,
    found_json,
    place_json,
    places_of,
    rows_json,
    writes_of,
)
from sluicegate.doors.http.kv.replies import DONE, value_reply, write_if_reply, written_reply
from sluicegate.doors.http.kv.request_fields import (
    after_text,
    call_of,
    condition_of,
    name_of,
    place_of,
    range_of,
    token_text,
    ttl_us_of,
    walk_of,
)
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_reply, render_reply
from sluicegate.wire.key_values_messages import KvBounds

Places: TypeAlias = "Callable[[str], Mapping[str, str]]"


@final
class KvRows:
    """Translates for the rows of a table. `places` tells what a path says in its places."""

    def __init__(self, service: KeyValues, clock: Clock, bounds: KvBounds, places: Places) -> None:
        self._service: Final = service
        self._clock: Final = clock
        self._bounds: Final = bounds
        self._places: Final = places

    def get_row(
        self, request: HttpRequest, by: Identity, _body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """GET /v1/tables/{table}/rows/{partition}/{sort}."""
        places = self._places(request.raw_path)
        partition, sort = place_of(places)
        write = partial(
            value_reply,
            now_us=self._clock.now_us(),
            match=wanted_tags(request, IF_MATCH),
            none_match=wanted_tags(request, IF_NONE_MATCH),
        )
        table = name_of(places, "table")
        return render_reply(self._service.get(table, partition, sort, call_of(request, by)), write)

    async def put_row(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """PUT /v1/tables/{table}/rows/{partition}/{sort}."""
        return await self._write(request, by, body, ttl_us_of(request))

    async def delete_row(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """DELETE /v1/tables/{table}/rows/{partition}/{sort}."""
        return await self._write(request, by, None, 0)

    async def _write(
        self, request: HttpRequest, by: Identity, value: bytes | None, ttl_us: int
    ) -> HttpReply:
        places = self._places(request.raw_path)
        table = name_of(places, "table")
        write = Write(*place_of(places), value, ttl_us)
        condition = condition_of(request)
        call = call_of(request, by)
        if condition is not None:
            return write_if_reply(
                await self._service.write_if(table, write, condition, call), value
            )
        await self._service.write(table, (write,), call)
        return DONE if value is None else written_reply(value)

    async def get_range(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/tables/{table}/range/{partition}."""
        places = self._places(request.raw_path)
        table = name_of(places, "table")
        partition, _ = place_of(places)
        span, token = range_of(request, self._bounds)
        rows = await self._service.scan(table, partition, span, call_of(request, by), token)
        return json_reply(rows_json(rows, token_text(rows.token), self._clock.now_us()))

    def get_rows(
        self, request: HttpRequest, by: Identity, body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """POST /v1/tables/{table}/rows:get."""
        table = self._table(request)
        places = places_of(body, self._bounds)
        reading = self._service.get_each(table, places, call_of(request, by))
        return render_reply(
            reading, lambda rows: json_reply(found_json(rows, self._clock.now_us()))
        )

    async def write_rows(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/tables/{table}/rows:write."""
        table = self._table(request)
        writes = writes_of(body, self._bounds)
        await self._service.write(table, writes, call_of(request, by))
        return json_reply({"written": len(writes)})

    async def remove_rows(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/tables/{table}/rows:remove."""
        table = self._table(request)
        places = places_of(body, self._bounds)
        removed = await self._service.remove(table, places, call_of(request, by))
        return json_reply({"removed": removed})

    async def expire_row(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/tables/{table}/rows:expire."""
        table = self._table(request)
        (partition, sort), ttl_us = expiry_of(body)
        call = call_of(request, by)
        exists = await self._service.expire(table, partition, sort, ttl_us, call)
        return json_reply({"there": exists})

    async def walk_keys(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/tables/{table}/keys."""
        table = self._table(request)
        after, rows_max = walk_of(request, self._bounds)
        walked = await self._service.walk(table, after, rows_max, call_of(request, by))
        places = [place_json(place) for place in walked.places]
        return json_reply({"places": places, "after": after_text(walked.after)})

    def _table(self, request: HttpRequest) -> str:
        return name_of(self._places(request.raw_path), "table")
