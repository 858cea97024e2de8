"""What-if, its charts: lines over time in any unit, as SVG in the colours of their page.

Lines and the classes of the style sheet are those of `command_line/charts.py`.
Here a dozen of them may end at one place, so their names are set apart, in the order of the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from sluicegate.command_line.charts import WIDTH, Curve

_LEFT: Final = 72
_RIGHT: Final = 96
_TOP: Final = 12
_HEIGHT: Final = 220
_TALL: Final = _HEIGHT - _TOP - 30
_WIDE: Final = WIDTH - _LEFT - _RIGHT
_STEPS: Final = (1.0, 2.0, 4.0, 5.0, 10.0)
_LABEL_TALL: Final = 14


def curves(
    title: str,
    several: Sequence[Curve],
    ends: str,
    write: Callable[[float], str],
    *,
    most: float | None = None,
) -> str:
    """Values from 0 up, to `most` if that is given; `ends` is how long the time is, in words."""
    if most is None:
        seen = [value for line in several for value in line.values if value is not None]
        most = round_up(max([*seen, 1.0]))
    said = escape(title)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-label="{said}"><title>{said}</title>'
    ]
    for step in range(5):
        value = most * step / 4
        y = _y(value, most)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _WIDE}" y2="{y:.1f}"/>'
        )
        parts.append(_text("axis end", _LEFT - 8, y + 4, write(value)))
    parts.append(_text("axis", _LEFT, _HEIGHT - 8, "0"))
    parts.append(_text("axis end", _LEFT + _WIDE, _HEIGHT - 8, ends))
    labels: list[tuple[float, Curve]] = []
    for line in several:
        parts += _drawn(line, most)
        last = next((value for value in reversed(line.values) if value is not None), None)
        if last is not None:
            labels.append((_y(last, most), line))
    labels.sort(key=lambda label: label[0])
    for y, (_, line) in zip(apart([y for y, _ in labels]), labels, strict=True):
        parts.append(_text(f"label {line.kind}", _LEFT + _WIDE + 8, y + 4, line.name))
    return "".join([*parts, "</svg>"])


def apart(wanted: Sequence[float]) -> list[float]:
    """Places for labels: near where they are wanted, in that order, and none upon another."""
    places: list[float] = []
    for y in wanted:
        places.append(max(y, places[-1] + _LABEL_TALL) if places else y)
    low = float(_TOP + _TALL)
    for at in reversed(range(len(places))):
        places[at] = min(places[at], low)
        low = places[at] - _LABEL_TALL
    return places


def round_up(value: float) -> float:
    """The next number that an axis likes to end at."""
    unit = 1.0
    while unit * 10 < value:
        unit *= 10
    return next(unit * step for step in _STEPS if unit * step >= value)


def _drawn(line: Curve, most: float) -> list[str]:
    """The line, broken where it has no values; a value alone is a dot."""
    many = max(len(line.values) - 1, 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_LEFT + _WIDE * at / many, _y(value, most)))
    parts: list[str] = []
    for run in runs:
        if len(run) == 1:
            x, y = run[0]
            parts.append(f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
        elif run:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
            parts.append(f'<polyline class="line {line.kind}" points="{points}"/>')
    return parts


def _y(value: float, most: float) -> float:
    return _TOP + _TALL * (1 - value / most)


def _text(kind: str, x: float, y: float, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
