from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, LeaseResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import RATE_LIMITED, SHED
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import SharedKey
from sluicegate.rules.resources.leases import ladder
from sluicegate.testing import Faults
from tests.rules.resources.stories import Story, rule

MINUTE_US = 60_000_000


def lease(
    story: Story, units: int, path: str = "/a", user: str = "ann", **options: str
) -> LeaseResponse:
    ask = CheckRequest(user, path)
    return asyncio.run(story.checker.lease(ask, units, story.now, **options))


def give_back(story: Story, lease_id: str, units: int, **options: str) -> int:
    return asyncio.run(story.checker.give_back(lease_id, units, story.now, **options))


def at_edge(story: Story, *, s: float = 0) -> None:
    """Move on to the start of a minute, and so many seconds further."""
    story.clock.advance(us=-story.now % MINUTE_US + round(s * 1_000_000))


def test_a_lease_takes_its_units_at_once_from_all_rules_together() -> None:
    story = Story(rule("minute", "/a", 10), rule("hour", "/a", 100, window="1h"))
    grant = lease(story, 8)
    assert (grant.units, grant.check.decision.rule_id, grant.check.limit) == (8, "minute", 10)
    assert grant.check.decision.remaining == 2
    assert story.admitted(5, path="/a") == 2
    assert story.ledger.lines[0] == ("ann", "minute", 8, Criticality.DEGRADED, True)
    story.clock.advance(s=120)
    assert story.limiter.peek(
        SharedKey("ann", "hour"), 90, story.book.find("/a", "", Criticality.BULK)[1].kind.shared_id
    )


def test_what_is_not_there_is_asked_for_by_halves_down_to_one() -> None:
    story = Story(rule("r", "/a", 10))
    assert [lease(story, 8).units for _ in range(4)] == [8, 2, 0, 0]
    assert [lease(story, 7, user="bob").units for _ in range(4)] == [7, 3, 0, 0]
    assert lease(story, 1_000, user="cem").units == 7
    assert ladder(9, 99) == [9, 4, 2, 1]
    assert ladder(9, 3) == [2, 1]


def test_what_one_rule_refuses_is_taken_from_none() -> None:
    story = Story(rule("hour", "/a", 100, window="1h"), rule("minute", "/a", 10))
    story.check(path="/a", cost=6)
    assert lease(story, 50).units == 3
    hour = story.book.find("/a", "", Criticality.BULK)[0]
    assert story.limiter.peek(SharedKey("ann", "hour"), 91, hour.kind.shared_id).allowed
    assert not story.limiter.peek(SharedKey("ann", "hour"), 92, hour.kind.shared_id).allowed


def test_a_far_store_is_not_asked_for_what_it_said_is_not_there() -> None:
    faults = Faults()
    story = Story(rule("r", "/a", 4_096), limiter={"faults": faults})
    at_edge(story)
    assert lease(story, 4_096).units == 4_096
    story.clock.advance(s=60)
    calls = faults.calls
    story.clock.advance(us=20_000)  # one unit or two have come back
    assert lease(story, 4_096).units == 1
    assert faults.calls - calls == 2


def test_without_units_the_decision_says_when_to_ask_again() -> None:
    story = Story(rule("r", "/a", 4))
    lease(story, 4)
    none = lease(story, 4)
    assert (none.units, none.lease_id, none.valid_us) == (0, "", 0)
    assert none.check.decision.reason is RATE_LIMITED
    assert none.check.decision.retry_after_us > 0
    assert story.ledger.lines[-1] == ("ann", "r", 4, Criticality.DEGRADED, False)


def test_a_lease_ends_with_the_shortest_window_it_was_taken_in() -> None:
    story = Story(
        rule("r", "/a", 10),
        rule("h", "/a", 100, window="1h"),
        rule("c", "/c", 10, cells=10),
        rule("f", "/f", 10, algorithm="fixed_window"),
        lease_us_max=3_600_000_000,
    )
    at_edge(story, s=40.5)
    assert lease(story, 5).valid_us == 19_500_000
    assert lease(story, 5, "/c").valid_us == 1_500_000
    assert lease(story, 5, "/f").valid_us == 19_500_000
    short = Story(rule("r", "/a", 10), lease_us_max=7)
    assert lease(short, 5).valid_us == 7


def test_what_is_given_back_is_there_again_once() -> None:
    story = Story(rule("r", "/a", 10), rule("h", "/a", 50, window="1h"))
    at_edge(story)
    grant = lease(story, 8)
    assert give_back(story, grant.lease_id, 5) == 5
    assert give_back(story, grant.lease_id, 3) == 0
    assert story.admitted(20, path="/a") == 7
    assert story.checker.leases_open == 0


def test_more_than_was_leased_cannot_be_given_back() -> None:
    story = Story(rule("r", "/a", 10))
    at_edge(story)
    story.check(path="/a", cost=6)
    grant = lease(story, 4)
    assert give_back(story, grant.lease_id, 1_000) == 4
    assert story.admitted(20, path="/a") == 4
    with pytest.raises(BadValue, match="units"):
        give_back(story, "x", -1)


