"""The report of a what-if: all figures as values for JSON, in a fixed order, and the sentence.

The same capture, rules, flags and seed make the same report to the byte: there is no instant of now
in it, nothing in the order of a set. The text and the page are rendered from it. `version` is that
of its format; a reader ignores fields that it does not know.

Waits are of callers that the rules let in and no policy turned away: until the answer, or until
they gave up. So under a collapse the p99 is the patience of callers, and not that of the lucky few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

from sluicegate.lab.what_if.outcomes import (
    ENDS,
    GAVE_UP,
    GOOD,
    REFUSED,
    SLICES,
    TURNED_AWAY,
    OutcomeCounts,
    WaitHistogram,
)
from sluicegate.lab.what_if.plan import CLASSES, WhatIfPlan
from sluicegate.lab.what_if.runs import RulebookResult
from sluicegate.lab.what_if.text import summary_sentence
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.shadow.report.report import digest_of
from sluicegate.shadow.traffic import ALL

Report: TypeAlias = Mapping[str, Any]

FORMAT: Final = "sluicegate what-if"
VERSION: Final = 1
RULES_SHOWN: Final = 10
_DIGITS: Final = 6
_ENDS: Final = (
    ("answered_in_time", GOOD),
    ("gave_up", GAVE_UP),
    ("turned_away", TURNED_AWAY),
    ("refused", REFUSED),
)


def build_report(
    plan: WhatIfPlan,
    traffic: Traffic,
    results: Sequence[RulebookResult],
    *,
    front: str,
    service: str,
    retries: str,
    classes_by: str,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Build the report of these results."""
    books = [_book(one, plan, traffic) for one in results]
    return {
        "format": FORMAT,
        "version": VERSION,
        "sentence": summary_sentence(books),
        "settings": {
            "capacity_units_per_s": _round(plan.backend.capacity),
            "capacity_chosen": plan.backend.chosen,
            "workers": plan.backend.workers,
            "unit_us": {
                one.name: _round(us) for one, us in zip(CLASSES, plan.backend.unit_us, strict=True)
            },
            "service": service,
            "timeout_us": plan.timeout_us,
            "retries": retries,
            "with": front,
            "queue_max": plan.queue_max,
            "speed": _round(plan.speed),
            "seed": plan.seed,
            "classes_by": classes_by,
        },
        "capture": _capture(plan, traffic),
        "rulebooks": books,
        "timeline": {
            "slices": SLICES,
            "span_us": traffic.span_us,
            "rulebooks": [_timeline(one.counts) for one in results],
        },
        "notes": [*_notes(plan, traffic, results), *notes],
    }


def _capture(plan: WhatIfPlan, traffic: Traffic) -> dict[str, Any]:
    captured = traffic.captured
    return {
        "digest": digest_of(captured),
        "requests": len(captured),
        "queries": len(captured.queries),
        "entities": len({*captured.entities}),
        "began_us": traffic.began_us,
        "span_us": traffic.span_us,
        "share": captured.share / ALL,
        "lost": captured.lost,
        "out_of_order": traffic.out_of_order,
        "units_per_s": _round(traffic.units_per_s()),
        "load": _round(traffic.load(plan.backend)),
    }


def _book(results: RulebookResult, plan: WhatIfPlan, traffic: Traffic) -> dict[str, Any]:
    counts, rules = results.counts, results.book.rules
    digest = sha256()
    for name, data in rules.files.items():
        digest.update(f"{name}\0{sha256(data).hexdigest()}\n".encode("utf-8", "surrogateescape"))
    worst = sorted(counts.by_rule.items(), key=lambda one: (-one[1], one[0]))
    return {
        "name": results.book.name,
        "digest": digest.hexdigest(),
        "rules": len(rules.book),
        **_figures([counts.total(how) for how in range(ENDS)], counts.all_waits(), traffic.span_us),
        "attempts": counts.attempts,
        "unasked": counts.unasked,
        "reclassified": results.reclassified,
        "utilization": _round(counts.utilization()),
        "useful": _round(counts.useful()),
        "queue_peak": counts.queue_peak,
        "classes": [
            {
                "class": one.name,
                **_figures(
                    counts.ended[one * ENDS : (one + 1) * ENDS], counts.waits[one], traffic.span_us
                ),
            }
            for one in CLASSES
        ],
        "refused_by": [
            {"rule_id": rule_id, "attempts": count} for rule_id, count in worst[:RULES_SHOWN]
        ],
    }


def _figures(ended: Sequence[int], waits: WaitHistogram, span_us: int) -> dict[str, Any]:
    """Of a class, or of all: how requests ended, how many a second, and how long they waited."""
    offered, good = sum(ended), ended[GOOD]
    return {
        "offered": offered,
        "admitted": offered - ended[REFUSED],
        **{name: ended[how] for name, how in _ENDS},
        "offered_per_s": _round(offered * 1e6 / span_us),
        "goodput_per_s": _round(good * 1e6 / span_us),
        "in_time_share": _round(good / offered) if offered else None,
        "wait_p50_us": waits.quantile(0.5),
        "wait_p99_us": waits.quantile(0.99),
    }


def _timeline(counts: OutcomeCounts) -> dict[str, Any]:
    """By slice of time: what came and was answered in time, by class; the queue, and the waits."""
    classes: dict[str, Any] = {}
    for one in CLASSES:
        columns: dict[str, list[int]] = {name: [] for name, _ in _ENDS}
        for at in range(SLICES):
            begin = (at * len(CLASSES) + one) * ENDS
            for name, how in _ENDS:
                columns[name].append(counts.slice_ended[begin + how])
        classes[one.name] = columns
    return {
        "classes": classes,
        "queue_peak": list(counts.queue_peaks),
        "wait_p99_us": [waits.quantile(0.99) for waits in counts.slice_waits],
    }


def _notes(plan: WhatIfPlan, traffic: Traffic, results: Sequence[RulebookResult]) -> list[str]:
    """What a reader must know of these figures, in sentences."""
    captured = traffic.captured
    begin = (
        "Every rulebook begins without history: no limit has counted anything yet, and nobody "
        "waits. All of them met the same requests, with the same work."
    )
    notes = [begin]
    if all(one.book.rules.empty for one in results):
        notes.append(
            "No rulebook says who may claim to be CRITICAL, so nobody is. Give one with --rules."
        )
    if plan.backend.chosen:
        notes.append(
            "Nobody has said what can be served; it was chosen so that all that comes is a load of "
            "four fifths. Say --capacity."
        )
    if captured.share < ALL:
        notes.append(
            f"{captured.share / ALL:.2%} of entities were captured, each with all of its requests; "
            "the capacity here is the same share of what was said. Rules that count several "
            "entities together have counted a part of their traffic, and refuse more in truth."
        )
    if captured.lost:
        notes.append(f"{captured.lost:,} requests were lost, or beyond a bound; they are not here.")
    if traffic.out_of_order:
        notes.append(
            f"{traffic.out_of_order:,} requests came out of order; they came at the latest "
            "instant before them."
        )
    for one in results:
        if one.counts.unasked:
            notes.append(
                f"{one.book.name}: {one.counts.unasked:,} requests could not be asked, and count "
                "nowhere."
            )
        if one.reclassified:
            notes.append(
                f"{one.book.name} gives {one.reclassified:,} requests another class than they are "
                "counted in."
            )
    return notes


def _round(value: float) -> float:
    return round(value, _DIGITS)
