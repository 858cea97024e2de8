"""Report: an outcome as text for people, as JSON for programs, and as a picture.

Of the picture: the first line of a panel is what the drill is about, and thick; a control is
orange; what a figure must keep to is dashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from sluicegate.lab.drills.drill import Drill, DrillBar, DrillOutcome, DrillSetting, Panel
from sluicegate.lab.plots import name_end, spread
from sluicegate.lab.plots_style import HUES, INK, MUST_FAIL, MUTED, OURS, THICK, THIN, drawing, png
from sluicegate.lab.text import format_number

VERSION: Final = 1  # of what programs read


def text_lines(drill: Drill, setting: DrillSetting, outcome: DrillOutcome) -> Iterator[str]:
    """Yield the lines of a report for people."""
    yield f"{drill.name}: {drill.title}"
    yield f"  {drill.why}"
    width = max((len(name) for name in outcome.figures), default=0)
    for name, value in outcome.figures.items():
        yield f"  {name:<{width}}  {_value(value)}"
    for note in outcome.notes:
        yield f"  {note}"
    for reason in outcome.void:
        yield f"  VOID    {reason}"
    for bar in outcome.bars:
        yield f"  {_word(bar, outcome)}  {render_bar(bar)}"
    if outcome.void:
        yield "  The run is void: it says nothing. Give the machine to it, and try again."


def render_bar(bar: DrillBar) -> str:
    """Return one bar as text."""
    side = "at most" if bar.at_most is not None else "at least"
    return f"{bar.claim}: {_with_unit(bar.value, bar)}, {side} {_with_unit(bar.bound, bar)}"


def as_json(drill: Drill, setting: DrillSetting, outcome: DrillOutcome) -> dict[str, Any]:
    """Return a report for programs; infinity and NaN are null."""
    return {
        "version": VERSION,
        "drill": drill.name,
        "seconds": setting.seconds,
        "policy": setting.policy,
        "seed": setting.seed,
        "held": outcome.passed,
        "void": outcome.void,
        "notes": outcome.notes,
        "figures": {name: _finite(value) for name, value in outcome.figures.items()},
        "bars": [
            {
                "claim": bar.claim,
                "value": _finite(bar.value),
                "at_most": bar.at_most,
                "at_least": bar.at_least,
                "unit": bar.unit,
                "met": bar.met,
                "control": bar.must_miss,
            }
            for bar in outcome.bars
        ],
    }


def _word(bar: DrillBar, outcome: DrillOutcome) -> str:
    if outcome.void:
        return "(void)"
    if bar.must_miss:
        return "MET, though it was to fail" if bar.met else "missed, as it must be"
    return "met   " if bar.met else "MISSED"


def _with_unit(value: float, bar: DrillBar) -> str:
    if bar.unit == "%":
        return f"{value:.2%}" if isfinite(value) else "never"
    return f"{_value(value)} {bar.unit}".rstrip()


def _value(value: float) -> str:
    return format_number(value) if isfinite(value) else "never"


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS_MAX: Final = 2
_WIDTH: Final = 5.6  # inches, of a panel with its names
_HEIGHT: Final = 3.0
_NAME_GAP: Final = 0.062  # of the height, between two names
_CROWDED: Final = 14  # points, from which on they need no marks
_LEAST: Final = 1e-3  # of what is drawn on a log scale


def draw(title: str, panels: Sequence[Panel]) -> bytes:
    """Return the picture as a PNG; nothing if there is nothing to draw."""
    filled = [panel for panel in panels if any(panel.lines.values())]
    if not filled:
        return b""
    with drawing() as figure_class:
        return png(_figure(figure_class, title, filled))


def _figure(figure_class: type[Figure], title: str, panels: Sequence[Panel]) -> Figure:
    columns = min(len(panels), COLUMNS_MAX)
    rows = -(-len(panels) // columns)
    figure = figure_class(figsize=(_WIDTH * columns, _HEIGHT * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [ax for row in grid for ax in row]
    for unused in axes[len(panels) :]:
        unused.remove()
    for panel, ax in zip(panels, axes, strict=False):
        _panel(ax, panel)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    figure.canvas.draw()  # so that scales are what they will be
    for panel, ax in zip(panels, axes, strict=False):
        _names(ax, panel)
    return figure


def _panel(ax: Axes, panel: Panel) -> None:
    if panel.log_y:
        ax.set_yscale("log")
    for name, points in panel.lines.items():
        if not points:
            continue
        first = name == _first(panel)
        crowded = len(points) > _CROWDED
        ax.plot(
            [x for x, _ in points],
            [_drawable(y, panel) for _, y in points],
            color=colour(panel, name),
            linewidth=(THICK if first else THIN) * (0.75 if crowded else 1.0),
            marker=None if crowded else "o",
            markersize=4.5 if first else 3.5,
            zorder=5 if first else 3,
        )
    if panel.bound is not None:
        ax.axhline(panel.bound, color=INK, linewidth=1.0, dashes=(4, 3), zorder=4)
        ax.set_title("- - bar", loc="right", fontsize=8, color=INK)
    if not panel.log_y:
        ax.set_ylim(bottom=0)
    ax.margins(x=0)
    ax.set_title(panel.title, loc="left", fontsize=9, color=INK)
    ax.set_xlabel(panel.x)
    ax.set_ylabel(panel.y)


def _names(ax: Axes, panel: Panel) -> None:
    """Put each name at the right, beside its last point, none on top of another."""
    invert = ax.transAxes.inverted()
    lines = {name: points for name, points in panel.lines.items() if points}
    places = []
    for points in lines.values():
        ends: Any = ax.transData.transform((0.0, _drawable(points[-1][1], panel)))
        places.append(min(max(float(invert.transform(ends)[1]), 0.0), 1.0))
    for name, place in zip(lines, spread(places, _NAME_GAP), strict=True):
        name_end(ax, name, place, colour(panel, name), bold=name == _first(panel))


def _first(panel: Panel) -> str:
    return next(iter(panel.lines))


def colour(panel: Panel, name: str) -> str:
    """Return the colour of a line."""
    if name == _first(panel):
        return OURS
    if name in panel.controls:
        return MUST_FAIL
    if name == "offered":
        return MUTED
    others = [one for one in panel.lines if one not in (_first(panel), *panel.controls)]
    return HUES[others.index(name) % len(HUES)]


def _drawable(value: float, panel: Panel) -> float:
    """Return a value that can be drawn: infinity leaves a gap, nothing lies below the floor."""
    if not isfinite(value):
        return float("nan")
    return max(value, _LEAST) if panel.log_y else value
