"""Tracing: decisions and round trips as OpenTelemetry spans.

A span is created at the end, with the recorded instants, under the context of the caller. It shows
no key, unless the user gives a function that formats one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.telemetry.labels import ALLOWED, outcome_of, reason_of

try:
    from opentelemetry.trace import (
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_tracer,
    )
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "opentelemetry", "otel") from None

FAILURE_CHARS_MAX: Final = 200


@final
class Tracing:
    """An Observer that makes spans.

    `allowed_every`: one of so many plainly allowed decisions has a span; 0 is none, so that only
    what was refused, degraded or tried out is seen. `round_trips=False` leaves the store out.
    `key_attribute` makes `sluicegate.key` from a key: a keyed hash, say (`telemetry.keys.hashed`).
    Without a `provider` it is the process's own.
    """

    __slots__ = ("_allowed", "_key_attribute", "_round_trips", "_tracer", "allowed_every")

    def __init__(
        self,
        *,
        provider: TracerProvider | None = None,
        allowed_every: int = 1,
        round_trips: bool = True,
        key_attribute: Callable[[str], str] | None = None,
    ) -> None:
        if allowed_every < 0:
            raise BadValue(
                "allowed_every", allowed_every, "give 1 for all, n for 1 in n, 0 for none"
            )
        self.allowed_every = allowed_every
        self._round_trips = round_trips
        self._key_attribute = key_attribute
        self._tracer = get_tracer("sluicegate", tracer_provider=provider)
        self._allowed = count()  # one that threads may share

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Make a span of one decision."""
        if outcome_of(decision) == ALLOWED:
            every = self.allowed_every
            if every == 0 or (every > 1 and next(self._allowed) % every):
                return
        attributes: dict[str, str | int | bool] = {
            "sluicegate.rule": decision.rule_id,
            "sluicegate.allowed": decision.allowed,
            "sluicegate.reason": reason_of(decision),
            "sluicegate.remaining": decision.remaining,
            "sluicegate.degraded": decision.degraded,
            "sluicegate.shadow": decision.shadow,
        }
        if not decision.allowed:
            attributes["sluicegate.retry_after_us"] = decision.retry_after_us
        if self._key_attribute is not None:
            try:
                attributes["sluicegate.key"] = self._key_attribute(key)
            except Exception as error:  # the user's own function, and no reason to harm a decision
                attributes["sluicegate.key_error"] = type(error).__name__
        span = self._tracer.start_span(
            "sluicegate.decision", attributes=attributes, start_time=began_us * 1_000
        )
        span.end(end_time=ended_us * 1_000)

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """Make a span of one round trip; a failed one is an error."""
        if not self._round_trips:
            return
        span = self._tracer.start_span(
            "sluicegate.store",
            kind=SpanKind.CLIENT,
            attributes={"sluicegate.decisions": decisions},
            start_time=began_us * 1_000,
        )
        if failure:
            span.set_status(Status(StatusCode.ERROR, failure[:FAILURE_CHARS_MAX]))
        span.end(end_time=ended_us * 1_000)

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Nothing: a lease has no instant of its own."""
