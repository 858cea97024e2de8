"""Charts: well-formed, everything where its value is, and no words as markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sluicegate.command_line.charts import (
    LABEL_TALL,
    BarSegment,
    Curve,
    axis_ticks,
    bar_chart,
    line_chart,
    spread_labels,
)
from sluicegate.command_line.text import size


def test_charts_are_well_formed_and_escape_what_they_say() -> None:
    name = "<b>&\"'"
    drawn = [
        line_chart(
            name,
            [Curve(name, "candidate", [None, 0.1, 0.2, None, 0.3])],
            name,
            str,
            bound=0.05,
        ),
        line_chart(name, [Curve("a", "current", []), Curve("b", "newly", [None])], "1 s", str),
        bar_chart(
            name, [(name, [BarSegment(name, "newly", 3), BarSegment("b", "rest", 0)]), ("none", [])]
        ),
    ]
    for one in drawn:
        assert ET.fromstring(one).tag == "svg"
        assert "<b>" not in one


def test_a_bar_is_as_long_as_its_share() -> None:
    root = ET.fromstring(
        bar_chart("t", [("r", [BarSegment("a", "a", 1), BarSegment("b", "b", 3)])])
    )
    empty, one, other = [float(rect.attrib["width"]) for rect in root.iter("rect")]
    assert one + other == pytest.approx(empty, abs=0.2)
    assert other == pytest.approx(3 * one, abs=0.3)


def test_a_bar_says_its_values_as_its_page_writes_them() -> None:
    segments = [BarSegment("a", "a", 1_000), BarSegment("b", "b", 3_000)]
    drawn = bar_chart("t", [("r", segments)], size)
    assert ">4 kB</text>" in drawn
    assert "<title>b: 3 kB of 4 kB</title>" in drawn


def test_a_line_is_where_its_values_are() -> None:
    root = ET.fromstring(
        line_chart("t", [Curve("a", "current", [0.0, 0.5, 1.0, None, 0.5])], "1 s", str)
    )
    (points,) = [one.attrib["points"] for one in root.iter("polyline")]
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert len(list(root.iter("circle"))) == 1


def test_labels_keep_their_order_and_cover_none_of_each_other() -> None:
    tall = LABEL_TALL
    assert spread_labels([10, 12, 100], 190) == [10, 10 + tall, 100]
    assert spread_labels([180, 189, 190], 190) == [190 - 2 * tall, 190 - tall, 190]
    assert spread_labels([], 190) == []


def test_an_axis_has_at_most_five_ticks_at_plain_numbers() -> None:
    steps = [axis_ticks(most)[0] for most in (1, 5, 6, 10, 0.05, 130, 15_000)]
    assert steps == pytest.approx([0.2, 1, 2, 2, 0.01, 50, 5_000])


def test_an_empty_chart_has_an_axis() -> None:
    root = ET.fromstring(line_chart("t", [Curve("a", "a", [None])], "1 s", "{:g}".format))
    labels = [one.text for one in root.iter("text") if one.attrib["class"] == "axis end"]
    assert labels == ["0", "0.2", "0.4", "0.6", "0.8", "1", "1 s"]
