from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES, Canary, Rollout
from sluicegate.rules.following.fleet_books import in_share
from sluicegate.rules.following.target import RolloutTarget, choose, is_older, is_older_after


def rollout(
    live: int,
    *,
    number: int = 1,
    canary: Canary | None = None,
    pins: dict[str, int] | None = None,
    back: bool = False,
) -> Rollout:
    return Rollout(number, live, canary, pins or {}, back, "", 0)


def test_a_node_runs_what_is_live() -> None:
    assert choose(rollout(5), "n1") == RolloutTarget(5)
    assert choose(rollout(5), "n1").versions == (5,)


def test_a_pin_goes_before_live_and_before_every_canary() -> None:
    for by in (BY_NODES, BY_CALLERS):
        example = rollout(5, canary=Canary(6, by, 10_000, ""), pins={"n1": 2})
        assert choose(example, "n1") == RolloutTarget(2)
    assert choose(rollout(5, pins={"n1": 2}), "n2") == RolloutTarget(5)


def test_a_canary_of_nodes_is_all_that_a_node_in_its_share_runs() -> None:
    chosen = set()
    for number in range(1_000):
        name = f"n{number}"
        target = choose(rollout(5, canary=Canary(6, BY_NODES, 1_000, "s")), name)
        assert target in (RolloutTarget(5), RolloutTarget(6))
        assert (target == RolloutTarget(6)) == in_share(name, share=1_000, salt="s")
        chosen |= {name} if target == RolloutTarget(6) else set()
    assert 60 <= len(chosen) <= 140


def test_a_canary_of_callers_is_run_beside_what_is_live() -> None:
    target = choose(rollout(5, canary=Canary(6, BY_CALLERS, 100, "s")), "n1")
    assert target == RolloutTarget(5, 6, 100, "s")
    assert target.versions == (5, 6)


def test_a_canary_for_nobody_or_of_what_is_live_is_none() -> None:
    for by in (BY_NODES, BY_CALLERS):
        assert choose(rollout(5, canary=Canary(6, by, 0, "s")), "n1") == RolloutTarget(5)
        assert choose(rollout(5, canary=Canary(5, by, 10_000, "s")), "n1") == RolloutTarget(5)


def test_older_rules_are_run_only_if_the_orders_mean_it() -> None:
    assert not is_older(rollout(1), None)
    assert not is_older(rollout(5), rollout(5))
    assert not is_older(rollout(6), rollout(5))
    assert is_older(rollout(4), rollout(5))
    assert not is_older(rollout(4, back=True), rollout(5))


def test_a_pin_and_a_canary_may_always_be_let_go_of() -> None:
    taken = rollout(5, canary=Canary(9, BY_NODES, 10_000, ""), pins={"n1": 8})
    assert not is_older(rollout(5), taken)


def test_orders_that_were_missed_may_have_meant_it() -> None:
    taken = rollout(5)
    assert is_older_after(rollout(4), taken, [])
    assert not is_older_after(rollout(4), taken, [rollout(4, back=True)])
    assert not is_older_after(rollout(4), taken, [rollout(3, back=True)])
    # What was meant was 4, and this is 3.
    assert is_older_after(rollout(3), taken, [rollout(4, back=True)])
    # What nobody would have followed changes nothing.
    assert is_older_after(rollout(4), taken, [rollout(3), rollout(4)])
    assert is_older_after(rollout(4), taken, [rollout(4, back=True), rollout(6)])


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=6), st.integers(1, 5))
def test_a_node_that_missed_orders_comes_to_where_the_others_are(
    given_orders: list[tuple[int, bool]], start: int
) -> None:
    every = [rollout(live, back=back) for live, back in given_orders]
    if not every:
        return
    there = here = rollout(start)
    for one in every:  # one that is there for all
        if not is_older(one, there):
            there = one
    if not is_older_after(every[-1], here, every[:-1]):  # one that comes back for the last
        here = every[-1]
        assert here == there
    else:
        assert there != every[-1] or there.live != every[-1].live
