"""Confidence: how far a replay speaks for a candidate, from 0 to 1, in five parts that say why.

    score = critical x agreement x coverage x completeness x length

    critical      1 - high / (2 x refused_max), at least 0. `high` is the upper end of the 95%
                  Wilson interval of the CRITICAL share that is newly refused: it falls with every
                  request that is newly refused, and rises with the number of requests looked at.
                  A share at the bound is worth one half, one at twice the bound nothing.
    agreement     (agreeing + 1) / (known + 2), of the requests of which it is known what the
                  service answered: those where the current rules decide the same in the replay.
                  One half where nothing is known.
    coverage      of the candidate's rules that are new or changed, the share that saw a request;
                  1 where none is.
    completeness  kept / (kept + lost), times 1 - undercounted x (1 - captured): `captured` is the
                  share of entities in the capture, `undercounted` the share of requests that met a
                  rule which counts several entities together, and so counts too little here.
    length        span / (2 x history), at most 1: how long the capture is against twice the
                  longest time that a rule which saw requests looks back.

Each is a number that follows from counts alone. A low score does not reject: it says how much the
verdict is worth, and the parts say what would make it worth more. What no part can know stands in
the guide.

Wilson, E. B. (1927): Probable inference, the law of succession, and statistical inference.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

from sluicegate.shadow.analysis import ADDED, CHANGED, Analysis
from sluicegate.shadow.traffic import ALL

Z: Final = 1.959963984540054  # 95%, both sides
REFUSED_LEAST: Final = 0.001  # below this bound the interval alone would say zero
FORMULA: Final = "critical x agreement x coverage x completeness x length"


class ConfidenceFactor(NamedTuple):
    """One factor, and the figures behind it in words."""

    name: str
    value: float
    words: str


class Confidence(NamedTuple):
    """The score and its parts."""

    score: float
    parts: tuple[ConfidenceFactor, ...]


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the interval of a share that was observed as `part` of `whole`."""
    if whole == 0:
        return 0.0, 1.0
    share, square = part / whole, Z * Z
    middle = share + square / (2 * whole)
    spread = Z * sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    below = 1 + square / whole
    return max(0.0, (middle - spread) / below), min(1.0, (middle + spread) / below)


def critical(newly: int, requests: int, refused_max: float) -> float:
    """How surely the newly refused share of CRITICAL is below its bound."""
    _, high = wilson(newly, requests)
    return max(0.0, 1.0 - high / (2 * max(refused_max, REFUSED_LEAST)))


def agreement(agreeing: int, total: int) -> float:
    """How well the replay repeats what the service decided."""
    return (agreeing + 1) / (total + 2)


def coverage(exercised: int, changed: int) -> float:
    """How much of the change was tried at all."""
    return exercised / changed if changed else 1.0


def completeness(kept: int, lost: int, undercounted: int, share: int) -> float:
    """How much of the traffic is here, and counted in full."""
    if kept == 0:
        return 0.0
    return kept / (kept + lost) * (1 - undercounted / kept * (1 - share / ALL))


def length(span_us: int, history_us: int) -> float:
    """How long the capture is for what its rules look back at."""
    return 1.0 if history_us == 0 else min(1.0, span_us / (2 * history_us))


def confidence_of(
    analysis: Analysis, *, newly: int, requests: int, refused_max: float
) -> Confidence:
    """The score of a replay; `newly` of so many CRITICAL requests is what the gate judged."""
    traffic, agreed = analysis.result.traffic, analysis.agreement
    agreeing = agreed.admitted_both + agreed.refused_both
    changed = [*analysis.changes[ADDED], *analysis.changes[CHANGED]]
    exercised = {(row.kind, row.rule_id) for row in analysis.rows if row.requests}
    count = sum(name in exercised for name in changed)
    low, high = wilson(newly, requests)
    parts = (
        ConfidenceFactor(
            "critical",
            critical(newly, requests, refused_max),
            f"{newly:,} of {requests:,} CRITICAL requests newly refused, "
            f"between {low:.3%} and {high:.3%} with 95%",
        ),
        ConfidenceFactor(
            "agreement",
            agreement(agreeing, agreed.known),
            f"the current rules repeat {agreeing:,} of {agreed.known:,} answers that are known",
        ),
        ConfidenceFactor(
            "coverage",
            coverage(count, len(changed)),
            f"{count:,} of {len(changed):,} rules that are new or changed saw a request",
        ),
        ConfidenceFactor(
            "completeness",
            completeness(analysis.requests, traffic.lost, analysis.undercounted, traffic.share),
            f"{traffic.lost:,} requests lost, {traffic.share / ALL:.2%} of entities captured, "
            f"{analysis.undercounted:,} requests under rules that count entities together",
        ),
        ConfidenceFactor(
            "length",
            length(analysis.span_us, analysis.history_us),
            f"{analysis.span_us / 1e6:,.1f} s captured, rules look back "
            f"{analysis.history_us / 1e6:,.1f} s",
        ),
    )
    score = 1.0
    for part in parts:
        score *= part.value
    return Confidence(score, parts)
