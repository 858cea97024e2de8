"""The plots of a scenario, drawn from the results of its runs.

    over cases, one figure        a line for each candidate; ours with the span of its seeds
    over cases, several figures   a panel for each candidate, a line for each figure
    over time, one curve          a panel for each case, a line for each candidate
    over time, several curves     a panel for each case of ours and of who must fail
    as bars                       a group for each figure, a bar for each candidate

Ours is thick and in front, others are thin, a goal is a dashed line, and names stand where lines
end. An infinite figure (nothing ever came back) is a mark at the edge that says "never". Of many
candidates a few are drawn, and `left_out` names the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf, isfinite, log10
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sluicegate.lab.goals import Goal
from sluicegate.lab.plots_style import (
    GRID,
    HUES,
    INK,
    MUST_FAIL,
    MUTED,
    OURS,
    PAPER,
    THICK,
    THIN,
    drawing,
)
from sluicegate.lab.scenario import AS_BARS, OVER_CASES, OVER_TIME, AnyScenario, Curves, PlotSpec
from sluicegate.lab.text import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS_MAX: Final = 4  # drawn beside ours and those who must fail
PANELS_MAX: Final = 6
_WIDTH: Final = 5.6  # inches, of one panel with its names
_HEIGHT: Final = 3.1
_NAME_GAP: Final = 0.058  # of the height of a panel, between two names
_CASE_CHARS: Final = 60  # below a panel, side by side
_BAR: Final = 0.23  # inches
_MARGIN_WIDTH: Final = 11.2
_MARGIN_ROW: Final = 0.21
_USED_LEAST: Final = 0.01  # what is less, or more than the most, is drawn at the edge
_USED_MOST: Final = 100.0
_LOG_LEAST: Final = 1e-9
_DASHES: Final = ((), (5.0, 1.5), (1.5, 1.5), (5.0, 1.5, 1.5, 1.5))
_FAINT: Final = 0.5
_CROWDED: Final = 12  # points, from which on they need no marks


class PlotData(NamedTuple):
    """What is plotted: figures by candidate, case and seed, curves by candidate and case."""

    figures: Mapping[str, Mapping[str, Mapping[int, Mapping[str, float]]]]
    curves: Mapping[str, Mapping[str, Curves]]


class _PlotLine(NamedTuple):
    """One line of a panel."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    front: bool
    low: Sequence[float] = ()  # of the seeds
    high: Sequence[float] = ()
    dashes: tuple[float, ...] = ()
    faint: bool = False  # what lies between two points means nothing


def draw(scenario: AnyScenario, spec: PlotSpec, data: PlotData, *, titled: bool) -> Figure | None:
    """Draw the plot; None if there are no data for it."""
    with drawing() as figure_class:
        if spec.over == OVER_CASES and len(scenario.rigs) > 1:
            drawn = _over_cases(figure_class, scenario, spec, data)
        elif spec.over == OVER_TIME:
            drawn = _over_time(figure_class, scenario, spec, data)
        else:
            drawn = _bars(figure_class, scenario, spec, data)
        if drawn is not None and titled:
            drawn.suptitle(
                f"{scenario.name}: {spec.title}", x=0.01, ha="left", fontsize=11, color=INK
            )
        return drawn


class MarginRow(NamedTuple):
    """A claim: how much of its tightest goal ours uses, and how much those who must fail do."""

    name: str
    ours: float
    failing: Sequence[float]


