"""Chart of one caller's month: its usage, its quota now and the proposed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sluicegate.apps.quota.dates import date_of
from sluicegate.apps.quota.names import display_name
from sluicegate.apps.quota.series import DAY_HOURS, Caller
from sluicegate.command_line.charts import Picture, axis_ticks, spread_labels

WIDTH: Final = 960
HEIGHT: Final = 240
LEFT: Final = 64
RIGHT: Final = 144
TOP: Final = 14
BOTTOM: Final = 30
WEEK_DAYS: Final = 7
MONDAY: Final = 4  # of the first week since the epoch, which began on a Thursday
SHORT_FROM: Final = 10_000_000
_UNITS: Final = ((1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"))


def quota_chart(caller: Caller, first_day: int) -> str:
    """The picture; `first_day` is counted from the epoch."""
    days = len(caller.hours) // DAY_HOURS
    title = f"{display_name(caller.name)}: request units a second over {days} days"
    picture = Picture(title, WIDTH, HEIGHT)
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    step, ticks = axis_ticks(_highest(caller))

    def x_of(hour: float) -> float:
        return LEFT + (right - LEFT) * hour / (days * DAY_HOURS)

    def y_of(value: float) -> float:
        return floor - (floor - TOP) * value / (step * ticks)

    def band(kind: str, start: int, end: int, words: str = "") -> None:
        picture.rect(kind, x_of(start), TOP, x_of(end) - x_of(start), floor - TOP, words)

    for day in range(days):
        if (first_day + day) % WEEK_DAYS in {2, 3}:
            band("weekend", day * DAY_HOURS, (day + 1) * DAY_HOURS)
    for since, until in _runs(caller.hours, known=False):
        band("unknown", since, until, "nothing was recorded")
    for at in range(ticks + 1):
        y = y_of(step * at)
        picture.line("grid", LEFT, y, right, y)
        picture.text("axis end", LEFT - 8, y + 4, short(round(step * at)))
    for day in _dated(first_day, days):
        x = x_of(day * DAY_HOURS)
        picture.line("mark", x, floor, x, floor + 5)
        picture.text("axis", x - 2, floor + 19, str(date_of(first_day + day)))
    for since, until in _runs(caller.hours, known=True):
        points = []
        for hour in range(since, until):  # each is a step as wide as it lasted
            y = y_of(caller.hours[hour] or 0)
            points += [(x_of(hour), y), (x_of(hour + 1), y)]
        picture.area("area", [(x_of(since), floor), *points, (x_of(until), floor)])
        picture.path("use", points)
    quotas = [("now", "now", caller.current), ("new", "proposed", caller.proposal.quota)]
    lines = [
        (y_of(quota), kind, f"{words} {short(quota)}") for kind, words, quota in quotas if quota
    ]
    lines.sort(key=lambda line: line[0])
    places = spread_labels([y + 4 for y, _, _ in lines], floor)
    for (y, kind, words), place in zip(lines, places, strict=True):
        picture.line(kind, LEFT, y, right, y)
        picture.text(f"label {kind}", right + 8, place, words)
    return picture.render()


def short(value: int) -> str:
    """A number as there is room for: 950, 1,250,000, 12.5M."""
    if value < SHORT_FROM:
        return f"{value:,}"
    size, letter = next((size, letter) for size, letter in _UNITS if value >= size)
    return f"{value / size:.4g}{letter}"


def _highest(caller: Caller) -> int:
    values = [value for value in caller.hours if value is not None]
    # From 5 on ticks are whole numbers.
    return max([5, *values, caller.proposal.quota or 0, caller.current or 0])


def _dated(first_day: int, days: int) -> Iterator[int]:
    """Mondays; of more than ten weeks every other."""
    mondays = [day for day in range(days) if (first_day + day) % WEEK_DAYS == MONDAY]
    yield from mondays[:: 1 + len(mondays) // 11]


def _runs(hours: Sequence[int | None], *, known: bool) -> Iterator[tuple[int, int]]:
    """Where hours that are known, or are not, follow each other."""
    start: int | None = None
    for at, value in enumerate([*hours, -1 if not known else None]):
        if (value is not None) == known:
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None
