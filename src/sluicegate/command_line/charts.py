"""Charts: pictures as SVG text, in the colours of the page they stand in (see `page.py`).

A chart is made of numbers that were worked out here and of words that were escaped here. It holds
no script, no style and no address: classes say what it looks like, so a page may forbid everything
but its own style sheet. `line_chart` and `bar_chart` are whole charts; who needs
another one draws it with a `Picture`, `axis_ticks` and `spread_labels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, NamedTuple, final

from sluicegate.command_line.text import clip

LABEL_TALL: Final = 17
WIDTH: Final = 720
_LEFT: Final = 72
_RIGHT: Final = 96
_TOP: Final = 12
_BOTTOM: Final = 30
_LINES_TALL: Final = 220
_SPARK: Final = (120, 22)
_BARS_LEFT: Final = 110
_BARS_CHARS_MAX: Final = 14  # that fit there
_TICKS_MAX: Final = 5
_STEPS: Final = (1, 2, 5, 10)


class Curve(NamedTuple):
    """One line of a chart: a value for each slice, None where there is none."""

    name: str
    kind: str  # a class of the style sheet
    values: Sequence[float | None]


class ChartScale(NamedTuple):
    """How a script reads values out at the pointer: times `scale`, then `unit`, over `span_s`."""

    span_s: int
    scale: float = 1.0
    unit: str = ""


class BarSegment(NamedTuple):
    """A piece of a bar."""

    name: str
    kind: str  # a class of the style sheet
    value: int


@final
class Picture:
    """An SVG image under construction; `kind` is the class of what is drawn."""

    __slots__ = ("_attributes", "_parts", "_size", "_title")

    def __init__(self, title: str, width: int, height: int, attributes: str = "") -> None:
        self._title = escape(title)
        self._attributes = attributes
        self._size = f"{width} {height}"
        self._parts: list[str] = []

    def line(self, kind: str, x: float, y: float, x2: float, y2: float) -> None:
        """Draw a straight line."""
        self._parts.append(
            f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def rect(
        self, kind: str, x: float, y: float, width: float, height: float, title: str = ""
    ) -> None:
        """Draw a filled rectangle; a pointer that rests on it shows the title."""
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}">{inside}</rect>'
        )

    def text(self, kind: str, x: float, y: float, words: str) -> None:
        """Write words."""
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')

    def path(self, kind: str, points: Iterable[tuple[float, float]]) -> None:
        """Draw a line through points."""
        self._parts.append(f'<polyline class="{kind}" points="{_joined(points)}"/>')

    def area(self, kind: str, points: Iterable[tuple[float, float]]) -> None:
        """Fill what the points enclose."""
        self._parts.append(f'<polygon class="{kind}" points="{_joined(points)}"/>')

    def dot(self, kind: str, x: float, y: float) -> None:
        """Draw a point."""
        self._parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')

    def begin(self, kind: str, name: str, values: Sequence[float | None]) -> None:
        """Begin a group that says which values it shows; `end` ends it."""
        said = ",".join("" if value is None else f"{value:.5g}" for value in values)
        self._parts.append(
            f'<g class="{kind}" data-name="{escape(name)}" data-values="{escape(said)}">'
        )

    def end(self) -> None:
        """End a group."""
        self._parts.append("</g>")

    def render(self) -> str:
        """Return the image, to stand in a page."""
        return (
            f'<svg viewBox="0 0 {self._size}" role="img" aria-label="{self._title}"'
            f"{self._attributes}>"
            f"<title>{self._title}</title>{''.join(self._parts)}</svg>"
        )


def line_chart(
    title: str,
    curves: Sequence[Curve],
    ends: str,
    label_of: Callable[[float], str],
    *,
    most: float | None = None,
    bound: float | None = None,
    begins: str = "0",
    scale: ChartScale | None = None,
) -> str:
    """Draw values over time, from 0 up.

    `begins` and `ends` are the ends of the time, in words; `label_of` writes a value at the axis;
    `most` is the end of that axis, which else fits the values; `bound` is a dashed line across.
    With a `scale` the chart says its values to a script, which reads them out and zooms.
    """
    if most is None:
        values = [value for one in curves for value in one.values if value is not None]
        most = max([bound or 0.0, *values]) or 1.0
    step, ticks = axis_ticks(most)
    right, floor = WIDTH - _RIGHT, _LINES_TALL - _BOTTOM
    attributes = "" if scale is None else _scale_attributes(scale, right, floor, step * ticks)
    picture = Picture(title, WIDTH, _LINES_TALL, attributes)

    def y_of(value: float) -> float:
        return floor - (floor - _TOP) * value / (step * ticks)

    for at in range(ticks + 1):
        y = y_of(step * at)
        picture.line("grid", _LEFT, y, right, y)
        picture.text("axis end", _LEFT - 8, y + 4, label_of(step * at))
    time = "axis" if scale is None else "axis time"
    picture.text(time, _LEFT, _LINES_TALL - 8, begins)
    picture.text(f"{time} end", right, _LINES_TALL - 8, ends)
    labels: list[tuple[float, str, str]] = []
    if bound is not None:
        picture.line("bound", _LEFT, y_of(bound), right, y_of(bound))
        labels.append((y_of(bound), "axis", "at most"))
    for curve in curves:
        if scale is not None:
            picture.begin(f"curve {curve.kind}", curve.name, curve.values)
        for run in _runs(curve.values):
            points = [
                (_LEFT + (right - _LEFT) * at / max(len(curve.values) - 1, 1), y_of(value))
                for at, value in run
            ]
            if len(points) == 1:
                picture.dot(f"dot {curve.kind}", *points[0])
            else:
                picture.path(f"line {curve.kind}", points)
        if scale is not None:
            picture.end()
        last = next((value for value in reversed(curve.values) if value is not None), None)
        if last is not None:
            labels.append((y_of(last), f"label {curve.kind}", curve.name))
    labels.sort(key=lambda label: label[0])
    for y, (_, kind, name) in zip(
        spread_labels([y for y, _, _ in labels], floor), labels, strict=True
    ):
        picture.text(kind, right + 8, y + 4, name)
    if scale is None:
        return picture.render()
    picture.line("cursor", _LEFT, _TOP, _LEFT, floor)
    return picture.render() + '<p class="readout" aria-live="polite"></p>'


def spark_line(title: str, values: Sequence[float]) -> str:
    """Draw a small line from 0 up, without axes, to stand in a row; nothing for fewer than two."""
    if len(values) < 2:
        return ""
    picture = Picture(title, *_SPARK)
    wide, tall = _SPARK
    most = max(values) or 1.0
    step = (wide - 2) / (len(values) - 1)
    height = tall - 2
    picture.path(
        "spark",
        [(1 + at * step, tall - 1 - value / most * height) for at, value in enumerate(values)],
    )
    return picture.render()


def bar_chart(
    title: str,
    rows: Sequence[tuple[str, Sequence[BarSegment]]],
    label_of: Callable[[int], str] = "{:,}".format,
) -> str:
    """Draw a bar of the same length for each row, whatever its total; segments are shares of it.

    `label_of` writes a value.
    """
    tall = 34
    wide = WIDTH - _BARS_LEFT - _RIGHT
    picture = Picture(title, WIDTH, tall * len(rows) + 8)
    for number, (name, segments) in enumerate(rows):
        y = number * tall + 6
        total = sum(segment.value for segment in segments)
        picture.text("label end", _BARS_LEFT - 10, y + 15, clip(name, _BARS_CHARS_MAX))
        picture.rect("fill empty", _BARS_LEFT, y, wide, 20)
        x = float(_BARS_LEFT)
        for segment in segments:
            if segment.value:
                width = wide * segment.value / total
                words = f"{segment.name}: {label_of(segment.value)} of {label_of(total)}"
                picture.rect(f"fill {segment.kind}", x, y, width, 20, words)
                x += width
        picture.text("axis", _BARS_LEFT + wide + 8, y + 15, label_of(total))
    return picture.render()


def axis_ticks(most: float) -> tuple[float, int]:
    """Return a distance of ticks that is easy to read, and how many of them, at most five."""
    unit = 10.0 ** math.floor(math.log10(most / _TICKS_MAX))
    target = most * (1 - 1e-9)
    step = next(unit * step for step in _STEPS if unit * step * _TICKS_MAX >= target)
    return step, math.ceil(target / step)


def spread_labels(ideal: Sequence[float], lowest: float) -> list[float]:
    """Return places near the wanted ones, in their order, so that no label covers another."""
    places: list[float] = []
    for y in ideal:
        places.append(max(y, places[-1] + LABEL_TALL) if places else y)
    for at in reversed(range(len(places))):
        places[at] = min(places[at], lowest)
        lowest = places[at] - LABEL_TALL
    return places


def _scale_attributes(scale: ChartScale, right: int, floor: int, most: float) -> str:
    """The attributes that tell a script where values are drawn, and how they are written."""
    plot = f"{_LEFT},{right},{_TOP},{floor},{most:.6g},{WIDTH}"
    return (
        f' tabindex="0" data-plot="{plot}" data-span="{scale.span_s}" '
        f'data-scale="{scale.scale:g}" data-unit="{escape(scale.unit)}"'
    )


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The values that follow each other without a gap, with their places."""
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
