"""Tracing of a service: each door's table, of methods, routes or commands, as rows that are traced.

A service that has no `--traces` never comes here, and its tables are as they were: there is nothing
to ask on the way of a request. Who asks over gRPC or HTTP says its span in `traceparent`; over RESP
`SG.TRACE` says it of the next command.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

from sluicegate import __version__
from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.observer import Observer
from sluicegate.doors.grpc.methods import (
    CallMetadata,
    GrpcStatus,
    MetadataMethod,
    Methods,
    UnaryMethod,
    status_of,
)
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route
from sluicegate.doors.resp.session import FREE, NO_KEYS, Command, Reply, Session
from sluicegate.service.common_settings import TraceSettings
from sluicegate.system import SystemChance
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from sluicegate.telemetry.request_spans import RequestSpans

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
FLUSH_S: Final = 3.0  # for the last spans, when the service ends
_log: Final = logging.getLogger("sluicegate.tracing")


@final
class ServiceTracing:
    """The spans of one worker."""

    __slots__ = ("_app", "decisions", "provider", "round_trips", "spans")

    def __init__(
        self,
        app: str,
        provider: TracerProvider,
        spans: RequestSpans,
        decisions: Observer,
        round_trips: Observer,
    ) -> None:
        self._app = app
        self.provider = provider
        self.spans = spans
        self.decisions = decisions
        self.round_trips = round_trips

    def change(self, settings: TraceSettings) -> None:
        """Take over what is live."""
        self.spans.share = settings.traces_share
        self.spans.per_s = settings.traces_per_s

    async def close(self) -> None:
        """Send what is left, as far as the collector takes it in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(FLUSH_S):
                # In a thread of its own: a collector that does not answer may hold it for longer.
                await loop.run_in_executor(None, self.provider.shutdown)
        except TimeoutError:
            _log.warning("the last spans were not sent: the collector takes too long")

    def metrics(self) -> Iterable[MetricFamily]:
        """How many requests were traced, and how many were not for being too many."""
        counts = (("begun", self.spans.begun), ("over", self.spans.over))
        yield MetricFamily(
            f"sluicegate_{self._app}_traces",
            "counter",
            "",
            "Requests that were traced, and those beyond --traces-per-s that were not.",
            [MetricSample("_total", (("what", what),), count) for what, count in counts],
        )

    # gRPC.

    def trace_methods(self, methods: Methods) -> Methods:
        """The same methods, traced; health and reflection are not."""
        traced = {
            path: self._trace_unary(path, method)
            for path, method in methods.unary.items()
            if path not in methods.open
        }
        for path, method in methods.with_metadata.items():
            traced[path] = self._trace_method(path, method)
        unary = {path: one for path, one in methods.unary.items() if path in methods.open}
        return methods._replace(unary=unary, with_metadata=traced)

    def _trace_unary(self, path: str, method: UnaryMethod) -> MetadataMethod:
        return self._trace_method(path, lambda message, by, _: method(message, by))

    def _trace_method(self, path: str, method: MetadataMethod) -> MetadataMethod:
        service, _, name = path.strip("/").partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        spans, title = self.spans, path.strip("/")

        def traced(message: bytes, by: Identity, metadata: CallMetadata) -> MaybeAwaitable[bytes]:
            parent = state = b""
            for field, value in metadata.metadata:
                if field == TRACEPARENT:
                    parent = value
                elif field == TRACESTATE:
                    state = value
            return spans.trace(
                title,
                attributes,
                parent,
                state,
                lambda: method(message, by, metadata),
                _grpc_ok,
                _grpc_error,
            )

        return traced

    # HTTP.

    def trace_routes(self, handler: HttpHandler) -> None:
        """Have its routes traced; what is open to all, as health and metrics, is not."""
        handler.table.wrap(lambda route: self._trace_route(route, handler))

    def _trace_route(self, route: Route, handler: HttpHandler) -> Route:
        if route.health or route.open:
            return route

        def status_of_error(error: BaseException) -> Mapping[str, Any]:
            if not isinstance(error, SluicegateError):
                return {"http.response.status_code": 500}
            return _http_status(handler.error_reply(route, error))

        work, spans, title = route.work, self.spans, f"{route.method} {route.path}"
        attributes = {"http.request.method": route.method, "http.route": route.path}

        def traced(
            request: HttpRequest, identity: Identity, body: bytes
        ) -> MaybeAwaitable[HttpReply]:
            return spans.trace(
                title,
                attributes,
                request.header(TRACEPARENT),
                request.header(TRACESTATE),
                lambda: work(request, identity, body),
                _http_status,
                status_of_error,
            )

        return route._replace(work=traced)

    # RESP.

    def trace_command(self, command: Command) -> Command:
        """The same command, traced, if it asks for a decision or has to do with keys."""
        if command.keys == NO_KEYS and command.accesses == FREE:
            return command
        run, spans = command.run, self.spans
        attributes = {"db.system.name": "redis", "db.operation.name": command.name}

        def run_traced(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
            parent, session.traceparent = session.traceparent, b""

            def work() -> Any:  # bytes, or a reply that comes
                return run(session, parts)

            answer: Any = spans.trace(
                command.name, attributes, parent, b"", work, _resp_reply, _nothing_more
            )
            return cast("bytes | Awaitable[Reply]", answer)

        return command.with_run(run_traced)


def open_tracing(
    settings: TraceSettings, app: str, worker: int, clock: Clock
) -> ServiceTracing | None:
    """The tracing that the settings ask for; raises `MissingPackage` without its packages."""
    if not settings.traces:
        return None
    # Here, because nobody else needs these packages.
    from sluicegate.telemetry.otlp import open_provider  # noqa: PLC0415
    from sluicegate.telemetry.request_spans import DecisionSpans, RequestSpans, RoundTripSpans  # noqa: PLC0415

    instance = f"{socket.gethostname()}-{worker}"
    provider = open_provider(settings.traces, f"sluicegate-{app}", __version__, instance)
    spans = RequestSpans(
        provider,
        clock,
        SystemChance(),
        share=settings.traces_share,
        per_s=settings.traces_per_s,
    )
    return ServiceTracing(app, provider, spans, DecisionSpans(provider), RoundTripSpans(provider))


_OK: Final[Mapping[str, Any]] = {"rpc.grpc.status_code": int(GrpcStatus.OK)}
_NOTHING: Final[Mapping[str, Any]] = {}


def _grpc_ok(_: bytes) -> Mapping[str, Any]:
    return _OK


def _grpc_error(error: BaseException) -> Mapping[str, Any]:
    return {"rpc.grpc.status_code": int(status_of(error)[0])}


def _http_status(reply: HttpReply) -> Mapping[str, Any]:
    return {"http.response.status_code": reply.status}


def _resp_reply(reply: Reply) -> Mapping[str, Any]:
    """The code of an error that was replied; its sentence may show what was sent."""
    head = reply if isinstance(reply, bytes) else reply[0]
    if not head.startswith(b"-"):
        return _NOTHING
    return {"db.response.status_code": head[1:32].split(b" ")[0].strip().decode("latin-1")}


def _nothing_more(_: BaseException) -> Mapping[str, Any]:
    return _NOTHING
