from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.burn_rate import MINUTE_US, WINDOWS_US, BurnWindows, burn

CELL = 10
WINDOWS = (30, 10, 120)

events = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 9, 10, 11, 30, 119, 120, 500, -15]),  # how much later
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=60,
)


class SlowWindows:
    """The oracle: every count with its instant, added up anew each time."""

    def __init__(self) -> None:
        self.now_us = 0
        self.kept: list[tuple[int, int, int]] = []

    def add(self, bad: int, total: int, now_us: int) -> None:
        self.now_us = max(self.now_us, now_us)
        self.kept.append((self.now_us // CELL, bad, total))

    def counts(self, now_us: int) -> list[tuple[int, int]]:
        self.now_us = max(self.now_us, now_us)
        newest = self.now_us // CELL
        found = []
        for window in WINDOWS:
            cells = range(newest - window // CELL + 1, newest + 1)
            rows = [(bad, total) for cell, bad, total in self.kept if cell in cells]
            found.append((sum(bad for bad, _ in rows), sum(total for _, total in rows)))
        return found


@given(events)
def test_each_window_has_what_came_in_its_newest_cells(
    steps: list[tuple[int, int, int]],
) -> None:
    windows, oracle, now_us = BurnWindows(WINDOWS, CELL), SlowWindows(), 1_000
    for later_us, bad, good in steps:
        now_us += later_us
        windows.add(bad, bad + good, now_us)
        oracle.add(bad, bad + good, now_us)
        assert windows.counts(now_us) == oracle.counts(now_us)
    for later_us in (9, 10, 35, 200):
        now_us += later_us
        assert windows.counts(now_us) == oracle.counts(now_us)


def test_the_burn_rate_is_failures_over_what_is_allowed() -> None:
    assert burn(1, 1_000, 0.001) == pytest.approx(1.0)
    assert burn(144, 10_000, 0.001) == pytest.approx(14.4)
    assert burn(0, 0, 0.001) == 0.0


def test_an_outage_pages_within_minutes_and_stops_paging_soon_after() -> None:
    """99.9%, ten requests a second: a fifth fails for ten minutes."""
    windows, paged = BurnWindows(), []
    start = 6 * 60 * MINUTE_US
    for second in range(6 * 3_600 + 3_600):
        now_us = second * 1_000_000
        failing = start <= now_us < start + 10 * MINUTE_US
        windows.add(2 if failing else 0, 10, now_us)
        if second % 10 == 0:
            short, _, hour, _ = (burn(*pair, 0.001) for pair in windows.counts(now_us))
            if short > 14.4 and hour > 14.4:
                paged.append((now_us - start) / MINUTE_US)
    assert 4 <= paged[0] <= 5  # 1.44% of an hour's requests at 20% failing are 4.3 minutes
    assert 14 <= paged[-1] <= 15  # five minutes after the end, and not for the rest of the hour


def test_the_default_windows_are_those_of_the_two_alerts() -> None:
    assert [window_us // MINUTE_US for window_us in WINDOWS_US] == [5, 30, 60, 360]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: BurnWindows((15,), 10), "multiples of cell_us"),
        (lambda: BurnWindows((), 10), "windows_us must be from 1 to 16"),
        (lambda: BurnWindows((10,), 0), "cell_us must be from 1"),
        (lambda: BurnWindows().add(2, 1, 0), "bad must be from 0 to 1"),
        (lambda: burn(1, 1, 0.0), "allowed must be above 0"),
    ],
)
def test_what_cannot_be_is_refused(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
