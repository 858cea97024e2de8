from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode, use_span

from sluicegate import BadValue
from sluicegate.contracts.observer import Observer
from sluicegate.telemetry.keys import key_hasher
from sluicegate.telemetry.tracing import Tracing
from tests.telemetry.decisions import NOW, STORE_UNAVAILABLE, allowed, refused, tried_out
from tests.telemetry.threads import in_threads


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Callable[[], list[ReadableSpan]]:
    return lambda: list(exporter.get_finished_spans())


Spans = Callable[[], list[ReadableSpan]]


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_decision_is_a_span_with_the_instants_that_were_told(
    provider: TracerProvider, spans: Spans
) -> None:
    tracing: Observer = Tracing(provider=provider)
    tracing.record_decision(allowed(), "user:1", NOW, NOW + 7)
    (span,) = spans()
    assert span.name == "sluicegate.decision"
    assert (span.start_time, span.end_time) == (NOW * 1_000, (NOW + 7) * 1_000)
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert attributes_of(span) == {
        "sluicegate.rule": "login",
        "sluicegate.allowed": True,
        "sluicegate.reason": "",
        "sluicegate.remaining": 3,
        "sluicegate.degraded": False,
        "sluicegate.shadow": False,
    }


def test_a_refusal_says_why_and_until_when(provider: TracerProvider, spans: Spans) -> None:
    tracing = Tracing(provider=provider)
    tracing.record_decision(refused("api", STORE_UNAVAILABLE, degraded=True), "k", NOW, NOW)
    tracing.record_decision(tried_out("api"), "k", NOW, NOW)
    first, second = map(attributes_of, spans())
    assert first == {
        "sluicegate.rule": "api",
        "sluicegate.allowed": False,
        "sluicegate.reason": "store_unavailable",
        "sluicegate.remaining": 0,
        "sluicegate.degraded": True,
        "sluicegate.shadow": False,
        "sluicegate.retry_after_us": 2_500_000,
    }
    assert (second["sluicegate.allowed"], second["sluicegate.shadow"]) == (True, True)
    assert second["sluicegate.reason"] == "rate_limited"


def test_a_span_belongs_to_whoever_asked(provider: TracerProvider, spans: Spans) -> None:
    tracing = Tracing(provider=provider)
    tracer = provider.get_tracer("app")

    async def request(name: str) -> None:
        with tracer.start_as_current_span(name):
            await asyncio.sleep(0)
            tracing.record_decision(allowed(name), "k", NOW, NOW)
            await asyncio.sleep(0)
            tracing.record_round_trip(1, NOW, NOW, "")

    async def requests() -> None:
        await asyncio.gather(*(request(f"r{at}") for at in range(5)))

    asyncio.run(requests())
    with tracer.start_as_current_span("thread"):
        tracing.record_decision(allowed("thread"), "k", NOW, NOW)
    parents = {span.context.span_id: span.name for span in spans() if span.parent is None}
    assert len(parents) == 6
    decisions = [span for span in spans() if span.name == "sluicegate.decision"]
    assert len(decisions) == 6
    for span in decisions:
        assert span.parent is not None
        assert parents[span.parent.span_id] == attributes_of(span)["sluicegate.rule"]


def test_nothing_becomes_current_by_it(provider: TracerProvider, spans: Spans) -> None:
    tracing = Tracing(provider=provider)
    tracing.record_decision(allowed(), "k", NOW, NOW)
    tracing.record_decision(allowed(), "k", NOW, NOW)
    assert [span.parent for span in spans()] == [None, None]


def test_only_what_did_not_go_as_usual_can_be_asked_for(
    provider: TracerProvider, spans: Spans
) -> None:
    tracing = Tracing(provider=provider, allowed_every=0)
    for decision in (allowed(), refused(), allowed(degraded=True), tried_out(), allowed()):
        tracing.record_decision(decision, "k", NOW, NOW)
    assert [attributes_of(span)["sluicegate.remaining"] for span in spans()] == [0, 3, 0]


