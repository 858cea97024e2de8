"""Report: what a drill found, in a sentence, a table, and for each stage what broke and the fix."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.apps.resilience.drill.verdicts import DrillResult
from sluicegate.command_line.text import counted, rate, table


def lines_of(result: DrillResult) -> Iterator[str]:
    """Yield the lines of the report."""
    broke = [stage for stage in result.stages if not stage.holds]
    tried = counted(len(result.stages), "stage")
    if broke:
        names = ", ".join(stage.name for stage in broke)
        yield f"it broke in {len(broke)} of {tried}: {names}."
    else:
        yield f"it held in all {tried}."
    if result.capacity:
        yield f"it can do {rate(result.capacity)} requests a second."
    yield ""
    head = ["stage", "", "sent/s", "in time/s", "rejected", "errors", "hung up", "p99, ms"]
    rows = [
        [
            stage.name,
            "held" if stage.holds else "BROKE",
            rate(stage.record.rate),
            rate(stage.record.goodput),
            f"{stage.record.share(len(stage.record.refused_us)):.1%}",
            f"{stage.record.share(stage.record.errors):.1%}",
            f"{stage.record.share(stage.record.hung):.1%}",
            f"{stage.record.p99_us() / 1_000:,.0f}",
        ]
        for stage in result.stages
    ]
    yield from table(head, rows, left=2)
    yield ""
    for stage in result.stages:
        yield f"{stage.name}: {stage.words}"
        for finding in stage.findings:
            yield f"  {finding.name}: {finding.words}"
            yield f"    fix: {finding.fix}"
    for words in result.untried:
        yield f"not tried: {words}"
