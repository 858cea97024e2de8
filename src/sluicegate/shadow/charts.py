"""Charts: a few plain pictures as SVG, drawn here, in the colours of the page they stand in.

A picture is text made of numbers that were worked out here and of words that were escaped here.
There is no script, no style and no address in it: what it looks like is said by classes, so a page
may forbid everything but its own style sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple, TypeAlias

LABEL_TALL: Final = 14
LABEL_TOP: Final = 4  # higher up a label would be cut off
WIDTH: Final = 720
_LEFT: Final = 56
_RIGHT: Final = 96
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)

_Scale: TypeAlias = Callable[[float], float]


class Line(NamedTuple):
    """One line of a picture: a value for each slice, None where there is none."""

    name: str
    kind: str  # a class of the style sheet
    values: Sequence[float | None]


class Segment(NamedTuple):
    """A piece of a bar."""

    name: str
    kind: str
    value: int


def lines(title: str, several: Sequence[Line], ends: str, *, bound: float | None = None) -> str:
    """Shares over time, from 0 up; `ends` is how long the time is, in words."""
    height, top, bottom = 220, 12, 30
    seen = [value for line in several for value in line.values if value is not None]
    most = _round_up(max([*seen, bound or 0.0, 0.001]))
    tall = height - top - bottom
    wide = WIDTH - _LEFT - _RIGHT

    def y_of(value: float) -> float:
        return top + tall * (1 - value / most)

    parts = [_open(title, height)]
    for step in range(5):
        value = most * step / 4
        y = y_of(value)
        parts.append(_line("grid", _LEFT, y, _LEFT + wide, y))
        parts.append(_text("axis end", _LEFT - 8, y + 4, _share(value)))
    parts.append(_text("axis", _LEFT, height - 8, "0"))
    parts.append(_text("axis end", _LEFT + wide, height - 8, ends))
    if bound is not None:
        parts.append(_line("bound", _LEFT, y_of(bound), _LEFT + wide, y_of(bound)))
        parts.append(_text("axis", _LEFT + wide + 8, y_of(bound) + 4, "at most"))
    taken: list[float] = [] if bound is None else [y_of(bound)]
    for line in several:
        parts += _drawn(line, wide, y_of)
        last = next((value for value in reversed(line.values) if value is not None), None)
        if last is not None:
            y = _free(y_of(last), taken)
            taken.append(y)
            parts.append(_text(f"label {line.kind}", _LEFT + wide + 8, y + 4, line.name))
    return "".join([*parts, "</svg>"])


def bars(title: str, rows: Sequence[tuple[str, Sequence[Segment]]]) -> str:
    """A whole bar for each row, however much it is of; its segments are shares of it."""
    step, left = 34, 110
    height = step * len(rows) + 8
    wide = WIDTH - left - _RIGHT
    parts = [_open(title, height)]
    for number, (name, segments) in enumerate(rows):
        y = number * step + 6
        total = sum(segment.value for segment in segments)
        parts.append(_text("label end", left - 10, y + 15, name))
        parts.append(_rect("empty", left, y, wide, 20))
        x = float(left)
        for segment in segments:
            if segment.value:
                width = wide * segment.value / total
                told = f"{segment.name}: {segment.value:,} of {total:,}"
                parts.append(_rect(segment.kind, x, y, width, 20, told))
                x += width
        parts.append(_text("axis", left + wide + 8, y + 15, f"{total:,}"))
    return "".join([*parts, "</svg>"])


def gauges(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """A bar from 0 to 1 for each row."""
    step, left = 26, 110
    height = step * len(rows) + 8
    wide = WIDTH - left - _RIGHT
    parts = [_open(title, height)]
    for number, (name, value) in enumerate(rows):
        y = number * step + 6
        parts.append(_text("label end", left - 10, y + 12, name))
        parts.append(_rect("empty", left, y, wide, 14))
        parts.append(_rect("candidate", left, y, wide * min(1.0, max(0.0, value)), 14))
        parts.append(_text("axis", left + wide + 8, y + 12, f"{value:.3f}"))
    return "".join([*parts, "</svg>"])


# Pieces.


def _drawn(line: Line, wide: float, y_of: _Scale) -> list[str]:
    """The line, broken where it has no values; a value alone is a dot."""
    many = max(len(line.values) - 1, 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_LEFT + wide * at / many, y_of(value)))
    parts: list[str] = []
    for run in runs:
        if len(run) == 1:
            (x, y) = run[0]
            parts.append(f'<circle class="dot {line.kind}" cx="{_n(x)}" cy="{_n(y)}" r="2"/>')
        elif run:
            points = " ".join(f"{_n(x)},{_n(y)}" for x, y in run)
            parts.append(f'<polyline class="line {line.kind}" points="{points}"/>')
    return parts


def _open(title: str, height: int) -> str:
    said = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{said}"><title>{said}</title>'
    )


def _line(kind: str, x: float, y: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{_n(x)}" y1="{_n(y)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float, told: str = "") -> str:
    title = f"<title>{escape(told)}</title>" if told else ""
    return (
        f'<rect class="fill {kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" '
        f'height="{_n(tall)}">{title}</rect>'
    )


def _text(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{escape(words)}</text>'


def _n(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}"


def _share(value: float) -> str:
    return f"{value * 100:.4g}%"


def _free(y: float, taken: Sequence[float]) -> float:
    """A place for a label near its line that is not another's: above it, or below at the top."""
    place = y
    while place >= LABEL_TOP and any(abs(place - other) < LABEL_TALL for other in taken):
        place -= LABEL_TALL
    if place >= LABEL_TOP:
        return place
    while any(abs(y - other) < LABEL_TALL for other in taken):
        y += LABEL_TALL
    return y


def _round_up(value: float) -> float:
    """The next number that axes like to end at; a share is at most 1."""
    unit = 1e-4
    while unit * 10 < value:
        unit *= 10
    return min(1.0, next((unit * step for step in _STEPS if unit * step >= value), unit * 10))
