"""Tracing: what a service admits and refuses, and each attempt of its client, as spans.

    tracing = ResilienceTracing()
    protect(app, protection=Protection(settings, observer=tracing))
    ResilientClient(settings, observer=tracing)

A span is created at the end, with the recorded instants, under the context of whoever ended it. It
shows names of endpoints, backends and reasons, and no key. Without an observer nothing of it runs.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import MissingPackage
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult

try:
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "opentelemetry", "otel") from None


@final
class ResilienceTracing:
    """An observer of protections and clients; without a `provider` it is the process's own."""

    __slots__ = ("_tracer",)

    def __init__(self, *, provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("sluicegate", tracer_provider=provider)

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """Make a span of a request that was refused, from its arrival on."""
        reason = decision.reason
        attributes = {
            "sluicegate.endpoint": request.operation,
            "sluicegate.stage": stage,
            "sluicegate.reason": "" if reason is None else reason.name,
        }
        self._span("sluicegate.refused", attributes, request.arrived_us, now_us)

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Make a span of one that was served, and say how long it waited."""
        attributes: dict[str, str | int] = {
            "sluicegate.endpoint": request.operation,
            "sluicegate.outcome": outcome.name,
            "sluicegate.criticality": request.criticality.name,
        }
        if request.measured is not None:
            waited_us = now_us - request.arrived_us - request.measured.service_us
            attributes["sluicegate.waited_us"] = max(waited_us, 0)
        self._span("sluicegate.served", attributes, request.arrived_us, now_us)

    def record_attempt(
        self,
        request: Request,
        attempt: int,
        host: str,
        result: CallResult[object],
        began_us: int,
        now_us: int,
    ) -> None:
        """Make a span of one attempt; one that is evidence of bad health is an error."""
        attributes: dict[str, str | int] = {
            "sluicegate.backend": request.shard,
            "sluicegate.operation": request.operation,
            "sluicegate.attempt": attempt,
            "sluicegate.result": result.kind.value,
        }
        if host:
            attributes["sluicegate.host"] = host
        failure = result.kind.value if result.is_failure else ""
        self._span("sluicegate.attempt", attributes, began_us, now_us, SpanKind.CLIENT, failure)

    def _span(
        self,
        name: str,
        attributes: dict[str, str] | dict[str, str | int],
        began_us: int,
        ended_us: int,
        kind: SpanKind = SpanKind.INTERNAL,
        failure: str = "",
    ) -> None:
        span = self._tracer.start_span(
            name, kind=kind, attributes=attributes, start_time=began_us * 1_000
        )
        if failure:
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(end_time=ended_us * 1_000)
