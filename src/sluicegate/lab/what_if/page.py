"""What-if, as a page: one HTML file that needs nothing else, with its pictures drawn here.

There is no script and no address in it, and it forbids itself everything but its own style sheet;
colours are the lab's, and turn dark where its reader's screen is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

from sluicegate.command_line.charts import BarSegment, Curve, bar_chart
from sluicegate.command_line.text import clip, clip_words, count, duration
from sluicegate.lab.plots_style import DARK, HUES, LIGHT
from sluicegate.lab.what_if.charts import curves
from sluicegate.lab.what_if.text import (
    OF_A_CLASS,
    OVERALL,
    Row,
    heading_of,
    milliseconds,
    rows_of,
)

_LABEL_CHARS: Final = 14
_COLOURS: Final = ("ours", "must-fail", *[f"hue-{at}" for at in range(len(HUES))])
_KEY: Final = (
    ("good", "answered in time", "answered_in_time"),
    ("gave-up", "gave up waiting", "gave_up"),
    ("away", "turned away behind the rules", "turned_away"),
    ("refused", "refused by rules", "refused"),
)

_STYLE: Final = """
:root { color-scheme: light dark; --font: system-ui, -apple-system, "Segoe UI", sans-serif;
  --good: #1a7f4b; --soft: #f5f6f8; LIGHT }
@media (prefers-color-scheme: dark) { :root { --good: #56c98d; --soft: #1d2126; DARK } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 var(--font); margin: 0; }
main { margin: 0 auto; max-width: 1060px; padding: 32px 24px 64px; }
h1 { font-size: 26px; letter-spacing: -0.01em; margin: 0 0 8px; }
h2 { font-size: 19px; letter-spacing: -0.01em; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 20px 0 0; overflow-wrap: anywhere; }
p { margin: 4px 0; max-width: 78ch; overflow-wrap: anywhere; }
.quiet { color: var(--muted); font-size: 13.5px; }
.answer { background: var(--soft); border-left: 5px solid var(--ours); border-radius: 0 6px 6px 0;
  font-size: 17px; margin: 0 0 16px; max-width: none; padding: 12px 16px; }
section { border-top: 1px solid var(--grid); margin-top: 32px; padding-top: 20px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums;
  margin: 12px 0; }
.scroll { overflow-x: auto; }
th { color: var(--muted); font-weight: 500; text-align: left; vertical-align: bottom; }
th, td { border-bottom: 1px solid var(--grid); padding: 4px 22px 4px 0; vertical-align: top; }
td.figure, th.figure { text-align: right; }
td.figure { white-space: nowrap; }
th.figure { max-width: 220px; overflow-wrap: anywhere; }
tr.head td { border-bottom: none; font-weight: 600; padding-top: 14px; }
svg { display: block; height: auto; margin-top: 8px; max-width: 860px; width: 100%; }
svg text { fill: var(--ink); font: 12px var(--font); }
svg text.axis { fill: var(--muted); }
svg text.end { text-anchor: end; }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-linejoin: round; stroke-width: 2; }
.fill.good { fill: var(--good); }
.fill.gave-up { fill: var(--must-fail); }
.fill.away { fill: var(--hue-2); }
.fill.refused { fill: var(--hue-5); }
.fill.empty { fill: var(--soft); }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; list-style: none;
  margin: 8px 0 0; padding: 0; }
.key svg { display: inline-block; height: 11px; margin: 0 6px 0 0; width: 11px; }
ul.notes { margin: 8px 0; max-width: 78ch; padding-left: 18px; }
@media print { section { break-inside: avoid; } }
BOOKS
"""


def page_of(report: Mapping[str, Any]) -> str:
    """The page of a report, as JSON holds it."""
    style = _styled()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>Sluicegate what-if</title><style>{style}</style></head><body><main>",
        *_head(report),
        *_ended(report),
        *_over_time(report),
        *_figures(report),
        *_refused_by(report),
        *_to_know(report),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _styled() -> str:
    light, dark = (
        "; ".join(f"--{name}: {colour}" for name, colour in theme.items())
        for theme in (LIGHT, DARK)
    )
    books = "\n".join(
        f".line.book-{at} {{ stroke: var(--{colour}); }} "
        f"svg text.book-{at}, .dot.book-{at}, .fill.book-{at} {{ fill: var(--{colour}); }}"
        for at, colour in enumerate(_COLOURS)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark).replace("BOOKS", books)


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h1>What if</h1>"
    yield f'<p class="answer">{_words(report["sentence"])}</p>'
    for line in heading_of(report):
        yield f'<p class="quiet">{_words(line)}.</p>'
    yield (
        f'<p class="quiet">Capture {escape(report["capture"]["digest"][:12])}. The same capture, '
        "rules, flags and seed make the same page to the byte.</p>"
    )


def _ended(report: Mapping[str, Any]) -> Iterator[str]:
    """A bar for each rulebook, by class and of all."""
    books = report["rulebooks"]
    yield "<section><h2>What becomes of requests</h2>"
    yield from _key([(kind, words) for kind, words, _ in _KEY])
    for at, one in enumerate(books[0]["classes"]):
        of = [book["classes"][at] for book in books]
        if any(book["offered"] for book in of):
            yield f"<h3>{escape(one['class'])}</h3>"
            yield bar_chart(f"What becomes of {one['class']} requests", _bars(books, of))
    yield "<h3>All</h3>"
    yield bar_chart("What becomes of all requests", _bars(books, books))
    yield "</section>"


def _bars(
    books: Sequence[Mapping[str, Any]], of: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[BarSegment]]]:
    return [
        (_label(book), [BarSegment(words, kind, one[field]) for kind, words, field in _KEY])
        for book, one in zip(books, of, strict=True)
    ]


def _over_time(report: Mapping[str, Any]) -> Iterator[str]:
    books, timeline = report["rulebooks"], report["timeline"]
    ends = duration(timeline["span_us"])
    yield "<section><h2>Over time</h2>"
    yield from _key([(f"book-{at}", clip(book["name"])) for at, book in enumerate(books)])
    classes = [one["class"] for one in books[0]["classes"] if one["offered"]]
    for title, names in ((classes[0], classes[:1]), ("all", classes)) if classes else ():
        shares = [_in_time(one, names) for one in timeline["rulebooks"]]
        yield f"<h3>Share of {escape(title)} answered in time</h3>"
        yield curves(
            f"Share of {title} answered in time", _lines(books, shares), ends, _share, most=1
        )
    for title, field, write in (
        ("Wait, p99", "wait_p99_us", milliseconds),
        ("Queue, its longest", "queue_peak", lambda value: count(round(value))),
    ):
        values = [one[field] for one in timeline["rulebooks"]]
        yield f"<h3>{title}</h3>"
        yield curves(title, _lines(books, values), ends, write)
    yield "</section>"


def _lines(
    books: Sequence[Mapping[str, Any]], values: Sequence[Sequence[float | None]]
) -> list[Curve]:
    return [Curve(_label(book), f"book-{at}", values[at]) for at, book in enumerate(books)]


def _share(value: float) -> str:
    return f"{value:.0%}"


def _in_time(timeline: Mapping[str, Any], classes: Sequence[str]) -> list[float | None]:
    """By slice, of those classes together."""
    shares: list[float | None] = []
    for at in range(len(timeline["queue_peak"])):
        columns = [timeline["classes"][name] for name in classes]
        came = sum(column[field][at] for column in columns for _, _, field in _KEY)
        good = sum(column["answered_in_time"][at] for column in columns)
        shares.append(good / came if came else None)
    return shares


def _figures(report: Mapping[str, Any]) -> Iterator[str]:
    books = report["rulebooks"]
    yield '<section><h2>Figures</h2><div class="scroll"><table><tr><th></th>'
    yield "".join(f"<th class=figure>{escape(clip(book['name']))}</th>" for book in books)
    yield "</tr>"
    yield from _rows(books, OVERALL)
    for at, one in enumerate(books[0]["classes"]):
        of = [book["classes"][at] for book in books]
        if any(book["offered"] for book in of):
            yield f'<tr class="head"><td>{escape(one["class"])}</td>{"<td></td>" * len(books)}</tr>'
            yield from _rows(of, OF_A_CLASS)
    yield "</table></div></section>"


def _rows(books: Sequence[Mapping[str, Any]], several: Sequence[Row]) -> Iterator[str]:
    for words, *cells in rows_of(books, several):
        told = "".join(f"<td class=figure>{escape(cell)}</td>" for cell in cells)
        yield f"<tr><td>{escape(words)}</td>{told}</tr>"


def _refused_by(report: Mapping[str, Any]) -> Iterator[str]:
    books = [book for book in report["rulebooks"] if book["refused_by"]]
    if not books:
        return
    yield "<section><h2>Which rules refuse</h2>"
    for book in books:
        yield f'<h3>{escape(clip(book["name"]))}</h3><div class="scroll"><table>'
        yield "<tr><th>rule</th><th class=figure>attempts refused</th></tr>"
        for one in book["refused_by"]:
            yield (
                f"<tr><td>{escape(clip(one['rule_id']))}</td>"
                f"<td class=figure>{count(one['attempts'])}</td></tr>"
            )
        yield "</table></div>"
    yield "</section>"


def _to_know(report: Mapping[str, Any]) -> Iterator[str]:
    yield '<section><h2>To know</h2><ul class="notes">'
    for note in report["notes"]:
        yield f"<li>{_words(note)}</li>"
    yield "</ul></section>"


def _key(several: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield '<ul class="key">'
    for kind, words in several:
        mark = f'<svg viewBox="0 0 10 10"><rect class="fill {kind}" width="10" height="10"/></svg>'
        yield f"<li>{mark}{escape(words)}</li>"
    yield "</ul>"


def _label(book: Mapping[str, Any]) -> str:
    """A name at the edge of a picture, where there is little room."""
    name = clip(book["name"])
    return name if len(name) <= _LABEL_CHARS else f"...{name[3 - _LABEL_CHARS :]}"


def _words(text: str) -> str:
    return escape(clip_words(text))
