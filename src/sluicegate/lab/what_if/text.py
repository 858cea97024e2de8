"""What-if, as text: the rulebooks side by side, a row for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.command_line.text import clip, clip_words, count, counted, duration, percent
from sluicegate.lab.text import format_number

_NAME_CHARS_MAX: Final = 28
_RULES_SHOWN: Final = 5


class Row(NamedTuple):
    """A figure: what it is called, where it is found, and how it is written."""

    words: str
    field: str
    write: Callable[[Any], str]


def milliseconds(us: Any) -> str:
    """A wait."""
    return "-" if us is None else f"{format_number(us / 1_000)} ms"


def rate(per_s: Any) -> str:
    """So many a second."""
    return f"{format_number(per_s)}/s"


_ENDED: Final = (
    Row("offered", "offered", count),
    Row("admitted", "admitted", count),
    Row("refused by rules", "refused", count),
    Row("turned away behind", "turned_away", count),
    Row("gave up waiting", "gave_up", count),
    Row("answered in time", "answered_in_time", count),
    Row("share in time", "in_time_share", percent),
    Row("goodput", "goodput_per_s", rate),
    Row("wait p50", "wait_p50_us", milliseconds),
    Row("wait p99", "wait_p99_us", milliseconds),
)
OVERALL: Final = (
    *_ENDED,
    Row("attempts", "attempts", count),
    Row("utilization", "utilization", percent),
    Row("of use", "useful", percent),
    Row("queue peak", "queue_peak", count),
)
OF_A_CLASS: Final = _ENDED


def text_of(report: Mapping[str, Any]) -> str:
    """The report for a terminal."""
    return "\n".join(_lines(report)) + "\n"


def heading_of(report: Mapping[str, Any]) -> list[str]:
    """What came, and what there was to serve it: two lines."""
    capture, settings = report["capture"], report["settings"]
    retries = "" if settings["retries"] == "none" else f", {settings['retries']} retries"
    faster = "" if settings["speed"] == 1 else f", played {settings['speed']:g} times as fast"
    comes = (
        f"{counted(capture['requests'], 'request')} of "
        f"{counted(capture['entities'], 'entity', 'entities')} in {duration(capture['span_us'])}"
        f"{faster}: {format_number(capture['units_per_s'])} units a second, a load of "
        f"{format_number(capture['load'])}"
    )
    serves = (
        f"{counted(settings['workers'], 'worker')} for "
        f"{format_number(settings['capacity_units_per_s'])} units a second, "
        f"{settings['service']} service times; {settings['with']} before them; callers wait "
        f"{milliseconds(settings['timeout_us'])}{retries}; seed {settings['seed']}"
    )
    return [comes, serves]


def rows_of(books: Sequence[Mapping[str, Any]], several: Sequence[Row]) -> list[tuple[str, ...]]:
    """A row for each figure that says something: its words, and what it is of each rulebook."""
    rows = []
    for row in several:
        values = [book[row.field] for book in books]
        if row.field == "attempts" and all(book["attempts"] == book["offered"] for book in books):
            continue
        if row.field in {"turned_away", "gave_up"} and not any(values):
            continue
        rows.append((row.words, *map(row.write, values)))
    return rows


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield clip_words(report["sentence"])
    yield ""
    yield from heading_of(report)
    books = report["rulebooks"]
    table: list[tuple[str, ...]] = [
        ("", *[_short(book["name"]) for book in books]),
        *rows_of(books, OVERALL),
    ]
    for at, one in enumerate(books[0]["classes"]):
        of = [book["classes"][at] for book in books]
        if any(book["offered"] for book in of):
            table.append((one["class"], *[""] * len(books)))
            table += [(f"  {words}", *cells) for words, *cells in rows_of(of, OF_A_CLASS)]
    yield ""
    yield from _aligned(table)
    yield from _refused_by(books)
    yield ""
    for note in report["notes"]:
        yield f"note: {clip_words(note)}"


def _refused_by(books: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rules that refused most."""
    for book in books:
        if book["refused_by"]:
            told = [
                f"{clip(one['rule_id'])} {count(one['attempts'])}"
                for one in book["refused_by"][:_RULES_SHOWN]
            ]
            yield ""
            yield f"{_short(book['name'])} refused by: {', '.join(told)}"


def _aligned(table: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Names to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for words, *cells in table:
        told = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([f"{words:<{widths[0]}}", *told]).rstrip()


def _short(name: str) -> str:
    """The end of a path says more than its beginning."""
    told = clip(name)
    return told if len(told) <= _NAME_CHARS_MAX else f"...{told[3 - _NAME_CHARS_MAX :]}"
