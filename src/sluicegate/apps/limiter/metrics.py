"""Metrics: what the parts of a limiter count, as metrics. Nothing is counted here.

The names stand in `deploy/limiter/`, in the dashboard and the alerts; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.limits.dead_letters import DeadLetterStats
from sluicegate.policies.admission.utilization_gate import UtilizationStats
from sluicegate.rules.mesh.rule_stats import RuleStatsValues
from sluicegate.rules.unmatched import UnmatchedRequests
from sluicegate.service.rules_source import RulesSource
from sluicegate.shadow.capture.recorder import CaptureStats
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, gauge

CLASSES: Final = tuple(criticality.name for criticality in Criticality)
# A number of a rule's tally, the metric, and what it means.
_MESH_COUNTS: Final = (
    ("total_hits", "hits", "Hits by rule of the mesh."),
    ("over_limit", "over_limit", "Hits over the limit."),
    ("near_limit", "near_limit", "Hits near the limit."),
    (
        "over_limit_with_local_cache",
        "over_limit_with_local_cache",
        "Hits over the limit that needed no store.",
    ),
    ("within_limit", "within_limit", "Hits within the limit."),
    ("shadow_mode", "shadow_mode", "Hits over a limit that is only tried out."),
)


def of_rules(rules: RulesSource, count: int) -> Iterable[MetricFamily]:
    """How loads went, and how many rules are in force."""
    accepted, refused = rules.loads
    loads = [
        MetricSample("_total", (("result", result),), count)
        for result, count in (("accepted", accepted), ("refused", refused))
    ]
    yield MetricFamily("sluicegate_limiter_rules_loads", "counter", "", "Loads of rules.", loads)
    yield gauge(
        "sluicegate_limiter_rules_last_load_refused",
        "1 while the files as they are now were refused.",
        int(rules.status()["last_load"]["result"] == "refused"),
    )
    yield gauge("sluicegate_limiter_rules", "Rules in force.", count)


def of_mesh(
    tallies: Sequence[RuleStatsValues], on_trial: Sequence[RuleStatsValues] = ()
) -> Iterable[MetricFamily]:
    """The statistics of Envoy's rules; of those that some callers try, together with the others."""
    for field, name, meaning in _MESH_COUNTS:
        counts: dict[str, int] = {}
        for one in (*tallies, *on_trial):
            counts[one.key] = counts.get(one.key, 0) + getattr(one, field)
        samples = [MetricSample("_total", (("rule", key),), count) for key, count in counts.items()]
        yield MetricFamily(f"sluicegate_mesh_{name}", "counter", "", meaning, samples)


def of_unmatched(unmatched: UnmatchedRequests) -> MetricFamily:
    """Requests that no rule applied to."""
    samples = [
        MetricSample("_total", (("question", name),), count)
        for name, count in (("check", unmatched.checks), ("mesh", unmatched.mesh))
    ]
    meaning = "Requests that no rule matched: allowed and not counted."
    return MetricFamily("sluicegate_limiter_unmatched", "counter", "", meaning, samples)


def of_gate(stats: UtilizationStats) -> Iterable[MetricFamily]:
    """Where the gate stands, and why."""
    yield gauge("sluicegate_limiter_utilization", "What the gate goes by.", stats.utilization)
    yield MetricFamily(
        "sluicegate_limiter_reading",
        "gauge",
        "",
        "Each reading as a share of what counts as full.",
        [MetricSample("", (("signal", name),), value) for name, value in stats.signals.items()],
    )
    yield MetricFamily(
        "sluicegate_limiter_shed_share",
        "gauge",
        "",
        "The share of each class that is shed now.",
        [
            MetricSample("", (("priority", name),), value)
            for name, value in zip(CLASSES, stats.shares, strict=True)
        ],
    )


def of_dead_letters(stats: DeadLetterStats) -> Iterable[MetricFamily]:
    """What became of the dead letters."""
    yield counter("sluicegate_dead_letters_written", "Dead letters kept.", stats.written)
    yield counter("sluicegate_dead_letters_dropped", "Dead letters lost.", stats.dropped)
    yield gauge("sluicegate_dead_letters_depth", "Dead letters waiting.", stats.depth)


def of_capture(stats: CaptureStats) -> Iterable[MetricFamily]:
    """What became of the requests that were to be kept."""
    yield counter("sluicegate_capture_kept", "Requests of the sample.", stats.kept)
    yield counter("sluicegate_capture_written", "Requests written.", stats.written)
    yield counter(
        "sluicegate_capture_withheld",
        "Requests of which something secret was left out.",
        stats.withheld,
    )
    lost = [
        MetricSample("_total", (("why", why),), count)
        for why, count in (("full", stats.lost_full), ("disk", stats.lost_disk))
    ]
    yield MetricFamily("sluicegate_capture_lost", "counter", "", "Requests lost.", lost)
    yield counter("sluicegate_capture_bytes", "Bytes of captures written.", stats.bytes)
