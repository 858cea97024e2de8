"""The sentence of a what-if report: which rulebook serves what matters most best, and the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from sluicegate.command_line.text import clip, count, percent
from sluicegate.lab.text import join_names

_ALIKE: Final = 1e-4  # shares nearer than that are told as the same
_ALIKE_WAITS: Final = 1.01  # and so is a p99 that is no more than so many times the best

_Book = Mapping[str, Any]


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
    """The highest class of which anybody came."""
    for of, one in enumerate(books[0]["classes"]):
        if one["offered"]:
            return of
    return None


def _rank(book: _Book, of: int) -> tuple[int, float]:
    """The smaller the better: first who is answered in time, then how long that takes."""
    waited = book["classes"][of]["wait_p99_us"]
    return -round(_share(book, of) / _ALIKE), inf if waited is None else float(waited)


def _alike(best: _Book, other: _Book, of: int) -> bool:
    """Whether nobody of that class could tell them apart."""
    (share, waited), (its_share, its_waited) = _rank(best, of), _rank(other, of)
    return share == its_share and its_waited <= waited * _ALIKE_WAITS


def _advantage(best: _Book, second: _Book, of: int) -> str:
    """What is better about it, and against what."""
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
    """What it refuses, where another refuses less."""
    least = min(books, key=lambda book: book["refused"])
    if least["refused"] == best["refused"]:
        return ""
    return (
        f", though {percent(best['refused'] / best['offered'])} of all are refused, and "
        f"{percent(least['refused'] / least['offered'])} with {clip(least['name'])}"
    )


def _difference(books: Sequence[_Book]) -> str:
    """Where they are alike for those: who answers more of all."""
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