def draw_margins(rows: Sequence[MarginRow]) -> Figure:
    """Draw a line for each claim: ours as a dot, who must fail as crosses, the bound between."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(_MARGIN_WIDTH, 0.9 + _MARGIN_ROW * len(rows)))
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_xlim(_USED_LEAST / 1.15, _USED_MOST * 1.15)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.axvline(1.0, color=MUTED, linewidth=THIN)
        for at, row in enumerate(rows):
            ours = _shown_use(row.ours)
            colour = OURS if row.ours <= 1 else MUST_FAIL
            axes.plot([ours, 1.0], [at, at], color=colour, linewidth=THICK, alpha=_FAINT)
            crosses = [_shown_use(used) for used in row.failing]
            axes.plot(crosses, [at] * len(crosses), "x", color=MUST_FAIL, markersize=5, zorder=2)
            axes.plot([ours], [at], "o", color=colour, markersize=6.5, zorder=3)
        axes.set_yticks(range(len(rows)), [row.name for row in rows], color=INK)
        ticks = (0.01, 0.1, 1.0, 10.0, 100.0)
        axes.set_xticks(ticks, ["1%", "10%", "the goal's bound", "10 times", "100 times"])
        axes.xaxis.set_minor_locator(import_module("matplotlib.ticker").NullLocator())
        axes.set_xlabel("how much of what its tightest goal allows the worst run uses")
        figure.subplots_adjust(
            left=0.17, right=0.98, top=0.995, bottom=0.62 / figure.get_figheight()
        )
        return figure


def _shown_use(used: float) -> float:
    return min(max(used, _USED_LEAST), _USED_MOST)


def plotted_candidates(scenario: AnyScenario, spec: PlotSpec, data: PlotData) -> list[str]:
    """Ours, those who must fail, and the first few others that have anything to show."""
    first = [scenario.ours, *scenario.must_fail]
    source: Mapping[str, object] = data.curves if spec.over == OVER_TIME else data.figures
    others = [name for name in scenario.candidates if name not in first]
    found = [name for name in (*first, *others) if source.get(name)]
    return found[: len(first) + OTHERS_MAX]


def left_out(scenario: AnyScenario, spec: PlotSpec, data: PlotData) -> list[str]:
    """Name the candidates and cases that the plot leaves out."""
    drawn = plotted_candidates(scenario, spec, data)
    if spec.over != AS_BARS and len(spec.names) > 1:
        drawn = _apart(scenario, drawn)
    cases = list(scenario.rigs)
    if spec.over == OVER_TIME:
        cases = cases[_cases_max(spec, drawn) :]
    else:
        cases = [] if spec.over == OVER_CASES else cases[PANELS_MAX:]
    missing = [name for name in scenario.candidates if name not in drawn]
    return missing + [f"case {case}" for case in cases]


def _apart(scenario: AnyScenario, names: Sequence[str]) -> list[str]:
    """Who gets panels of their own: ours and who must fail, where a few panels hold them all."""
    found = [name for name in names if name == scenario.ours or name in scenario.must_fail]
    return found if len(scenario.rigs) * len(found) <= PANELS_MAX else found[:2]


def _cases_max(spec: PlotSpec, names: Sequence[str]) -> int:
    each = 1 if len(spec.names) == 1 else max(len(names), 1)
    return max(PANELS_MAX // each, 1)


def colours(scenario: AnyScenario) -> dict[str, str]:
    """A colour for each candidate, the same in all pictures of the scenario."""
    others = [
        name
        for name in scenario.candidates
        if name != scenario.ours and name not in scenario.must_fail
    ]
    found = {name: HUES[min(at, len(HUES) - 1)] for at, name in enumerate(others)}
    found |= dict.fromkeys(scenario.must_fail, MUST_FAIL)
    return found | {scenario.ours: OURS}


def without_unit(name: str) -> str:
    """A figure's or a curve's name without its unit, which the axis says."""
    for unit in ("_per_s", "_ms", "_us", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def spread(places: Sequence[float], gap: float, most: float = 1.0) -> list[float]:
    """Move the places as little as it takes to stand `gap` apart and not above `most`."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    found = list(places)
    above = -inf
    for at in order:
        found[at] = above = max(places[at], above + gap)
    below = most + gap
    for at in reversed(order):
        found[at] = below = min(found[at], below - gap)
    return found


