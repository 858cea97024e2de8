"""Request spans: one span a request that is traced, under the span of whoever asks.

    traceparent, sampled        traced
    traceparent, not sampled    not traced: whoever asks has decided
    no traceparent              a share of them, each the first span of a new trace

At most `per_s` a second are traced, whatever callers say. While the work of a traced request runs,
on whatever turn of the loop, its span is OpenTelemetry's current one: what is recorded below it
(`DecisionSpans`, a service's own spans) finds it there. Elsewhere nothing is recorded.

No span shows a key, a value, a path or a caller's words: routes, tables, rules and reasons alone.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Final, TypeAlias, TypeVar, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import MissingPackage, Refused, SluicegateError, Unavailable
from sluicegate.telemetry.labels import reason_of
from sluicegate.telemetry.tracing import Tracing

try:
    from opentelemetry.context import attach
    from opentelemetry.trace import (
        Span,
        SpanKind,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "opentelemetry", "otlp") from None

T = TypeVar("T")
Attributes: TypeAlias = "Mapping[str, str | int | bool]"
_S_US: Final = 1_000_000
_PARENT_BYTES: Final = 55  # of a traceparent of version 00
_PARENT_BYTES_MAX: Final = 512  # of a later version, and of a tracestate
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@final
class RequestSpans:
    """Makes the spans of one worker's requests."""

    __slots__ = (
        "_chance",
        "_clock",
        "_left",
        "_second",
        "_tracer",
        "begun",
        "over",
        "per_s",
        "share",
    )

    def __init__(
        self, provider: TracerProvider, clock: Clock, chance: Chance, *, share: float, per_s: int
    ) -> None:
        self._tracer = get_tracer("sluicegate", tracer_provider=provider)
        self._clock = clock
        self._chance = chance
        self._second = 0
        self._left = 0
        self.share = share
        self.per_s = per_s
        self.begun = 0
        self.over = 0  # that were not traced since `per_s` others were

    def trace(
        self,
        name: str,
        attributes: Attributes,
        traceparent: bytes,
        tracestate: bytes,
        work: Callable[[], T | Awaitable[T]],
        describe: Callable[[T], Attributes],
        describe_error: Callable[[BaseException], Attributes],
    ) -> T | Awaitable[T]:
        """Return what `work` returns, and raise what it raises."""
        span = self._begin(name, attributes, traceparent, tracestate)
        if span is None:
            return work()
        context = copy_context()
        context.run(attach, set_span_in_context(span))
        try:
            answer = context.run(work)
        except BaseException as error:
            _fail(span, error, describe_error)
            raise
        if isinstance(answer, Awaitable):
            return _finish_later(span, context, answer, describe, describe_error)
        span.set_attributes(describe(answer))
        span.end()
        return answer

    def _begin(
        self, name: str, attributes: Attributes, traceparent: bytes, tracestate: bytes
    ) -> Span | None:
        parent = None
        if traceparent:
            sampled, parent = _parent_of(traceparent, tracestate)
            if not sampled:
                return None
        elif self._chance.draw() >= self.share:
            return None
        second = self._clock.now_us() // _S_US
        if second != self._second:
            self._second, self._left = second, self.per_s
        if self._left <= 0:
            self.over += 1
            return None
        self._left -= 1
        self.begun += 1
        return self._tracer.start_span(
            name, context=parent, kind=SpanKind.SERVER, attributes=attributes
        )


@final
class DecisionSpans:
    """An Observer that makes a span of each decision for a traced request."""

    __slots__ = ("_spans",)

    def __init__(self, provider: TracerProvider) -> None:
        self._spans = Tracing(provider=provider)

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """A span below the request's; a refusal stands in the request's too."""
        span = get_current_span()
        if span.is_recording():
            self._spans.record_decision(decision, key, began_us, ended_us)
            if not decision.allowed:
                span.set_attributes(refusal_attributes(decision))

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """Nothing: `RoundTripSpans` has them."""

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Nothing: a lease has no instant of its own."""


@final
class RoundTripSpans:
    """An Observer that makes a span of each round trip which a traced request began."""

    wants_decisions = False
    __slots__ = ("_spans",)

    def __init__(self, provider: TracerProvider) -> None:
        self._spans = Tracing(provider=provider)

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Nothing: `DecisionSpans` has them."""

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """A span below that of the request which began it; others may have shared it."""
        if get_current_span().is_recording():
            self._spans.record_round_trip(decisions, began_us, ended_us, failure)

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Nothing: a lease has no instant of its own."""


def refusal_attributes(decision: Decision) -> Attributes:
    """Return what a span says of a refusal."""
    return {
        "sluicegate.allowed": False,
        "sluicegate.reason": reason_of(decision),
        "sluicegate.rule": decision.rule_id,
        "sluicegate.degraded": decision.degraded,
        "sluicegate.retry_after_us": decision.retry_after_us,
    }


def _parent_of(traceparent: bytes, tracestate: bytes) -> tuple[bool, Any]:
    """Return whether whoever asks traces this request, and its span as a context."""
    if len(traceparent) == _PARENT_BYTES and traceparent[53:55] == b"00":
        return False, None  # mostly, and told without a parser
    if len(traceparent) > _PARENT_BYTES_MAX:
        return False, None
    carrier = {"traceparent": traceparent.decode("latin-1")}
    if 0 < len(tracestate) <= _PARENT_BYTES_MAX:
        carrier["tracestate"] = tracestate.decode("latin-1")
    context = _PROPAGATOR.extract(carrier)
    parent = get_current_span(context).get_span_context()
    return parent.is_valid and parent.trace_flags.sampled, context


async def _finish_later(
    span: Span,
    context: Context,
    work: Awaitable[T],
    describe: Callable[[T], Attributes],
    describe_error: Callable[[BaseException], Attributes],
) -> T:
    try:
        answer: T = await _step_in(context, work)
    except BaseException as error:
        _fail(span, error, describe_error)
        raise
    span.set_attributes(describe(answer))
    span.end()
    return answer


@coroutine
def _step_in(context: Context, work: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Run every step of the work in that context: whoever steps us is in the context of its own.

    A task would do the same for three ticks of the loop.
    """
    steps = work.__await__()
    step: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 - it changes below
    while True:
        try:
            awaited = context.run(step)
        except StopIteration as end:
            return end.value
        try:
            yield awaited
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            thrown = error
            step = lambda: steps.throw(thrown)  # noqa: B023, E731 - called before it changes
        else:
            step = lambda: steps.send(None)  # noqa: E731


def _fail(
    span: Span, error: BaseException, describe_error: Callable[[BaseException], Attributes]
) -> None:
    """End a span by an error; a refusal is none."""
    if isinstance(error, Refused):
        span.set_attributes(refusal_attributes(error.decision))
    else:
        span.set_attribute("error.type", type(error).__name__)
        if not isinstance(error, (SluicegateError, CancelledError)) or isinstance(
            error, Unavailable
        ):  # else it is the caller's
            span.set_status(StatusCode.ERROR)
    span.set_attributes(describe_error(error))
    span.end()
