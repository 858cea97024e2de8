"""Work spans: what became of a traced request in the policies and the engine.

    the request's span      allowed, or the stage that refused it, its reason, and by which price;
                            `sluicegate.cached` if it was answered from memory
    sluicegate.work         below it: each operation that was admitted, from where the engine began

Made only where there is tracing, and does nothing for a request that is not traced.
"""

from __future__ import annotations

from typing import Final, final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode, get_current_span, get_tracer

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.telemetry.request_spans import refusal_attributes

_NS: Final = 1_000


@final
class WorkSpans:
    """An observer of the stack (`policies/stack.py`), and of the admission."""

    __slots__ = ("_tracer",)

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = get_tracer("sluicegate", tracer_provider=provider)

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """A span of work that was admitted and has ended."""
        asked = get_current_span()
        if not asked.is_recording():
            return
        measured = request.measured
        began_us = now_us - (0 if measured is None else measured.service_us)
        span = self._tracer.start_span(
            "sluicegate.work",
            kind=SpanKind.CLIENT,
            attributes={
                "sluicegate.operation": request.operation,
                "sluicegate.table": request.table,
                "sluicegate.shard": request.shard,
                "sluicegate.criticality": request.criticality.name,
                "sluicegate.cost_mru": request.cost_mru,
                "sluicegate.price_milli": request.price_milli,
                "sluicegate.waited_us": max(0, began_us - request.arrived_us)
                if request.arrived_us
                else 0,
                "sluicegate.rows": 0 if measured is None else measured.rows,
                "sluicegate.bytes": 0 if measured is None else measured.size_bytes,
                "sluicegate.outcome": outcome.name.lower(),
            },
            start_time=began_us * _NS,
        )
        if outcome is Outcome.DROPPED:
            span.set_status(StatusCode.ERROR)
        span.end(end_time=now_us * _NS)
        asked.set_attribute("sluicegate.allowed", True)

    def refuse(self, request: Request, decision: Decision) -> None:
        """The refusal that the caller hears, in the span of its request."""
        span = get_current_span()
        if span.is_recording():
            span.set_attributes(
                {
                    **refusal_attributes(decision),
                    "sluicegate.stage": decision.rule_id.partition(":")[0],
                    "sluicegate.operation": request.operation,
                    "sluicegate.criticality": request.criticality.name,
                    "sluicegate.cost_mru": request.cost_mru,
                    "sluicegate.price_milli": request.price_milli,
                }
            )

    def refuse_cached(self, decision: Decision) -> None:
        """Likewise of what would have been answered from memory."""
        span = get_current_span()
        if span.is_recording():
            stage = decision.rule_id.partition(":")[0]
            span.set_attributes(
                {
                    **refusal_attributes(decision),
                    "sluicegate.stage": stage,
                    "sluicegate.cached": True,
                }
            )

    def serve_cached(self) -> None:
        """It was answered from memory, and no stage has seen it."""
        span = get_current_span()
        if span.is_recording():
            span.set_attributes({"sluicegate.allowed": True, "sluicegate.cached": True})
