from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest

from sluicegate.lab import jobs, plots, scenarios
from sluicegate.lab.goals import Goal
from sluicegate.lab.plots import MarginRow, draw_margins
from sluicegate.lab.plots_style import DARK, HUES, MUST_FAIL, OURS, inline, png, svg
from sluicegate.lab.scenario import OVER_CASES, OVER_TIME, AnyScenario, Curves, PlotSpec
from tests.lab import tiny

SCENARIO = tiny.SCENARIO


def plot_data(scenario: AnyScenario = SCENARIO) -> plots.PlotData:
    figures: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    curves: dict[str, dict[str, Curves]] = {}
    for who, candidate in scenario.candidates.items():
        for case, rig in scenario.rigs.items():
            for seed in range(3):
                result = candidate.run(rig, seed)
                runs = figures.setdefault(who, {}).setdefault(case, {})
                runs[seed] = scenario.measure(rig, result)
            curves.setdefault(who, {})[case] = {
                name: jobs.thin_out(points) for name, points in scenario.curves(rig, result).items()
            }
    return plots.PlotData(figures, curves)


def drawn(picture: PlotSpec, scenario: AnyScenario = SCENARIO) -> Any:
    figure = plots.draw(scenario, picture, plot_data(scenario), titled=False)
    assert figure is not None
    return figure


def texts(figure: Any) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def lines(ax: Any) -> dict[str, Any]:
    return {line.get_color(): line for line in ax.get_lines() if len(line.get_xdata()) > 1}


@pytest.mark.parametrize("picture", SCENARIO.plots, ids=lambda picture: picture.title)
def test_every_kind_of_picture_is_drawn_as_png_and_svg(picture: PlotSpec) -> None:
    figure = drawn(picture)
    assert png(figure).startswith(b"\x89PNG")
    assert svg(figure, "it", "A <title>").count("<svg") == 1


def test_ours_is_thick_and_in_front_and_the_others_are_thin() -> None:
    (ax,) = drawn(SCENARIO.plots[0]).axes
    ours, failing = lines(ax)[OURS], lines(ax)[MUST_FAIL]
    assert ours.get_linewidth() > 2 * failing.get_linewidth()
    assert ours.get_zorder() > failing.get_zorder()


def test_names_stand_where_lines_end_and_there_is_no_legend() -> None:
    figure = drawn(SCENARIO.plots[0])
    assert {"ours", "without", "other", "real"} <= set(texts(figure))
    assert all(ax.get_legend() is None for ax in figure.axes)


def test_a_goal_is_a_dashed_line_in_the_cases_that_it_is_for() -> None:
    (ax,) = drawn(SCENARIO.plots[1]).axes  # a goal for 2x alone
    dashed = [line for line in ax.get_lines() if line.is_dashed()]
    assert [list(line.get_ydata()) for line in dashed] == [[12, 12]]
    assert sum(dashed[0].get_xdata()) / 2 == 1.0


@pytest.mark.parametrize(
    "cases",
    [
        ("error", "cancel", "timeout", "crowd-error", "crowd-cancel", "crowd-timeout"),
        tuple(f"partition-{number}" for number in range(12)),
    ],
    ids=["folded", "slanting"],
)
def test_names_of_cases_do_not_run_into_each_other(cases: Sequence[str]) -> None:
    rig = SCENARIO.rigs["2x"]
    many = replace(SCENARIO, rigs=dict.fromkeys(cases, rig), goals=(Goal(figure="x", at_least=1),))
    runs = {who: {case: {0: {"x": 1.0}} for case in cases} for who in SCENARIO.candidates}
    picture = PlotSpec("Cases", ("x",), over=OVER_CASES, y="x")
    figure = plots.draw(many, picture, plots.PlotData(runs, {}), titled=False)
    assert figure is not None
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    # One that slants ends below its own place, its neighbour below the next.
    gaps = [after.x1 - before.x1 for before, after in pairwise(boxes)]
    if labels[0].get_rotation():
        assert min(gaps) > boxes[0].height / len(labels)
    else:
        assert all(before.x1 < after.x0 for before, after in pairwise(boxes))


def test_what_never_comes_is_said_and_not_drawn() -> None:
    figure = drawn(SCENARIO.plots[1])
    assert "without: never" in texts(figure)
    (ax,) = figure.axes
    assert any(line.get_marker() == "^" for line in ax.get_lines())


def test_zero_on_a_log_scale_is_said_and_stands_below_all_that_is_something() -> None:
    picture = PlotSpec("Nothing", ("zero",), over=OVER_CASES, y="", log_y=True)
    assert "ours: 0" in texts(drawn(picture))
    (ax,) = drawn(SCENARIO.plots[1]).axes
    assert ax.get_yscale() == "log"


