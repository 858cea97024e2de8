"""Heavy is what is named so, what takes long, and what fills the places before it has ended."""

from __future__ import annotations

from sluicegate.policies.endpoint_cost import OTHERS, EndpointCost


def cost(**rules: bool) -> EndpointCost:
    return EndpointCost(heavy_us=1_000, light_max=4, endpoints_max=8, rules=rules)


def test_an_endpoint_is_heavy_while_its_work_takes_long() -> None:
    found = cost()
    found.learn("a", 900)
    assert not found.is_heavy("a")
    for _ in range(20):
        found.learn("a", 2_000)
    assert found.is_heavy("a")
    for _ in range(5):
        found.learn("a", 600)
    assert found.is_heavy("a")  # not yet below half: it must not swing
    for _ in range(40):
        found.learn("a", 100)
    assert not found.is_heavy("a")


def test_a_rule_stands_whatever_is_learned() -> None:
    found = cost(report=True, page=False)
    found.learn("report", 1)
    found.learn("page", 1 << 30)
    assert found.is_heavy("report")
    assert not found.is_heavy("page")


def test_one_endpoint_does_not_fill_the_light_places_while_others_are_served() -> None:
    found = cost()
    for _ in range(4):
        found.enter_light("slow")
    assert not found.is_heavy("slow")  # alone it may have them all
    found.enter_light("quick")
    assert found.is_heavy("slow")
    assert not found.is_heavy("quick")
    found.leave_light("slow")
    assert not found.is_heavy("slow")


def test_invented_endpoints_share_one_place_in_memory() -> None:
    found = cost()
    for n in range(1_000):
        found.learn(f"/{n}", 10)
    assert len(found.means_us()) == 9
    assert OTHERS in found.means_us()