def test_what_comes_back_late_or_from_others_is_void() -> None:
    story = Story(rule("r", "/a", 10), lease_us_max=1_000)
    at_edge(story)
    grant = lease(story, 10, holder="edge-1")
    assert give_back(story, grant.lease_id, 5, holder="edge-2") == 0
    assert give_back(story, grant.lease_id[:-1] + "_", 5, holder="edge-1") == 0
    story.clock.advance(us=1_000)
    assert give_back(story, grant.lease_id, 5, holder="edge-1") == 0
    assert story.admitted(9, path="/a") == 0
    again = lease(story, 10, user="bob", holder="edge-1")
    story.clock.advance(us=999)
    assert give_back(story, again.lease_id, 5, holder="edge-1") == 5


def test_what_comes_back_after_its_window_is_void() -> None:
    story = Story(rule("r", "/a", 10))
    at_edge(story, s=59.5)
    grant = lease(story, 10)
    story.clock.advance(us=grant.valid_us)
    assert grant.valid_us == 500_000
    assert give_back(story, grant.lease_id, 10) == 0


def test_a_reset_voids_the_leases_of_what_it_forgets() -> None:
    story = Story(rule("r", "/a", 10), rule("b", "/b", 10))
    at_edge(story)
    grant, other = lease(story, 5), lease(story, 5, "/b")
    asyncio.run(story.checker.reset(CheckRequest("ann", "/a")))
    story.check(path="/a", cost=10)
    assert give_back(story, grant.lease_id, 5) == 0
    assert not story.check(path="/a").decision.allowed
    assert give_back(story, other.lease_id, 5) == 5


def test_where_no_rule_applies_any_number_may_be_spent_for_a_while() -> None:
    story = Story(rule("r", "/a"), lease_us_max=5)
    grant = lease(story, 9, "/other")
    assert (grant.units, grant.valid_us, grant.lease_id, grant.check.limit) == (9, 5, "", -1)
    assert story.ledger.lines == [("ann", "", 9, Criticality.DEGRADED, True)]


def test_what_counts_each_unit_at_its_instant_is_not_leased_but_checked() -> None:
    story = Story(
        rule("log", "/a", 10, algorithm="sliding_log"),
        rule("trial", "/t", 10, algorithm="sliding_log", mode="shadow"),
        rule("tiny", "/b", 1, algorithm="gcra"),
    )
    for path in ("/a", "/b"):
        grant = lease(story, 5, path)
        assert (grant.units, grant.check.decision.allowed) == (0, True)
        assert story.check(path=path).decision.allowed
    assert lease(story, 5, "/t").units == 5


def test_a_bucket_pays_a_surcharge_and_lives_shortly() -> None:
    story = Story(rule("r", "/a", 100, algorithm="token_bucket"))
    grant = lease(story, 100)
    assert (grant.units, grant.valid_us) == (50, 1_000_000)
    # In a second 1.66 units flow in.
    assert grant.check.decision.remaining == 48
    assert give_back(story, grant.lease_id, 50) == 50
    assert story.peek(path="/a").decision.remaining == 97  # after one more


def test_what_is_shed_is_not_leased() -> None:
    story = Story(rule("r", "/a"))
    story.gate.shed[Criticality.DEGRADED] = Decision(False, 0, 5, 0, SHED, "")
    grant = lease(story, 9)
    assert (grant.units, grant.check.decision.reason) == (0, SHED)
    assert story.ledger.lines == [("ann", "", 9, Criticality.DEGRADED, False)]


def test_a_trial_beside_a_rule_neither_refuses_nor_shortens_a_lease() -> None:
    story = Story(
        rule("r", "/a", 10), rule("trial", "/a", 2, mode="shadow", window="1s"),
        lease_us_max=60_000_000,
    )  # fmt: skip
    at_edge(story, s=0.5)
    grant = lease(story, 8)
    assert (grant.units, grant.valid_us, grant.check.decision.rule_id) == (8, 59_500_000, "r")
    # The trial refused the eight, so it has nothing to be given back of.
    story.check(path="/a", cost=2)
    assert give_back(story, grant.lease_id, 8) == 8
    trial = story.book.find("/a", "", Criticality.BULK)[1]
    assert story.limiter.peek(SharedKey("ann", "trial"), 1, trial.kind.shared_id).reason is not None


def test_the_number_of_open_leases_is_bounded_and_those_that_have_ended_go() -> None:
    story = Story(rule("r", "/a", 100), leases_max=2, lease_us_max=1_000)
    at_edge(story)
    ids = [lease(story, 2).lease_id for _ in range(3)]
    assert ids[2] == ""
    assert len(set(ids)) == 3
    assert story.checker.leases_open == 2
    assert give_back(story, ids[2], 2) == 0
    story.clock.advance(us=1_000)
    assert lease(story, 2).lease_id != ""
    assert story.checker.leases_open == 1


@pytest.mark.parametrize("units", [0, -1, 1 << 32])
def test_a_number_of_units_that_is_none_is_told(units: int) -> None:
    with pytest.raises(BadValue, match="units"):
        lease(Story(rule("r", "/a")), units)


