"""What is said of the figures: the sentence and the text."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.what_if.plan import CLASSES
from sluicegate.lab.what_if.text import render_text, summary_sentence
from tests.lab.what_if_world import NONE, book, every, fixed, report
from tests.shadow.replay.captures import check, vips


def rulebook_figures(
    name: str, *, refused: int = 0, **classes: tuple[int, int, float]
) -> dict[str, Any]:
    """A rulebook as its figures are: of each class offered, in time, and the p99 in ms."""
    rows = []
    for one in CLASSES:
        offered, good, p99_ms = classes.get(one.name.lower(), (0, 0, 0.0))
        rows.append(
            {
                "class": one.name,
                "offered": offered,
                "in_time_share": good / offered if offered else None,
                "wait_p99_us": round(p99_ms * 1_000) if good else None,
            }
        )
    return {
        "name": name,
        "classes": rows,
        "offered": sum(row[0] for row in classes.values()),
        "answered_in_time": sum(row[1] for row in classes.values()),
        "refused": refused,
    }


def test_the_best_is_whoever_answers_most_critical_in_time_and_the_price_is_told() -> None:
    live = rulebook_figures(
        "live", critical=(100, 42, 500), degraded=(100, 90, 90), bulk=(100, 80, 100)
    )
    new = rulebook_figures("new", critical=(100, 99, 30), degraded=(100, 95, 30), bulk=(100, 5, 30))
    assert summary_sentence([live, new]) == (
        "new serves CRITICAL best: 99.00% in time (p99 30 ms), against 42.00% with live; "
        "the price: BULK 5.00% in time instead of 80.00% with live."
    )
    assert summary_sentence([new, live]) == summary_sentence([live, new])


def test_where_as_many_are_answered_the_p99_decides() -> None:
    slow = rulebook_figures("slow", refused=3, critical=(100, 100, 90))
    fast = rulebook_figures("fast", refused=9, critical=(100, 100, 30))
    assert summary_sentence([slow, fast]) == (
        "fast serves CRITICAL best: 100.00% in time as well, but p99 30 ms against 90 ms with "
        "slow; no other class is answered less, though 9.00% of all are refused, and 3.00% with "
        "slow."
    )


def test_what_nobody_could_tell_apart_is_said_to_be_alike() -> None:
    one = rulebook_figures("one", critical=(1_000_000, 999_999, 30), bulk=(10, 3, 9))
    two = rulebook_figures("two", critical=(1_000_000, 999_990, 30.2), bulk=(10, 7, 9))
    far = rulebook_figures("far", critical=(1_000_000, 999_990, 31))
    assert summary_sentence([one, two]) == (
        "one and two serve CRITICAL alike, 100.00% in time (p99 30 ms); of all, one answers most, "
        "1,000,002 against 999,997 with two."
    )
    assert summary_sentence([one, one, one]).endswith(
        "alike, 100.00% in time (p99 30 ms), and as many of all."
    )
    assert "one serves CRITICAL best" in summary_sentence([one, far])


def test_without_critical_traffic_the_next_class_is_the_one_that_matters() -> None:
    one = rulebook_figures("one", best_effort=(10, 5, 20), bulk=(10, 10, 20))
    assert summary_sentence([one]) == "one answers 50.00% of BEST_EFFORT in time (p99 20 ms)."
    assert "BEST_EFFORT best" in summary_sentence(
        [rulebook_figures("two", best_effort=(10, 4, 20)), one]
    )
    assert summary_sentence([rulebook_figures("none")]) == (
        "Nobody could be asked, so there is nothing to compare."
    )


def test_a_class_of_which_nobody_is_let_in_has_no_wait() -> None:
    none = rulebook_figures("no", critical=(10, 0, 0))
    some = rulebook_figures("some", critical=(10, 1, 9))
    assert summary_sentence([none, some]).startswith("some serves CRITICAL best: 10.00% in time")
    assert summary_sentence([none]) == "no answers 0.00% of CRITICAL in time."


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    asks = [check("ann", claim=Criticality.CRITICAL), check("bob", "/log", claim=Criticality.BULK)]
    mine = book("<b>mine</b>\x1b[31m", fixed(20, "/log"), callers=vips("ann"))
    return report(every(600, 6, asks), [NONE, mine])


def test_the_text_shows_names_as_a_screen_can(full: dict[str, Any]) -> None:
    text = render_text(full)
    assert "\x1b" not in text
    assert "<b>mine</b>\\x1b[31m" in text
    assert max(map(len, text.splitlines()[4:30])) < 100


def test_rows_that_say_nothing_are_left_out(full: dict[str, Any]) -> None:
    text = render_text(full)
    assert "turned away" not in text
    assert "attempts" not in text
    assert "gave up waiting" in text
    retried = copy.deepcopy(full)
    retried["rulebooks"][0]["attempts"] += 1
    assert "attempts" in render_text(retried)


def test_without_any_rulebook_nobody_is_critical_and_that_is_told(full: dict[str, Any]) -> None:
    answer = report(every(10, 5, [check("ann", claim=Criticality.CRITICAL)]), [NONE, NONE])
    words = "No rulebook says who may claim to be CRITICAL"
    assert answer["rulebooks"][0]["classes"][0]["offered"] == 0
    assert any(note.startswith(words) for note in answer["notes"])
    assert not any(note.startswith(words) for note in full["notes"])


def test_the_parts_of_the_report_add_up(full: dict[str, Any]) -> None:
    for at, one in enumerate(full["rulebooks"]):
        parts = ("answered_in_time", "gave_up", "turned_away", "refused")
        assert one["offered"] == sum(one[part] for part in parts) == 600
        assert one["admitted"] == 600 - one["refused"]
        for part in (*parts, "offered", "admitted"):
            assert one[part] == sum(row[part] for row in one["classes"])
        columns = full["timeline"]["rulebooks"][at]["classes"]
        for row in one["classes"]:
            for part in parts:
                assert sum(columns[row["class"]][part]) == row[part]
        assert 0 < one["useful"] <= one["utilization"] <= 1
        assert max(full["timeline"]["rulebooks"][at]["queue_peak"]) == one["queue_peak"]
    assert full["rulebooks"][1]["refused_by"] == [{"rule_id": "at-most-20", "attempts": 220}]


def test_the_first_slices_of_a_collapse_are_still_answered(full: dict[str, Any]) -> None:
    critical = full["timeline"]["rulebooks"][0]["classes"]["CRITICAL"]
    assert critical["gave_up"][0] == 0
    assert critical["answered_in_time"][0] == 5  # 600 in 60 slices, every other
    assert critical["answered_in_time"][-1] == 0
    came = [sum(column[at] for column in critical.values()) for at in range(60)]
    assert sum(came) == 300
    assert {*came} == {5}
    # The n-th has waited 4n + 10 ms, and ten of them come in a slice.
    assert full["timeline"]["rulebooks"][0]["wait_p99_us"][0] == pytest.approx(46_000, rel=1e-3)


def test_rules_that_refuse_most_come_first() -> None:
    several = [fixed(count, path) for count, path in ((5, "/a"), (2, "/b"), (2, "/c"))]
    several[1]["rule_id"], several[2]["rule_id"] = "z", "y"
    asks = [check("ann", path) for path in ("/a", "/b", "/c")]
    rows = report(every(30, 10, asks), [book("mine", *several)])["rulebooks"][0]["refused_by"]
    assert [(one["rule_id"], one["attempts"]) for one in rows] == [
        ("y", 8),
        ("z", 8),
        ("at-most-5", 5),
    ]
