"""A collector of OpenTelemetry spans: what is sent to it over HTTP, read as the real protobuf."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

TRACE: Final = f"{0xABC:032x}"
ASKING: Final = f"{0xDEF:016x}"
SAMPLED: Final = f"00-{TRACE}-{ASKING}-01"
NOT_SAMPLED: Final = f"00-{TRACE}-{ASKING}-00"


class CollectedSpan(NamedTuple):
    """One span, with the name of the service that sent it."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    begun_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Listens on a free port; `spans` has all that has come."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of one request."""
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [
                    CollectedSpan(
                        service,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.code == 2,
                        _values(span.attributes),
                    )
                    for span in scope.spans
                ]

    def named(self, name: str) -> list[CollectedSpan]:
        """Those of that name, in the order in which they began."""
        return sorted((one for one in self.spans if one.name == name), key=lambda one: one.begun_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _values(attributes: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
        for one in attributes
    }