def test_what_a_silent_store_admits_is_not_leased() -> None:
    faults = Faults()
    story = Story(
        rule("r", "/a"),
        rule("b", "/b", 100, algorithm="gcra"),
        rule("c", "/c", failure="closed"),
        limiter={"faults": faults},
    )
    at_edge(story)
    assert lease(story, 5).units == 5
    faults.fail()
    open_, closed = lease(story, 5), lease(story, 5, "/c")
    assert (open_.units, open_.check.decision.allowed, open_.check.decision.degraded) == (
        0, True, True,
    )  # fmt: skip
    assert (closed.units, closed.check.decision.allowed) == (0, False)
    assert lease(story, 5, "/b").units == 0


# However clients spend and return, what has been spent was within the limit.

Spent = Sequence[tuple[int, int]]


def windows_hold(limit: Limit, spent: Spent) -> bool:
    """The estimate after each unit, by windows (or cells), with sums instead of states."""
    cell_us = limit.period_us // limit.cells
    counts: dict[int, int] = {}
    for at_us, units in spent:
        cell = at_us // cell_us
        counts[cell] = counts.get(cell, 0) + units
        whole = sum(counts.get(cell - back, 0) for back in range(limit.cells))
        going = counts.get(cell - limit.cells, 0) * (cell_us - at_us % cell_us)
        if whole * cell_us + going > limit.count * cell_us:
            return False
    return True


def fixed_holds(limit: Limit, spent: Spent) -> bool:
    counts: dict[int, int] = {}
    for at_us, units in spent:
        window = at_us // limit.period_us
        counts[window] = counts.get(window, 0) + units
    return all(count <= limit.count for count in counts.values())


def bucket_holds(limit: Limit, spent: Spent) -> bool:
    for first, (from_us, _) in enumerate(spent):
        total = 0
        for at_us, units in spent[first:]:
            total += units
            if total * limit.period_us > limit.burst * limit.period_us + limit.count * (
                at_us - from_us
            ):
                return False
    return True


HOLDS: dict[str, Callable[[Limit, Spent], bool]] = {
    "sliding_window": windows_hold,
    "fixed_window": fixed_holds,
    "gcra": bucket_holds,
    "token_bucket": bucket_holds,
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "lease", "spend", "spend", "spend", "return", "check", "wait"]),
        st.integers(0, 2),
        st.integers(1, 40),
        st.integers(0, 400_000),
    ),
    max_size=60,
)


class Client:
    """Spends what it has leased until the deadline, counted from before it asked."""

    def __init__(self, lease_id: str, left: int, deadline_us: int) -> None:
        self.lease_id = lease_id
        self.left = left
        self.deadline_us = deadline_us


async def play(story: Story, steps: Sequence[tuple[str, int, int, int]]) -> list[tuple[int, int]]:
    """What was spent, and when."""
    spent: list[tuple[int, int]] = []
    grants: dict[int, Client] = {}
    for what, who, units, gap_us in steps:
        sent_us = story.now
        story.clock.advance(us=gap_us)
        if what == "lease":
            grant = await story.checker.lease(CheckRequest("ann", "/a"), units, story.now)
            grants[who] = Client(grant.lease_id, grant.units, sent_us + grant.valid_us)
        elif what == "check":
            if story.check(path="/a", cost=units).decision.allowed:
                spent.append((story.now, units))
        elif what == "spend" and who in grants and story.now < grants[who].deadline_us:
            some = min(units, grants[who].left)
            grants[who].left -= some
            spent.append((story.now, some))
        elif what == "return" and who in grants:
            client = grants.pop(who)
            await story.checker.give_back(client.lease_id, client.left, story.now)
            await story.checker.give_back(client.lease_id, client.left, story.now)
    return spent


@settings(max_examples=60)
@given(steps=STEPS, algorithm=st.sampled_from(sorted(HOLDS)), cells=st.sampled_from([1, 5]))
def test_a_lease_never_admits_more_than_the_limit(
    steps: list[tuple[str, int, int, int]], algorithm: str, cells: int
) -> None:
    fields: dict[str, object] = {"algorithm": algorithm, "window": "1s"}
    if algorithm == "sliding_window":
        fields["cells"] = cells
    story = Story(rule("r", "/a", 50, **fields))
    (only,) = story.book.find("/a", "", Criticality.BULK)
    spent = asyncio.run(play(story, steps))
    assert HOLDS[algorithm](only.kind.limit, spent)


@settings(max_examples=40)
@given(steps=STEPS)
def test_a_lease_keeps_within_all_of_its_rules(steps: list[tuple[str, int, int, int]]) -> None:
    story = Story(
        rule("a", "/a", 50, window="1s"),
        rule("b", "/a", 80, window="3s", algorithm="fixed_window"),
        rule("c", "/a", 60, window="2s", algorithm="gcra"),
    )
    spent = asyncio.run(play(story, steps))
    for only in story.book.find("/a", "", Criticality.BULK):
        assert HOLDS[only.kind.limit.algorithm.value](only.kind.limit, spent)