def test_one_of_so_many_allowed_ones_can_be_asked_for(
    provider: TracerProvider, spans: Spans
) -> None:
    tracing = Tracing(provider=provider, allowed_every=10)
    for _ in range(35):
        tracing.record_decision(allowed(), "k", NOW, NOW)
        tracing.record_decision(refused(), "k", NOW, NOW)
    flags = [attributes_of(span)["sluicegate.allowed"] for span in spans()]
    assert (flags.count(True), flags.count(False)) == (4, 35)


def test_one_of_so_many_holds_over_threads(provider: TracerProvider, spans: Spans) -> None:
    tracing = Tracing(provider=provider, allowed_every=100)

    def work(_: int) -> None:
        for _ in range(500):
            tracing.record_decision(allowed(), "k", NOW, NOW)

    in_threads(4, work)
    assert len(spans()) == 20


def test_no_key_is_shown_unless_a_function_says_how(provider: TracerProvider, spans: Spans) -> None:
    hash_of = key_hasher(b"sixteen bytes or")
    for tracing in (Tracing(provider=provider), Tracing(provider=provider, key_attribute=hash_of)):
        tracing.record_decision(refused(), "ann@example.org", NOW, NOW)
    plain, with_key = map(attributes_of, spans())
    assert "sluicegate.key" not in plain
    assert with_key["sluicegate.key"] == hash_of("ann@example.org")
    assert "ann" not in str(plain) + str(with_key)


def test_a_function_that_raises_costs_its_attribute_and_nothing_else(
    provider: TracerProvider, spans: Spans
) -> None:
    def broken(key: str) -> str:
        raise LookupError(key)

    tracing = Tracing(provider=provider, key_attribute=broken)
    tracing.record_decision(refused(), "ann@example.org", NOW, NOW)
    (span,) = spans()
    assert attributes_of(span)["sluicegate.key_error"] == "LookupError"
    assert "ann" not in span.to_json()


def test_a_round_trip_is_a_span_and_a_failed_one_an_error(
    provider: TracerProvider, spans: Spans
) -> None:
    tracing = Tracing(provider=provider)
    tracing.record_round_trip(8, NOW, NOW + 90, "")
    tracing.record_round_trip(2, NOW, NOW + 10_000, "no answer in 10 ms" + "!" * 1_000)
    answered, failed = spans()
    assert (answered.name, answered.kind) == ("sluicegate.store", SpanKind.CLIENT)
    assert attributes_of(answered) == {"sluicegate.decisions": 8}
    assert (answered.start_time, answered.end_time) == (NOW * 1_000, (NOW + 90) * 1_000)
    assert answered.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.status.description or "").startswith("no answer in 10 ms!")
    assert len(failed.status.description or "") == 200


def test_round_trips_and_leases_can_be_left_out(provider: TracerProvider, spans: Spans) -> None:
    tracing = Tracing(provider=provider, round_trips=False)
    tracing.record_round_trip(8, NOW, NOW + 90, "")
    tracing.record_lease("api", "taken", 10)
    assert spans() == []


def test_the_users_sampler_has_the_last_word(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider=provider)
    with use_span(provider.get_tracer("app").start_span("dropped")):
        tracing.record_decision(refused(), "k", NOW, NOW)
    assert exporter.get_finished_spans() == ()


def test_without_a_provider_nothing_is_made_and_nothing_fails() -> None:
    tracing = Tracing()
    tracing.record_decision(refused(), "k", NOW, NOW)
    tracing.record_round_trip(1, NOW, NOW, "timeout")
    assert not tracing._tracer.start_span("any").is_recording()


def test_a_share_below_zero_is_told() -> None:
    with pytest.raises(BadValue, match="allowed_every"):
        Tracing(allowed_every=-1)


def test_without_the_package_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from sluicegate.contracts.errors import MissingPackage\n"
        "try:\n    import sluicegate.telemetry.tracing\n"
        "except MissingPackage as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install '.[otel]'" in ran.stdout


def test_nothing_else_in_the_folder_needs_a_package() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = sys.modules['prometheus_client'] = None\n"
        "import sluicegate.telemetry.decision_metrics, sluicegate.telemetry.prometheus\n"
        "import sluicegate.telemetry.logs\n"
        "import sluicegate.telemetry.observer_group\n"
        "print(len(sluicegate.telemetry.prometheus.text(sluicegate.telemetry.decision_metrics.DecisionMetrics())))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) > 1_000
