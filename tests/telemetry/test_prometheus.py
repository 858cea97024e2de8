from __future__ import annotations

import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse

from sluicegate import BadValue
from sluicegate.contracts.errors import MissingPackage
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.telemetry.prometheus import (
    CONTENT_TYPE,
    OPENMETRICS_CONTENT_TYPE,
    MetricsCollector,
    families,
    text,
)
from sluicegate.testing import HandClock
from tests.telemetry.decisions import NOW, SECOND, STORE_UNAVAILABLE, allowed, refused, tried_out

# Theirs, with the types that they leave out.
parse_openmetrics = cast(
    "Callable[[str], Iterable[Metric]]", openmetrics_parser.text_string_to_metric_families
)
generate_openmetrics = cast(
    "Callable[[CollectorRegistry], bytes]", openmetrics_exposition.generate_latest
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def busy_tally() -> DecisionMetrics:
    """Something of everything."""
    clock = HandClock()
    tally = DecisionMetrics(rules_max=3, clock=clock)
    for _ in range(3):
        tally.record_decision(allowed(), "user:1", NOW, NOW)
    for decision in (
        refused(),
        tried_out('a "quoted"\\rule\nof two lines'),
        allowed("api", degraded=True),
        refused("api", STORE_UNAVAILABLE, degraded=True),
        allowed("one too many"),
    ):
        tally.record_decision(decision, "user:1", NOW, NOW)
    for took_us in (40, 700, 90_000, 9_000_000):
        tally.record_round_trip(3, NOW, NOW + took_us, "")
    tally.record_round_trip(1, NOW, NOW, "timeout")
    clock.advance(s=2.5)
    tally.record_lease("api", "taken", 100)
    tally.record_lease("api", "spent", 42)
    return tally


def samples_of(metrics: Iterable[Metric]) -> Samples:
    samples: Samples = {}
    for metric in metrics:
        assert metric.documentation
        for sample in metric.samples:
            labels = dict(sample.labels)
            if "le" in labels:
                labels["le"] = str(float(labels["le"]))
            at = (sample.name, frozenset(labels.items()))
            assert at not in samples, f"{at} is there twice"
            samples[at] = sample.value
    return samples


def at(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_the_page_says_what_was_counted() -> None:
    samples = samples_of(parse(text(busy_tally()).decode()))
    decisions = "sluicegate_decisions_total"
    assert at(samples, decisions, rule="login", outcome="allowed", reason="") == 3
    assert at(samples, decisions, rule="login", outcome="refused", reason="rate_limited") == 1
    assert at(samples, decisions, rule="other", outcome="allowed", reason="") == 1
    refusal = {"outcome": "degraded_refused", "reason": "store_unavailable"}
    assert at(samples, decisions, rule="api", **refusal) == 1
    assert (
        at(
            samples,
            decisions,
            rule='a "quoted"\\rule\nof two lines',
            outcome="shadow_refused",
            reason="rate_limited",
        )
        == 1
    )
    trips = "sluicegate_store_round_trip_seconds"
    assert at(samples, f"{trips}_bucket", le="5e-05") == 1
    assert at(samples, f"{trips}_bucket", le="0.0005") == 1
    assert at(samples, f"{trips}_bucket", le="0.001") == 2
    assert at(samples, f"{trips}_bucket", le="0.1") == 3
    assert at(samples, f"{trips}_bucket", le="5.0") == 3
    assert at(samples, f"{trips}_bucket", le="inf") == at(samples, f"{trips}_count") == 4
    assert at(samples, f"{trips}_sum") == pytest.approx(9.09074)
    assert at(samples, "sluicegate_store_batch_size_bucket", le="2.0") == 0
    assert at(samples, "sluicegate_store_batch_size_bucket", le="4.0") == 4
    assert at(samples, "sluicegate_store_batch_size_sum") == 12
    assert at(samples, "sluicegate_store_failures_total") == 1
    assert at(samples, "sluicegate_degraded_seconds_total") == 2.5
    assert at(samples, "sluicegate_degraded") == 1
    assert at(samples, "sluicegate_lease_units_total", rule="api", event="taken") == 100
    assert at(samples, "sluicegate_lease_units_total", rule="api", event="lapsed") == 0
    assert at(samples, "sluicegate_rules_folded_total") == 1
    assert not any("user:1" in value for _, labels in samples for _, value in labels)


def test_the_page_the_collector_and_both_formats_agree() -> None:
    tally = busy_tally()
    registry = CollectorRegistry()
    registry.register(MetricsCollector(tally))
    page = samples_of(parse(text(tally).decode()))
    assert len(page) > 40
    assert samples_of(parse(generate_latest(registry).decode())) == page
    newer = text(tally, openmetrics=True).decode()
    assert samples_of(parse_openmetrics(newer)) == page
    assert samples_of(parse_openmetrics(generate_openmetrics(registry).decode())) == page


def test_both_forms_give_a_family_the_same_type_and_meaning() -> None:
    tally = busy_tally()
    registry = CollectorRegistry()
    registry.register(MetricsCollector(tally))

    def heads(metrics: Iterable[Metric]) -> list[tuple[str, str, str, str]]:
        return [(metric.name, metric.type, metric.unit, metric.documentation) for metric in metrics]

    theirs = heads(parse(generate_latest(registry).decode()))
    assert heads(parse(text(tally).decode())) == theirs
    assert {(name, kind) for name, kind, _, _ in theirs} == {
        (family.name, family.kind) for family in families(tally.snapshot())
    }
    newer = heads(parse_openmetrics(text(tally, openmetrics=True).decode()))
    assert newer == heads(parse_openmetrics(generate_openmetrics(registry).decode()))


def test_a_tally_that_was_told_nothing_has_a_page_too() -> None:
    for openmetrics in (False, True):
        page = text(DecisionMetrics(), openmetrics=openmetrics).decode()
        samples = samples_of((parse_openmetrics if openmetrics else parse)(page))
        assert at(samples, "sluicegate_degraded") == 0
        assert at(samples, "sluicegate_store_round_trip_seconds_count") == 0


rules = st.one_of(
    st.text(st.sampled_from('\\"\n\rn{},= \ud800'), min_size=1, max_size=6),
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=20),
)


@given(st.lists(rules, max_size=5))
def test_any_name_of_a_rule_comes_back_as_it_was(names: list[str]) -> None:
    tally = DecisionMetrics()
    for name in names:
        tally.record_decision(allowed(name), "k", NOW, NOW)
    expected = {(row.rule, row.decisions) for row in tally.snapshot().decisions if row.decisions}
    for openmetrics in (False, True):
        page = text(tally, openmetrics=openmetrics).decode()
        samples = samples_of((parse_openmetrics if openmetrics else parse)(page))
        labels = {
            (dict(labels)["rule"], value)
            for (name, labels), value in samples.items()
            if name == "sluicegate_decisions_total"
        }
        assert labels == expected


def test_labels_of_the_process_are_added_to_every_sample() -> None:
    samples = samples_of(parse(text(busy_tally(), labels={"worker": 'w"3'}).decode()))
    assert all(("worker", 'w"3') in labels for _, labels in samples)
    assert at(samples, "sluicegate_degraded", worker='w"3') == 1


@pytest.mark.parametrize("name", ["rule", "le", "with-dash", "", "é", "3"])
def test_a_label_that_cannot_be_added_is_told(name: str) -> None:
    with pytest.raises(BadValue, match="labels"):
        text(DecisionMetrics(), labels={name: "x"})


def test_a_registry_takes_a_tally_once() -> None:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(DecisionMetrics()))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(MetricsCollector(DecisionMetrics()))


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("prometheus_client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingPackage, match=r"\[metrics\]"):
        MetricsCollector(DecisionMetrics())
    assert text(DecisionMetrics()).startswith(b"# HELP")


@contextmanager
def served(tally: DecisionMetrics) -> Iterator[str]:
    """/metrics by the standard library alone."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            newer = "openmetrics" in self.headers.get("Accept", "")
            body = text(tally, openmetrics=newer)
            self.send_response(200)
            self.send_header("Content-Type", OPENMETRICS_CONTENT_TYPE if newer else CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scraped(url: str, accept: str) -> tuple[str, Samples]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        kind = answer.headers["Content-Type"]
        body = answer.read().decode()
    newer = kind.startswith("application/openmetrics-text")
    return kind, samples_of((parse_openmetrics if newer else parse)(body))


@pytest.mark.parametrize("accept", ["text/plain;version=0.0.4", "application/openmetrics-text"])
def test_a_scrape_over_http_reads_the_same_from_us_and_from_the_clients_server(
    accept: str,
) -> None:
    tally = busy_tally()
    registry = CollectorRegistry()
    registry.register(MetricsCollector(tally))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        theirs, from_them = scraped(f"http://127.0.0.1:{server.server_port}/metrics", accept)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    with served(tally) as url:
        ours, from_us = scraped(url, accept)
    assert from_us == from_them
    assert ours.split(";")[0] == theirs.split(";")[0]


def test_a_failure_under_way_is_seen_growing() -> None:
    clock = HandClock()
    tally = DecisionMetrics(clock=clock)
    tally.record_round_trip(1, NOW, NOW, "timeout")
    seconds = []
    for _ in range(3):
        clock.advance(s=5)
        samples = samples_of(parse(text(tally).decode()))
        seconds.append(at(samples, "sluicegate_degraded_seconds_total"))
    assert seconds == [5, 10, 15]
    tally.record_round_trip(1, NOW, NOW + 15 * SECOND, "")
    assert at(samples_of(parse(text(tally).decode())), "sluicegate_degraded") == 0