def _over_cases(
    figure_class: type[Figure], scenario: AnyScenario, spec: PlotSpec, data: PlotData
) -> Figure | None:
    cases = list(scenario.rigs)
    names = plotted_candidates(scenario, spec, data)
    paint = colours(scenario)
    panels: list[tuple[str, list[_PlotLine]]] = []
    if len(spec.names) == 1:
        figure = spec.names[0]
        lines = [
            _case_line(
                who, who, figure, cases, data, paint[who], front=who == scenario.ours
            )._replace(dashes=_dashes(scenario, who), faint=not _are_ordered(cases))
            for who in names
        ]
        panels.append(("", [line for line in lines if line.points]))
    else:
        for who in names:
            if who == scenario.ours or who in scenario.must_fail:
                lines = [
                    _case_line(without_unit(figure), who, figure, cases, data, hue, front=False)
                    for figure, hue in zip(spec.names, _hues(), strict=False)
                ]
                panels.append((who, [line for line in lines if line.points]))
    panels = [panel for panel in panels if panel[1]][:PANELS_MAX]
    if not panels:
        return None
    result, axes = _panels(figure_class, len(panels))
    for ax in axes:
        _name_cases(ax, cases)
        ax.set_xlim(-0.25, len(cases) - 0.75)
    _plot(axes, panels, spec)
    if len(spec.names) == 1:
        _case_goals(axes[0], scenario, spec.names[0], cases)
    _label(axes, spec)
    return result


