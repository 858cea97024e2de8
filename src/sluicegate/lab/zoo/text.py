"""Text: the tables of a zoo's run, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

from sluicegate.command_line.text import table
from sluicegate.lab.zoo.bars import CRITICAL, BarFinding, Judged, ZooBar, useful
from sluicegate.lab.zoo.outcome import total
from sluicegate.lab.zoo.play import ORACLE, PRODUCT, key_of
from sluicegate.lab.zoo.shape import HANGUP, ZooShape

HEAD: Final = (
    "shape",
    "limit",
    "product",
    "best simple",
    "",
    "oracle",
    "CRITICAL",
    "oracle's",
    "p99 ms",
    "late ms",
    "verdict",
)


def shape_rows(judged: Sequence[Judged]) -> list[str]:
    """Return the table of the shapes that are judged."""
    return table(HEAD, [_row(one) for one in judged if not one.shape.limit])


def limit_rows(judged: Sequence[Judged]) -> list[str]:
    """Return the table of the shapes outside the bounds, and why."""
    rows = [(*_row(one)[:-1], one.shape.limit) for one in judged if one.shape.limit]
    return table((*HEAD[:-1], "reason"), rows) if rows else []


def bar_rows(bars: Sequence[ZooBar]) -> list[str]:
    """Return the bars over all shapes."""
    rows = [
        (
            one.name,
            one.mode,
            f"{one.worst.target:g}",
            _number(one.worst.value),
            f"{one.met} of {one.shapes}",
            one.where,
        )
        for one in bars
    ]
    return table(("bar", "limit", "target", "worst", "met", "worst in"), rows)


def summary(judged: Sequence[Judged], bars: Sequence[ZooBar]) -> list[str]:
    """Return how many rows and bars are met, and the share of early rejections."""
    counted = [one for one in judged if not one.shape.limit]
    rows = sum(not one.missed() for one in counted)
    met = sum(one.met == one.shapes for one in bars)
    lines = [f"{rows} of {len(counted)} rows and {met} of {len(bars)} bars are met"]
    for mode in PRODUCT:
        waits = [one.product for one in counted if one.mode == mode and _hangs_up(one.shape)]
        told, silent = sum(one.refused for one in waits), sum(one.silent for one in waits)
        if told + silent:
            share = told / (told + silent)
            lines.append(
                f"{share:.0%} of unserved callers that hang up are rejected before ({mode})"
            )
    return lines


def as_json(seed: int, judged: Sequence[Judged], bars: Sequence[ZooBar]) -> dict[str, Any]:
    """Return everything that was found."""
    return {
        "seed": seed,
        "rows": [
            {
                "shape": key_of(one.shape),
                "limit": one.mode,
                "outside": one.shape.limit,
                "useful": {name: share_of(one, name) for name in one.outcomes},
                "critical": {
                    name: found.share(CRITICAL, *one.window_us)
                    for name, found in one.outcomes.items()
                },
                "p99_us": _finite(one.product.p99_us),
                "refusal_late_us": one.product.refusal_late_us,
                "silent": one.product.silent,
                "bars": [_bar(finding) for finding in one.findings],
            }
            for one in judged
        ],
        "bars": [
            {
                "bar": one.name,
                "limit": one.mode,
                "worst": _finite(one.worst.value),
                "worst_in": one.where,
                "target": one.worst.target,
                "met": one.met,
                "shapes": one.shapes,
            }
            for one in bars
        ],
    }


def share_of(judged: Judged, name: str) -> float:
    """Return the work that a candidate did in time, as a share of the offered work."""
    window_us, found = judged.window_us, judged.outcomes[name]
    offered = total(found.offered_us, *window_us)
    return useful(judged.shape, found, window_us) / offered if offered else 1.0


def _hangs_up(shape: ZooShape) -> bool:
    return any(kind.tells == HANGUP and kind.patience_us for kind in shape.traffic)


def _row(one: Judged) -> tuple[str, ...]:
    best = one.best()[0]
    ours, window_us = one.product, one.window_us
    oracle = one.outcomes.get(ORACLE)
    missed = [f"{finding.bar} {_number(finding.value)}" for finding in one.missed()]
    has_critical = CRITICAL in ours.offered
    return (
        key_of(one.shape),
        one.mode,
        f"{share_of(one, one.mode):.3f}",
        f"{share_of(one, best):.3f}" if best else "-",
        best,
        "-" if oracle is None else f"{share_of(one, ORACLE):.3f}",
        f"{ours.share(CRITICAL, *window_us):.3f}" if has_critical else "-",
        f"{oracle.share(CRITICAL, *window_us):.3f}" if has_critical and oracle else "-",
        f"{ours.p99_us / 1_000:.0f}",
        f"{ours.refusal_late_us / 1_000:.0f}",
        "MISSED: " + "; ".join(missed) if missed else "met",
    )


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"


def _bar(one: BarFinding) -> dict[str, Any]:
    return {
        "bar": one.bar,
        "value": _finite(one.value),
        "target": _finite(one.target),
        "met": one.met,
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
