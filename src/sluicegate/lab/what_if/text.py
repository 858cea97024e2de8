"""What-if, as text: the rulebooks side by side, a row for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.command_line.text import clip, clip_words, count, counted, duration, percent, table
from sluicegate.lab.text import format_number

_NAME_CHARS_MAX: Final = 28
_RULES_SHOWN: Final = 5

_Book: TypeAlias = Mapping[str, Any]


class FigureRow(NamedTuple):
    """A row of a table: its words, the figure's field, and how its value is written."""

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
    FigureRow("offered", "offered", count),
    FigureRow("admitted", "admitted", count),
    FigureRow("refused by rules", "refused", count),
    FigureRow("turned away behind", "turned_away", count),
    FigureRow("gave up waiting", "gave_up", count),
    FigureRow("answered in time", "answered_in_time", count),
    FigureRow("share in time", "in_time_share", percent),
    FigureRow("goodput", "goodput_per_s", rate),
    FigureRow("wait p50", "wait_p50_us", milliseconds),
    FigureRow("wait p99", "wait_p99_us", milliseconds),
)
OVERALL: Final = (
    *_ENDED,
    FigureRow("attempts", "attempts", count),
    FigureRow("utilization", "utilization", percent),
    FigureRow("of use", "useful", percent),
    FigureRow("queue peak", "queue_peak", count),
)
OF_A_CLASS: Final = _ENDED


def render_text(report: Mapping[str, Any]) -> str:
    """Return the report for a terminal."""
    return "\n".join(_lines(report)) + "\n"


def heading(report: Mapping[str, Any]) -> list[str]:
    """Two lines: what came, and what there was to serve it."""
    capture, settings = report["capture"], report["settings"]
    retries = "" if settings["retries"] == "none" else f", {settings['retries']} retries"
    faster = "" if settings["speed"] == 1 else f", replayed {settings['speed']:g} times as fast"
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


def table_rows(books: Sequence[_Book], figures: Sequence[FigureRow]) -> list[tuple[str, ...]]:
    """A row for each figure that says something: its words, and its value by each rulebook."""
    rows = []
    for row in figures:
        values = [book[row.field] for book in books]
        if row.field == "attempts" and all(book["attempts"] == book["offered"] for book in books):
            continue
        if row.field in {"turned_away", "gave_up"} and not any(values):
            continue
        rows.append((row.words, *map(row.write, values)))
    return rows


def each_class(books: Sequence[_Book]) -> Iterator[tuple[str, list[_Book]]]:
    """Each class of which any request came, with its figures by every rulebook."""
    for figures in zip(*[book["classes"] for book in books], strict=True):
        if any(one["offered"] for one in figures):
            yield figures[0]["class"], list(figures)


def short_name(book: _Book, chars_max: int) -> str:
    """The end of its name: the end of a path says more than its beginning."""
    name = clip(book["name"])
    return name if len(name) <= chars_max else f"...{name[3 - chars_max :]}"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    books = report["rulebooks"]
    names = [short_name(book, _NAME_CHARS_MAX) for book in books]
    rows = table_rows(books, OVERALL)
    for name, figures in each_class(books):
        rows.append((name, *[""] * len(books)))
        rows += [(f"  {words}", *cells) for words, *cells in table_rows(figures, OF_A_CLASS)]
    yield clip_words(report["sentence"])
    yield ""
    yield from heading(report)
    yield ""
    for line in table(("", *names), rows, left=1):
        yield line[2:]
    for name, book in zip(names, books, strict=True):
        if book["refused_by"]:
            rules = [
                f"{clip(one['rule_id'])} {count(one['attempts'])}"
                for one in book["refused_by"][:_RULES_SHOWN]
            ]
            yield ""
            yield f"{name} refused by: {', '.join(rules)}"
    yield ""
    for note in report["notes"]:
        yield f"note: {clip_words(note)}"