def _name_cases(ax: Axes, cases: Sequence[str]) -> None:
    """Name the cases below their places: in lines where they are long, else slanting."""
    room = max(_CASE_CHARS // len(cases), 1)
    folded = [wrap(case, room, break_long_words=False) for case in cases]
    if all(len(line) <= room for lines in folded for line in lines):
        ax.set_xticks(range(len(cases)), ["\n".join(lines) for lines in folded])
        return
    ax.set_xticks(range(len(cases)), cases, rotation=30, ha="right", rotation_mode="anchor")


def _case_line(
    name: str,
    who: str,
    figure: str,
    cases: Sequence[str],
    data: PlotData,
    colour: str,
    *,
    front: bool,
) -> _PlotLine:
    points, low, high = [], [], []
    for at, case in enumerate(cases):
        runs = data.figures.get(who, {}).get(case, {})
        values = [run[figure] for run in runs.values() if figure in run]
        if values:
            points.append((float(at), sum(values) / len(values)))
            low.append(min(values))
            high.append(max(values))
    return _PlotLine(name, points, colour, front, low, high)


def _over_time(
    figure_class: type[Figure], scenario: AnyScenario, spec: PlotSpec, data: PlotData
) -> Figure | None:
    names = plotted_candidates(scenario, spec, data)
    paint = colours(scenario)
    panels: list[tuple[str, str, list[_PlotLine]]] = []
    if len(spec.names) > 1:
        names = _apart(scenario, names)
    for case in list(scenario.rigs)[: _cases_max(spec, names)]:
        if len(spec.names) == 1:
            curve = spec.names[0]
            lines = [
                _PlotLine(
                    who, points, paint[who], who == scenario.ours, dashes=_dashes(scenario, who)
                )
                for who in names
                if (points := data.curves.get(who, {}).get(case, {}).get(curve))
            ]
            panels.append((case, case if len(scenario.rigs) > 1 else "", lines))
            continue
        for who in names:
            found = data.curves.get(who, {}).get(case, {})
            lines = [
                _PlotLine(without_unit(name), found[name], hue, False)
                for name, hue in zip(spec.names, _hues(), strict=False)
                if found.get(name)
            ]
            title = f"{who}, {case}" if len(scenario.rigs) > 1 else who
            panels.append((case, title, lines))
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        return None
    figure, axes = _panels(figure_class, len(panels))
    _plot(axes, [(title, lines) for _, title, lines in panels], spec)
    if len(spec.names) == 1:
        for (case, _, _), ax in zip(panels, axes, strict=True):
            for goal in _goals(scenario, spec.names[0], case):
                _bound(ax, goal.bound(scenario.rigs[case]))
    _label(axes, spec)
    return figure


def _bars(
    figure_class: type[Figure], scenario: AnyScenario, spec: PlotSpec, data: PlotData
) -> Figure | None:
    names = plotted_candidates(scenario, spec, data)
    cases = [case for case in scenario.rigs if any(data.figures[who].get(case) for who in names)]
    rows = [(figure, who) for figure in spec.names for who in names]
    if not rows or not cases:
        return None
    gaps = len(spec.names) - 1
    height = _BAR * (len(rows) + gaps) + 0.75
    cases = cases[:PANELS_MAX]
    figure = figure_class(
        figsize=(max(_WIDTH, 3.2 * len(cases) + 1.2), height), layout="constrained"
    )
    axes = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for case, ax in zip(cases, axes, strict=True):
        _bar_panel(ax, scenario, spec, data, case, names)
        if len(scenario.rigs) > 1:
            ax.set_title(case, loc="left", fontsize=9, color=INK)
        ax.set_xlabel(spec.y)
    return figure


def _bar_panel(
    ax: Axes,
    scenario: AnyScenario,
    spec: PlotSpec,
    data: PlotData,
    case: str,
    names: Sequence[str],
) -> None:
    paint = colours(scenario)
    places, labels = [], []
    values_shown = []
    place = 0.0
    spans: list[tuple[str, float, float]] = []
    drawn: list[tuple[float, float, str, bool]] = []
    for figure in spec.names:
        begun = place
        for who in names:
            runs = data.figures[who].get(case, {}).values()
            values = [run[figure] for run in runs if figure in run]
            mean = sum(values) / len(values) if values else 0.0
            values_shown.append(mean if isfinite(mean) else 0.0)
            drawn.append((place, mean, paint[who], who == scenario.ours))
            places.append(place)
            labels.append(who if len(spec.names) == 1 else f"{without_unit(figure)}  {who}")
            place += 1
        spans.append((figure, begun - 0.5, place - 0.5))
        place += 1
    bounds = [
        (goal, goal.bound(scenario.rigs[case]), low, high)
        for figure, low, high in spans
        for goal in _goals(scenario, figure, case)
    ]
    most = max([*values_shown, *(bound for _, bound, _, _ in bounds), _LOG_LEAST])
    least = min((value for value in values_shown if value > 0), default=most)
    if spec.log_y:
        ax.set_xscale("log")
        ax.set_xlim(least / 3, most * 6)
        _plain_log(ax.xaxis, ax.get_xlim())
    else:
        ax.set_xlim(0, most * 1.25)
    right = most * (6 if spec.log_y else 1.25)
    for at, mean, colour, front in drawn:
        never = not isfinite(mean)
        width = right if never else mean
        ax.barh(
            at,
            width,
            height=0.72 if front else 0.56,
            color=GRID if never else colour,
            alpha=1.0 if front else 0.75,
        )
        text = "never" if never else format_number(mean)
        ax.annotate(
            text,
            (0 if never and not spec.log_y else (least / 3 if never else mean), at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK if front or never else MUTED,
            fontweight="bold" if front else "normal",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            zorder=6,
        )
    for _, bound, low, high in bounds:
        ax.plot([bound, bound], [low, high], color=INK, linewidth=1.0, dashes=(4, 3))
    if bounds:
        _key(ax)
    ax.set_yticks(places, labels)
    ax.set_ylim(place - 1.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    for label, (_, _, colour, front) in zip(ax.get_yticklabels(), drawn, strict=False):
        label.set_color(colour)
        label.set_fontweight("bold" if front else "normal")


def _panels(figure_class: type[Figure], count: int) -> tuple[Figure, list[Axes]]:
    columns = 1 if count == 1 else 2
    rows = -(-count // columns)
    size = (_WIDTH * columns, (_HEIGHT if rows == 1 else _HEIGHT * 0.86) * rows)
    figure = figure_class(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    axes = [ax for row in grid for ax in row]
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def _plot(
    axes: Sequence[Axes], panels: Sequence[tuple[str, list[_PlotLine]]], spec: PlotSpec
) -> None:
    """Each panel's lines on scales that all panels share, then the names at their ends."""
    floor = _floor(panels) if spec.log_y else -inf
    for ax, (title, lines) in zip(axes, panels, strict=True):
        if spec.log_y:
            ax.set_yscale("log")
        for line in lines:
            _line(ax, line, floor)
        if title:
            ax.set_title(title, loc="left", fontsize=9, color=INK)
        if spec.over == OVER_TIME:
            ax.margins(x=0)
    _scale(axes, panels, spec)
    for ax, (_, lines) in zip(axes, panels, strict=True):
        for line in lines:
            never = [x for x, y in line.points if y == inf]
            if never and len(line.points) <= _CROWDED:
                _nevers(ax, never, line)
        _name_ends(ax, lines, floor)


def _line(ax: Axes, line: _PlotLine, floor: float) -> None:
    xs = [x for x, _ in line.points]
    crowded = len(xs) > _CROWDED
    width = (THICK if line.front else THIN) * (0.75 if crowded else 1)
    ax.plot(
        xs,
        [_clamp(y, floor) for _, y in line.points],
        color=line.colour,
        linewidth=_FAINT if line.faint else width,
        marker=None if crowded else "o",
        markersize=5 if line.front else 3.5,
        linestyle=(0, line.dashes) if line.dashes else "-",
        zorder=5 if line.front else 3,
    )
    if line.front and any(low != high for low, high in zip(line.low, line.high, strict=True)):
        low, high = ([_clamp(y, floor) for y in ys] for ys in (line.low, line.high))
        ax.fill_between(xs, low, high, color=line.colour, alpha=0.15, linewidth=0, zorder=2)


def _floor(panels: Sequence[tuple[str, list[_PlotLine]]]) -> float:
    """Where nothing is drawn on a log scale: a little below the least that is something."""
    least = [y for _, lines in panels for line in lines for _, y in line.points if y > 0]
    return min(least, default=1.0) / 2


def _scale(
    axes: Sequence[Axes], panels: Sequence[tuple[str, list[_PlotLine]]], spec: PlotSpec
) -> None:
    ys = [y for _, lines in panels for line in lines for _, y in line.points if isfinite(y)]
    ax = axes[0]  # the others share its scale
    ticker = import_module("matplotlib.ticker")
    if spec.log_y:
        limits = ax.get_ylim()
        _plain_log(ax.yaxis, limits)
        if min(ys, default=1.0) <= 0:
            # Nothing has no place on such a scale; it is given the lowest, and its name.
            floor = _floor(panels)
            above = [at for at in ax.get_yticks() if 1.5 * floor < at <= limits[1]]
            ax.set_yticks([floor, *above], ["0", *map(format_number, above)])
        return
    most = max([*ys, 0.0]) or 1.0
    ax.set_ylim(min([*ys, 0.0]), most * 1.06)
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_number(value)))


def _plain_log(axis: Any, limits: tuple[float, float]) -> None:
    """A log scale with numbers as one writes them, and enough of them."""
    ticker = import_module("matplotlib.ticker")
    decades = log10(max(limits[1] / max(limits[0], _LOG_LEAST), 1.0))
    few = (1.0,) if decades > 4 else (1.0, 3.0) if decades > 2 else (1.0, 2.0, 5.0)
    axis.set_major_locator(ticker.LogLocator(base=10, subs=few))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_number(value)))
    axis.set_minor_locator(ticker.NullLocator())


def _nevers(ax: Axes, xs: Sequence[float], line: _PlotLine) -> None:
    at_top: Any = ax.get_xaxis_transform()
    ax.plot(
        xs,
        [1.0] * len(xs),
        color=line.colour,
        marker="^",
        linestyle="none",
        markersize=6,
        transform=at_top,
        clip_on=False,
        zorder=6,
    )


def _name_ends(ax: Axes, lines: Sequence[_PlotLine], floor: float) -> None:
    """Each name at the right, beside its last point, none on top of another."""
    figure: Any = ax.figure
    figure.canvas.draw()  # so that scales are what they will be
    high = ax.get_ylim()[1]
    invert = ax.transAxes.inverted()
    places, texts = [], []
    for line in lines:
        last = line.points[-1][1]
        never = not isfinite(last)
        y_value = high if never else _clamp(last, floor)
        y = float(invert.transform(ax.transData.transform((0.0, y_value)))[1])
        places.append(min(max(y, 0.0), 1.0))
        note = "never" if never else "0" if 0 <= last < floor else ""
        texts.append(f"{line.name}: {note}" if note else line.name)
    for line, place, text in zip(lines, spread(places, _NAME_GAP, 1.0), texts, strict=True):
        name_end(ax, text, place, line.colour, bold=line.front)


def name_end(ax: Axes, text: str, place: float, colour: str, *, bold: bool) -> None:
    """Write a name beside the right end of a plot, at a share of its height."""
    ax.annotate(
        text,
        (1.0, place),
        xycoords="axes fraction",
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=colour,
        fontweight="bold" if bold else "normal",
        annotation_clip=False,
    )


def _case_goals(ax: Axes, scenario: AnyScenario, figure: str, cases: Sequence[str]) -> None:
    for goal in _goals(scenario, figure, None):
        ats = [at for at, case in enumerate(cases) if not goal.cases or case in goal.cases]
        for at in ats:
            bound = goal.bound(scenario.rigs[cases[at]])
            ax.plot([at - 0.22, at + 0.22], [bound, bound], color=INK, linewidth=1.0, dashes=(4, 3))
    if _goals(scenario, figure, None):
        _key(ax)


def _bound(ax: Axes, bound: float) -> None:
    low, high = ax.get_ylim()
    if low <= bound <= high:
        ax.axhline(bound, color=INK, linewidth=1.0, dashes=(4, 3), zorder=4)
        _key(ax)


def _key(ax: Axes) -> None:
    """Explain the dashed lines, once a panel."""
    ax.annotate(
        "- - goal",
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=INK,
        annotation_clip=False,
    )


def _goals(scenario: AnyScenario, figure: str, case: str | None) -> list[Goal]:
    return [
        goal
        for goal in scenario.goals
        if goal.figure == figure and (case is None or not goal.cases or case in goal.cases)
    ]


def _label(axes: Sequence[Axes], spec: PlotSpec) -> None:
    for ax in axes:
        if ax.get_subplotspec() is None or ax.get_subplotspec().is_last_row():  # type: ignore[union-attr]
            ax.set_xlabel(spec.x)
    axes[0].annotate(
        spec.y,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 18 if axes[0].get_title(loc="left") else 6),
        textcoords="offset points",
        fontsize=8.5,
        color=MUTED,
        annotation_clip=False,
    )


def _clamp(value: float, floor: float) -> float:
    """The value as it is drawn: infinite leaves a gap, and nothing lies below the floor."""
    return max(value, floor) if isfinite(value) else float("nan")


def _are_ordered(cases: Sequence[str]) -> bool:
    """Whether cases are amounts of one thing, as 2x, 5x and 10x are."""
    return all(any(sign.isdecimal() for sign in case) for case in cases)


def _dashes(scenario: AnyScenario, who: str) -> tuple[float, ...]:
    """Those who must fail share a colour; a line of each tells them apart."""
    if who not in scenario.must_fail:
        return ()
    return _DASHES[scenario.must_fail.index(who) % len(_DASHES)]


def _hues() -> Sequence[str]:
    return (OURS, *HUES)
