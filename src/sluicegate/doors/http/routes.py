"""Routes: a table of what is served, by method and path. Nothing here knows a service.

The table is the program: a request is looked up in it, and the OpenAPI document is written from it.
HEAD goes wherever GET goes. OPTIONS lists the methods and grants nothing to pages of other sites.

A path may have places: `/v1/rules/proposals/{id}` takes what stands there up to the next slash, and
`{+name}` takes slashes too. A path without places is found first, then those with, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.access import Grant, Identity, TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.doors.http.message import HttpReply, HttpRequest, problem

# Serves a request of an identity, with its body.
Work: TypeAlias = "Callable[[HttpRequest, Identity, bytes], MaybeAwaitable[HttpReply]]"


class RouteResponse(NamedTuple):
    """A response of a route: the sentence, and what is in it."""

    sentence: str
    schema: str = ""  # a component of the document; empty is no JSON
    content_type: str = "application/json"
    texts: Sequence[str] = ()  # types of text that it may be instead
    empty: bool = False  # no body at all


class Parameter(NamedTuple):
    """One of a route's parameters in the query, or, with `place`, in a header or in the path."""

    name: str
    sentence: str
    schema: Mapping[str, object]
    place: str = "query"
    required: bool = False


class Route(NamedTuple):
    """One row.

    `request_schema` is the component that its body holds, `content_types` are the types of a body
    that is no JSON; with neither the body is not waited for. `grant` is what it needs,
    `table_grant` what it needs on the table in its path; `open` needs no identity. `health` is for
    machines that know no name or secret of ours, and is answered whatever else is refused.
    `any_type` is for clients that send JSON and do not say so. `name` is the operation in the
    document, where several routes share one `work`. A reply longer than `reply_bytes_max` becomes
    an error; 0 is the bound of the handler. `HttpSettings` bounds the pieces of a stream.
    """

    method: str
    path: str
    work: Work
    summary: str
    responses: Mapping[int, RouteResponse]
    request_schema: str = ""
    grant: Grant | None = None
    open: bool = False
    health: bool = False
    any_type: bool = False
    parameters: Sequence[Parameter] = ()
    name: str = ""
    content_types: Sequence[str] = ()
    table_grant: TableGrant | None = None
    query_token: bool = False  # for clients that can send a token nowhere else
    reply_bytes_max: int = 0


_PLACE: Final = re.compile(r"\{\+?([a-z_]+)\}")
DOCUMENT: Final = "/openapi.json"


@final
class RouteTable:
    """The rows by path and method. `document` is where they are told to machines.

    With `raw` a path is looked up as it was sent: what stands in a place is percent-encoded still,
    and may have any bytes.
    """

    __slots__ = ("_allowed", "_by_path", "_no_such", "_raw", "_templates", "routes")

    def __init__(
        self, routes: Sequence[Route], *, document: str = DOCUMENT, raw: bool = False
    ) -> None:
        self._raw = raw
        self._no_such = f"there is no such address here; GET {document} tells what there is"
        self.routes = tuple(routes)
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = self._by_path.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route
        self._allowed = {
            path: ", ".join(sorted({*methods, "OPTIONS"})).encode()
            for path, methods in self._by_path.items()
        }
        self._templates = [(_pattern(path), path) for path in self._by_path if "{" in path]

    def wrap(self, wrap: Callable[[Route], Route]) -> None:
        """Serve each row as `wrap` returns it."""
        for methods in self._by_path.values():
            methods.update({method: wrap(route) for method, route in methods.items()})

    def values_in(self, path: str) -> Mapping[str, str]:
        """Return what a request's path has in the places of its row; empty without places."""
        match = self._row_of(path)[1]
        return {} if match is None else match.groupdict()

    def _row_of(self, path: str) -> tuple[str, re.Match[str] | None]:
        """The row's path for that of a request, and how its places were found."""
        if "{" in path or path not in self._by_path:
            for pattern, template in self._templates:
                match = pattern.fullmatch(path)
                if match is not None:
                    return template, match
        return path, None

    def find(self, request: HttpRequest) -> Route | HttpReply:
        """Return the row of a request, or the reply where there is none."""
        target = request.raw_path if self._raw else request.path
        path = self._row_of(target)[0] if self._templates else target
        methods = self._by_path.get(path)
        if methods is None:
            if request.path == "*" and request.method == "OPTIONS":
                return HttpReply(204)
            return problem(404, "Not Found", self._no_such)
        route = methods.get(request.method)
        if route is not None:
            return route
        allowed = self._allowed[path]
        if request.method == "OPTIONS":
            return HttpReply(204, headers=((b"allow", allowed),))
        return problem(
            405,
            "Method Not Allowed",
            f"this address is for {allowed.decode()}",
            headers=((b"allow", allowed),),
        )


def places_in(path: str) -> tuple[str, ...]:
    """The names of a path's places."""
    return tuple(_PLACE.findall(path))


def _pattern(path: str) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    for match in _PLACE.finditer(path):
        characters = ".+" if "+" in match[0] else "[^/]+"
        parts += [re.escape(path[end : match.start()]), f"(?P<{match[1]}>{characters})"]
        end = match.end()
    return re.compile("".join([*parts, re.escape(path[end:])]), re.DOTALL)
