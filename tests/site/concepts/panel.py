"""Panel: axes with lines, dots, bands and bars on them; the drawing itself is the chart kit's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from sluicegate.command_line.charts import Picture, axis_ticks, spread_labels
from tests.site.svg_file import svg_file

WIDTH: Final = 720
LEFT: Final = 76
RIGHT: Final = 128
NAME_TALL: Final = 34  # above a panel
AXIS_TALL: Final = 40  # below it
SPOT: Final = 2.5  # how far apart dots are drawn
Point = tuple[float, float]


class Drawing(NamedTuple):
    """A picture of a concept, and the sentence that stands under it."""

    title: str
    sentence: str
    svg: str


class Axis(NamedTuple):
    """From where to where, what a value is called, and where the ticks are, if not everywhere."""

    most: float
    words: str = ""
    least: float = 0.0
    ticks: Sequence[tuple[float, str]] | None = None


class Panel:
    """One pair of axes; the names of its lines stand at the right, beside their ends."""

    def __init__(
        self, picture: Picture, top: float, tall: float, name: str, x: Axis, y: Axis
    ) -> None:
        self._picture = picture
        self._x, self._y = x, y
        self._top, self._floor = top + NAME_TALL, top + NAME_TALL + tall
        self._labels: list[tuple[float, str, str]] = []
        picture.text("name", LEFT, top + 22, f"{name}: {y.words}" if y.words else name)
        for value, words in self._ticks(y):
            at = self._at(0, value)[1]
            picture.line("grid", LEFT, at, WIDTH - RIGHT, at)
            picture.text("axis end", LEFT - 8, at + 4, words)
        for value, words in self._ticks(x):
            at = self._at(value, 0)[0]
            picture.text("axis mid", at, self._floor + 17, words)
        picture.text("axis end", WIDTH - RIGHT, self._floor + 33, x.words)

    def line(
        self, kind: str, points: Sequence[Point], name: str = "", *, thin: bool = False
    ) -> None:
        """Draw a line through points."""
        weight = " thin" if thin else ""
        self._picture.path(f"line {kind}{weight}", [self._at(*point) for point in points])
        self._name(kind, name, points[-1][1])

    def steps(self, kind: str, points: Sequence[Point], name: str = "") -> None:
        """Draw values that hold until the next."""
        corners = [points[0]]
        for x, y in points[1:]:
            if y != corners[-1][1]:
                corners += [(x, corners[-1][1]), (x, y)]
        self.line(kind, [*corners, points[-1]], name)

    def dots(self, kind: str, points: Iterable[Point], name: str = "") -> None:
        """Draw points, of those on one spot one; the name stands at the height of the last."""
        last = 0.0
        drawn: set[tuple[int, int]] = set()
        for x, y in points:
            across, down = self._at(x, y)
            spot = int(across / SPOT), int(down / SPOT)
            if spot not in drawn:
                drawn.add(spot)
                self._picture.dot(f"dot {kind}", across, down)
            last = y
        self._name(kind, name, last)

    def area(self, kind: str, points: Sequence[Point]) -> None:
        """Fill what is below a line, faintly."""
        low = max(self._y.least, 0.0)
        around = [(points[0][0], low), *points, (points[-1][0], low)]
        self._picture.area(f"band {kind}", [self._at(*point) for point in around])

    def band(self, kind: str, begin: float, end: float, words: str = "") -> None:
        """Shade a span of the x axis, with words at its top."""
        left, right = self._at(begin, 0)[0], self._at(end, 0)[0]
        self._picture.rect(f"band {kind}", left, self._top, right - left, self._floor - self._top)
        if words:
            self._picture.text(f"axis {kind}", left + 6, self._top + 15, words)

    def bar(self, kind: str, begin: float, end: float, value: float, low: float = 0.0) -> None:
        """Draw a bar over a span of the x axis."""
        left, top = self._at(begin, value)
        right, floor = self._at(end, low)
        self._picture.rect(f"fill {kind}", left, top, max(right - left, 0.5), floor - top)

    def frame(self, begin: float, end: float, value: float, low: float = 0.0) -> None:
        """Draw a dashed frame where a bar would be."""
        (left, top), (right, floor) = self._at(begin, value), self._at(end, low)
        for x1, y1, x2, y2 in (
            (left, top, right, top), (left, floor, right, floor),
            (left, top, left, floor), (right, top, right, floor),
        ):  # fmt: skip
            self._picture.line("bound", x1, y1, x2, y2)

    def bound(self, value: float, name: str) -> None:
        """Draw a dashed line across."""
        y = self._at(0, value)[1]
        self._picture.line("bound", LEFT, y, WIDTH - RIGHT, y)
        self._labels.append((y, "axis", name))

    def note(self, x: float, y: float, words: str, kind: str = "axis") -> None:
        """Write words at a place."""
        left, top = self._at(x, y)
        self._picture.text(kind, left, top, words)

    def label(self, value: float, name: str) -> None:
        """Name what stands at this height."""
        self._labels.append((self._at(0, value)[1], "axis", name))

    def finish(self) -> None:
        """Write the names."""
        self._labels.sort(key=lambda label: label[0])
        places = spread_labels([y for y, _, _ in self._labels], self._floor)
        for y, (_, kind, name) in zip(places, self._labels, strict=True):
            self._picture.text(kind, WIDTH - RIGHT + 8, y + 4, name)

    def _name(self, kind: str, name: str, value: float) -> None:
        if name:
            self._labels.append((self._at(0, value)[1], kind, name))

    def _at(self, x: float, y: float) -> Point:
        across = (x - self._x.least) / (self._x.most - self._x.least)
        up = (y - self._y.least) / (self._y.most - self._y.least)
        return (
            LEFT + (WIDTH - RIGHT - LEFT) * min(max(across, 0.0), 1.0),
            self._floor - (self._floor - self._top) * min(max(up, 0.0), 1.0),
        )

    @staticmethod
    def _ticks(axis: Axis) -> Sequence[tuple[float, str]]:
        if axis.ticks is not None:
            return axis.ticks
        step, _ = axis_ticks(axis.most - axis.least)
        first, last = round(axis.least / step), int(axis.most / step + 1e-9)
        return [(step * at, f"{step * at:,.6g}") for at in range(first, last + 1)]


class Sheet:
    """A picture of panels, one below the other."""

    def __init__(self, title: str, *tall: float) -> None:
        self.title = title
        height = sum(each + NAME_TALL + AXIS_TALL for each in tall)
        self._picture = Picture(title, WIDTH, int(height))
        self._tall = list(tall)
        self._panels: list[Panel] = []

    def panel(self, name: str, x: Axis, y: Axis) -> Panel:
        """The next one, from the top."""
        at = len(self._panels)
        top = sum(each + NAME_TALL + AXIS_TALL for each in self._tall[:at])
        panel = Panel(self._picture, top, self._tall[at], name, x, y)
        self._panels.append(panel)
        return panel

    def drawing(self, sentence: str) -> Drawing:
        """The whole of it."""
        for panel in self._panels:
            panel.finish()
        return Drawing(self.title, sentence, svg_file(self._picture.render(), sentence))


Draw = Callable[[], Drawing]
