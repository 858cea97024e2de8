"""Report, its page: one HTML file that needs nothing else.

Pictures stand in it as SVG in the colours of the page, which turns dark where its reader's screen
is. There is no script and no address in it, and a policy in its head forbids all but its own style
sheet, which it knows by its digest; so whatever a name from the traffic says, it stays a name.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

from sluicegate.contracts.rulebook import FAILED, PASSED
from sluicegate.shadow.charts import Line, Segment, bars, gauges, lines
from sluicegate.shadow.report.words import (
    count,
    duration,
    is_whole,
    percent,
    shown,
    things,
    why_none,
)

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2024; --muted: #6a727d;
  --grid: #e4e7eb; --soft: #f5f6f8; --candidate: #0b62ad; --current: #7d858f; --newly: #cf4a1c;
  --already: #c3c9d0; --admitted: #1a7f4b; --rest: #e4e7eb; --warn: #8a6a00;
  --font: system-ui, -apple-system, "Segoe UI", sans-serif; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e6e8ea; --muted: #98a1ab;
  --grid: #2c3238; --soft: #1d2126; --candidate: #5aa9ee; --current: #98a1ab; --newly: #f0835a;
  --already: #59626c; --admitted: #56c98d; --rest: #2c3238; --warn: #d9b44a; } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 var(--font); margin: 0; }
main { margin: 0 auto; max-width: 1060px; padding: 32px 24px 64px; }
h1 { font-size: 26px; letter-spacing: -0.01em; margin: 0 0 8px; }
h2 { font-size: 19px; letter-spacing: -0.01em; margin: 0 0 4px; }
p { margin: 4px 0; max-width: 78ch; overflow-wrap: anywhere; }
.quiet { color: var(--muted); font-size: 13.5px; }
.verdict { border-left: 5px solid var(--warn); background: var(--soft); border-radius: 0 6px 6px 0;
  margin: 0 0 16px; padding: 12px 16px; }
.verdict b { color: var(--warn); display: block; font-size: 20px; letter-spacing: 0.02em; }
.verdict.passed { border-color: var(--admitted); }
.verdict.passed b { color: var(--admitted); }
.verdict.failed { border-color: var(--newly); }
.verdict.failed b { color: var(--newly); }
section { border-top: 1px solid var(--grid); margin-top: 32px; padding-top: 20px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums;
  margin: 12px 0; }
.scroll { overflow-x: auto; }
th { color: var(--muted); font-weight: 500; text-align: left; vertical-align: bottom; }
th, td { border-bottom: 1px solid var(--grid); padding: 4px 18px 4px 0; vertical-align: top; }
td.figure, th.figure { text-align: right; white-space: nowrap; }
td.name { max-width: 320px; overflow-wrap: anywhere; }
td.bad { color: var(--newly); font-weight: 600; }
.says { color: var(--muted); display: block; font-size: 12.5px; }
.tag { background: var(--soft); border-radius: 4px; color: var(--muted); font-size: 12px;
  margin-left: 6px; padding: 1px 6px; white-space: nowrap; }
svg { display: block; height: auto; margin-top: 8px; max-width: 860px; width: 100%; }
svg text { fill: var(--ink); font: 12px var(--font); }
svg text.axis { fill: var(--muted); }
svg text.end { text-anchor: end; }
.grid { stroke: var(--grid); stroke-width: 1; }
.bound { stroke: var(--newly); stroke-dasharray: 4 4; stroke-width: 1; }
.line { fill: none; stroke-linejoin: round; stroke-width: 2; }
.line.candidate { stroke: var(--candidate); stroke-width: 2.6; }
.line.current { stroke: var(--current); }
.line.newly { stroke: var(--newly); }
svg text.candidate, .dot.candidate, .fill.candidate { fill: var(--candidate); }
svg text.current, .dot.current { fill: var(--current); }
svg text.newly, .dot.newly, .fill.newly { fill: var(--newly); }
.fill.already { fill: var(--already); }
.fill.admitted { fill: var(--admitted); }
.fill.rest { fill: var(--rest); }
.fill.empty { fill: var(--soft); }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; margin: 8px 0 0;
  padding: 0; list-style: none; }
.key svg { display: inline-block; height: 11px; margin: 0 6px 0 0; width: 11px; }
ul.notes { margin: 8px 0; max-width: 78ch; padding-left: 18px; }
@media print { section { break-inside: avoid; } }
"""

_KEY: Final = (
    ("rest", "admitted by both"),
    ("admitted", "newly admitted"),
    ("already", "refused already"),
    ("newly", "newly refused"),
)


