"""Heavy is what is named so, what takes long, and what fills the places before it has ended."""

from __future__ import annotations

from math import log

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.endpoint_cost import (
    GREATER_AFTER,
    LESSER_AFTER,
    MAGNITUDES,
    OTHERS,
    RECENT_US,
    EndpointCost,
)
from sluicegate.policies.keyed_table import FORGET_US
from sluicegate.testing import SeededChance

START_US = 1_000_000_000_000_000


def cost(**rules: bool) -> EndpointCost:
    return EndpointCost(heavy_us=1_000, places=8, light_max=4, endpoints_max=8, rules=rules)


def test_an_endpoint_is_heavy_while_its_work_takes_long() -> None:
    found = cost()
    found.learn("a", 900, 0)
    assert not found.is_heavy("a", 0)
    for _ in range(20):
        found.learn("a", 2_000, 0)
    assert found.is_heavy("a", 0)
    for _ in range(5):
        found.learn("a", 600, 0)
    assert found.is_heavy("a", 0)  # not yet below half: it must not swing
    for _ in range(40):
        found.learn("a", 100, 0)
    assert not found.is_heavy("a", 0)


def test_a_rule_stands_whatever_is_learned() -> None:
    found = cost(report=True, page=False)
    found.learn("report", 1, 0)
    found.learn("page", 1 << 30, 0)
    assert found.is_heavy("report", 0)
    assert not found.is_heavy("page", 0)


def test_one_endpoint_does_not_fill_the_light_places_while_others_are_served() -> None:
    found = cost()
    for _ in range(4):
        found.enter_light("slow", 0)
    assert not found.is_heavy("slow", 0)  # alone it may have them all
    found.enter_light("quick", 0)
    assert found.is_heavy("slow", 0)
    assert not found.is_heavy("quick", 0)
    found.leave_light("slow")
    assert not found.is_heavy("slow", 0)


def test_quick_work_that_comes_in_a_crowd_is_not_sent_behind_heavy_work() -> None:
    """Unless none of it ends any more."""
    found = cost()
    found.enter_light("other", 0)
    found.learn("quick", 100, 0)
    for at_us in range(20):
        found.enter_light("quick", at_us)
    assert not found.is_heavy("quick", 10_000)
    assert found.is_heavy("quick", 10_001)
    found.learn("quick", 100, 12_000)
    assert not found.is_heavy("quick", 22_000)
    for _ in range(9):
        found.learn("quick", 400, 22_000)
    assert found.is_heavy("quick", 22_000)  # no longer quick: it keeps to its share


def test_a_crowd_keeps_to_its_share_beside_work_that_would_wait_long_for_its_places() -> None:
    """Of 8 places with work of 100 one comes free each 12.5: too long beside 1, not beside 2."""
    found = cost()
    for took_us, heavy in ((2, False), (1, True)):
        other = f"/{took_us}"
        found.enter_light(other, 0)
        found.learn(other, took_us, 0)
        found.enter_light(other, 0)  # its mean was not known when it came first
        found.learn("crowd", 100, 0)
        for _ in range(4):
            found.enter_light("crowd", 0)
        assert found.is_heavy("crowd", 0) is heavy


@pytest.mark.parametrize("target_us", [10_000, 1_000_000])
def test_a_place_that_comes_free_later_than_a_queue_waits_for_is_not_soon(target_us: int) -> None:
    """Of 4 places with work of 100 ms one comes free each 25, five times what 5 ms take."""
    cost = EndpointCost(
        heavy_us=1_000_000,
        places=4,
        light_max=2,
        endpoints_max=8,
        rules={},
        target_us=target_us,
    )
    for name, took_us in (("slow", 100_000), ("quick", 5_000)):
        cost.learn(name, took_us, 0)
        cost.enter_light(name, 0)
    cost.enter_light("slow", 0)
    assert cost.is_heavy("slow", 0) is (target_us == 10_000)
    cost.learn("quick", 95_000, 0)  # 16 ms on average: nobody is held for less than twice that
    assert not cost.is_heavy("slow", 0)


def test_beside_heavy_ones_alone_an_endpoint_may_have_all_light_places() -> None:
    found = cost()
    for _ in range(4):
        found.enter_light("page", 0)
    found.enter_light("report", 0)
    assert found.is_heavy("page", 0)
    for _ in range(20):
        found.learn("report", 2_000, 0)
    assert not found.is_heavy("page", 0)


def test_what_matters_more_keeps_no_light_places_free_for_what_matters_less() -> None:
    found = cost()
    for _ in range(4):
        found.enter_light("pay", 0, Criticality.CRITICAL)
        found.enter_light("export", 0, Criticality.BULK)
    assert not found.is_heavy("pay", 0, Criticality.CRITICAL)
    assert found.is_heavy("export", 0, Criticality.BULK)
    assert found.is_needed(Criticality.CRITICAL, 0)
    assert not cost().is_needed(Criticality.BULK, 0)
    found.enter_light("book", 0, Criticality.CRITICAL)
    assert found.is_heavy("pay", 0, Criticality.CRITICAL)  # of one class, each its share


