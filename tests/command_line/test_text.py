from __future__ import annotations

from sluicegate.command_line.text import ago, counted, table


def test_columns_are_as_wide_as_the_widest_cell() -> None:
    assert table(("a", "b"), [("one", "x"), ("2", "")]) == ["  a    b", "  one  x", "  2"]


def test_one_thing_is_not_many() -> None:
    assert (counted(1, "rule"), counted(2_000, "rule"), counted(0, "rule")) == (
        "1 rule", "2,000 rules", "0 rules",
    )  # fmt: skip


def test_how_long_ago_is_told_in_the_largest_unit() -> None:
    texts = [ago(seconds * 1_000_000) for seconds in (0, 1, 59, 60, 7_199, 86_400, 200_000)]
    assert texts == ["just now", "1s ago", "59s ago", "1m ago", "1h ago", "1d ago", "2d ago"]
    assert ago(-5) == "just now"
