"""Routes: a table of what is answered, by method and path. Nothing here knows a service.

The table is the program: a request is looked up in it, and the OpenAPI document is written from it.
HEAD goes wherever GET goes. OPTIONS tells what may be asked and grants nothing to other sites: a
page of theirs gets no leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

from headgate.contracts.access import Grant, Identity
from headgate.contracts.checks import Soon
from headgate.doors.http.message import Reply, Request, problem

# Answers a request of an identity, with its body.
Work: TypeAlias = "Callable[[Request, Identity, bytes], Soon[Reply]]"


class Said(NamedTuple):
    """What a route may answer: the sentence, and what is in it."""

    sentence: str
    schema: str = ""  # a component of the document; empty is no JSON
    content_type: str = "application/json"


class Parameter(NamedTuple):
    """One of a route's parameters in the query, or, with `place`, in a header."""

    name: str
    sentence: str
    schema: Mapping[str, object]
    place: str = "query"
    required: bool = False


class Route(NamedTuple):
    """One row.

    `asks` is the component that its body holds; without one the body is not waited for. `open`
    needs no identity. `health` is asked by machines that know no name or secret of ours, and is
    answered whatever else is refused. `any_type` is for clients that send JSON and do not say so.
    """

    method: str
    path: str
    work: Work
    summary: str
    answers: Mapping[int, Said]
    asks: str = ""
    grant: Grant | None = None
    open: bool = False
    health: bool = False
    any_type: bool = False
    parameters: Sequence[Parameter] = ()


_NO_SUCH: Final = "there is no such address here; GET /openapi.json tells what there is"


@final
class Table:
    """The rows by path and method."""

    __slots__ = ("_allowed", "_by_path", "routes")

    def __init__(self, routes: Sequence[Route]) -> None:
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

    def find(self, request: Request) -> Route | Reply:
        """The row for a request, or the reply where there is none."""
        methods = self._by_path.get(request.path)
        if methods is None:
            if request.path == "*" and request.method == "OPTIONS":
                return Reply(204)
            return problem(404, "Not Found", _NO_SUCH)
        route = methods.get(request.method)
        if route is not None:
            return route
        allowed = self._allowed[request.path]
        if request.method == "OPTIONS":
            return Reply(204, headers=((b"allow", allowed),))
        return problem(
            405,
            "Method Not Allowed",
            f"this address is for {allowed.decode()}",
            headers=((b"allow", allowed),),
        )