def test_an_endpoint_that_nobody_has_asked_for_a_minute_is_no_other() -> None:
    found = cost()
    found.enter_light("rare", 0)
    for _ in range(4):
        found.enter_light("page", 1)
    assert found.is_heavy("page", RECENT_US - 1)
    assert not found.is_heavy("page", RECENT_US)


def test_invented_endpoints_share_one_place_in_memory() -> None:
    found = cost()
    for n in range(1_000):
        found.learn(f"/{n}", 10, 0)
    assert len(found.means_us()) == 9
    assert OTHERS in found.means_us()


def test_invented_endpoints_are_forgotten_for_those_that_come_after_them() -> None:
    """A quick endpoint does not stay with the slow one that shared its mean for want of room."""
    found = cost()

    def ask(name: str, took_us: int, now_us: int) -> bool:
        heavy = found.is_heavy(name, now_us)
        if not heavy:
            found.enter_light(name, now_us)
            found.leave_light(name)
        found.learn(name, took_us, now_us)
        return heavy

    for n in range(8):
        ask(f"/{n}", 10, START_US)
    for at_us in range(START_US, START_US + 10_000, 1_000):
        ask("/report", 5_000, at_us)
        ask("/page", 10, at_us)
    assert ask("/page", 10, START_US + FORGET_US - 1)  # as heavy as what it shares a mean with
    found.enter_light("/0", START_US + FORGET_US)
    later_us = START_US + FORGET_US + 1_000_000
    assert not ask("/page", 10, later_us)
    assert not ask("/report", 5_000, later_us)  # nothing is known of it
    assert ask("/report", 5_000, later_us)
    assert not ask("/page", 10, later_us)
    assert {"/0", "/page", "/report"} <= set(found.means_us())
    assert "/1" not in found.means_us()


def test_nothing_is_forgotten_while_what_shares_a_mean_is_at_work() -> None:
    found = cost()
    for n in range(9):
        found.is_heavy(f"/{n}", START_US)
        found.enter_light(f"/{n}", START_US)  # the ninth is one of the others
    for n in range(8):
        found.leave_light(f"/{n}")
    assert not found.is_heavy("/new", START_US + FORGET_US)
    assert len(found.means_us()) == 9
    found.leave_light("/8")
    found.is_heavy("/new", START_US + FORGET_US)
    assert set(found.means_us()) == {"/new"}


def test_light_work_has_a_line_for_each_eighth_of_what_is_heavy() -> None:
    cost = EndpointCost(heavy_us=512_000, places=8, light_max=4, endpoints_max=8, rules={})
    assert cost.magnitude("/new") == MAGNITUDES[0]
    assert cost.mean_us("/new") == 64_000
    for took_us, name in ((64_001, 0), (64_000, 1), (8_001, 1), (8_000, 2), (1_000, 3), (1, 3)):
        cost.learn(f"/{took_us}", took_us, 0)
        assert cost.magnitude(f"/{took_us}") == MAGNITUDES[name], took_us
        assert cost.mean_us(f"/{took_us}") == took_us


def of_magnitudes(heavy_us: int = 512_000) -> EndpointCost:
    return EndpointCost(heavy_us=heavy_us, places=8, light_max=4, endpoints_max=8, rules={})


def test_an_endpoint_stays_in_its_line_though_some_of_its_units_are_quick() -> None:
    cost = of_magnitudes()
    cost.learn("/page", 20_000, 0)
    for took_us in [*[1] * (LESSER_AFTER - 1), 60_000] * 4:
        cost.learn("/page", took_us, 0)
        assert cost.magnitude("/page") == MAGNITUDES[1]


def test_work_of_which_each_unit_takes_another_time_stays_in_one_line() -> None:
    """Of 10 ms in the mean; a mean of eight is below 3.9 ms a few times in ten thousand."""
    draw = SeededChance(7).draw
    cost = of_magnitudes(250_000)
    lines = set()
    for _ in range(50_000):
        cost.learn("/get", round(-10_000 * log(1 - draw())), 0)
        lines.add(cost.magnitude("/get"))
    assert len(lines) == 1


def test_an_endpoint_comes_into_a_lesser_line_late_and_into_a_greater_one_soon() -> None:
    cost = of_magnitudes()
    cost.learn("/page", 20_000, 0)
    for _ in range(40):
        cost.learn("/page", 200, 0)
    assert cost.magnitude("/page") == MAGNITUDES[1]
    for _ in range(2 * LESSER_AFTER):
        cost.learn("/page", 200, 0)
    assert cost.magnitude("/page") == MAGNITUDES[3]
    for _ in range(GREATER_AFTER - 1):
        cost.learn("/page", 10_000, 0)
        assert cost.magnitude("/page") == MAGNITUDES[3]
    cost.learn("/page", 10_000, 0)
    assert cost.magnitude("/page") == MAGNITUDES[2]


def test_two_units_that_take_long_do_not_move_an_endpoint() -> None:
    """As with exponential work of 10 ms once in two million units."""
    cost = of_magnitudes(250_000)
    for took_us in [*[10_000] * 8, 33_000, 87_000, 13_000, 97_000, *[10_000] * 80]:
        cost.learn("/get", took_us, 0)
        assert cost.magnitude("/get") == MAGNITUDES[1]
