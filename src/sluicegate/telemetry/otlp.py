"""OTLP: spans sent to a collector over HTTP, by OpenTelemetry's own exporter.

A thread of the process sends what has gathered, every five seconds or sooner if much has. What a
collector does not take in time is dropped: at most `SPANS_MAX` wait. What OpenTelemetry reads from
the environment counts here too: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_SERVICE_NAME`.
"""

from __future__ import annotations

import os
from typing import Final

from sluicegate.contracts.errors import MissingPackage

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "opentelemetry", "otlp") from None

SPANS_MAX: Final = 2_048
BATCH_MAX: Final = 512
TIMEOUT_S: Final = 5.0
PATH: Final = "/v1/traces"


def open_provider(url: str, service: str, version: str, instance: str) -> TracerProvider:
    """Return a provider whose spans go to the collector at `url`; each span that is begun is sent.

    A `url` without a path is the collector's own address, as `http://127.0.0.1:4318`.
    """
    attributes = {"service.version": version, "service.instance.id": instance}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = service
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_attribute_length=200),
    )
    address = url.rstrip("/")
    endpoint = address if "/" in address.partition("://")[2] else address + PATH
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=SPANS_MAX, max_export_batch_size=BATCH_MAX)
    )
    return provider