def page_of(report: Mapping[str, Any]) -> str:
    """The page of a report, as JSON holds it."""
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>Sluicegate shadow report</title><style>{_STYLE}</style></head><body><main>",
        *_sections(report),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _sections(report: Mapping[str, Any]) -> Iterator[str]:
    if not is_whole(report):
        yield f"<h1>Shadow report</h1><p>{_words(why_none(report))}</p>"
        return
    yield from _head(report)
    yield from _over_time(report)
    yield from _by_class(report)
    yield from _who(report)
    yield from _by_rule(report)
    yield from _confidence(report)
    yield from _to_know(report)


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    verdict, capture, books = report["verdict"], report["capture"], report["rulebooks"]
    kind = {PASSED: " passed", FAILED: " failed"}.get(verdict["result"], "")
    yield "<h1>Shadow report</h1>"
    yield (
        f'<div class="verdict{kind}"><b>{_e(verdict["result"]).upper()}</b>'
        f"<p>{_words(verdict['sentence'])}</p></div>"
    )
    yield (
        f'<p class="quiet">{things(capture["requests"], "request", "requests")}, '
        f"{count(capture['asks'])} different, of "
        f"{things(capture['entities'], 'entity', 'entities')}, in "
        f"{duration(capture['span_us'])}. Capture {_e(capture['digest'][:12])}; current rules "
        f"{_book(books['current'])}; candidate {_book(books['candidate'])}. The same capture and "
        "rules make the same report to the byte.</p>"
    )


def _book(book: Mapping[str, Any]) -> str:
    return f"{_e(book['digest'][:12])} ({count(book['rules'])} rules)"


def _over_time(report: Mapping[str, Any]) -> Iterator[str]:
    timeline, critical = report["timeline"], report["timeline"]["classes"]["CRITICAL"]
    if not sum(critical["requests"]):
        return
    yield "<section><h2>CRITICAL over time</h2>"
    yield (
        f'<p class="quiet">The share of CRITICAL requests that is refused, in each of '
        f"{count(timeline['slices'])} slices of the capture.</p>"
    )
    several = [
        Line("current", "current", _shares(critical, "refused_by_current")),
        Line("candidate", "candidate", _shares(critical, "refused_by_candidate")),
        Line("newly refused", "newly", _shares(critical, "newly_refused")),
    ]
    title = "Share of CRITICAL requests refused over time"
    bound = report["settings"]["refused_max"]
    yield lines(title, several, duration(timeline["span_us"]), bound=bound)
    yield "</section>"


def _shares(columns: Mapping[str, Sequence[int]], name: str) -> list[float | None]:
    pairs = zip(columns[name], columns["requests"], strict=True)
    return [part / whole if whole else None for part, whole in pairs]


