"""Report: all figures of a verdict as what JSON can hold, in a fixed order.

The same capture and rules make the same report to the byte: there is no instant of now in it, no
path of this machine, nothing in the order of a set. The text and the page are made from it, so a
report that was kept can be shown again.

`version` is of this form. A newer one is refused by what shows it; fields it does not know in a
version that it does know, it passes over.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, Final, TypeAlias

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.analysis import Analysis, Example, RefusalCounts, RuleRow
from sluicegate.shadow.confidence import FORMULA, Confidence
from sluicegate.shadow.pair import SLICE_CELLS, SLICES
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.traffic import ALL, CapturedTraffic
from sluicegate.shadow.workers import plain
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = "sluicegate shadow report"
VERSION: Final = 1
# A report is kept beside its proposal. Names may be long, so where it would be larger than this it
# has fewer rules, changes and callers, the most important ones.
BYTES_MAX: Final = 200 << 10
ROWS_MAX: Final = (200, 50, 10, 3)
NOTES_MAX: Final = 20  # of others than ours
CHARS_MAX: Final = 200  # of a name that came with the traffic
_DIGITS: Final = 6  # of shares and scores
_COUNTS: Final = (
    "requests",
    "refused_by_current",
    "refused_by_candidate",
    "refused_already",
    "newly_refused",
    "newly_admitted",
)
_RULE_COUNTS: Final = (
    "counts_together",
    "requests",
    "refused_by_current",
    "refused_by_candidate",
    "newly_refused",
    "newly_admitted",
    "tried_by_current",
    "tried_by_candidate",
)

Report: TypeAlias = Mapping[str, object]


def report_of(
    analysis: Analysis,
    confidence: Confidence,
    *,
    result: str,
    sentence: str,
    refused_max: float,
    samples_min: int,
    trials_enforced: bool,
    notes: Iterable[str] = (),
) -> dict[str, object]:
    """The report of a replay that was judged; the largest that is within `BYTES_MAX`."""
    digest = digest_of(analysis.result.traffic)
    others = [*islice(notes, NOTES_MAX)]
    for rows_max in ROWS_MAX:
        report = _report(
            analysis,
            confidence,
            {"result": result, "sentence": sentence, "confidence": _rounded(confidence.score)},
            {
                "refused_max": refused_max,
                "samples_min": samples_min,
                "trials_enforced": trials_enforced,
            },
            digest,
            others,
            rows_max,
        )
        if len(json.dumps(report)) <= BYTES_MAX:
            break
    return report


def _report(
    analysis: Analysis,
    confidence: Confidence,
    verdict: Report,
    settings: Report,
    digest: str,
    notes: Iterable[str],
    rows_max: int,
) -> dict[str, object]:
    result = analysis.result
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": verdict,
        "settings": settings,
        "capture": _capture(analysis, digest),
        "rulebooks": {
            "current": _rulebook(result.current),
            "candidate": _rulebook(result.candidate),
        },
        "critical": {
            **_counts(analysis.critical),
            "by_candidates_classes": _counts(analysis.critical_there),
            "reclassified": analysis.reclassified,
        },
        "classes": [
            {"class": one.name, **_counts(counts)} for one, counts in analysis.classes.items()
        ],
        "pinned": _pinned(analysis, rows_max),
        "rules": [_rule(row) for row in analysis.rows[:rows_max]],
        "rules_left_out": max(0, len(analysis.rows) - rows_max),
        "changes": {
            change: {
                "count": len(names),
                "rules": [{"format": kind, "rule_id": name} for kind, name in names[:rows_max]],
            }
            for change, names in analysis.changes.items()
        },
        "examples": [_example(example) for example in analysis.examples[:rows_max]],
        "agreement": dict(analysis.agreement._asdict()),
        "confidence": {
            "score": _rounded(confidence.score),
            "formula": FORMULA,
            "parts": [
                {"name": part.name, "value": _rounded(part.value), "words": part.words}
                for part in confidence.parts
            ],
        },
        "timeline": _timeline(analysis),
        "notes": [*notes_of(analysis), *map(_shorten, notes)],
    }


def as_json(report: Report) -> str:
    """The report as a file: the same text for the same report, nothing but ASCII."""
    return json.dumps(report, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def has_figures(report: Mapping[str, object]) -> bool:
    """Whether it has figures: a verdict may come without, or its report was cut."""
    return "capture" in report


def describe_basis(report: Mapping[str, Any]) -> str:
    """How many of the requests the change decides otherwise: all that the verdict rests on."""
    classes = report["classes"]
    total, refused, admitted = (
        sum(one[name] for one in classes)
        for name in ("requests", "newly_refused", "newly_admitted")
    )
    if not refused + admitted:
        return f"none of {total:,} requests is decided otherwise"
    decide = "decides" if refused + admitted == 1 else "decide"
    return (
        f"{refused + admitted:,} of {total:,} requests {decide} this "
        f"({refused:,} newly refused, {admitted:,} newly admitted)"
    )


def describe_newly_refused(classes: Iterable[Mapping[str, Any]]) -> str:
    """The newly refused requests of each class, in words; `classes` as a proposal shows them."""
    words = [
        f"{one['class']} {one['newly_refused']:,} of {one['requests']:,}"
        + (f" ({one['share']:.2%})" if one["share"] else "")
        for one in classes
    ]
    return ", ".join(words) or "unknown, since no traffic was replayed"


def why_no_figures(report: Mapping[str, object]) -> str:
    """Why there are no figures."""
    return str(report.get("cut") or "There are no figures, for nothing was replayed.")


def read_report(text: str) -> dict[str, object]:
    """A report that was kept; `BadValue` where it is none, or is newer than this program."""
    try:
        report = parse_object(text)
    except BadValue:
        report = {}
    if report.get("format") != FORMAT:
        raise BadValue("report", text[:40], "give the JSON of a shadow report")
    version = report.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        remedy = f"this program knows up to version {VERSION}; upgrade it to show this report"
        raise BadValue("report.version", version, remedy)
    return report


def digest_of(traffic: CapturedTraffic) -> str:
    """The digest of a capture: queries, instants and outcomes."""
    digest = sha256()
    head = [traffic.share, traffic.lost, len(traffic), len(traffic.queries)]
    digest.update(json.dumps(head).encode())
    for query, entity in zip(traffic.queries, traffic.entities, strict=True):
        digest.update(json.dumps([plain(query), entity], sort_keys=True).encode())
    for column in (traffic.at_us, traffic.which, traffic.outcomes):
        digest.update(_little(column))
    return digest.hexdigest()


def notes_of(analysis: Analysis) -> list[str]:
    """What a reader must know of these figures, in sentences."""
    result, traffic = analysis.result, analysis.result.traffic
    early = sum(one.early for one in analysis.classes.values())
    first = (
        "A replay begins without history: no limit has counted anything yet, in either book. "
        f"{early:,} requests came before their limits could look back as far as they do; they "
        "are counted apart as early."
    )
    notes = [first]
    if traffic.share < ALL:
        notes.append(
            f"{traffic.share / ALL:.2%} of entities were captured, each with all of its requests."
        )
        if analysis.undercounted:
            notes.append(
                f"{analysis.undercounted:,} requests met rules that count several entities "
                "together. These counted a part of their traffic only, and refuse more in truth."
            )
    if traffic.lost:
        notes.append(f"{traffic.lost:,} requests were lost while capturing.")
    if result.out_of_order:
        notes.append(
            f"{result.out_of_order:,} requests came out of order; they were replayed at the "
            "latest instant before them."
        )
    if result.pair.invalid:
        notes.append(f"{result.pair.invalid:,} requests could not be asked, and count nowhere.")
    if analysis.by_candidate:
        notes.append("There are no current rules; classes are those of the candidate.")
    elif analysis.reclassified:
        notes.append(
            f"The candidate gives {analysis.reclassified:,} requests another class. Classes here "
            "are those of the current rules; the CRITICAL share is judged both ways."
        )
    unseen = sum(pin.requests == 0 for pin in analysis.pinned)
    if unseen:
        notes.append(
            f"{unseen:,} of {len(analysis.pinned):,} pinned callers have no request in the "
            "capture; nothing is known of them."
        )
    return notes


def _pinned(analysis: Analysis, rows_max: int) -> dict[str, object]:
    hurt = [pin for pin in analysis.pinned if pin.newly_refused]
    return {
        "callers": len(analysis.pinned),
        "seen": sum(pin.requests > 0 for pin in analysis.pinned),
        "hurt": len(hurt),
        "newly_refused": [
            {
                "caller": _shorten(pin.name),
                "requests": pin.requests,
                "newly_refused": pin.newly_refused,
            }
            for pin in hurt[:rows_max]
        ],
    }


def _capture(analysis: Analysis, digest: str) -> dict[str, object]:
    result, traffic = analysis.result, analysis.result.traffic
    return {
        "digest": digest,
        "requests": len(traffic),
        "asks": len(traffic.queries),
        "entities": len({*traffic.entities}),
        "began_us": result.began_us,
        "span_us": analysis.span_us,
        "history_us": analysis.history_us,
        "share": traffic.share / ALL,
        "lost": traffic.lost,
        "out_of_order": result.out_of_order,
        "unasked": result.pair.invalid,
        "undercounted": analysis.undercounted,
    }


def _rulebook(rules: ReplayRules) -> dict[str, object]:
    digest = sha256()
    for name, data in rules.files.items():
        digest.update(f"{name}\0{sha256(data).hexdigest()}\n".encode("utf-8", "surrogateescape"))
    return {"digest": digest.hexdigest(), "files": len(rules.files), "rules": len(rules.book)}


def _counts(counts: RefusalCounts) -> dict[str, object]:
    return {
        **{name: getattr(counts, name) for name in _COUNTS},
        "newly_refused_share": _share(counts.newly_refused, counts.requests),
        "early": counts.early,
        "later_newly_refused": counts.later_newly_refused,
        "later_newly_refused_share": _share(counts.later_newly_refused, counts.later),
    }


def _rule(row: RuleRow) -> dict[str, object]:
    return {
        "rule_id": row.rule_id,
        "format": row.kind,
        "change": row.change,
        "current": _shorten(row.current),
        "candidate": _shorten(row.candidate),
        **{name: getattr(row, name) for name in _RULE_COUNTS},
        "examples": [_example(example) for example in row.examples],
    }


def _example(example: Example) -> dict[str, object]:
    return {
        "entity": _shorten(example.entity),
        "asked": _shorten(example.asked),
        "class": example.criticality.name,
        "rule_id": example.rule[1],
        "newly_refused": example.times,
        "requests": example.requests,
        "first_after_us": example.first_us,
    }


def _timeline(analysis: Analysis) -> dict[str, object]:
    """For each class and slice of time: requests, and how many of them each rule set refused."""
    cells = analysis.result.pair.slices
    classes: dict[str, object] = {}
    for one in Criticality:
        columns: dict[str, list[int]] = {
            "requests": [],
            "refused_by_current": [],
            "refused_by_candidate": [],
            "newly_refused": [],
        }
        for at in range(SLICES):
            begin = at * SLICE_CELLS + 4 * one
            neither, newly, newly_admitted, both = cells[begin : begin + 4]
            columns["requests"].append(neither + newly + newly_admitted + both)
            columns["refused_by_current"].append(newly_admitted + both)
            columns["refused_by_candidate"].append(newly + both)
            columns["newly_refused"].append(newly)
        classes[one.name] = columns
    return {"slices": SLICES, "span_us": analysis.span_us, "classes": classes}


def _shorten(text: str) -> str:
    return text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 3]}..."


def _share(part: int, whole: int) -> float | None:
    return _rounded(part / whole) if whole else None


def _rounded(value: float) -> float:
    return round(value, _DIGITS)


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
