"""Handler: a table of routes behind the checks that every service makes, in one order.

Health, which nothing refuses; a connection beyond the most; Host; the route; another site's page
and the type of the body; who asks, and whether they may. All that is known before the body is. A
service fills in its routes, and overrides a check where it has one of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import Forbidden, SluicegateError
from sluicegate.doors.http.cors import Cors
from sluicegate.doors.http.fields import not_json
from sluicegate.doors.http.health import RESERVED
from sluicegate.doors.http.identity import NOBODY, identity_of, reply_to, take_query_token
from sluicegate.doors.http.message import (
    ErrorPage,
    Finish,
    HttpReply,
    HttpRequest,
    catch_errors,
    json_bytes,
    problem,
)
from sluicegate.doors.http.openapi import document
from sluicegate.doors.http.routes import DOCUMENT, Route, RouteTable
from sluicegate.doors.http.site import other_host, other_site

_log: Final = logging.getLogger("sluicegate.http")


class HttpHandler:
    """The handler of one service: `HttpDoor(HttpHandler(...).handle, clock)` serves it.

    `hosts` are the Host values that are ours; None is any.
    """

    reply_bytes_max: ClassVar[int] = 4 << 20  # of a route that specifies no other bound

    def __init__(self, access: Access, hosts: frozenset[str] | None) -> None:
        self.access = access
        self.hosts = hosts
        self.error_page: ErrorPage | None = None  # for services that people look at
        self.cors: Cors | None = None  # for services that pages of other origins may call
        self.table = RouteTable(())
        self._document = b""

    def serve(
        self,
        routes: Sequence[Route],
        schemas: Mapping[str, Any],
        *,
        title: str,
        summary: str,
        version: str,
        raw: bool = False,
        path: str = DOCUMENT,
    ) -> None:
        """Answer by these routes, and describe them at `path`."""
        self.table = RouteTable(routes, document=path, raw=raw)
        self._document = json_bytes(
            document(self.table, schemas, title=title, summary=summary, version=version)
        )

    def handle(self, request: HttpRequest) -> HttpReply | Finish:
        """A reply to the head alone, or what is to be given the body."""
        route = self.table.find(request)
        if isinstance(route, Route) and route.health:
            # At once, and not among those that wait for a turn.
            answer = self.finish(route, request, NOBODY, b"")
            return answer if isinstance(answer, HttpReply) else lambda _: answer
        if request.peer.reserved:
            return RESERVED
        refusal = other_host(request, self.hosts_for(request))
        if refusal is not None:
            return refusal
        if self.cors is not None:
            preflight = self.cors.preflight(request)
            if preflight is not None:
                return preflight
            self.cors.forget_ambient(request)
        if request.query:
            accepted = isinstance(route, Route) and route.query_token
            refusal = take_query_token(request, accepted=accepted)
            if refusal is not None:
                return refusal
        if isinstance(route, HttpReply):
            return route
        refusal = self.check_head(route, request)
        if refusal is not None:
            return refusal
        identity = NOBODY if route.open else self.identify(request)
        if isinstance(identity, HttpReply):
            return identity
        request.identity = None if identity is NOBODY else identity
        refusal = self.authorize(route, request, identity)
        if refusal is not None:
            return refusal
        return self.accept(route, request, identity)

    # What a service may have of its own.

    def hosts_for(self, request: HttpRequest) -> frozenset[str] | None:
        """The Host values that are ours."""
        return self.hosts

    def check_head(self, route: Route, request: HttpRequest) -> HttpReply | None:
        """The refusal of what the head says: a change from another site's page, or no JSON."""
        if route.method in ("GET", "HEAD"):
            return None
        allowed = self.cors is not None and self.cors.allows(request)
        return (None if allowed else other_site(request)) or (
            None if route.any_type or route.content_types else not_json(request)
        )

    def identify(self, request: HttpRequest) -> Identity | HttpReply:
        """Who asks, or the reply that asks for a name."""
        return identity_of(request, self.access)

    def authorize(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | None:
        """The refusal of who may not."""
        if route.grant is not None and not identity.may(route.grant):
            return self.error_reply(route, Forbidden(identity.name, route.grant.value))
        return None

    def accept(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | Finish:
        """What is given the body."""
        return partial(self.finish, route, request, identity)

    def finish(
        self, route: Route, request: HttpRequest, identity: Identity, body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """Do what the route does."""
        try:
            answer = route.work(request, identity, body)
        except SluicegateError as error:
            return self.error_reply(route, error)
        if isinstance(answer, HttpReply):
            return self.bound(route, answer)
        return catch_errors(answer, partial(self.error_reply, route), partial(self.bound, route))

    def bound(self, route: Route, reply: HttpReply) -> HttpReply:
        """Return the reply, or an error for a longer one than the route may give."""
        size, most = len(reply.body), route.reply_bytes_max or self.reply_bytes_max
        if size <= most:
            return reply
        what = f"{route.method} {route.path}"
        _log.error("a reply of %d bytes to %s was not sent; its bound is %d", size, what, most)
        detail = f"the reply has {size:,} bytes, and {what} sends at most {most:,}; ask for less"
        return problem(500, "Internal Server Error", detail)

    def error_reply(self, route: Route, error: SluicegateError) -> HttpReply:
        """An error that was raised on purpose."""
        return reply_to(error)

    def openapi(self, _request: HttpRequest, _identity: Identity, _body: bytes) -> HttpReply:
        """GET /openapi.json."""
        return HttpReply(200, self._document)
