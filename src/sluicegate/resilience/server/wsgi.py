"""WSGI: a protected application, for servers with a pool of threads.

    app.wsgi_app = protect(app.wsgi_app, Resilience())

It is `resilience/server/asgi.py` without a line: a thread is admitted at once or refused. The
permit is held until the server closes what the application returned, streamed bodies included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import Token
from typing import TYPE_CHECKING, Any, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.permit import Outcome
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS, criticality_of, left_us_of
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies
from sluicegate.doors.wsgi import Environ, WsgiArrival, status_line
from sluicegate.policies.stack import outcome_of
from sluicegate.resilience.context import ServedRequest, reset_served, set_served
from sluicegate.resilience.server.protection import Admitted, Protection
from sluicegate.resilience.settings import Resilience

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_SOCKET_ONLY = Proxies(0)
_DROPPED = ("503", "504")


@final
class ProtectedWsgiApp:
    """An application behind a protection; `protect` makes it."""

    def __init__(
        self,
        app: WSGIApplication,
        protection: Protection,
        caller: Callable[[Environ], str | None] | None,
        endpoint: Callable[[Environ], str] | None,
    ) -> None:
        self.app = app
        self.protection = protection
        self._caller = caller
        self._endpoint = endpoint

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request, or refuse it at once."""
        protection = self.protection
        arrival = WsgiArrival(environ, _SOCKET_ONLY, None)
        path = arrival.path
        if protection.bypasses(path):
            return self.app(environ, start_response)
        try:
            left_us = left_us_of(_values(arrival, DEADLINE_MS))
            criticality = criticality_of(_values(arrival, CRITICALITY))
        except BadValue as error:
            text = str(error).encode()
            start_response(status_line(400), _head("text/plain", text))
            return [text]
        caller = "" if self._caller is None else self._caller(environ) or ""
        request = protection.begin(
            path if self._endpoint is None else self._endpoint(environ),
            left_us=left_us,
            criticality=criticality,
            caller=caller,
        )
        admitted = protection.admit_now(request)
        if isinstance(admitted, Decision):
            judgement = Judgement(admitted, ())
            mark = protection.mark_of(admitted, request)
            text = body(judgement)
            fields = [] if mark is None else mark.http_fields()
            head = [*_head(CONTENT_TYPE, text), *fields]
            start_response(status_line(status_of(judgement)), head)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
        served = protection.served(request)
        token = set_served(served)
        return _Response(self.app, environ, start_response, admitted, served, token)


def protect(
    app: WSGIApplication,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Environ], str | None] | None = None,
    endpoint: Callable[[Environ], str] | None = None,
) -> ProtectedWsgiApp:
    """Return the application behind a protection of these settings."""
    return ProtectedWsgiApp(app, Protection(settings, threaded=True), caller, endpoint)


@final
class _Response:
    """The application's chunks; what is held ends with them, on the thread that began."""

    __slots__ = ("_admitted", "_chunks", "_iterator", "_outcome", "_served", "_token")

    def __init__(
        self,
        app: WSGIApplication,
        environ: Environ,
        start_response: StartResponse,
        admitted: Admitted,
        served: ServedRequest,
        token: Token[ServedRequest | None],
    ) -> None:
        self._admitted = admitted
        self._served = served
        self._token = token
        self._outcome = Outcome.SUCCESS

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            if status.startswith(_DROPPED):
                self._outcome = Outcome.DROPPED
            if exc_info is None:
                return start_response(status, headers)
            return start_response(status, headers, exc_info)

        try:
            self._chunks = app(environ, start)
            self._iterator = iter(self._chunks)
        except BaseException as error:
            self._end(outcome_of(error))
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._iterator)
        except StopIteration:
            self._served.release_deadline()
            raise
        except BaseException as error:
            self._outcome = outcome_of(error)
            raise

    def close(self) -> None:
        """End the request; servers call it whatever happened."""
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._end(self._outcome)

    def _end(self, outcome: Outcome) -> None:
        if self._admitted.end(outcome):
            reset_served(self._token)


def _values(arrival: WsgiArrival, name: bytes) -> list[bytes]:
    value = arrival.header(name.decode("ascii"))
    return [value.encode("latin-1")] if value else []


def _head(content_type: str, text: bytes) -> list[tuple[str, str]]:
    return [("Content-Type", content_type), ("Content-Length", str(len(text)))]
