"""Charts of the lab: classes of lines, gaps, scales, and pictures that stand alone."""

from __future__ import annotations

import re
from math import inf

import pytest

from sluicegate.lab.charts import (
    KINDS,
    MarginRow,
    Panel,
    kind_of,
    margin_chart,
    panel_chart,
    panels_file,
    svg_file,
    theme_style,
)

LINE = [(float(x), float(x * x)) for x in range(30)]


def ys_of(drawn: str, kind: str) -> list[float]:
    found = re.search(rf'<polyline class="line {kind}" points="([^"]*)"', drawn)
    assert found is not None
    return [float(point.partition(",")[2]) for point in found[1].split()]


def test_ours_controls_and_others_have_classes_of_their_own() -> None:
    names = ("ours", "b", "without", "c", "offered")
    panel = Panel("One", "ms", "s", {name: [(0, 1)] for name in names}, controls=("without",))
    kinds = [kind_of(panel, name) for name in names]
    assert (kinds[0], kinds[2], kinds[4]) == ("ours", "must-fail", "muted")
    assert len(set(kinds)) == len(names)
    assert set(kinds) <= set(KINDS)


def test_first_line_is_thick_and_drawn_last() -> None:
    drawn = panel_chart(Panel("One", "ms", "s", {"ours": LINE, "b": LINE}))
    lines = re.findall(r'class="(line [^"]*)"', drawn)
    assert lines == ["line hue-0", "line ours front"]


def test_infinite_value_leaves_a_gap_and_is_named_at_the_end() -> None:
    line = [(0.0, 1.0), (1.0, 2.0), (2.0, inf), (3.0, 2.0), (4.0, 3.0), (5.0, inf)]
    drawn = panel_chart(Panel("One", "ms", "s", {"ours": line}))
    assert drawn.count("<polyline") == 2
    assert "ours: never" in drawn


def test_bound_is_dashed_and_within_the_scale() -> None:
    drawn = panel_chart(Panel("One", "ms", "s", {"ours": [(0, 1), (1, 2)]}, bound=50.0))
    assert 'class="bound"' in drawn
    assert ">50<" in drawn


def test_log_scale_gives_each_decade_the_same_height() -> None:
    line = [(0.0, 1.0), (1.0, 10.0), (2.0, 100.0), (3.0, 0.0)]
    ys = ys_of(panel_chart(Panel("p99", "ms", "s", {"ours": line}, log_y=True)), "ours front")
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert ys[3] == max(ys)


def test_values_below_zero_lie_within_the_panel() -> None:
    ys = ys_of(panel_chart(Panel("One", "", "s", {"ours": [(0, -5), (1, 5)]})), "ours front")
    assert 0 < min(ys) < max(ys) < 240


def test_file_holds_every_panel_with_a_line_and_its_own_colors() -> None:
    panels = [Panel("One", "ms", "s", {"ours": LINE}), Panel("Empty", "ms", "s", {"ours": []})]
    text = panels_file("tiny: <a> small one", panels)
    assert text.startswith("<svg xmlns=")
    assert theme_style() in text
    assert "tiny: &lt;a&gt; small one" in text
    assert text.count("<polyline") == 1
    assert panels_file("tiny", panels[1:]) == panels_file("tiny", []) == ""
    with pytest.raises(ValueError, match="no drawing"):
        svg_file("<p>", "", "")


def test_margins_lie_within_the_picture() -> None:
    drawn = margin_chart("Margins", [MarginRow("a", 0.0, [inf]), MarginRow("b", 1.5, [0.5, 2.0])])
    places = [float(x) for x in re.findall(r'c?x="(-?[0-9.]+)"', drawn)]
    assert 0 <= min(places) <= max(places) <= 720
    assert drawn.count('class="dot must-fail"') == 1
