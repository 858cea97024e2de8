"""Kv: the key-value service in HTTP, under `/v1/tables`. It translates; the dispatcher decides.

A value is a body, as it is; whatever has several rows is JSON. A refusal is an HTTP error with the
status of its reason, as problem details, and says when to come back.

Order: health, which nothing refuses; a connection beyond the most; Host; the route; another site's
page, for reads too, since they spend a caller's units; the type and the length of the body; who
asks, and whether they may on this table. All that is known before the body is. The dispatcher asks
for the grants again: this door only saves who has none from sending a body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final, Protocol, final

from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.key_values import KeyValues
from sluicegate.doors.http.audit import AuditStatus, audit_route
from sluicegate.doors.http.fields import not_json
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.health import WorkerState, status_routes
from sluicegate.doors.http.identity import reply_to
from sluicegate.doors.http.kv.json_values import text_in
from sluicegate.doors.http.kv.replies import error_reply, too_long
from sluicegate.doors.http.kv.request_fields import name_of
from sluicegate.doors.http.kv.routes import PART, ROW, ROW_ALONE, row_routes, upload_routes
from sluicegate.doors.http.kv.rows import KvRows
from sluicegate.doors.http.kv.schemas import KV_SCHEMAS
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.http.kv.uploads import KvUploads
from sluicegate.doors.http.message import (
    Finish,
    HttpReply,
    HttpRequest,
    json_reply,
    problem,
    render_reply,
)
from sluicegate.doors.http.openapi import document_route
from sluicegate.doors.http.routes import Route, RouteResponse
from sluicegate.doors.http.site import other_site

_PACKED: Final = problem(
    415, "Unsupported Media Type", "send it without Content-Encoding: a value is kept as it comes"
)
_PIECE: Final = problem(400, "Bad Request", "send the whole of it, without Content-Range")


class KvServiceStatus(AuditStatus, WorkerState, Protocol):
    """What people and machines may see of the service, and have it do; values that JSON can hold.

    Where several workers share a service, each asks the others for their part.
    """

    def hot(self, by: Identity) -> MaybeAwaitable[Mapping[str, object]]:
        """Which keys are hot. Needs AUDIT."""
        ...

    def backup(self, folder: str, by: Identity) -> Awaitable[int]:
        """A copy of one instant into an empty folder of this machine; its bytes. Needs OPERATE.

        A door waits no longer than for any answer, and then cancels: one that may take longer goes
        on by itself.
        """
        ...


@final
class KvHttp(HttpHandler):
    """The handler: `HttpDoor(KvHttp(...).handle, clock, http)` serves it.

    `http.body_bytes_max` must let `settings.body_bytes_max` through.
    """

    def __init__(
        self,
        service: KeyValues,
        status: KvServiceStatus,
        access: Access,
        clock: Clock,
        settings: KvHttpSettings | None = None,
    ) -> None:
        self.settings = KvHttpSettings() if settings is None else settings
        super().__init__(access, self.settings.hosts)
        self._status = status
        self._clock = clock
        bounds = self.settings.bounds
        self._bodies = {
            ROW: (bounds.value_bytes_max, "value_bytes_max"),
            ROW_ALONE: (bounds.value_bytes_max, "value_bytes_max"),
            PART: (self.settings.part_bytes_max, "part_bytes_max"),
        }
        self._json = (self.settings.json_bytes_max, "json_bytes_max")
        self.serve(
            (
                *row_routes(KvRows(service, clock, bounds, self._places)),
                *upload_routes(KvUploads(service, bounds, self._places)),
                *self._routes(status),
            ),
            KV_SCHEMAS,
            title="Sluicegate key-value service",
            summary="Rows in order, in partitions, in tables. Keys in paths are "
            "percent-encoded bytes.",
            version=self.settings.version,
            raw=True,
        )

    def handle(self, request: HttpRequest) -> HttpReply | Finish:
        """A reply to the head alone, or what is to be given the body."""
        request.arrived_us = self._clock.now_us() - request.lag_us
        return super().handle(request)

    def check_head(self, route: Route, request: HttpRequest) -> HttpReply | None:
        """The refusal of another site's page, and of a body by what its head says of it."""
        if route.open:
            return None
        return other_site(request) or self._check_body_head(route, request)

    def authorize(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | None:
        """The refusal of who may not, on the table too."""
        refusal = super().authorize(route, request, identity)
        if refusal is None and route.table_grant is not None:
            try:
                table = name_of(self.table.values_in(request.raw_path), "table")
                identity.require_on(table, route.table_grant)
            except SluicegateError as error:
                return reply_to(error)
        return refusal

    def _check_body_head(self, route: Route, request: HttpRequest) -> HttpReply | None:
        if not (route.request_schema or route.content_types):
            return None
        if route.request_schema and not route.any_type:
            refusal = not_json(request)
            if refusal is not None:
                return refusal
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

    def finish(
        self, route: Route, request: HttpRequest, identity: Identity, body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """Do what the route does, with a body that is not too long."""
        bytes_max, bound = self._bodies.get(route.path, self._json)
        if len(body) > bytes_max:
            return too_long(bytes_max, bound)
        return super().finish(route, request, identity, body)

    def error_reply(self, route: Route, error: SluicegateError) -> HttpReply:
        """An error as problem details; a refusal says when to come back."""
        return error_reply(error, self.settings.quota_status)

    def _places(self, path: str) -> Mapping[str, str]:
        return self.table.values_in(path)

    # What is not of a table.

    def hot(self, _request: HttpRequest, by: Identity, _body: bytes) -> MaybeAwaitable[HttpReply]:
        """GET /v1/hot."""
        return render_reply(self._status.hot(by), json_reply)

    async def backup(self, _request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/backup."""
        return json_reply({"bytes": await self._status.backup(text_in(body, "folder"), by)})

    def _routes(self, status: KvServiceStatus) -> tuple[Route, ...]:
        return (
            Route(
                "GET",
                "/v1/hot",
                self.hot,
                "Which keys are hot.",
                {200: RouteResponse("The board.", "Hot")},
                grant=Grant.AUDIT,
            ),
            Route(
                "POST",
                "/v1/backup",
                self.backup,
                "Copy the embedded engine while it works.",
                {200: RouteResponse("The copy is whole.", "Backup")},
                request_schema="BackupRequest",
                grant=Grant.OPERATE,
            ),
            audit_route(status, self._clock),
            document_route(self.openapi),
            *status_routes(status, metrics_open=self.settings.metrics_open),
        )
