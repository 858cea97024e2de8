"""Kv: the key-value service in HTTP, under `/v1/tables`. It translates; the dispatcher decides.

A value is a body, as it is; whatever has several rows is JSON. A refusal is an HTTP error with the
status of its reason, as problem details, and says when to come back.

Order: health, which nothing refuses; a connection beyond the most; Host; the route; another site's
page, for reads too, since they spend a caller's units; the type and the length of the body; who
asks, and whether they may on this table. All that is known before the body is. The dispatcher asks
for the grants again: this door only saves who has none from sending a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Forbidden, SluicegateError
from sluicegate.contracts.key_values import KeyValues
from sluicegate.doors.http.forms import not_json
from sluicegate.doors.http.health import RESERVED
from sluicegate.doors.http.kv.forms import name_of
from sluicegate.doors.http.kv.json_values import text_in
from sluicegate.doors.http.kv.replies import error_reply, too_long
from sluicegate.doors.http.kv.routes import PART, ROW, ROW_ALONE, routes_of
from sluicegate.doors.http.kv.rows import KvRows
from sluicegate.doors.http.kv.schemas import KV_SCHEMAS
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.http.kv.status import KvDesk
from sluicegate.doors.http.kv.uploads import KvUploads
from sluicegate.doors.http.later import caught, soon
from sluicegate.doors.http.message import Finish, Reply, Request, json_bytes, json_reply, problem
from sluicegate.doors.http.openapi import document
from sluicegate.doors.http.routes import Route, Table
from sluicegate.doors.http.site import other_host, other_site
from sluicegate.doors.http.who import NOBODY, identity_of, reply_to

_PACKED: Final = problem(
    415, "Unsupported Media Type", "send it without Content-Encoding: a value is kept as it comes"
)
_PIECE: Final = problem(400, "Bad Request", "send the whole of it, without Content-Range")


@final
class KvHttp:
    """The handler: `HttpDoor(KvHttp(...).handle, clock, http)` serves it.

    `http.body_bytes_max` must let `settings.body_bytes_max` through.
    """

    def __init__(
        self,
        service: KeyValues,
        desk: KvDesk,
        access: Access,
        clock: Clock,
        settings: KvHttpSettings | None = None,
    ) -> None:
        self.settings = KvHttpSettings() if settings is None else settings
        self._desk = desk
        self._access = access
        self._clock = clock
        bounds = self.settings.bounds
        self._bodies = {
            ROW: (bounds.value_bytes_max, "value_bytes_max"),
            ROW_ALONE: (bounds.value_bytes_max, "value_bytes_max"),
            PART: (self.settings.part_bytes_max, "part_bytes_max"),
        }
        self._json = (self.settings.json_bytes_max, "json_bytes_max")
        rows = KvRows(service, clock, bounds, self._places)
        uploads = KvUploads(service, bounds, self._places)
        self.table = Table(
            routes_of(self, rows, uploads, desk, metrics_open=self.settings.metrics_open), raw=True
        )
        self._document = json_bytes(
            document(
                self.table,
                KV_SCHEMAS,
                title="Sluicegate key-value service",
                summary="Rows in order, in partitions, in tables. Keys in paths are "
                "percent-encoded bytes.",
                version=self.settings.version,
            )
        )

    def handle(self, request: Request) -> Reply | Finish:
        """A reply to the head alone, or who is to be given the body."""
        request.arrived_us = self._clock.now_us()
        found = self.table.find(request)
        if isinstance(found, Route) and found.health:
            # At once, and not among those that wait for a turn.
            answer = self._finish(found, request, NOBODY, b"")
            return answer if isinstance(answer, Reply) else lambda _: answer
        if request.peer.reserved:
            return RESERVED
        refused = other_host(request, self.settings.hosts)
        if refused is not None:
            return refused
        if isinstance(found, Reply):
            return found
        if not found.open:
            refused = other_site(request) or self._unfit(found, request)
            if refused is not None:
                return refused
        by = NOBODY if found.open else identity_of(request, self._access)
        if isinstance(by, Reply):
            return by
        if found.grant is not None and not by.may(found.grant):
            return reply_to(Forbidden(by.name, found.grant.value))
        if found.table_grant is not None:
            try:
                table = name_of(self.table.named(request.raw_path), "table")
                by.must_on(table, found.table_grant)
            except SluicegateError as error:
                return reply_to(error)
        return partial(self._finish, found, request, by)

    def _unfit(self, route: Route, request: Request) -> Reply | None:
        """The refusal of a body by what its head says of it."""
        if not (route.asks or route.takes):
            return None
        if route.asks and not route.any_type:
            refused = not_json(request)
            if refused is not None:
                return refused
        if request.header(b"content-encoding").lower() not in (b"", b"identity"):
            return _PACKED
        if request.count(b"content-range"):
            return _PIECE
        bytes_max, bound = self._bodies.get(route.path, self._json)
        length = request.header(b"content-length")
        # Who sends no length, or no number, is stopped by the bound of the whole door.
        if length.isdigit() and int(length) > bytes_max:
            return too_long(bytes_max, bound)
        return None

    def _finish(
        self, route: Route, request: Request, by: Identity, body: bytes
    ) -> MaybeAwaitable[Reply]:
        bytes_max, bound = self._bodies.get(route.path, self._json)
        if len(body) > bytes_max:
            return too_long(bytes_max, bound)
        try:
            answer = route.work(request, by, body)
        except SluicegateError as error:
            return self._reply_of(error)
        if isinstance(answer, Reply):
            return answer
        return caught(answer, self._reply_of)

    def _reply_of(self, error: SluicegateError) -> Reply:
        return error_reply(error, self.settings.quota_status)

    def _places(self, path: str) -> Mapping[str, str]:
        return self.table.named(path)

    # What is not of a table.

    def state(self, _request: Request, by: Identity, _body: bytes) -> MaybeAwaitable[Reply]:
        """GET /v1/state."""
        return soon(self._desk.state(by), json_reply)

    def hot(self, _request: Request, by: Identity, _body: bytes) -> MaybeAwaitable[Reply]:
        """GET /v1/hot."""
        return soon(self._desk.hot(by), json_reply)

    async def backup(self, _request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/backup."""
        return json_reply({"bytes": await self._desk.backup(text_in(body, "folder"), by)})

    def openapi(self, _request: Request, _by: Identity, _body: bytes) -> Reply:
        """GET /openapi.json."""
        return Reply(200, self._document)
