"""Under stress, what matters less goes first; in each of the three forms."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.reasons import SHED
from sluicegate.contracts.request import Request
from sluicegate.kernels.priority_shed import cohort
from sluicegate.kernels.utilization_shed import Ramp
from sluicegate.policies.prices import PriceLadder
from sluicegate.policies.shed import Shed, ShedSettings
from sluicegate.policies.shed.levels import LevelsForm
from sluicegate.policies.stress import Stress, StressLevel, StressState
from sluicegate.testing import SeededChance

S = 1_000_000
MS = 1_000
NOW = 1_000_000 * S
CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


class HandStress:
    """A picture that says what a test says."""

    def __init__(self) -> None:
        self.level = StressLevel.CALM
        self.slow = False
        self.crowded = False
        self.depth = 1.0
        self.utilization: float | None = None
        self.reads = 0

    def read(self, now_us: int) -> StressState:
        self.reads += 1
        return StressState(
            now_us,
            self.level,
            (),
            self.slow,
            self.crowded,
            self.depth if self.crowded else 0.0,
            1.0,
            "",
            self.utilization,
            None,
            None,
        )

    def says(self, level: StressLevel, *, slow: bool = False, crowded: bool = False) -> None:
        self.level, self.slow, self.crowded = level, slow, crowded


class Never:
    """Draws that no floor lets through."""

    def draw(self) -> float:
        return 0.999


def made(stress: HandStress | Stress, chance: Any = None, **settings: Any) -> Shed:
    settings = {"window_us": 100 * MS, "cut_permille": 50, **settings}
    return Shed(stress, chance or Never(), ShedSettings(**settings))


def passes(shed: Shed, criticality: Criticality, now_us: int, caller: str = "c") -> bool:
    admission = shed.admit(Request("k", caller=caller, criticality=criticality), now_us)
    if isinstance(admission, Decision):
        assert not admission.allowed
        assert admission.reason is SHED
        assert admission.rule_id == "shed"
        assert admission.retry_after_us == admission.reset_after_us > 0
        return False
    assert admission is NOTHING_HELD
    return True


def mixed(shed: Shed, *, windows: int, begin_us: int = NOW, window_us: int = 100 * MS) -> int:
    """400 callers of all classes in each window; where that ends."""
    for window in range(windows):
        now_us = begin_us + window * window_us
        for number in range(400):
            passes(shed, Criticality(number % 4), now_us, f"caller {number}")
    return begin_us + windows * window_us


def shares(shed: Shed, now_us: int) -> list[float]:
    """The share of each class that passes in one window."""
    counts = [0, 0, 0, 0]
    for number in range(400):
        counts[number % 4] += passes(shed, Criticality(number % 4), now_us, f"caller {number}")
    return [count / 100 for count in counts]


def test_calm_admits_everything_in_every_form() -> None:
    for form in ("levels", "prices", "utilization"):
        shed = made(HandStress(), form=form)
        assert shares(shed, mixed(shed, windows=5)) == [1.0] * 4
        assert shed.price_milli(Request("k", criticality=BULK), NOW) == 1_000
        assert shed.stats().refused == (0, 0, 0, 0)


# Levels.


def test_levels_refuse_class_by_class_from_below_and_open_again() -> None:
    stress = HandStress()
    shed = made(stress)
    now_us = mixed(shed, windows=2)
    stress.says(StressLevel.STRESSED, crowded=True)
    now_us = mixed(shed, windows=4, begin_us=now_us)
    after_few = shares(shed, now_us)
    assert after_few[:3] == [1.0, 1.0, 1.0]
    assert 0.0 < after_few[3] < 0.4
    now_us = mixed(shed, windows=6, begin_us=now_us + 100 * MS)
    after_more = shares(shed, now_us)
    assert after_more[:2] == [1.0, 1.0]
    assert 0.0 < after_more[2] < 0.6
    assert after_more[3] == 0.0
    stress.says(StressLevel.CALM)
    now_us = mixed(shed, windows=100, begin_us=now_us + 100 * MS)
    assert shares(shed, now_us) == [1.0] * 4


def test_the_deeper_the_overload_the_more_is_cut_at_once_up_to_a_bound() -> None:
    levels = {}
    for depth in (1.0, 1.99, 3.0, 5.0, 900.0):
        stress = HandStress()
        stress.says(StressLevel.STRESSED, crowded=True)
        stress.depth = depth
        shed = made(stress)
        mixed(shed, windows=2)
        levels[depth] = 512 - shed.stats().level
    assert levels[1.0] == levels[1.99] == pytest.approx(512 * 0.05, abs=6)
    assert levels[3.0] == pytest.approx(512 * (1 - 0.95**3), abs=12)
    assert levels[5.0] == levels[900.0] > levels[3.0]


def test_a_signal_that_never_ends_leaves_the_levels_that_are_kept() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    shed = made(stress, levels_kept=20)
    now_us = mixed(shed, windows=200)
    assert shed.stats().level == 20
    names = [name for name in map(str, range(999)) if cohort(name, now_us // (3_600 * S)) < 20]
    assert names
    assert all(passes(shed, CRITICAL, now_us, name) for name in names)


def test_slow_work_alone_moves_no_level() -> None:
    stress = HandStress()
    stress.says(StressLevel.HARD, slow=True)
    shed = made(stress)
    mixed(shed, windows=50)
    assert shed.stats().level == shed.stats().levels == 512


def test_a_caller_is_consistently_in_or_out_until_cohorts_rotate() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    shed = made(stress, rotate_us=60 * S)
    now_us = mixed(shed, windows=5)
    stress.says(StressLevel.CALM)
    callers = [f"x{number}" for number in range(60)]
    first = [passes(shed, BULK, now_us, caller) for caller in callers]
    assert 0 < sum(first) < 60
    assert [passes(shed, BULK, now_us, caller) for caller in callers] == first
    assert [
        cohort(caller, now_us // (60 * S)) + 384 < shed.stats().level for caller in callers
    ] == first
    later_us = now_us + 60 * S
    fresh = made(stress, rotate_us=60 * S)
    assert fresh.stats().level == 512
    stress.says(StressLevel.STRESSED, crowded=True)
    later_us = mixed(fresh, windows=5, begin_us=later_us)
    assert [passes(fresh, BULK, later_us, caller) for caller in callers] != first


def test_a_rotation_changes_the_cohorts_of_one_shed() -> None:
    stress = HandStress()
    shed = made(stress, rotate_us=3_600 * S, cut_permille=150)
    callers = [f"x{number}" for number in range(200)]
    sides = []
    for hour in (0, 1):
        begin_us = NOW // (3_600 * S) * 3_600 * S + hour * 3_600 * S
        stress.says(StressLevel.CALM)
        begin_us = mixed(shed, windows=110, begin_us=begin_us)
        stress.says(StressLevel.STRESSED, crowded=True)
        mixed(shed, windows=1, begin_us=begin_us)
        sides.append([passes(shed, BULK, begin_us, caller) for caller in callers])
    assert 0 < sum(sides[0]) < 200
    assert sides[0] != sides[1]


def test_whoever_has_no_name_is_spread_by_key_and_so_is_all_if_that_is_set() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    for settings, caller in (({}, ""), ({"spread": "key"}, "the only one")):
        shed = made(stress, **settings)
        for window in range(6):
            answers = {
                isinstance(
                    shed.admit(
                        Request(f"k{number}", caller=caller, criticality=BULK),
                        NOW + window * 100 * MS,
                    ),
                    Decision,
                )
                for number in range(300)
            }
        assert answers == {True, False}


def test_the_floor_lets_a_few_pass_but_not_in_hard_overload() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    shed = made(stress, SeededChance(5), floor=0.02)
    now_us = mixed(shed, windows=30)
    assert shed.stats().level < 128 * 3
    passed = sum(passes(shed, BULK, now_us, "b") for _ in range(10_000))
    assert passed == pytest.approx(200, abs=50)
    stress.says(StressLevel.HARD, crowded=True)
    now_us = mixed(shed, windows=1, begin_us=now_us + 100 * MS)
    assert sum(passes(shed, BULK, now_us, "b") for _ in range(10_000)) == 0


def test_whom_the_queue_owes_a_place_passes_in_hard_overload_too_and_nobody_else() -> None:
    stress = HandStress()
    stress.says(StressLevel.HARD, crowded=True)
    owed = {BULK}
    settings = ShedSettings(window_us=100 * MS, cut_permille=50)
    shed = Shed(stress, Never(), settings, lambda request: request.criticality in owed)
    now_us = mixed(shed, windows=60)
    assert shed.stats().level < 128 * 2
    refused = shed.stats().refused
    assert passes(shed, BULK, now_us, "b")
    assert not passes(shed, BEST_EFFORT, now_us, "b")
    owed.clear()
    assert not passes(shed, BULK, now_us, "b")
    assert sum(shed.stats().refused) == sum(refused) + 2


def test_a_gate_that_nobody_asks_opens_again() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    shed = made(stress)
    now_us = mixed(shed, windows=40)
    low = shed.stats().level
    assert low < 128
    stress.says(StressLevel.CALM)
    passes(shed, CRITICAL, now_us + 10 * 365 * 86_400 * S)  # at once, whatever the time
    assert shed.stats().level > 500


def test_the_hint_to_come_back_is_longer_for_what_matters_less_and_bounded() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, crowded=True)
    shed = made(stress, levels_kept=0, cut_permille=300)
    now_us = mixed(shed, windows=40)
    level = shed.stats().level
    assert level <= 1
    hints = []
    for criticality in Criticality:
        decision = shed.admit(Request("k", caller="a", criticality=criticality), now_us)
        assert isinstance(decision, Decision)
        hints.append(decision.retry_after_us)
    assert hints == sorted(hints)
    place = cohort("a", now_us // (3_600 * S)) + 1
    # 1% of 512 levels a window of 0.1 s.
    assert hints[3] == -(-(place + 384 - level) * 1_000 // 5_120) * 100 * MS
    short = made(stress, retry_after_us_max=200 * MS)
    now_us = mixed(short, windows=40)
    decision = short.admit(Request("k", caller="a", criticality=BULK), now_us)
    assert isinstance(decision, Decision)
    assert decision.retry_after_us == 200 * MS


def test_the_cohorts_that_are_remembered_are_bounded() -> None:
    shed = made(HandStress(), callers_max=10)
    form = shed._form
    assert isinstance(form, LevelsForm)
    for number in range(95):
        passes(shed, BULK, NOW, f"c{number}")
        assert len(form._cohort_of) <= 10
    assert len(form._cohort_of) == 5


def test_what_a_later_stage_refuses_has_come_all_the_same() -> None:
    shed = made(HandStress())
    permit = shed.admit(Request("k"), NOW)
    assert not isinstance(permit, Decision)
    assert permit.end(Outcome.IGNORE, NOW, spent=False)
    assert shed.stats().admitted == (0, 1, 0, 0)


@pytest.mark.prove
def test_ten_times_too_much_bulk_leaves_the_rest_alone() -> None:
    """A closed loop: 10 units are served a step of 10 ms, 200 may wait, and the wait is told."""
    stress = Stress()
    shed = Shed(stress, SeededChance(1))
    chance = random.Random(2)
    waiting = served = 0
    came, passed = [0] * 4, [0] * 4
    for tick in range(3_000):
        now_us = NOW + tick * 10 * MS
        for _ in range(100):
            draw = chance.random()
            place = 0 if draw < 0.01 else 1 if draw < 0.03 else 2 if draw < 0.06 else 3
            request = Request(
                "k", caller=f"u{chance.randrange(3_000)}", criticality=Criticality(place)
            )
            admitted = shed.admit(request, now_us) is NOTHING_HELD and waiting < 200
            waiting += admitted
            if tick >= 1_000:
                came[place] += 1
                passed[place] += admitted
        stress.record_queue_delay(waiting * MS, now_us)
        if tick >= 1_000:
            served += min(waiting, 10)
        waiting = max(0, waiting - 10)
    rates = [passed[place] / came[place] for place in range(4)]
    assert rates[:2] == [1.0, 1.0]
    assert rates[2] > 0.98
    assert served / 20_000 > 0.92


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(list(StressLevel)),
            st.booleans(),
            st.integers(0, 500),
            st.lists(
                st.tuples(st.sampled_from(Criticality), st.integers(0, 5), st.floats(0, 0.999)),
                max_size=8,
            ),
        ),
        max_size=40,
    ),
    form=st.sampled_from(["levels", "utilization"]),
)
def test_no_class_is_refused_where_a_lower_one_with_the_same_draw_and_cohort_passes(
    steps: list[tuple[StressLevel, bool, int, list[tuple[Criticality, int, float]]]], form: str
) -> None:
    stress = HandStress()

    class Fixed:
        value = 0.0

        def draw(self) -> float:
            return self.value

    fixed = Fixed()
    shed = made(stress, fixed, form=form, floor=0.1)
    now_us = NOW
    for level, crowded, ahead_ms, units in steps:
        stress.says(level, crowded=crowded)
        stress.utilization = ahead_ms / 500
        now_us += ahead_ms * MS
        passes(shed, CRITICAL, now_us)
        for criticality, caller, draw in units:
            fixed.value = draw
            if passes(shed, criticality, now_us, str(caller)):
                for higher in range(criticality):
                    assert passes(shed, Criticality(higher), now_us, str(caller))


# Prices.


def priced(shed: Shed, now_us: int) -> list[int]:
    return [
        shed.price_milli(Request("k", criticality=criticality), now_us)
        for criticality in Criticality
    ]


def test_prices_rise_from_bulk_up_and_relax_in_reverse() -> None:
    stress = HandStress()
    shed = made(stress, form="prices")
    stress.says(StressLevel.STRESSED, slow=True)
    climb = [priced(shed, NOW + s * S) for s in range(60)]
    assert climb[0] == [1_000, 1_000, 1_000, 1_500]
    assert climb[2] == [1_000, 1_000, 1_000, 3_375]
    # BULK stands above 4,000 from the fourth window on, so the next class begins in the fifth.
    assert climb[3][2:] == [1_000, 5_062]
    assert climb[4][2:] == [1_500, 7_593]
    assert climb[-1] == [1_000, 16_000, 16_000, 16_000]
    stress.says(StressLevel.CALM)
    relax = [priced(shed, NOW + s * S) for s in range(60, 120)]
    assert relax[0] == [1_000, 12_800, 16_000, 16_000]
    assert relax[-1] == [1_000] * 4
    for prices in climb + relax:
        assert prices == sorted(prices)
        assert prices[0] == 1_000


def test_a_price_changes_by_at_most_a_factor_of_two_a_window_even_in_hard_overload() -> None:
    stress = HandStress()
    stress.says(StressLevel.HARD, crowded=True)
    shed = made(stress, form="prices")
    before = [1_000] * 4
    for tenth in range(300):
        now = priced(shed, NOW + tenth * 100 * MS)
        if tenth % 10:
            assert now == before
        assert all(b <= a <= 2 * b for a, b in zip(now, before, strict=True))
        before = now
    assert before == [1_000, 16_000, 16_000, 16_000]


def test_prices_hold_while_stress_neither_worsens_nor_ends_at_their_bound() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, slow=True)
    shed = made(stress, form="prices", price_max_milli=4_000, dearest=BEST_EFFORT)
    for s in range(30):
        prices = priced(shed, NOW + s * S)
    assert prices == [1_000, 1_000, 4_000, 4_000]


def test_the_prices_form_refuses_nobody() -> None:
    stress = HandStress()
    stress.says(StressLevel.HARD, slow=True, crowded=True)
    stress.utilization = 1.0
    shed = made(stress, form="prices")
    assert shares(shed, mixed(shed, windows=100)) == [1.0] * 4


def test_prices_relax_though_the_stage_that_charges_lets_nobody_through() -> None:
    stress = HandStress()
    stress.says(StressLevel.STRESSED, slow=True)
    shed = made(stress, form="prices")
    for s in range(60):
        shed.price_milli(Request("k", criticality=BULK), NOW + s * S)
    stress.says(StressLevel.CALM)
    assert shed.price_milli(Request("k", criticality=BULK), NOW + 600 * S) == 1_000


@given(moves=st.lists(st.sampled_from(["dearer", "hard", "cheaper"]), max_size=120))
def test_prices_never_fall_towards_what_matters_less(moves: list[str]) -> None:
    prices = PriceLadder(4_000, 16_000, DEGRADED)
    for move in moves:
        if move == "cheaper":
            prices.lower_first(800)
        else:
            prices.raise_prices(2_000 if move == "hard" else 1_500)
        assert prices.milli == sorted(prices.milli)
        assert prices.milli[0] == 1_000
        assert prices.milli[3] <= 16_000


# Utilization.


def test_utilization_refuses_along_the_ramps_and_falls_with_a_backlash() -> None:
    stress = HandStress()
    shed = made(stress, SeededChance(3), form="utilization", floor=0.0)
    stress.utilization = 0.65
    assert shares(shed, NOW) == [1.0, 1.0, 1.0, pytest.approx(0.5, abs=0.15)]
    stress.utilization = 0.9
    got = shares(shed, NOW + 100 * MS)
    assert (got[0], got[2:]) == (1.0, [0.0, 0.0])
    stress.utilization = 0.75
    assert shares(shed, NOW + 200 * MS)[1:3] == [1.0, 0.0]  # as if it were 0.8
    stress.utilization = None  # the sensor has fallen silent
    assert shares(shed, NOW + 300 * MS) == [1.0] * 4
    assert shed.stats().utilization == pytest.approx(0.05)


def test_the_hint_by_the_ramps_is_the_setting() -> None:
    stress = HandStress()
    stress.utilization = 1.0
    shed = made(stress, form="utilization", retry_after_us=3 * S)
    decision = shed.admit(Request("k", criticality=BULK), NOW)
    assert isinstance(decision, Decision)
    assert decision.retry_after_us == 3 * S


# All forms.


@pytest.mark.parametrize("form", ["levels", "prices", "utilization"])
def test_the_picture_is_read_once_each_window_and_when_the_clock_went_back(form: str) -> None:
    stress = HandStress()
    shed = made(stress, form=form, window_us=100 * MS, price_window_us=100 * MS)
    for now_us in (NOW, NOW + 50 * MS, NOW + 100 * MS - 1):
        passes(shed, BULK, now_us)
    assert stress.reads == 1
    passes(shed, BULK, NOW + 100 * MS)
    assert stress.reads == 2
    passes(shed, BULK, NOW - S)
    assert stress.reads == 3


def test_statistics_count_by_class() -> None:
    stress = HandStress()
    stress.utilization = 0.75
    shed = made(stress, form="utilization", floor=0.0)
    for criticality in (CRITICAL, DEGRADED, BULK, BULK):
        passes(shed, criticality, NOW)
    stats = shed.stats()
    assert stats.form == "utilization"
    assert (stats.admitted, stats.refused) == ((1, 1, 0, 0), (0, 0, 0, 2))
    assert stats.windows == 1


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"form": "pid"}, "shed.form"),
        ({"spread": "tenant"}, "shed.spread"),
        ({"window_us": 0}, "shed.window_us"),
        ({"floor": 0.6}, "shed.floor"),
        ({"cohorts": 0}, "shed.cohorts"),
        ({"levels_kept": 513}, "shed.levels_kept"),
        ({"dearer_milli": 2_001}, "shed.dearer_milli"),
        ({"cheaper_milli": 1_000}, "shed.cheaper_milli"),
        ({"widen_at_milli": 20_000}, "shed.widen_at_milli"),
        ({"dearest": CRITICAL}, "shed.dearest"),
        ({"ramps": (None,)}, "shed.ramps"),
        ({"ramps": (Ramp(0.1, 0.2), None, None, None)}, "shed.ramps"),
    ],
)
def test_bad_settings_name_their_field(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue) as wrong:
        ShedSettings(**settings)
    assert wrong.value.field == field
