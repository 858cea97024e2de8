"""WSGI: a protected application, for servers with a pool of threads.

    app.wsgi_app = protect(app.wsgi_app, Resilience())

It is `resilience/server/asgi.py` without a queue: a thread is admitted or rejected at once. What it
says of failures that are handed on and of answers that nobody waits for holds here too. The slot is
held until the server closes what the application returned, as the thread is.

A server with no more threads than the limit never has a request that could be rejected: its threads
run out first, and others wait in its own queue. The first request logs that, where the server's
threads can be counted. `sluicegate resilience serve` has the queue in front of the threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextvars import Token
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS, criticality_of, left_us_of
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies
from sluicegate.doors.wsgi import Environ, WsgiArrival, path_in_app, status_line
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.policies.stack import outcome_of
from sluicegate.resilience.context import (
    ServedRequest,
    deadline_refusal,
    reset_served,
    set_served,
)
from sluicegate.resilience.overload_mark import handed_on_fields
from sluicegate.resilience.server.protection import Protection, check_app, protection_of
from sluicegate.resilience.server.wsgi_threads import server_threads
from sluicegate.resilience.settings import Resilience

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Begin: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]

_log: Final = logging.getLogger("sluicegate.resilience")
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
        self._counted_threads = False

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request, or refuse it at once."""
        protection = self.protection
        if not self._counted_threads:
            self._counted_threads = True
            _warn_of_few_threads(protection, server_threads(environ))
        arrival = WsgiArrival(environ, _SOCKET_ONLY, None)
        path = path_in_app(environ)
        if path in protection.bypass:
            return self.app(environ, start_response)
        endpoint = path
        if self._endpoint is not None:
            endpoint = self._endpoint(environ)
            if endpoint in protection.bypass:
                return self.app(environ, start_response)
        try:
            left_us = left_us_of(_values(arrival, DEADLINE_MS))
            criticality = criticality_of(_values(arrival, CRITICALITY))
        except BadValue as error:
            text = str(error).encode()
            start_response(status_line(400), _head("text/plain", text))
            return _chunks(text, environ)
        caller = "" if self._caller is None else self._caller(environ) or ""
        now_us = protection.clock.now_us()
        request = protection.begin(
            endpoint,
            now_us,
            left_us=left_us,
            criticality=criticality,
            caller=caller,
        )
        claimed_us = request.arrived_us + left_us if left_us >= 0 else None
        admitted = protection.admit_now(request, now_us)
        if isinstance(admitted, Decision):
            mark = protection.mark_of(admitted, request)
            fields = [] if mark is None else mark.http_fields()
            return _refuse(admitted, fields, environ, start_response)
        return _Response(self, environ, start_response, admitted, request, claimed_us)


def protect(
    app: WSGIApplication,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Environ], str | None] | None = None,
    endpoint: Callable[[Environ], str] | None = None,
    protection: Protection | None = None,
) -> ProtectedWsgiApp:
    """Return the application behind a protection of these settings, or behind the one given.

    `caller` names the authenticated caller of a request, as for ASGI; a protection that is given
    is made with `threaded=True`.
    """
    check_app(app, "WSGI")
    protection = protection_of(settings, protection, threaded=True)
    return ProtectedWsgiApp(app, protection, caller, endpoint)


def _warn_of_few_threads(protection: Protection, threads: int | None) -> None:
    limit = protection.settings.slots
    if threads is None or 0 < limit < threads:
        return
    why = f"slots of {limit} leave none of them free" if limit else "no slots are set"
    _log.warning(
        "protect: %d threads of the server and %s, so requests wait in the server and cannot be "
        "ordered; run `sluicegate resilience serve MODULE:APP --threads %d`, or set slots below %d",
        threads, why, threads, threads,
    )  # fmt: skip


@final
class _Response:
    """The application's chunks; what is held ends with them, on the thread that began."""

    __slots__ = (
        "_chunks",
        "_instead",
        "_iterator",
        "_outcome",
        "_permit",
        "_protection",
        "_served",
        "_token",
    )

    def __init__(
        self,
        door: ProtectedWsgiApp,
        environ: Environ,
        start_response: StartResponse,
        permit: GatePermit,
        request: Request,
        claimed_us: int | None,
    ) -> None:
        protection = door.protection
        served = protection.served(request)
        self._permit = permit
        self._protection = protection
        self._served: ServedRequest = served
        self._token: Token[ServedRequest | None] = set_served(served)
        self._instead: list[bytes] | None = None  # of an answer that nobody waits for
        self._outcome = Outcome.SUCCESS

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            # With `exc_info` what had begun is begun anew.
            begin: Begin = (
                start_response
                if exc_info is None
                else partial(_begin_anew, start_response, exc_info)
            )
            if protection.is_in_vain(claimed_us):
                self._outcome = Outcome.DROPPED
                if self._instead is None:
                    self._instead = _refuse(deadline_refusal(), [], environ, begin)
                return _nowhere
            if status.startswith("5"):
                if served.overload_us >= 0:
                    self._outcome = Outcome.IGNORE
                    have = {name.lower() for name, _ in headers}
                    fields = handed_on_fields(served.overload_us)
                    headers = [*headers, *(pair for pair in fields if pair[0] not in have)]
                elif status.startswith(_DROPPED):
                    self._outcome = Outcome.DROPPED
            return begin(status, headers)

        try:
            self._chunks = door.app(environ, start)
            self._iterator = iter(self._chunks)
        except BaseException as error:
            self._end(self._outcome_of(error))
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._is_replaced():
            return self._rest()
        try:
            chunk = next(self._iterator)
        except StopIteration:
            return self._rest()
        except BaseException as error:
            self._outcome = self._outcome_of(error)
            raise
        return self._rest() if self._is_replaced() else chunk  # many begin with their first chunk

    def close(self) -> None:
        """End the request; servers call it whatever happened."""
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._end(self._outcome)

    def _is_replaced(self) -> bool:
        return self._instead is not None

    def _rest(self) -> bytes:
        """The answer in place of the application's; then it is out."""
        if self._instead:
            return self._instead.pop()
        self._served.release_deadline()
        raise StopIteration

    def _outcome_of(self, error: BaseException) -> Outcome:
        return outcome_of(error) if self._served.overload_us < 0 else Outcome.IGNORE

    def _end(self, outcome: Outcome) -> None:
        if self._protection.end(self._permit, outcome):
            reset_served(self._token)


def _refuse(
    decision: Decision,
    fields: list[tuple[str, str]],
    environ: Environ,
    begin: Begin,
) -> list[bytes]:
    """Begin an answer of problem details, and return its chunks."""
    judgement = Judgement(decision, ())
    text = body(judgement)
    begin(status_line(status_of(judgement)), [*_head(CONTENT_TYPE, text), *fields])
    return _chunks(text, environ)


def _begin_anew(
    start_response: StartResponse, exc_info: Any, status: str, headers: list[tuple[str, str]]
) -> Any:
    return start_response(status, headers, exc_info)


def _chunks(text: bytes, environ: Environ) -> list[bytes]:
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]


def _nowhere(chunk: bytes) -> None:
    """Take a part of an answer that nobody waits for."""


def _values(arrival: WsgiArrival, name: bytes) -> list[bytes]:
    value = arrival.header(name.decode("ascii"))
    return [value.encode("latin-1")] if value else []


def _head(content_type: str, text: bytes) -> list[tuple[str, str]]:
    return [("Content-Type", content_type), ("Content-Length", str(len(text)))]
