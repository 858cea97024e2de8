"""WSGI: an application with faults before it. A delay holds the thread, as slow work would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Any, Final, final

from sluicegate.doors.wsgi import Environ, path_in_app, status_line
from sluicegate.resilience.faults.asgi import PROMISED_BYTES
from sluicegate.resilience.faults.injector import FIELD, FaultInjector, Injection

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_UNPREFIXED: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")


@final
class FaultyWsgiApp:
    """An application that faults are put before; `inject` makes it."""

    def __init__(self, app: WSGIApplication, faults: FaultInjector) -> None:
        self.app = app
        self.faults = faults

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request, or let it meet its fault."""
        injection = self.faults.pick(
            path_in_app(environ),
            lambda name: _value(environ, name),
        )
        if injection is None:
            return self.app(environ, start_response)
        mark = (FIELD, injection.name)
        if injection.delay_us:
            Event().wait(injection.delay_us / 1_000_000)
        rule = injection.rule
        if rule.abort:
            start_response(status_line(200), [mark, ("Content-Length", str(PROMISED_BYTES))])
            return _broken(injection)
        if rule.status:
            start_response(status_line(rule.status), [mark, ("Content-Length", "0")])
            return []
        if rule.error:
            injection.fail()

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            if exc_info is None:
                return start_response(status, [*headers, mark])
            return start_response(status, [*headers, mark], exc_info)

        return self.app(environ, start)


def inject(app: WSGIApplication, faults: FaultInjector) -> FaultyWsgiApp:
    """Return the application behind these faults."""
    return FaultyWsgiApp(app, faults)


def _value(environ: Environ, name: str) -> str | None:
    key = name.upper().replace("-", "_")
    found: str | None = environ.get(key if key in _UNPREFIXED else f"HTTP_{key}")
    return found


def _broken(injection: Injection) -> Iterator[bytes]:
    yield b"\n"
    injection.fail()
