"""Service metrics: what a rate-limit service counts of its own decisions.

By class of priority (how many passed, were refused by a limit, were shed, or were decided without
the store), by rule up to `rules_max` of them, and how long each decision took. Written by the event
loop alone, so there is nothing to lock; `families` turns it into metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import SHED
from sluicegate.telemetry.labels import OTHER, RULE_CHARS_MAX
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, counters, histogram
from sluicegate.telemetry.snapshot import Histogram

# Upper bounds of the buckets in microseconds; 2 ms is the one that matters.
TOOK_US_BOUNDS: Final[tuple[int, ...]] = (
    5, 10, 20, 50, 100, 200, 500,
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000,
)  # fmt: skip
RULES_MAX_DEFAULT: Final = 1_000
# Outcomes, as they stand in the rows below.
ALLOWED: Final = 0
REFUSED: Final = 1
SHED_AT: Final = 2
DEGRADED_ALLOWED: Final = 3
DEGRADED_REFUSED: Final = 4
SHADOW_REFUSED: Final = 5
OUTCOMES: Final = (
    "allowed",
    "refused",
    "shed",
    "degraded_allowed",
    "degraded_refused",
    "shadow_refused",
)


@final
class ServiceMetrics:
    """Counts decisions; the counters are attributes, to be read at any time."""

    __slots__ = ("classes", "folded", "rules", "rules_max", "took", "took_us")

    def __init__(self, *, rules_max: int = RULES_MAX_DEFAULT) -> None:
        self.classes = [[0] * len(OUTCOMES) for _ in Criticality]
        self.rules: dict[str, list[int]] = {}
        self.rules_max = rules_max
        self.folded = 0
        self.took = [0] * (len(TOOK_US_BOUNDS) + 1)
        self.took_us = 0

    def record_decision(
        self, rule_id: str, priority: Criticality, decision: Decision, took_us: int
    ) -> None:
        """Count one decision."""
        if decision.reason is SHED:
            outcome = SHED_AT
        elif decision.shadow and decision.reason is not None:
            outcome = SHADOW_REFUSED
        elif decision.degraded:
            outcome = DEGRADED_ALLOWED if decision.allowed else DEGRADED_REFUSED
        else:
            outcome = ALLOWED if decision.allowed else REFUSED
        self.classes[priority][outcome] += 1
        row = self.rules.get(rule_id)
        if row is None:
            row = self._row(rule_id)
        row[outcome] += 1
        if took_us < 0:
            took_us = 0
        self.took_us += took_us
        # Most take less than the first few bounds: no call for those.
        at = 0
        while at < 4 and took_us > TOOK_US_BOUNDS[at]:
            at += 1
        if at == 4:
            at = bisect_left(TOOK_US_BOUNDS, took_us)
        self.took[at] += 1

    def _row(self, rule_id: str) -> list[int]:
        if len(self.rules) >= self.rules_max or len(rule_id) > RULE_CHARS_MAX:
            self.folded += 1
            rule_id = OTHER
        return self.rules.setdefault(rule_id, [0] * len(OUTCOMES))

    @property
    def decisions(self) -> int:
        """How many there were."""
        return sum(self.took)

    def families(self) -> list[MetricFamily]:
        """The metrics, in a fixed order."""
        by_class = [
            MetricSample(
                "_total",
                (("priority", criticality.name), ("outcome", outcome)),
                self.classes[criticality][at],
            )
            for criticality in Criticality
            for at, outcome in enumerate(OUTCOMES)
        ]
        by_rule = [
            MetricSample("_total", (("rule", rule_id), ("outcome", outcome)), row[at])
            for rule_id, row in self.rules.items()
            for at, outcome in enumerate(OUTCOMES)
            if row[at]
        ]
        took = Histogram(TOOK_US_BOUNDS, tuple(self.took), self.took_us)
        return [
            counters(
                "sluicegate_limiter_decisions", "Decisions by priority and outcome.", by_class
            ),
            counters(
                "sluicegate_limiter_rule_decisions",
                "Decisions by rule and outcome; without a rule, nothing applied.",
                by_rule,
            ),
            histogram(
                "sluicegate_limiter_decision_seconds",
                "How long decisions took, the store included.",
                took,
                1_000_000,
                "seconds",
            ),
            counter(
                "sluicegate_limiter_rules_folded",
                "Decisions counted as rule other, because rules_max have a label.",
                self.folded,
            ),
        ]
