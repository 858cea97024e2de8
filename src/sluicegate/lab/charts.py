"""Charts of the lab: panels of lines over x as SVG, for a page or as a separate file.

The first line of a panel is the product's and thick, controls are orange, a bound is dashed, and
names stand where lines end. An infinite value leaves a gap. Colors are variables of a style sheet,
so that a picture is readable in light and dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from math import ceil, floor, inf, isfinite, log10
from typing import Final, NamedTuple, TypeAlias

from sluicegate.command_line.charts import WIDTH, Picture, axis_ticks, spread_labels
from sluicegate.lab.text import format_number

Points: TypeAlias = Sequence[tuple[float, float]]

HUES: Final = tuple(f"hue-{number}" for number in range(6))
KINDS: Final = ("ours", "must-fail", "muted", *HUES)
LIGHT: Final = {
    "paper": "#ffffff",
    "ink": "#1c2024",
    "muted": "#6a727d",
    "grid": "#e4e7eb",
    "ours": "#0b62ad",
    "must-fail": "#cf4a1c",
    "hue-0": "#008a63",
    "hue-1": "#a8548c",
    "hue-2": "#8a7500",
    "hue-3": "#3a9bc7",
    "hue-4": "#7a5c3e",
    "hue-5": "#7d858f",
    "good": "#1a7f4b",
}
DARK: Final = {
    "paper": "#16191d",
    "ink": "#e6e8ea",
    "muted": "#98a1ab",
    "grid": "#2c3238",
    "ours": "#5aa9ee",
    "must-fail": "#f0835a",
    "hue-0": "#3fbf95",
    "hue-1": "#d78abc",
    "hue-2": "#c4ac35",
    "hue-3": "#7cc8ea",
    "hue-4": "#b8977a",
    "hue-5": "#98a1ab",
    "good": "#56c98d",
}
CHART_STYLE: Final = (
    ".bound { stroke: var(--ink); stroke-dasharray: 5 4; }\n"
    ".line.front { stroke-width: 3; } text.front { font-weight: 600; }\n"
    + "".join(
        f".line.{kind} {{ stroke: var(--{kind}); }} "
        f"text.{kind}, .dot.{kind} {{ fill: var(--{kind}); }}\n"
        for kind in KINDS
    )
)
_FILE_STYLE: Final = (
    'text { fill: var(--ink); font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }\n'
    "text.axis { fill: var(--muted); font-size: 12px; } text.end { text-anchor: end; }\n"
    ".paper { fill: var(--paper); } .grid { stroke: var(--grid); }\n"
    ".line { fill: none; stroke-linejoin: round; stroke-width: 1.5; }\n"
)
_TALL: Final = 240  # of a panel
_LEFT: Final = 72
_RIGHT: Final = 190  # with the names
_HEAD: Final = 36
_FOOT: Final = 30
_HEADLINE: Final = 26  # of a file
_LOG_LEAST: Final = 1e-3  # lower values are drawn there on a log scale
_ROW: Final = 22  # of a claim
_CLAIMS_LEFT: Final = 150
_USED: Final = (0.01, 0.1, 1.0, 10.0, 100.0)  # ticks; a value beyond them is drawn at the edge


class Panel(NamedTuple):
    """Lines over x, each with its name; `bound` is dashed."""

    title: str
    y: str
    x: str
    lines: Mapping[str, Points]
    bound: float | None = None
    controls: tuple[str, ...] = ()  # of the lines: those with the defense taken out
    log_y: bool = False


class MarginRow(NamedTuple):
    """A claim: how much of its tightest goal ours uses, and how much the failing ones do."""

    name: str
    ours: float
    failing: Sequence[float]


def theme_style() -> str:
    """Return the colors as variables of a style sheet, light and dark."""
    light, dark = (
        "; ".join(f"--{name}: {color}" for name, color in theme.items()) for theme in (LIGHT, DARK)
    )
    return f":root {{ {light}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}\n"


def panel_chart(panel: Panel) -> str:
    """Return one panel as an image of a page."""
    picture = Picture(panel.title, WIDTH, _TALL)
    _draw(picture, 0, panel)
    return picture.render()


def panels_file(title: str, panels: Iterable[Panel]) -> str:
    """Return a file with the panels below each other; empty if there is nothing to draw."""
    filled = [panel for panel in panels if any(panel.lines.values())]
    if not filled:
        return ""
    picture = Picture(title, WIDTH, _HEADLINE + _TALL * len(filled))
    picture.text("front", 8, 18, title)
    for number, panel in enumerate(filled):
        _draw(picture, _HEADLINE + _TALL * number, panel)
    words = "; ".join(panel.title for panel in filled)
    return svg_file(picture.render(), words, theme_style() + _FILE_STYLE + CHART_STYLE)


def svg_file(drawn: str, description: str, style: str) -> str:
    """Return a drawing as a file; a screen reader reads the title and then the description."""
    found = re.match(r'<svg viewBox="0 0 (\d+) (\d+)"', drawn)
    if found is None:
        raise ValueError("this is no drawing of the chart kit")
    wide, tall = found.groups()
    head, title, rest = drawn.partition("</title>")
    head = head.replace(
        "<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" ', 1
    )
    return (
        f"{head}{title}<desc>{escape(description)}</desc><style>{style}</style>"
        f'<rect class="paper" width="{wide}" height="{tall}"/>{rest}\n'
    )


def margin_chart(title: str, rows: Sequence[MarginRow]) -> str:
    """Draw a row for each claim: ours as a bar from the bound, failing ones as marks."""
    floor_y = _ROW * len(rows) + 8
    picture = Picture(title, WIDTH, floor_y + _FOOT)
    for used, words in zip(_USED, ("1%", "10%", "the bound", "10 times", "100 times"), strict=True):
        picture.line("bound" if used == 1 else "grid", _used_x(used), 0, _used_x(used), floor_y)
        picture.text("axis end", _used_x(used) + 8, floor_y + 18, words)
    for number, row in enumerate(rows):
        y = _ROW * number + 16
        kind = "ours" if row.ours <= 1 else "must-fail"
        picture.text("end", _CLAIMS_LEFT - 12, y + 4, row.name)
        picture.path(f"line front {kind}", [(_used_x(row.ours), y), (_used_x(1), y)])
        picture.dot(f"dot {kind}", _used_x(row.ours), y)
        for used in row.failing:
            picture.text("must-fail", _used_x(used) - 4, y + 5, "+")
    return picture.render()


def kind_of(panel: Panel, name: str) -> str:
    """Return the class of a line."""
    first = next(iter(panel.lines))
    if name == first:
        return "ours"
    if name in panel.controls:
        return "must-fail"
    if name == "offered":
        return "muted"
    others = [one for one in panel.lines if one not in (first, "offered", *panel.controls)]
    return HUES[others.index(name) % len(HUES)]


def _used_x(used: float) -> float:
    share = log10(min(max(used, _USED[0]), _USED[-1]) / _USED[0]) / 4
    return _CLAIMS_LEFT + (WIDTH - _CLAIMS_LEFT - 40) * share


def _draw(picture: Picture, top: float, panel: Panel) -> None:
    right, low_y, high_y = WIDTH - _RIGHT, top + _TALL - _FOOT, top + _HEAD
    points = [point for line in panel.lines.values() for point in line]
    ticks = _ticks([y for _, y in points if isfinite(y)], panel)
    first_x, last_x = min(x for x, _ in points), max(x for x, _ in points)

    def x_of(x: float) -> float:
        return _LEFT + (right - _LEFT) * (x - first_x) / ((last_x - first_x) or 1)

    def y_of(y: float) -> float:
        if panel.log_y:
            share = log10(max(y, ticks[0]) / ticks[0]) / log10(ticks[-1] / ticks[0])
        else:
            share = (y - ticks[0]) / (ticks[-1] - ticks[0])
        return low_y - (low_y - high_y) * share

    picture.text("front", _LEFT, top + 14, panel.title)
    picture.text("axis", 8, top + 28, panel.y)
    for tick in ticks:
        picture.line("grid", _LEFT, y_of(tick), right, y_of(tick))
        picture.text("axis end", _LEFT - 8, y_of(tick) + 4, format_number(tick))
    picture.text("axis", _LEFT, low_y + 20, format_number(first_x))
    picture.text("axis end", right, low_y + 20, f"{format_number(last_x)} {panel.x}")
    names: list[tuple[float, str, str]] = []
    if panel.bound is not None:
        picture.line("bound", _LEFT, y_of(panel.bound), right, y_of(panel.bound))
        names.append((y_of(panel.bound), "axis", "bound"))
    for name, line in reversed([*panel.lines.items()]):  # the first in front
        kind = kind_of(panel, name)
        front = " front" if name == next(iter(panel.lines)) else ""
        for is_finite, run in groupby(line, lambda point: isfinite(point[1])):
            drawn = [(x_of(x), y_of(y)) for x, y in run] if is_finite else []
            if len(drawn) == 1:
                picture.dot(f"dot {kind}", *drawn[0])
            elif drawn:
                picture.path(f"line {kind}{front}", drawn)
        if line:
            last = line[-1][1]
            end_y = y_of(last) if isfinite(last) else high_y
            names.append((end_y, f"{kind}{front}", name if isfinite(last) else f"{name}: never"))
    names.sort()
    places = spread_labels([y for y, _, _ in names], low_y)
    for y, (_, kind, name) in zip(places, names, strict=True):
        picture.text(kind, right + 8, y + 4, name)


def _ticks(values: Sequence[float], panel: Panel) -> list[float]:
    """Return the ticks of the y axis; all values lie between the first and the last."""
    bound = [] if panel.bound is None else [panel.bound]
    if panel.log_y:
        above = [max(value, _LOG_LEAST) for value in (*values, *bound)] or [1.0]
        low, high = floor(log10(min(above))), ceil(log10(max(above)))
        return [10.0**power for power in range(low, max(high, low + 1) + 1)]
    most = max([*values, *bound], default=0.0) or 1.0
    step, count = axis_ticks(most)
    least = min([*values, 0.0])
    below = ceil(-least / step) if least > -inf else 0
    return [step * at for at in range(-below, count + 1)]