def _by_class(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<section><h2>By class</h2>"
    yield bars(
        "What becomes of requests, by class",
        [(shown(one["class"]), _segments(one)) for one in report["classes"] if one["requests"]],
    )
    yield '<ul class="key">'
    for kind, words in _KEY:
        mark = f'<svg viewBox="0 0 10 10"><rect class="fill {kind}" width="10" height="10"/></svg>'
        yield f"<li>{mark}{words}</li>"
    yield "</ul>"
    yield '<div class="scroll"><table><tr><th></th>'
    yield _heads(
        "requests",
        "refused by current",
        "by candidate",
        "refused already",
        "newly refused",
        "of all",
        "with history",
        "newly admitted",
    )
    yield "</tr>"
    for one in report["classes"]:
        bad = " bad" if one["newly_refused"] else ""
        yield (
            f"<tr><td>{_e(one['class'])}</td>{_figure(one['requests'])}"
            f"{_figure(one['refused_by_current'])}{_figure(one['refused_by_candidate'])}"
            f"{_figure(one['refused_already'])}"
            f'<td class="figure{bad}">{count(one["newly_refused"])}</td>'
            f"<td class=figure>{percent(one['newly_refused_share'])}</td>"
            f"<td class=figure>{percent(one['later_newly_refused_share'])}</td>"
            f"{_figure(one['newly_admitted'])}</tr>"
        )
    yield "</table></div></section>"


def _segments(one: Mapping[str, Any]) -> list[Segment]:
    values = {
        "admitted": one["newly_admitted"],
        "already": one["refused_already"],
        "newly": one["newly_refused"],
    }
    values["rest"] = one["requests"] - sum(values.values())
    return [Segment(words, kind, values[kind]) for kind, words in _KEY]


def _who(report: Mapping[str, Any]) -> Iterator[str]:
    pinned, examples = report["pinned"], report["examples"]
    yield "<section><h2>Who is newly refused</h2>"
    if pinned["callers"]:
        hurt = pinned["newly_refused"]
        told = f"{count(pinned['seen'])} of {count(pinned['callers'])} pinned callers were seen"
        yield f"<p>{told}; {'newly refused are:' if hurt else 'none is newly refused.'}</p>"
        if hurt:
            yield '<div class="scroll"><table><tr><th>pinned caller</th>'
            yield f"{_heads('newly refused', 'of requests')}</tr>"
            for one in hurt:
                yield (
                    f'<tr><td class="name">{_e(one["caller"])}</td>'
                    f'<td class="figure bad">{count(one["newly_refused"])}</td>'
                    f"{_figure(one['requests'])}</tr>"
                )
            yield "</table></div>"
    if not examples:
        yield "<p>Nobody.</p></section>"
        return
    yield '<div class="scroll"><table><tr><th>who</th><th>asks for</th><th>class</th>'
    yield f"<th>by rule</th>{_heads('newly refused', 'of requests', 'first after')}</tr>"
    for one in examples:
        yield (
            f'<tr><td class="name">{_e(one["entity"])}</td><td class="name">{_e(one["asked"])}</td>'
            f'<td>{_e(one["class"])}</td><td class="name">{_e(one["rule_id"])}</td>'
            f'<td class="figure bad">{count(one["newly_refused"])}</td>{_figure(one["requests"])}'
            f"<td class=figure>{duration(one['first_after_us'])}</td></tr>"
        )
    yield "</table></div></section>"


def _by_rule(report: Mapping[str, Any]) -> Iterator[str]:
    changes = report["changes"]
    told = ", ".join(f"{count(changes[name]['count'])} {_e(name)}" for name in changes)
    yield f'<section><h2>By rule</h2><p class="quiet">Rules: {told}.</p>'
    yield '<div class="scroll"><table><tr><th>rule</th>'
    yield _heads(
        "requests",
        "refused by current",
        "by candidate",
        "newly refused",
        "newly admitted",
        "tried out",
    )
    yield "</tr>"
    for one in report["rules"]:
        bad = " bad" if one["newly_refused"] else ""
        yield (
            f'<tr><td class="name">{_e(one["rule_id"])}{_tags(one)}{_says(one)}</td>'
            f"{_figure(one['requests'])}{_figure(one['refused_by_current'])}"
            f"{_figure(one['refused_by_candidate'])}"
            f'<td class="figure{bad}">{count(one["newly_refused"])}</td>'
            f"{_figure(one['newly_admitted'])}"
            f"<td class=figure>{_tried(one)}</td></tr>"
        )
    yield "</table></div>"
    if report["rules_left_out"]:
        yield f'<p class="quiet">and {count(report["rules_left_out"])} more</p>'
    yield "</section>"


def _tags(one: Mapping[str, Any]) -> str:
    tags = [] if one["change"] == "same" else [one["change"]]
    if one["counts_together"]:
        tags.append("counts several together")
    return "".join(f'<span class="tag">{_e(tag)}</span>' for tag in tags)


def _says(one: Mapping[str, Any]) -> str:
    said = [one["current"], one["candidate"]]
    if one["change"] == "changed":
        words = f"{_e(said[0])} &rarr; {_e(said[1])}"
    else:
        words = _e(said[1] or said[0])
    return f'<span class="says">{words}</span>'


def _tried(one: Mapping[str, Any]) -> str:
    return count(one["tried_by_candidate"]) if one["tried_by_candidate"] else ""


def _confidence(report: Mapping[str, Any]) -> Iterator[str]:
    confidence, agreed = report["confidence"], report["agreement"]
    parts = confidence["parts"]
    yield f"<section><h2>Confidence {confidence['score']:.3f}</h2>"
    yield f'<p class="quiet">{_words(confidence["formula"])}</p>'
    yield gauges("Parts of the confidence", [(shown(one["name"]), one["value"]) for one in parts])
    yield '<div class="scroll"><table>'
    for one in parts:
        yield (
            f"<tr><td>{_e(one['name'])}</td><td class=figure>{one['value']:.3f}</td>"
            f"<td>{_words(one['words'])}</td></tr>"
        )
    yield "</table></div>"
    if agreed["known"]:
        yield (
            f'<p class="quiet">Of {count(agreed["known"])} known answers the current rules '
            f"admit {count(agreed['admitted_both'])} and refuse {count(agreed['refused_both'])} "
            f"as the service did; {count(agreed['only_answered'])} were refused then and are "
            f"admitted here, {count(agreed['only_replayed'])} the other way round.</p>"
        )
    yield "</section>"


def _to_know(report: Mapping[str, Any]) -> Iterator[str]:
    yield '<section><h2>To know</h2><ul class="notes">'
    for note in report["notes"]:
        yield f"<li>{_words(note)}</li>"
    yield "</ul></section>"


def _heads(*names: str) -> str:
    return "".join(f"<th class=figure>{escape(name)}</th>" for name in names)


def _figure(value: object) -> str:
    return f"<td class=figure>{_e(count(value))}</td>"


def _e(text: object) -> str:
    """A name or a word, for the page."""
    return escape(shown(text))


def _words(text: object) -> str:
    """A sentence of ours, in which a name may stand."""
    return " ".join(_e(word) for word in str(text).split(" "))
