"""Sorted rows: in order, all of them, however few are held at once."""

from __future__ import annotations

import random

import pytest

from sluicegate.apps.images import sorted_rows
from sluicegate.apps.images.sorted_rows import SortedRows


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 5_000])
def test_rows_come_back_in_order_with_those_that_are_equal(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(sorted_rows, "PAGE_ROWS", 3)
    monkeypatch.setattr(sorted_rows, "RUNS_MAX", 4)  # so runs are merged many times
    chance = random.Random(count)
    given = [chance.randrange(count // 2 + 1).to_bytes(4, "big") for _ in range(count)]
    with SortedRows(4, rows_at_once=8) as rows:
        for row in given:
            rows.add(row)
        assert list(rows) == sorted(given)
        assert list(rows) == sorted(given)  # and again
