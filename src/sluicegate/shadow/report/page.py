"""Shadow report as a page: one HTML file that needs nothing else (see `command_line/page.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sluicegate.command_line.charts import BarSegment, Curve, bar_chart, line_chart
from sluicegate.command_line.page import (
    cell,
    color_key,
    escape_name,
    escape_words,
    notes,
    number,
    quiet,
    render_page,
    row,
    section,
    table,
)
from sluicegate.command_line.text import clip, count, counted, duration, percent
from sluicegate.contracts.rulebook import FAILED, PASSED
from sluicegate.shadow.report.report import describe_basis, has_figures, why_no_figures

_STYLE: Final = """
:root { --candidate: #0b62ad; --current: #7d858f; --newly: #cf4a1c; --already: #c3c9d0;
  --admitted: #1a7f4b; --rest: #e4e7eb; --warn: #8a6a00; }
@media (prefers-color-scheme: dark) { :root { --candidate: #5aa9ee; --current: #98a1ab;
  --newly: #f0835a; --already: #59626c; --admitted: #56c98d; --rest: #2c3238; --warn: #d9b44a; } }
.verdict { border-color: var(--warn); }
.verdict b { color: var(--warn); display: block; font-size: 20px; letter-spacing: 0.02em; }
.verdict.passed { border-color: var(--admitted); }
.verdict.passed b { color: var(--admitted); }
.verdict.failed { border-color: var(--newly); }
.verdict.failed b { color: var(--newly); }
td.bad { color: var(--newly); font-weight: 600; }
.limits { color: var(--muted); display: block; font-size: 12.5px; }
.tag { background: var(--soft); border-radius: 4px; color: var(--muted); font-size: 12px;
  margin-left: 6px; padding: 1px 6px; white-space: nowrap; }
svg { max-width: 860px; }
nav { margin: 0 auto; max-width: 1060px; padding: 16px 24px 0; }
a { color: var(--candidate); }
.bound { stroke: var(--newly); stroke-dasharray: 4 4; stroke-width: 1; }
.line.candidate { stroke: var(--candidate); stroke-width: 2.6; }
.line.current { stroke: var(--current); }
.line.newly { stroke: var(--newly); }
svg text.candidate, .dot.candidate, .fill.candidate { fill: var(--candidate); }
svg text.current, .dot.current { fill: var(--current); }
svg text.newly, .dot.newly, .fill.newly { fill: var(--newly); }
.fill.already { fill: var(--already); }
.fill.admitted { fill: var(--admitted); }
.fill.rest { fill: var(--rest); }
"""

_KEY: Final = (
    ("rest", "admitted by both"),
    ("admitted", "newly admitted"),
    ("already", "refused already"),
    ("newly", "newly refused"),
)


def page_of(report: Mapping[str, Any], head: str = "") -> str:
    """The page of a report, as JSON holds it; `head` is HTML that stands above it."""
    return render_page("Sluicegate shadow report", _sections(report), _STYLE, head=head)


def _sections(report: Mapping[str, Any]) -> Iterator[str]:
    if not has_figures(report):
        yield f"<h1>Shadow report</h1><p>{escape_words(why_no_figures(report))}</p>"
        return
    yield from _head(report)
    yield from _over_time(report)
    yield _by_class(report["classes"])
    yield section("Who is newly refused", *_pinned(report["pinned"]), _examples(report["examples"]))
    yield _by_rule(report)
    yield _basis(report)
    yield section("To know", notes(report["notes"]))


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    verdict, capture, rules = report["verdict"], report["capture"], report["rulebooks"]
    kind = {PASSED: " passed", FAILED: " failed"}.get(verdict["result"], "")
    yield "<h1>Shadow report</h1>"
    yield (
        f'<div class="callout verdict{kind}"><b>{escape_name(verdict["result"]).upper()}</b>'
        f"<p>{escape_words(verdict['sentence'])}</p></div>"
    )
    yield quiet(
        f"{counted(capture['requests'], 'request')}, "
        f"{count(capture['asks'])} different, of "
        f"{counted(capture['entities'], 'entity', 'entities')}, in "
        f"{duration(capture['span_us'])}. Capture {escape_name(capture['digest'][:12])}; current "
        f"rules {_rules(rules['current'])}; candidate {_rules(rules['candidate'])}. "
        "The same capture and rules make the same report to the byte."
    )


def _rules(rules: Mapping[str, Any]) -> str:
    return f"{escape_name(rules['digest'][:12])} ({count(rules['rules'])} rules)"


def _over_time(report: Mapping[str, Any]) -> Iterator[str]:
    timeline, critical = report["timeline"], report["timeline"]["classes"]["CRITICAL"]
    if not sum(critical["requests"]):
        return
    curves = [
        Curve("current", "current", _shares(critical, "refused_by_current")),
        Curve("candidate", "candidate", _shares(critical, "refused_by_candidate")),
        Curve("newly refused", "newly", _shares(critical, "newly_refused")),
    ]
    yield section(
        "CRITICAL over time",
        quiet(
            "The share of CRITICAL requests that is refused, in each of "
            f"{count(timeline['slices'])} slices of the capture."
        ),
        line_chart(
            "Share of CRITICAL requests refused over time",
            curves,
            duration(timeline["span_us"]),
            _share,
            bound=report["settings"]["refused_max"],
        ),
    )


def _shares(columns: Mapping[str, Sequence[int]], name: str) -> list[float | None]:
    pairs = zip(columns[name], columns["requests"], strict=True)
    return [part / whole if whole else None for part, whole in pairs]


def _share(value: float) -> str:
    return f"{value * 100:.4g}%"


def _by_class(classes: Sequence[Mapping[str, Any]]) -> str:
    numbers = (
        "requests",
        "refused by current",
        "by candidate",
        "refused already",
        "newly refused",
        "of all",
        "with history",
        "newly admitted",
    )
    rows = [
        row(
            cell(escape_name(one["class"])),
            _number(one, "requests"),
            _number(one, "refused_by_current"),
            _number(one, "refused_by_candidate"),
            _number(one, "refused_already"),
            _number(one, "newly_refused", bad=True),
            number(percent(one["newly_refused_share"])),
            number(percent(one["later_newly_refused_share"])),
            _number(one, "newly_admitted"),
        )
        for one in classes
    ]
    return section(
        "By class",
        bar_chart(
            "What becomes of requests, by class",
            [(clip(one["class"]), _segments(one)) for one in classes if one["requests"]],
        ),
        color_key(_KEY),
        table([""], numbers, rows),
    )


def _segments(one: Mapping[str, Any]) -> list[BarSegment]:
    values = {
        "admitted": one["newly_admitted"],
        "already": one["refused_already"],
        "newly": one["newly_refused"],
    }
    values["rest"] = one["requests"] - sum(values.values())
    return [BarSegment(words, kind, values[kind]) for kind, words in _KEY]


def _pinned(pinned: Mapping[str, Any]) -> Iterator[str]:
    if not pinned["callers"]:
        return
    refused = pinned["newly_refused"]
    words = f"{count(pinned['seen'])} of {count(pinned['callers'])} pinned callers were seen"
    yield f"<p>{words}; {'newly refused are:' if refused else 'none is newly refused.'}</p>"
    if refused:
        rows = [
            row(
                _name(one["caller"]),
                _number(one, "newly_refused", bad=True),
                _number(one, "requests"),
            )
            for one in refused
        ]
        yield table(["pinned caller"], ["newly refused", "of requests"], rows)


def _examples(examples: Sequence[Mapping[str, Any]]) -> str:
    if not examples:
        return "<p>Nobody.</p>"
    rows = [
        row(
            _name(one["entity"]),
            _name(one["asked"]),
            cell(escape_name(one["class"])),
            _name(one["rule_id"]),
            _number(one, "newly_refused", bad=True),
            _number(one, "requests"),
            number(duration(one["first_after_us"])),
        )
        for one in examples
    ]
    names = ("who", "asks for", "class", "by rule")
    return table(names, ("newly refused", "of requests", "first after"), rows)


def _by_rule(report: Mapping[str, Any]) -> str:
    changes = report["changes"]
    words = ", ".join(f"{count(changes[name]['count'])} {escape_name(name)}" for name in changes)
    numbers = (
        "requests",
        "refused by current",
        "by candidate",
        "newly refused",
        "newly admitted",
        "tried out",
    )
    rows = [
        row(
            cell(f"{escape_name(one['rule_id'])}{_tags(one)}{_limits(one)}", "name"),
            _number(one, "requests"),
            _number(one, "refused_by_current"),
            _number(one, "refused_by_candidate"),
            _number(one, "newly_refused", bad=True),
            _number(one, "newly_admitted"),
            number(count(one["tried_by_candidate"]) if one["tried_by_candidate"] else ""),
        )
        for one in report["rules"]
    ]
    left_out = report["rules_left_out"]
    return section(
        "By rule",
        quiet(f"Rules: {words}."),
        table(["rule"], numbers, rows),
        quiet(f"and {count(left_out)} more") if left_out else "",
    )


def _tags(one: Mapping[str, Any]) -> str:
    tags = [] if one["change"] == "same" else [one["change"]]
    if one["counts_together"]:
        tags.append("counts several together")
    return "".join(f'<span class="tag">{escape_name(tag)}</span>' for tag in tags)


def _limits(one: Mapping[str, Any]) -> str:
    if one["change"] == "changed":
        words = f"{escape_name(one['current'])} &rarr; {escape_name(one['candidate'])}"
    else:
        words = escape_name(one["candidate"] or one["current"])
    return f'<span class="limits">{words}</span>'


def _basis(report: Mapping[str, Any]) -> str:
    agreed = report["agreement"]
    rows = [
        row(cell(escape_name(one["name"])), cell(escape_words(one["words"])))
        for one in report["confidence"]["parts"]
    ]
    agreement = quiet(
        f"Of {count(agreed['known'])} known answers the current rules "
        f"admit {count(agreed['admitted_both'])} and refuse {count(agreed['refused_both'])} "
        f"as the service did; {count(agreed['only_answered'])} were refused then and are "
        f"admitted here, {count(agreed['only_replayed'])} the other way round."
    )
    return section(
        "What this rests on",
        quiet(escape_words(describe_basis(report))),
        table((), (), rows),
        agreement if agreed["known"] else "",
    )


def _name(text: str) -> str:
    return cell(escape_name(text), "name")


def _number(one: Mapping[str, Any], field: str, *, bad: bool = False) -> str:
    return number(count(one[field]), bad=bad and bool(one[field]))
