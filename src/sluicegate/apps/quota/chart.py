"""Chart: one caller's month as a picture: its curve, its quota now and the proposed one.

Text made of numbers that were worked out here and of words that were escaped here; what it looks
like is said by classes, so a page needs no script and no address. A label that would stand on
another is moved away from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from sluicegate.apps.quota.dates import date_of
from sluicegate.apps.quota.names import shown
from sluicegate.apps.quota.series import DAY_HOURS, Caller

WIDTH: Final = 960
HEIGHT: Final = 240
LEFT: Final = 64
RIGHT: Final = 144
TOP: Final = 14
BOTTOM: Final = 30
LABEL_TALL: Final = 14
WEEK_DAYS: Final = 7
MONDAY: Final = 4  # of the first week since the epoch, which began on a Thursday
_STEPS: Final = (1, 2, 5, 10)
SHORT_FROM: Final = 10_000_000
_UNITS: Final = ((1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"))


def chart(caller: Caller, first_day: int) -> str:
    """The picture."""
    days = len(caller.hours) // DAY_HOURS
    step = _step(_highest(caller))
    ticks = -(-_highest(caller) // step)
    drawing = _Drawing(days, step * ticks)
    parts = [drawing.weekend(day) for day in range(days) if (first_day + day) % 7 in {2, 3}]
    parts += [drawing.unknown(since, until) for since, until in _runs(caller.hours, known=False)]
    parts += [drawing.tick(step * at) for at in range(ticks + 1)]
    parts += [drawing.date(first_day, day) for day in _labelled(first_day, days)]
    for since, until in _runs(caller.hours, known=True):
        parts += drawing.usage(since, [one or 0 for one in caller.hours[since:until]])
    parts += drawing.quotas(caller.current, caller.proposal.quota)
    said = escape(f"{shown(caller.name)}: request units a second over {days} days", quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">'
        f"<title>{said}</title>{''.join(parts)}</svg>"
    )


def short(value: int) -> str:
    """A number as there is room for: 950, 1,250,000, 12.5M."""
    if value < SHORT_FROM:
        return f"{value:,}"
    size, letter = next((size, letter) for size, letter in _UNITS if value >= size)
    return f"{value / size:.4g}{letter}"


class _Drawing:
    """Where an hour and a number are on the picture."""

    def __init__(self, days: int, most: int) -> None:
        self._days = days
        self._most = most
        self._right = WIDTH - RIGHT
        self._floor = HEIGHT - BOTTOM

    def x(self, hour: float) -> float:
        """From the beginning of the first day to the end of the last."""
        return LEFT + (self._right - LEFT) * hour / (self._days * DAY_HOURS)

    def y(self, value: int) -> float:
        """From 0 to the highest tick."""
        return self._floor - (self._floor - TOP) * value / self._most

    def weekend(self, day: int) -> str:
        """A Saturday or a Sunday, shaded."""
        return self._band("weekend", day * DAY_HOURS, (day + 1) * DAY_HOURS)

    def unknown(self, since: int, until: int) -> str:
        """Hours of which nothing is known."""
        return self._band("unknown", since, until, "<title>nothing was recorded</title>")

    def tick(self, value: int) -> str:
        """A line across, and its number."""
        y = self.y(value)
        return _line("grid", LEFT, self._right, y) + _text(
            "axis end", LEFT - 8, y + 4, short(value)
        )

    def date(self, first_day: int, day: int) -> str:
        """A Monday, under the axis."""
        x, floor = f"{self.x(day * DAY_HOURS):.1f}", self._floor
        mark = f'<line class="mark" x1="{x}" x2="{x}" y1="{floor}" y2="{floor + 5}"/>'
        return mark + _text("axis", float(x) - 2, floor + 19, str(date_of(first_day + day)))

    def usage(self, since: int, values: Sequence[int]) -> list[str]:
        """Hours that follow each other; each is a step as wide as it lasted."""
        points = []
        for at, value in enumerate(values):
            y = f"{self.y(value):.1f}"
            points += [f"{self.x(since + at):.1f},{y}", f"{self.x(since + at + 1):.1f},{y}"]
        along = " ".join(points)
        first = f"{self.x(since):.1f},{self._floor}"
        last = f"{self.x(since + len(values)):.1f},{self._floor}"
        area = f'<polygon class="area" points="{first} {along} {last}"/>'
        return [area, f'<polyline class="use" points="{along}"/>']

    def quotas(self, now: int | None, new: int | None) -> list[str]:
        """The lines across, labelled at their end, the higher one first."""
        told = [("now", now), ("new", new)]
        lines = sorted(
            ((kind, one) for kind, one in told if one is not None), key=lambda one: -one[1]
        )
        parts, lowest = [], 0.0
        for place, (kind, value) in enumerate(lines):
            y = self.y(value)
            parts.append(_line(kind, LEFT, self._right, y))
            room = LABEL_TALL * (len(lines) - 1 - place)  # for those below
            label = max(min(y + 4, self._floor - room), lowest + LABEL_TALL)
            lowest = label
            words = f"{'now' if kind == 'now' else 'proposed'} {short(value)}"
            parts.append(_text(f"label {kind}", self._right + 8, label, words))
        return parts

    def _band(self, kind: str, since: int, until: int, inside: str = "") -> str:
        x, wide = self.x(since), self.x(until) - self.x(since)
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{TOP}" width="{wide:.1f}" '
            f'height="{self._floor - TOP}">{inside}</rect>'
        )


def _highest(caller: Caller) -> int:
    """The highest number on the picture."""
    values = [value for value in caller.hours if value is not None]
    return max([1, *values, caller.proposal.quota or 0, caller.current or 0])


def _step(most: int) -> int:
    """Such a distance of ticks as people like, for four or five of them."""
    unit = 1
    while True:
        for step in _STEPS:
            if step * unit * 5 >= most:
                return step * unit
        unit *= 10


def _labelled(first_day: int, days: int) -> Iterator[int]:
    """Mondays; of more than ten weeks every other."""
    mondays = [day for day in range(days) if (first_day + day) % WEEK_DAYS == MONDAY]
    yield from mondays[:: 1 + len(mondays) // 11]


def _runs(hours: Sequence[int | None], *, known: bool) -> Iterator[tuple[int, int]]:
    """Where hours that are known, or are not, follow each other."""
    since: int | None = None
    for at, value in enumerate([*hours, -1 if not known else None]):
        if (value is not None) == known:
            since = at if since is None else since
        elif since is not None:
            yield since, at
            since = None


def _line(kind: str, x: float, x2: float, y: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