def test_the_lowest_place_of_a_log_scale_is_called_nothing_if_nothing_stands_there() -> None:
    some = replace(
        SCENARIO, measure=lambda rig, result: {"it": result * 10 if result < 0.5 else 0.0}
    )
    goals = replace(some, goals=())
    (ax,) = drawn(PlotSpec("It", ("it",), over=OVER_CASES, y="", log_y=True), goals).axes
    ticks = [label.get_text() for label in ax.get_yticklabels()]
    assert ticks[0] == "0"
    assert "0" not in ticks[1:]


def test_over_time_each_case_has_a_panel_and_all_share_a_scale() -> None:
    figure = drawn(SCENARIO.plots[3])
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["1x", "2x"]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1


def test_several_curves_have_panels_of_ours_and_of_who_must_fail() -> None:
    figure = drawn(SCENARIO.plots[4])
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["ours, 1x", "without, 1x", "ours, 2x", "without, 2x"]
    assert "offered" in texts(figure)  # the unit is the axis's to say


def test_one_case_is_drawn_as_bars_since_a_line_of_one_point_says_nothing() -> None:
    goals = tuple(replace(goal, cases=()) for goal in SCENARIO.goals)
    one = replace(SCENARIO, rigs={"1x": SCENARIO.rigs["1x"]}, goals=goals)
    (ax,) = drawn(SCENARIO.plots[0], one).axes
    assert len(ax.patches) == len(SCENARIO.candidates)


def test_bars_say_their_values_and_never_where_there_is_none() -> None:
    labels = texts(drawn(SCENARIO.plots[2]))
    assert "never" in labels
    assert "0.901" in labels  # the mean of the seeds


def test_what_nobody_has_measured_is_not_drawn() -> None:
    for over in (OVER_CASES, OVER_TIME):
        picture = PlotSpec("Nothing", ("unheard_of",), over=over, y="")
        assert plots.draw(SCENARIO, picture, plot_data(), titled=True) is None


def test_many_candidates_are_drawn_in_part_and_who_is_left_out_is_told() -> None:
    more = {f"more-{number}": tiny.good(0.5) for number in range(9)}
    crowd = replace(SCENARIO, candidates={**SCENARIO.candidates, **more})
    picture = SCENARIO.plots[0]
    drawn_names = plots.plotted_candidates(crowd, picture, plot_data(crowd))
    assert drawn_names[:2] == ["ours", "without"]
    assert len(drawn_names) == 2 + plots.OTHERS_MAX
    assert len(plots.left_out(crowd, picture, plot_data(crowd))) == 7
    assert plots.left_out(SCENARIO, SCENARIO.plots[4], plot_data()) == ["other", "real"]


def test_who_must_fail_is_told_apart_by_the_line_where_there_are_several() -> None:
    several = replace(SCENARIO, must_fail=("without", "other"))
    (ax,) = drawn(SCENARIO.plots[0], several).axes
    failing = [line for line in ax.get_lines() if line.get_color() == MUST_FAIL]
    assert len({line.get_linestyle() for line in failing if len(line.get_xdata()) > 1}) == 2


def test_more_panels_than_fit_are_left_out_and_told() -> None:
    rigs = {f"{load}x": tiny.Tiny(float(load)) for load in range(1, 9)}
    goals = tuple(replace(goal, cases=()) for goal in SCENARIO.goals)
    crowd = replace(SCENARIO, rigs=rigs, goals=goals, must_fail=("without", "other"))
    one, several = SCENARIO.plots[3], SCENARIO.plots[4]
    assert len(drawn(one, crowd).axes) == plots.PANELS_MAX
    assert plots.left_out(crowd, one, plot_data(crowd)) == ["case 7x", "case 8x"]
    titles = [ax.get_title(loc="left") for ax in drawn(several, crowd).axes]
    assert titles[:2] == ["ours, 1x", "without, 1x"]
    assert len(titles) == plots.PANELS_MAX
    assert plots.left_out(crowd, several, plot_data(crowd))[:3] == ["other", "real", "case 4x"]


def test_between_cases_that_are_not_amounts_a_line_is_but_a_hint() -> None:
    goals = tuple(replace(goal, cases=()) for goal in SCENARIO.goals)
    words = replace(SCENARIO, rigs={"rows": tiny.Tiny(1.0), "bytes": tiny.Tiny(1.0)}, goals=goals)
    (ax,) = drawn(SCENARIO.plots[0], words).axes
    assert lines(ax)[OURS].get_linewidth() < 1


def test_a_candidate_has_one_colour_in_all_pictures_and_shares_it_with_few() -> None:
    paint = plots.colours(SCENARIO)
    assert (paint["ours"], paint["without"]) == (OURS, MUST_FAIL)
    assert (paint["other"], paint["real"]) == HUES[:2]


