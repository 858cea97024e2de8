"""The judgement over a canary: bare values in, what is to be done out."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.publishing.canary import (
    ADVANCE,
    FINISH,
    HOLD,
    ROLL_BACK,
    WHOLE,
    CanaryCounts,
    CanarySettings,
    CanaryState,
    is_worse,
    step,
)

MINUTE_US = 60_000_000
SETTINGS = CanarySettings(hold_us=5 * MINUTE_US, critical_min=1_000, worse_max=500)
BEGUN = CanaryState(version=8, share=100, since_us=0)
CALM = CanaryCounts(critical=1_000, refused=0, live_critical=100_000, live_refused=0, failing=0)
LATER_US = 5 * MINUTE_US


def test_a_calm_canary_grows_by_its_steps_and_then_goes_live() -> None:
    state, now_us, steps = BEGUN, 0, []
    for _ in range(3):
        now_us += LATER_US
        state, action = step(state, CALM, now_us, SETTINGS)
        steps.append((state.share, action.kind))
    assert steps == [(500, ADVANCE), (2_500, ADVANCE), (WHOLE, FINISH)]


def test_a_step_is_held_for_its_time() -> None:
    assert step(BEGUN, CALM, LATER_US - 1, SETTINGS)[1].kind == HOLD
    assert step(BEGUN, CALM, LATER_US, SETTINGS)[1].kind == ADVANCE


def test_a_step_waits_for_enough_critical_decisions() -> None:
    few = CALM._replace(critical=999)
    assert step(BEGUN, few, LATER_US, SETTINGS) == (BEGUN, (HOLD, ""))
    assert step(BEGUN, CALM, LATER_US, SETTINGS)[1].kind == ADVANCE


def test_few_decisions_say_nothing_however_bad_they_are() -> None:
    few = CALM._replace(critical=999, refused=999)
    assert step(BEGUN, few, LATER_US, SETTINGS)[1].kind == HOLD


def test_six_percent_of_critical_refused_is_taken_back_and_four_goes_on() -> None:
    bad, good = CALM._replace(refused=60), CALM._replace(refused=40)
    assert step(BEGUN, bad, LATER_US, SETTINGS)[1].kind == ROLL_BACK
    assert step(BEGUN, good, LATER_US, SETTINGS)[1].kind == ADVANCE


def test_just_the_setting_goes_on() -> None:
    assert not is_worse(CALM._replace(refused=50), 500)
    assert is_worse(CALM._replace(refused=51), 500)


def test_what_live_refuses_too_is_not_held_against_the_canary() -> None:
    both = CanaryCounts(1_000, 100, 10_000, 600, 0)  # 10% and 6%
    assert step(BEGUN, both, LATER_US, SETTINGS)[1].kind == ADVANCE
    assert step(BEGUN, both._replace(live_refused=400), LATER_US, SETTINGS)[1].kind == ROLL_BACK


def test_what_is_worse_is_taken_back_without_waiting_for_the_time() -> None:
    _, action = step(BEGUN, CALM._replace(refused=60), 1, SETTINGS)
    assert action.kind == ROLL_BACK
    assert "60 of 1,000 CRITICAL" in action.reason
    assert "5%" in action.reason


def test_where_live_decides_nothing_it_refuses_nothing() -> None:
    assert is_worse(CanaryCounts(1_000, 51, 0, 0, 0), 500)
    assert not is_worse(CanaryCounts(1_000, 50, 0, 0, 0), 500)


def test_a_node_in_trouble_takes_it_back_at_once() -> None:
    _, action = step(BEGUN, CanaryCounts(0, 0, 0, 0, 1), 1, SETTINGS)
    assert action.kind == ROLL_BACK
    assert "began to fail" in action.reason
    calm = CanarySettings(failing_max=1)
    assert step(BEGUN, CanaryCounts(0, 0, 0, 0, 1), 1, calm)[1].kind == HOLD


def test_without_traffic_it_ends_after_a_day() -> None:
    none = CanaryCounts(0, 0, 0, 0, 0)
    day_us = 24 * 60 * MINUTE_US
    assert step(BEGUN, none, day_us - 1, SETTINGS)[1].kind == HOLD
    _, action = step(BEGUN, none, day_us, SETTINGS)
    assert action.kind == ROLL_BACK
    assert "only 0 CRITICAL" in action.reason


def test_by_hand_it_only_ever_shrinks_by_itself() -> None:
    by_hand = CanarySettings(auto=False)
    assert step(BEGUN, CALM, LATER_US, by_hand)[1].kind == HOLD
    assert step(BEGUN, CALM._replace(refused=60), 1, by_hand)[1].kind == ROLL_BACK


def test_a_share_between_steps_goes_to_the_next_one() -> None:
    state, _ = step(BEGUN._replace(share=700), CALM, LATER_US, SETTINGS)
    assert state.share == 2_500


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": ()},
        {"steps": (500, 100, WHOLE)},
        {"steps": (100, 500)},
        {"steps": (0, WHOLE)},
        {"hold_us": -1},
        {"stalled_us_max": 1},
        {"critical_min": 0},
        {"worse_max": 10_001},
        {"failing_max": -1},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(BadValue, match=r"canary\."):
        CanarySettings(**wrong)  # type: ignore[arg-type]


COUNTS = st.integers(0, 1 << 40)
FIGURES = st.builds(
    lambda critical, a, live, b, failing: CanaryCounts(
        critical, critical * a // 1_000, live, live * b // 1_000, failing
    ),
    COUNTS,
    st.integers(0, 1_000),
    COUNTS,
    st.integers(0, 1_000),
    st.integers(0, 3),
)


@given(figures=FIGURES, now_us=st.integers(0, 1 << 50), share=st.integers(1, WHOLE - 1))
def test_it_grows_only_when_it_may(figures: CanaryCounts, now_us: int, share: int) -> None:
    before = CanaryState(8, share, 0)
    after, action = step(before, figures, now_us, SETTINGS)
    if action.kind in (ADVANCE, FINISH):
        assert after.share > before.share
        assert after.share in SETTINGS.steps
        assert (after.share == WHOLE) == (action.kind == FINISH)
        assert after.since_us == now_us >= SETTINGS.hold_us
        assert figures.critical >= SETTINGS.critical_min
        assert figures.failing == 0
        assert not is_worse(figures, SETTINGS.worse_max)
    else:
        assert after == before
    assert bool(action.reason) == (action.kind != HOLD)


@given(figures=FIGURES, worse_max=st.integers(0, WHOLE))
def test_worse_is_what_fractions_say(figures: CanaryCounts, worse_max: int) -> None:
    live = Fraction(figures.live_refused, max(figures.live_critical, 1))
    if figures.critical:
        more = Fraction(figures.refused, figures.critical) - live
        assert is_worse(figures, worse_max) == (more > Fraction(worse_max, WHOLE))


@given(
    figures=st.lists(FIGURES, max_size=30),
    gaps=st.lists(st.integers(0, 1 << 40), min_size=30, max_size=30),
)
def test_from_any_figures_it_ends_at_most_once(
    figures: list[CanaryCounts], gaps: list[int]
) -> None:
    state, now_us, shares = BEGUN, 0, [BEGUN.share]
    for reading, gap in zip(figures, gaps, strict=False):
        now_us += gap
        state, action = step(state, reading, now_us, SETTINGS)
        shares.append(state.share)
        if action.kind in (FINISH, ROLL_BACK):
            break
    assert shares == sorted(shares)
    assert set(shares) <= {BEGUN.share, *SETTINGS.steps}
