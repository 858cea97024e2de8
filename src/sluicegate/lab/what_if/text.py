"""What-if as text: the sentence about the best rulebook and its price, and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.command_line.text import clip, clip_words, count, counted, duration, percent, table
from sluicegate.lab.text import format_number, join_names

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


_ALIKE: Final = 1e-4  # shares that differ by less are shown as equal
_ALIKE_WAITS: Final = 1.01  # and a p99 up to this many times the best


def summary_sentence(books: Sequence[_Book]) -> str:
    """One line, of one rulebook or several."""
    of = _top_class(books)
    if of is None:
        return "Nobody could be asked, so there is nothing to compare."
    name = books[0]["classes"][of]["class"]
    if len(books) == 1:
        only = books[0]["classes"][of]
        return (
            f"{clip(books[0]['name'])} answers {percent(only['in_time_share'])} of {name} in time"
            f"{_at_p99(only)}."
        )
    order = sorted(range(len(books)), key=lambda at: (*_rank(books[at], of), at))
    best, second = books[order[0]], books[order[1]]
    if _alike(best, second, of):
        alike = [clip(one["name"]) for one in books if _alike(best, one, of)]
        return (
            f"{join_names(alike)} serve {name} alike, {percent(_share(best, of))} in time"
            f"{_at_p99(best['classes'][of])}{_difference(books)}."
        )
    return (
        f"{clip(best['name'])} serves {name} best: {_advantage(best, second, of)} with "
        f"{clip(second['name'])}{_price(best, books)}."
    )


def _top_class(books: Sequence[_Book]) -> int | None:
    """Return the highest class that sent a request."""
    for of, one in enumerate(books[0]["classes"]):
        if one["offered"]:
            return of
    return None


def _rank(book: _Book, of: int) -> tuple[int, float]:
    """The smaller the better: first who is answered in time, then how long that takes."""
    waited = book["classes"][of]["wait_p99_us"]
    return -round(_share(book, of) / _ALIKE), inf if waited is None else float(waited)


def _alike(best: _Book, other: _Book, of: int) -> bool:
    """Return whether both serve that class equally well."""
    (share, waited), (its_share, its_waited) = _rank(best, of), _rank(other, of)
    return share == its_share and its_waited <= waited * _ALIKE_WAITS


def _advantage(best: _Book, second: _Book, of: int) -> str:
    """Return the advantage of the best rulebook, and over which other."""
    mine, theirs = best["classes"][of], second["classes"][of]
    if _rank(best, of)[0] != _rank(second, of)[0]:
        text = f"{percent(mine['in_time_share'])} in time{_at_p99(mine)}"
        return f"{text}, against {percent(theirs['in_time_share'])}"
    return (
        f"{percent(mine['in_time_share'])} in time as well, but p99 {_ms(mine['wait_p99_us'])} "
        f"against {_ms(theirs['wait_p99_us'])}"
    )


def _price(best: _Book, books: Sequence[_Book]) -> str:
    """In which classes another rulebook answers more, and how much that is."""
    losses = []
    for other, mine in enumerate(best["classes"]):
        if not mine["offered"]:
            continue
        rival = max(books, key=lambda book: _share(book, other))
        if _share(rival, other) > _share(best, other) + _ALIKE:
            losses.append(
                f"{mine['class']} {percent(_share(best, other))} in time instead of "
                f"{percent(_share(rival, other))} with {clip(rival['name'])}"
            )
    if not losses:
        return f"; no other class is answered less{_more_refused(best, books)}"
    return f"; the price: {join_names(losses)}"


def _more_refused(best: _Book, books: Sequence[_Book]) -> str:
    """Return the requests that it rejects where another rejects fewer."""
    least = min(books, key=lambda book: book["refused"])
    if least["refused"] == best["refused"]:
        return ""
    return (
        f", though {percent(best['refused'] / best['offered'])} of all are refused, and "
        f"{percent(least['refused'] / least['offered'])} with {clip(least['name'])}"
    )


def _difference(books: Sequence[_Book]) -> str:
    """Compare all answers, if those of the highest class are alike."""
    most = max(books, key=lambda book: book["answered_in_time"])
    least = min(books, key=lambda book: book["answered_in_time"])
    if most["answered_in_time"] == least["answered_in_time"]:
        return ", and as many of all"
    return (
        f"; of all, {clip(most['name'])} answers most, {count(most['answered_in_time'])} against "
        f"{count(least['answered_in_time'])} with {clip(least['name'])}"
    )


def _share(book: _Book, of: int) -> float:
    return book["classes"][of]["in_time_share"] or 0.0


def _at_p99(one: Mapping[str, Any]) -> str:
    waited = one["wait_p99_us"]
    return "" if waited is None else f" (p99 {_ms(waited)})"


def _ms(us: Any) -> str:
    return "-" if us is None else f"{us / 1000:,.4g} ms"
