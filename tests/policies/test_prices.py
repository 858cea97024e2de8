"""A price is local, an experiment, and never what harms."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.prices import LocalPrices, PriceSettings
from sluicegate.policies.stress import StressLevel, StressState

S = 1_000_000
MS = 1_000
CALM = StressState(0, StressLevel.CALM, (), False, False, 0.0, 1.0, "", None, None, None)
CROWDED = CALM._replace(crowded=True, queue_us=50 * MS)
WARM_S = 80  # the baseline is known, and more
PLAIN = [1_000] * 4


class HandStress:
    """A picture that the test draws."""

    def __init__(self) -> None:
        self.state = CALM

    def read(self, now_us: int) -> StressState:
        return self.state


class Service:
    """Shards that take what they are told to take; a request to each every 10 ms."""

    def __init__(self, shards: int = 2, **settings: int) -> None:
        self.stress = HandStress()
        self.prices = LocalPrices(self.stress, PriceSettings(**settings))  # type: ignore[arg-type]
        self.now_us = 0
        self.took_us = {f"s{number}": 10 * MS for number in range(shards)}
        self.chance = random.Random(1)
        self.dearest = {shard: list(PLAIN) for shard in self.took_us}
        self.run(WARM_S)

    def run(
        self,
        seconds: float,
        *,
        refuse: float = 0.0,
        of: Sequence[str] = (),
        wait_us: int | None = None,
    ) -> None:
        """Let time pass; of these shards a share is refused behind, and the rest is too late.

        `wait_us` is how long callers wait, whatever the shard.
        """
        end_us = self.now_us + round(seconds * S)
        while self.now_us < end_us:
            self.now_us += 10 * MS
            for shard, took_us in self.took_us.items():
                for member in Criticality:
                    request = Request("k", operation="get", shard=shard, criticality=member)
                    price = self.prices.price_milli(request, self.now_us)
                    self.dearest[shard][member] = max(self.dearest[shard][member], price)
                    if shard in of and self.chance.random() < refuse:
                        full = Decision(False, 0, 0, 0, QUEUE_FULL, "queue")
                        self.prices.record_refusal(request, "queue", full, self.now_us)
                        continue
                    request.measured = Measured(took_us)
                    if wait_us is not None:
                        request.deadline_us = self.now_us - took_us + wait_us
                    elif shard in of:
                        request.deadline_us = self.now_us
                    self.prices.record_end(request, Outcome.SUCCESS, self.now_us)

    def prices_of(self, shard: str) -> list[int]:
        return [
            self.prices.price_milli(
                Request("k", operation="get", shard=shard, criticality=member), self.now_us
            )
            for member in Criticality
        ]


def test_it_is_dear_while_somebody_pays_more_and_not_for_longer() -> None:
    service = Service()
    assert not service.prices.is_dear(service.now_us)
    service.took_us["s0"] = 100 * MS
    service.run(4, refuse=0.5, of=["s0"])
    assert service.prices.is_dear(service.now_us)
    assert not service.prices.is_dear(service.now_us + S), "nobody asks any more"


def test_slow_work_alone_raises_nothing() -> None:
    service = Service()
    service.took_us["s0"] = 40 * MS
    service.run(60)
    assert service.prices.stats().cells[0].ratio == pytest.approx(0.25, rel=0.05)
    assert service.dearest["s0"] == PLAIN
    assert service.prices.stats().raises == 0


def test_a_crowd_alone_raises_nothing() -> None:
    service = Service()
    service.stress.state = CROWDED
    service.run(60, refuse=0.5, of=["s0", "s1"])
    assert service.dearest == {"s0": PLAIN, "s1": PLAIN}


def test_what_a_queue_of_ours_refuses_raises_nothing() -> None:
    service = Service()
    service.stress.state = CROWDED
    service.took_us["s0"] = 100 * MS
    service.run(60, refuse=0.5, of=["s0"], wait_us=S)
    assert service.dearest["s0"] == PLAIN
    assert service.prices.is_troubled("s0", service.now_us), "which the penalty goes by"


def test_a_slow_shard_that_has_too_much_to_do_becomes_dearer_and_the_others_do_not() -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    service.run(4, refuse=0.5, of=["s0"])
    assert service.dearest["s0"][Criticality.BULK] >= 2_000
    assert service.dearest["s1"] == PLAIN
    assert service.dearest["s0"][Criticality.CRITICAL] == 1_000


def test_while_something_else_is_helping_prices_yield_and_then_see_what_is_left() -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    service.run(4, refuse=0.5, of=["s0"])
    assert service.prices_of("s0")[Criticality.BULK] >= 2_000
    for _ in range(3):
        service.prices.begin_anew()
        assert service.prices_of("s0") == PLAIN
        service.run(2.5, refuse=0.5, of=["s0"])  # a raise comes after three
        assert service.prices_of("s0") == PLAIN
    service.run(2, refuse=0.5, of=["s0"])  # it has not helped
    assert service.prices_of("s0")[Criticality.BULK] >= 2_000


def test_a_step_that_shows_nothing_is_followed_by_the_next_before_all_is_taken_back() -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    courses = []
    for _ in range(40):
        service.run(0.5, refuse=0.5, of=["s0"])
        courses.append(service.prices_of("s0"))
    climbed = [one for one, before in pairwise([*courses, PLAIN]) if one != before]
    assert [1_000, 4_000, 4_000, 4_000] in climbed
    assert PLAIN in courses[courses.index([1_000, 4_000, 4_000, 4_000]) :]
    assert service.prices.stats().in_vain >= 1


def test_what_is_late_for_everybody_is_a_sign_of_load_where_no_queue_is_ours() -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    service.run(4, wait_us=90 * MS)
    assert service.dearest["s0"][Criticality.BULK] >= 2_000
    assert service.dearest["s1"] == PLAIN
    service.took_us["s0"] = 10 * MS
    service.run(8, wait_us=90 * MS)
    assert service.prices_of("s0") == PLAIN


def test_that_some_are_late_is_no_sign_of_load() -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    for number in range(80):
        service.run(0.1, wait_us=(90 if number % 3 == 0 else 200) * MS)
    assert service.dearest["s0"] == PLAIN


def test_a_raise_that_does_not_help_is_taken_back_and_tried_ever_more_seldom() -> None:
    service = Service(window_us=100 * MS, pause_windows=10, pause_windows_max=80)
    service.took_us["s0"] = 100 * MS
    raised_us = []
    for _ in range(600):
        before = service.prices.stats().raises
        service.run(0.1, refuse=0.5, of=["s0"])
        if service.prices.stats().raises > before:
            raised_us.append(service.now_us)
    stats = service.prices.stats()
    assert stats.raises >= 4
    assert stats.in_vain >= stats.raises - 1
    pauses = [later - sooner for sooner, later in pairwise(raised_us)]
    assert pauses == sorted(pauses), pauses
    assert pauses[-1] > 3 * pauses[0]
    assert max(map(max, service.dearest.values())) <= 4_000


def ever_slower(phase_s: float) -> Service:
    """A service whose prices have helped so far, while it became ever slower."""
    service = Service()
    refused = 0.9
    for ms in (60, 80, 100, 130, 160, 200):
        service.took_us["s0"] = ms * MS
        service.run(phase_s, refuse=refused, of=["s0"])
        refused *= 0.7
    return service


def raised() -> Service:
    service = ever_slower(2)
    assert service.prices_of("s0")[Criticality.BULK] > 2_000
    return service


def test_what_helps_is_kept_and_raised_further_while_the_ratio_falls() -> None:
    service = ever_slower(2)
    assert service.dearest["s0"][Criticality.BULK] > 3_000
    assert max(service.dearest["s0"]) <= 4_000
    assert service.dearest["s0"][Criticality.CRITICAL] == 1_000
    stats = service.prices.stats()
    assert stats.prices_milli[Criticality.BULK] > 1_000
    assert [(one.operation, one.shard) for one in stats.cells] == [("get", "s0")]


def test_all_classes_relax_together_when_trouble_has_ended() -> None:
    service = raised()
    service.took_us["s0"] = 10 * MS
    service.run(8)
    assert service.prices_of("s0") == PLAIN


def test_where_nothing_is_measured_any_more_prices_go_back() -> None:
    service = raised()
    service.run(5, refuse=1.0, of=["s0"])
    assert service.prices_of("s0") == PLAIN


def test_a_price_that_is_held_is_lowered_to_see_whether_it_is_needed() -> None:
    service = raised()
    before = service.prices_of("s0")
    service.run(12, refuse=0.2, of=["s0"])
    assert service.prices.stats().raises > 0
    assert service.prices_of("s0") != before


@pytest.mark.parametrize("reason", [QUOTA_SPENT, DEADLINE])
def test_who_asks_too_much_is_no_crowd(reason: object) -> None:
    service = Service()
    service.took_us["s0"] = 100 * MS
    for _ in range(300):
        service.run(0.01)
        request = Request("k", operation="get", shard="s0")
        spent = Decision(False, 0, 0, 0, reason, "x")  # type: ignore[arg-type]
        service.prices.record_refusal(request, "request units", spent, service.now_us)
    assert service.dearest["s0"] == PLAIN


def test_cells_beyond_the_bound_have_no_price() -> None:
    service = Service(shards=3, cells_max=2)
    service.took_us = dict.fromkeys(service.took_us, 100 * MS)
    service.run(5, refuse=0.5, of=["s0", "s1", "s2"])
    assert sum(prices != PLAIN for prices in service.dearest.values()) == 2


@settings(max_examples=15, deadline=None)
@given(
    phases=st.lists(
        st.tuples(
            st.sampled_from([10, 30, 100, 500]),
            st.sampled_from([0.0, 0.04, 0.3, 0.9, 1.0]),
            st.floats(0.1, 2.0),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_whatever_happens_prices_are_ordered_bounded_and_come_back_to_one(
    phases: list[tuple[int, float, float, bool]],
) -> None:
    service = Service()
    for ms, refuse, seconds, crowded in phases:
        service.took_us["s0"] = ms * MS
        service.stress.state = CROWDED if crowded else CALM
        service.run(seconds, refuse=refuse, of=["s0"])
        prices = service.prices_of("s0")
        assert prices == sorted(prices)
        assert prices[Criticality.CRITICAL] == 1_000
        assert prices[Criticality.BULK] <= 4_000
        assert service.dearest["s1"] == PLAIN or crowded
    service.took_us["s0"], service.stress.state = 10 * MS, CALM
    service.run(25)  # a rest, if trouble had come back, is at most 16 s
    assert service.prices_of("s0") == service.prices_of("s1") == PLAIN