@pytest.mark.parametrize(
    ("places", "gap"),
    [([0.5, 0.5, 0.5], 0.1), ([1.0, 1.0, 0.99], 0.1), ([0.0, 0.9], 0.1), ([0.3], 0.1), ([], 0.1)],
)
def test_names_are_moved_apart_and_stay_in_order_and_below_the_top(
    places: Sequence[float], gap: float
) -> None:
    moved = plots.spread(places, gap)
    ordered = sorted(moved)
    assert all(high - low >= gap - 1e-9 for low, high in pairwise(ordered))
    assert all(place <= 1.0 + 1e-9 for place in moved)
    assert sorted(range(len(places)), key=lambda at: (places[at], at)) == sorted(
        range(len(moved)), key=lambda at: moved[at]
    )


def test_names_at_the_bottom_are_moved_up_and_not_out_of_the_picture() -> None:
    assert plots.spread([0.0, 0.0, 0.0], 0.1) == pytest.approx([0.0, 0.1, 0.2])


def test_an_svg_in_a_page_bears_no_address_and_its_parts_have_names_of_their_own() -> None:
    text = svg(drawn(SCENARIO.plots[0]), "one", 'A "title"')
    assert "http" not in text
    assert "<?xml" not in text
    assert 'aria-label="A &quot;title&quot;"' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert ids
    assert all(name.startswith("one-") for name in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    assert used <= set(ids)


def test_every_colour_of_ours_is_one_that_the_page_can_change_and_text_is_text() -> None:
    text = svg(drawn(SCENARIO.plots[4]), "one", "it")
    assert not re.findall(r"#[0-9a-f]{6}\b", text)
    assert "var(--ours)" in text
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) <= {*DARK, "font"}
    assert ">offered</text>" in text
    assert inline("<svg>#123456</svg>", "x", "") == "<svg>#123456</svg>"


def test_the_same_runs_give_the_same_picture_to_the_byte() -> None:
    picture = SCENARIO.plots[3]
    first, second = drawn(picture), drawn(picture)
    assert png(first) == png(second)
    assert svg(first, "one", "it") == svg(second, "one", "it")


def test_drawing_leaves_the_users_own_settings_as_they_were() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    png(drawn(SCENARIO.plots[0]))
    assert dict(mpl.rcParams) == before
    assert mpl.rcParams["svg.fonttype"] == mpl.rcParamsDefault["svg.fonttype"]


@pytest.mark.parametrize("name", ["overload", "queues", "step", "retry-storm"])
def test_every_picture_of_a_station_names_what_is_measured(name: str) -> None:
    scenario = scenarios.TABLE[name]
    case, rig = next(iter(scenario.rigs.items()))
    ledger = scenario.candidate("bounded-fifo").run(rig, 0)
    names = {*scenario.measure(rig, ledger), *scenario.curves(rig, ledger)}
    assert scenario.plots
    for picture in scenario.plots:
        assert set(picture.names) <= names, (case, picture.title)


def test_where_nobody_is_answered_there_is_no_time_it_takes() -> None:
    step = scenarios.TABLE["step"]
    points = step.curves(step.rigs["step"], step.candidate("fifo").run(step.rigs["step"], 0))[
        "p99_ms"
    ]
    assert points[-1][1] == inf
    assert 0 < points[10][1] < inf


def test_a_band_of_seeds_is_drawn_around_ours_alone() -> None:
    (ax,) = drawn(SCENARIO.plots[0]).axes
    assert len(ax.collections) == 1
    assert ax.get_ylim()[0] == 0.0


def test_what_a_run_uses_of_a_goal_is_one_at_the_bound() -> None:
    at_most = Goal(figure="p99_ms", at_most=60)
    assert at_most.used(60, None) == 1.0
    assert at_most.used(45, None) == 0.75
    assert at_most.used(inf, None) == inf
    never = Goal(figure="refused", at_most=0)
    assert (never.used(0, None), never.used(1, None)) == (0.0, inf)
    share = Goal(figure="goodput", at_least=0.98)
    assert share.used(0.98, None) == pytest.approx(1.0)
    assert share.used(0.995, None) == pytest.approx(0.25)
    assert share.used(0.0, None) == pytest.approx(50.0)
    assert share.used(1.01, None) == 0.0
    times = Goal(figure="times", at_least=4)
    assert (times.used(8, None), times.used(2, None), times.used(0, None)) == (0.5, 2.0, inf)


def test_margins_are_drawn_within_the_edges_whatever_they_are() -> None:
    rows = [MarginRow("good", 0.0, [inf, 1.5]), MarginRow("bad", inf, [])]
    figure = draw_margins(rows)
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["good", "bad"]
    low, high = axes.get_xlim()
    for line in axes.lines[1:]:
        assert all(low <= float(x) <= high for x in np.asarray(line.get_xdata()))
