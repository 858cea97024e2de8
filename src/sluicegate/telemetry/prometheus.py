"""Prometheus: metrics in the text formats, or through `prometheus_client`.

One table of families, built from one snapshot, feeds both: `text` renders it as a page and needs no
package, `MetricsCollector` hands it to a registry of prometheus_client. Nothing is counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.telemetry.snapshot import Histogram, MetricsSnapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels: TypeAlias = "tuple[tuple[str, str], ...]"
_NO_LABELS: Final[Mapping[str, str]] = {}
_SECOND_US: Final = 1_000_000


class MetricSample(NamedTuple):
    """One number: what follows the family's name, the labels, the value."""

    suffix: str
    labels: Labels
    value: float


class MetricFamily(NamedTuple):
    """One metric: its name without a counter's `_total`, and all its samples."""

    name: str
    kind: str  # counter, gauge or histogram
    unit: str
    meaning: str
    samples: Sequence[MetricSample]


def counter(name: str, meaning: str, value: float) -> MetricFamily:
    """One number that only rises."""
    return MetricFamily(name, "counter", "", meaning, [MetricSample("_total", (), value)])


def counters(name: str, meaning: str, samples: Iterable[MetricSample]) -> MetricFamily:
    """Numbers that only rise, told apart by their labels."""
    return MetricFamily(name, "counter", "", meaning, list(samples))


def gauge(name: str, meaning: str, value: float) -> MetricFamily:
    """One number as it is now."""
    return MetricFamily(name, "gauge", "", meaning, [MetricSample("", (), value)])


def gauges(name: str, meaning: str, samples: Iterable[MetricSample]) -> MetricFamily:
    """Numbers as they are now, told apart by their labels."""
    return MetricFamily(name, "gauge", "", meaning, list(samples))


def families(snapshot: MetricsSnapshot) -> tuple[MetricFamily, ...]:
    """Every metric there is, in a fixed order."""
    degraded_s = snapshot.degraded_us / _SECOND_US
    return (
        counters(
            "sluicegate_decisions",
            "Decisions by rule, outcome and reason.",
            [
                MetricSample("_total", _labels(rule=rule, outcome=outcome, reason=reason), count)
                for rule, outcome, reason, count in snapshot.decisions
            ],
        ),
        histogram(
            "sluicegate_store_round_trip_seconds",
            "How long answered round trips to the store took.",
            snapshot.round_trips_us,
            _SECOND_US,
            "seconds",
        ),
        histogram(
            "sluicegate_store_batch_size",
            "Decisions that shared an answered round trip.",
            snapshot.batches,
        ),
        counter(
            "sluicegate_store_failures",
            "Round trips that failed, or were not even tried because the store was known to fail.",
            snapshot.store_failures,
        ),
        MetricFamily(
            "sluicegate_degraded_seconds",
            "counter",
            "seconds",
            "Time from a failed round trip until the next that was answered.",
            [MetricSample("_total", (), degraded_s)],
        ),
        gauge("sluicegate_degraded", "1 while the last round trip failed.", int(snapshot.degraded)),
        counters(
            "sluicegate_lease_units",
            "Units of leases by rule and event: taken, spent, returned, lapsed.",
            [
                MetricSample("_total", _labels(rule=rule, event=event), units)
                for rule, event, units in snapshot.leases
            ],
        ),
        counter(
            "sluicegate_rules_folded",
            "Decisions and lease events counted as rule other, because rules_max have a label.",
            snapshot.folded,
        ),
    )


def text(
    metrics: DecisionMetrics, *, openmetrics: bool = False, labels: Mapping[str, str] = _NO_LABELS
) -> bytes:
    """A page for /metrics, to be sent as `CONTENT_TYPE`, or as `OPENMETRICS_CONTENT_TYPE`.

    `labels` are added to every sample: which worker this is, say.
    """
    return page(families(metrics.snapshot()), openmetrics=openmetrics, labels=labels)


def page(
    shown_families: Iterable[MetricFamily],
    *,
    openmetrics: bool = False,
    labels: Mapping[str, str] = _NO_LABELS,
) -> bytes:
    """Any families as such a page."""
    common = tuple(labels.items())
    for name, _ in common:
        if not name.isidentifier() or not name.isascii() or name in _OWN_LABELS:
            raise BadValue("labels", name, "give a name of letters, digits and _ that is not ours")
    lines: list[str] = []
    for family in shown_families:
        name = family.name
        # The older format knows a counter by the name of its samples, the newer by the family's.
        shown = f"{name}_total" if family.kind == "counter" and not openmetrics else name
        lines.append(f"# HELP {shown} {family.meaning}")
        lines.append(f"# TYPE {shown} {family.kind}")
        if openmetrics and family.unit:
            lines.append(f"# UNIT {shown} {family.unit}")
        lines += [
            f"{name}{suffix}{_label_block(common + own)} {value!r}"
            for suffix, own, value in family.samples
        ]
    if openmetrics:
        lines.append("# EOF")
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace")


@final
class MetricsCollector:
    """Decision metrics for a registry: `REGISTRY.register(MetricsCollector(metrics))`."""

    __slots__ = ("_metric", "_metrics")

    def __init__(self, metrics: DecisionMetrics) -> None:
        try:
            from prometheus_client.core import Metric  # noqa: PLC0415 - `text` does without
        except ModuleNotFoundError as error:
            raise MissingPackage(error.name or "prometheus_client", "metrics") from None
        self._metric = Metric
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples, as they are now."""
        for family in families(self._metrics.snapshot()):
            metric = self._metric(family.name, family.meaning, family.kind, family.unit)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, dict(labels), value)
            yield metric

    def describe(self) -> Iterable[Metric]:
        """The same names, whatever has been counted; a registry refuses one it has already."""
        return self.collect()


def _labels(**labels: str) -> Labels:
    return tuple(labels.items())


_OWN_LABELS: Final = frozenset({"rule", "outcome", "reason", "event", "le"})


def histogram(
    name: str, meaning: str, values: Histogram, divisor: int = 1, unit: str = ""
) -> MetricFamily:
    """A histogram whose values are so many to the unit that is shown."""
    return histograms(name, meaning, {(): values}, divisor, unit)


def histograms(
    name: str, meaning: str, by_labels: Mapping[Labels, Histogram], divisor: int = 1, unit: str = ""
) -> MetricFamily:
    """Histograms of one kind, told apart by their labels."""
    samples: list[MetricSample] = []
    for labels, values in by_labels.items():
        below = 0
        for bound, count in zip(values.bounds, values.counts, strict=False):
            below += count
            of_bucket = (*labels, ("le", repr(bound / divisor)))
            samples.append(MetricSample("_bucket", of_bucket, below))
        samples.append(MetricSample("_bucket", (*labels, ("le", "+Inf")), values.count))
        samples.append(MetricSample("_count", labels, values.count))
        samples.append(MetricSample("_sum", labels, values.total / divisor))
    return MetricFamily(name, "histogram", unit, meaning, samples)


def _label_block(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
