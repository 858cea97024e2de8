"""What-if as a page: one HTML file that needs nothing else (see `command_line/page.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
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
from sluicegate.command_line.text import clip, count, duration
from sluicegate.lab.charts import HUES, theme_style
from sluicegate.lab.what_if.text import (
    OF_A_CLASS,
    OVERALL,
    FigureRow,
    each_class,
    heading,
    milliseconds,
    short_name,
    table_rows,
)

_LABEL_CHARS: Final = 14
_COLOURS: Final = ("ours", "must-fail", *HUES)
_KEY: Final = (
    ("good", "answered in time", "answered_in_time"),
    ("gave-up", "gave up waiting", "gave_up"),
    ("away", "turned away behind the rules", "turned_away"),
    ("refused", "refused by rules", "refused"),
)
_BOOKS: Final = "".join(
    f".line.book-{at} {{ stroke: var(--{colour}); }}\n"
    f"svg text.book-{at}, .dot.book-{at}, .fill.book-{at} {{ fill: var(--{colour}); }}\n"
    for at, colour in enumerate(_COLOURS)
)
_STYLE: Final = f"""{theme_style()}
.answer {{ border-color: var(--ours); font-size: 17px; max-width: none; }}
tr.head td {{ border-bottom: none; font-weight: 600; padding-top: 14px; }}
th.number {{ max-width: 220px; overflow-wrap: anywhere; }}
svg {{ max-width: 860px; }}
.fill.good {{ fill: var(--good); }}
.fill.gave-up {{ fill: var(--must-fail); }}
.fill.away {{ fill: var(--hue-2); }}
.fill.refused {{ fill: var(--hue-5); }}
{_BOOKS}"""


def render_what_if(report: Mapping[str, Any]) -> str:
    """Return the page of a report, as JSON holds it."""
    capture = escape(report["capture"]["digest"][:12])
    body = [
        "<h1>What if</h1>",
        f'<p class="callout answer">{escape_words(report["sentence"])}</p>',
        *[quiet(f"{escape_words(line)}.") for line in heading(report)],
        quiet(
            f"Capture {capture}. The same capture, rules, flags and seed make the same page to "
            "the byte."
        ),
        section("What becomes of requests", *_outcomes(report)),
        section("Over time", *_over_time(report)),
        section("Figures", _figures(report)),
        *_refused_by(report),
        section("To know", notes(report["notes"])),
    ]
    return render_page("Sluicegate what-if", body, _STYLE)


def _outcomes(report: Mapping[str, Any]) -> Iterator[str]:
    """A bar for each rulebook, by class and of all."""
    books = report["rulebooks"]
    yield color_key((kind, words) for kind, words, _ in _KEY)
    groups = [(name, f"{name} requests", of) for name, of in each_class(books)]
    for name, requests, of in [*groups, ("All", "all requests", books)]:
        bars = [
            (
                short_name(book, _LABEL_CHARS),
                [BarSegment(words, kind, one[field]) for kind, words, field in _KEY],
            )
            for book, one in zip(books, of, strict=True)
        ]
        yield f"<h3>{escape(name)}</h3>"
        yield bar_chart(f"What becomes of {requests}", bars)


def _over_time(report: Mapping[str, Any]) -> Iterator[str]:
    books, timeline = report["rulebooks"], report["timeline"]
    lines = timeline["rulebooks"]
    ends = duration(timeline["span_us"])
    yield color_key((f"book-{at}", clip(book["name"])) for at, book in enumerate(books))

    def chart(title: str, values: Sequence[Sequence[float | None]], **options: Any) -> str:
        curves = [
            Curve(short_name(book, _LABEL_CHARS), f"book-{at}", values[at])
            for at, book in enumerate(books)
        ]
        return f"<h3>{escape(title)}</h3>{line_chart(title, curves, ends, **options)}"

    classes = [name for name, _ in each_class(books)]
    for title, names in ((classes[0], classes[:1]), ("all", classes)) if classes else ():
        shares = [_in_time(one, names) for one in lines]
        yield chart(f"Share of {title} answered in time", shares, label_of="{:.0%}".format, most=1)
    yield chart("Wait, p99", [one["wait_p99_us"] for one in lines], label_of=milliseconds)
    peaks = [one["queue_peak"] for one in lines]
    yield chart("Queue, its longest", peaks, label_of=lambda value: count(round(value)))


def _in_time(timeline: Mapping[str, Any], classes: Sequence[str]) -> list[float | None]:
    """The share answered in time by slice, of those classes together."""
    shares: list[float | None] = []
    for at in range(len(timeline["queue_peak"])):
        columns = [timeline["classes"][name] for name in classes]
        came = sum(column[field][at] for column in columns for _, _, field in _KEY)
        good = sum(column["answered_in_time"][at] for column in columns)
        shares.append(good / came if came else None)
    return shares


def _figures(report: Mapping[str, Any]) -> str:
    books = report["rulebooks"]
    rows = list(_rows(books, OVERALL))
    for name, of in each_class(books):
        rows.append(f'<tr class="head"><td>{escape(name)}</td>{cell("") * len(books)}</tr>')
        rows += _rows(of, OF_A_CLASS)
    return table([""], [clip(book["name"]) for book in books], rows)


def _rows(books: Sequence[Mapping[str, Any]], figures: Sequence[FigureRow]) -> Iterator[str]:
    for words, *cells in table_rows(books, figures):
        yield row(cell(escape(words)), *map(number, cells))


def _refused_by(report: Mapping[str, Any]) -> Iterator[str]:
    tables = [
        f"<h3>{escape_name(book['name'])}</h3>"
        + table(
            ["rule"],
            ["attempts refused"],
            [
                row(cell(escape_name(one["rule_id"]), "name"), number(count(one["attempts"])))
                for one in book["refused_by"]
            ],
        )
        for book in report["rulebooks"]
        if book["refused_by"]
    ]
    if tables:
        yield section("Which rules refuse", *tables)
