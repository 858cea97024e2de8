"""A canary over a fleet that reports: it grows, goes live, or is taken back by itself."""

from __future__ import annotations

from threading import Event as Flag

import pytest

from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES, Files, GateFinding, NodeReport
from sluicegate.rules.publishing.canary import CanarySettings, CanaryState, CanaryTally, count_name
from sluicegate.rules.publishing.settings import PublishingSettings
from tests.rules.publishing.world import (
    BOB,
    FIRST,
    LIVE_REF,
    MAIN,
    READER,
    Make,
    World,
    rules,
)

NEW = {"web.yaml": rules(login=5, search=100)}
MINUTE_US = 60_000_000
SETTINGS = PublishingSettings(canary=CanarySettings(hold_us=MINUTE_US, critical_min=1_000))


@pytest.fixture
def world(make: Make) -> World:
    return make(settings=SETTINGS).begin()


@pytest.fixture
def traffic(world: World) -> Traffic:
    return Traffic(world)


def begun(world: World, share: int = 100, kind: str = BY_CALLERS) -> str:
    """A canary that is under way."""
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=share, kind=kind, by=BOB)
    return id


class Traffic:
    """A node that counts what it decides, and reports once a minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts = {"1/CRITICAL": [5_000_000, 0]}  # live has been for long

    def minute(self, refused: int, *, of: int = 1_000, failure: str = "") -> None:
        """A minute in which so many CRITICAL decisions were made under the canary."""
        self.report("")
        self.world.look()
        self.world.clock.advance(s=60)
        pair = self.counts.setdefault("2/CRITICAL", [0, 0])
        pair[0] += of
        pair[1] += refused
        self.counts["1/CRITICAL"][0] += 100_000
        self.report(failure)
        self.world.look()

    def report(self, failure: str) -> None:
        counts = {name: (count, refused) for name, (count, refused) in self.counts.items()}
        self.world.report(canary=2, counts=counts, failure=failure)


def test_it_is_in_force_for_a_share_and_live_is_where_it_was(world: World) -> None:
    before = world.tip(LIVE_REF)
    id = begun(world)  # noqa: A001 - it is what it is called
    rollouts = world.rollout()
    assert rollouts.canary is not None
    assert (rollouts.live, rollouts.canary[:3]) == (1, (2, BY_CALLERS, 100))
    assert rollouts.canary.salt
    assert world.announced()[-1] == rollouts
    assert world.tip(LIVE_REF) == before
    assert world.files() == FIRST
    assert world.state_of(id) == "canary"
    # Its commit is on no branch, and a clean-up must leave it.
    assert world.tip("refs/sluicegate/versions/2") == world.ledger.state().versions[2].commit


def test_it_grows_by_itself_until_it_is_live(world: World, traffic: Traffic) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    shares = []
    for _ in range(3):
        traffic.minute(40)  # 4%
        canary = world.rollout().canary
        shares.append(None if canary is None else canary.share)
    assert shares == [500, 2_500, None]
    assert world.rollout().live == 2
    assert world.state_of(id) == "live"
    assert world.files() == {**FIRST, **NEW}
    assert world.store.versions() == [1, 2]
    proposal = world.admin.proposal(id, by=READER)
    assert "40 of 1,000 CRITICAL" in proposal["history"][-1]["why"]
    assert world.admin.audit(by=READER)[0]["by"] == "sluicegate"
    assert not world.rollout().back


def test_six_percent_of_critical_refused_takes_it_back(world: World, traffic: Traffic) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    traffic.minute(60)
    rollouts = world.rollout()
    assert (rollouts.live, rollouts.canary, rollouts.back) == (1, None, True)
    assert "60 of 1,000 CRITICAL" in rollouts.reason
    proposal = world.admin.proposal(id, by=READER)
    assert proposal["state"] == "rolled back"
    assert "60 of 1,000 CRITICAL" in world.repository.notes(proposal["commit"])
    assert "60 of 1,000 CRITICAL" in str(world.admin.audit(by=READER)[0]["why"])
    assert world.files() == FIRST
    # Its number is not used again.
    assert world.live({"api.yaml": rules(orders=1)}) == 3
    assert not world.rollout().back
    assert world.files()["web.yaml"] == FIRST["web.yaml"]


def test_a_later_step_takes_it_back_as_well(world: World, traffic: Traffic) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    traffic.minute(0)
    traffic.minute(60)
    assert world.state_of(id) == "rolled back"


def test_what_is_counted_between_two_steps_is_not_lost(world: World, traffic: Traffic) -> None:
    begun(world)
    traffic.minute(0)
    world.clock.advance(s=60)
    traffic.counts["2/CRITICAL"][0] += 1_000
    traffic.report("")
    world.look()  # the first look of this step
    canary = world.rollout().canary
    assert canary is not None
    assert canary.share == 2_500


def test_too_few_decisions_hold_it(world: World, traffic: Traffic) -> None:
    begun(world)
    traffic.minute(0, of=999)
    assert world.publishing.upkeep.failures == {}
    canary = world.rollout().canary
    assert canary is not None
    assert canary.share == 100


def test_a_node_that_gets_into_trouble_takes_it_back(world: World, traffic: Traffic) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    traffic.minute(0, of=0, failure="rules: cannot be loaded")
    assert world.state_of(id) == "rolled back"


def test_trouble_from_before_is_not_held_against_it(world: World, traffic: Traffic) -> None:
    world.report("n1", failure="the disk is full")
    id = begun(world)  # noqa: A001 - it is what it is called
    traffic.minute(0, failure="the disk is full")
    assert world.state_of(id) == "canary"
    world.report("n2", failure="mine too")
    world.look()
    assert world.state_of(id) == "rolled back"


def test_an_old_report_of_trouble_says_nothing(world: World) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    world.report("n9", failure="I am dying")
    world.clock.advance(s=61)
    world.look()
    assert world.state_of(id) == "canary"


def test_by_hand_it_grows_goes_live_or_ends(world: World) -> None:
    id = begun(world, kind=BY_NODES)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=700, kind=BY_NODES, by=BOB)
    canary = world.rollout().canary
    assert canary is not None
    assert (canary.share, canary.by) == (700, BY_NODES)
    with pytest.raises(BadValue, match="give more"):
        world.admin.canary(id, share=600, kind=BY_NODES, by=BOB)
    with pytest.raises(BadValue, match="by nodes"):
        world.admin.canary(id, share=800, kind=BY_CALLERS, by=BOB)
    for share, kind in ((-1, BY_NODES), (10_001, BY_NODES), (800, "moons")):
        with pytest.raises(BadValue):
            world.admin.canary(id, share=share, kind=kind, by=BOB)
    world.admin.canary(id, share=10_000, kind=BY_NODES, by=BOB)
    assert world.state_of(id) == "live"
    assert world.rollout().live == 2
    assert world.files()["web.yaml"] == NEW["web.yaml"]


def test_publishing_a_canary_makes_it_live(world: World) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    proposal = world.admin.publish(id, by=BOB)
    assert (proposal["state"], proposal["version"]) == ("live", 2)


def test_a_whole_share_makes_it_live_at_once(world: World) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    proposal = world.admin.canary(id, share=10_000, kind=BY_CALLERS, by=BOB)
    assert (proposal["state"], world.rollout().canary) == ("live", None)
    assert "canary" not in [one["kind"] for one in world.admin.versions(by=READER)]


def test_taken_back_by_hand(world: World) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=0, kind=BY_CALLERS, by=BOB)
    assert world.state_of(id) == "rolled back"
    assert world.rollout().canary is None
    with pytest.raises(BadValue, match="was live"):
        world.admin.roll_back("2", reason="it never was live", by=BOB)
    with pytest.raises(BadValue, match="rolled back"):
        world.admin.canary(id, share=100, kind=BY_CALLERS, by=BOB)


def test_a_share_of_none_begins_nothing(world: World) -> None:
    id = world.approved(NEW)  # noqa: A001 - it is what it is called
    with pytest.raises(BadValue, match="more than 0"):
        world.admin.canary(id, share=0, kind=BY_CALLERS, by=BOB)


def test_one_canary_at_a_time_and_nothing_else_goes_live(world: World) -> None:
    other = world.approved({"api.yaml": rules(orders=1)})
    begun(world)
    with pytest.raises(Conflict, match="canary of version 2"):
        world.admin.publish(other, by=BOB)
    with pytest.raises(Conflict, match="canary of version 2"):
        world.admin.canary(other, share=100, kind=BY_CALLERS, by=BOB)


def test_rolling_back_ends_a_canary(world: World) -> None:
    world.live({"api.yaml": rules(orders=1)})
    id = begun(world)  # noqa: A001 - it is what it is called
    world.admin.roll_back("1", reason="help", by=BOB)
    rollouts = world.rollout()
    assert (rollouts.live, rollouts.canary) == (4, None)
    assert world.state_of(id) == "rolled back"
    assert world.files() == FIRST


def test_rolling_back_to_what_is_live_only_ends_the_canary(world: World) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    world.admin.roll_back("live", reason="help", by=BOB)
    rollouts = world.rollout()
    assert (rollouts.live, rollouts.canary, rollouts.back) == (1, None, True)
    assert world.state_of(id) == "rolled back"
    assert world.store.versions() == [1, 2]


def test_nodes_that_missed_the_end_of_a_canary_may_still_go_back(world: World) -> None:
    id = begun(world)  # noqa: A001 - it is what it is called
    world.admin.canary(id, share=0, kind=BY_CALLERS, by=BOB)
    # Rollouts that have nothing to do with it, which may be the next that a node sees.
    world.admin.pin("n1", 1, reason="another thing", by=BOB)
    assert world.rollout().back


def test_another_canary_is_tried_by_others(world: World) -> None:
    salts = []
    for limit in (3, 4):
        id = world.approved({"web.yaml": rules(login=limit)})  # noqa: A001
        world.admin.canary(id, share=100, kind=BY_CALLERS, by=BOB)
        canary = world.rollout().canary
        assert canary is not None
        salts.append(canary.salt)
        world.admin.canary(id, share=0, kind=BY_CALLERS, by=BOB)
    assert salts[0] != salts[1]


class Pondering:
    """A judge who does not come to an end before he is told to."""

    def __init__(self) -> None:
        self.begun = Flag()
        self.end = Flag()

    def judge(self, current: Files, candidate: Files) -> GateFinding:
        self.begun.set()
        self.end.wait(600)
        return GateFinding("passed", "fine", 1.0, {})


def test_while_a_push_is_judged_the_canary_is_watched(make: Make) -> None:
    judge = Pondering()
    judge.end.set()
    settings = PublishingSettings(look_us=10_000)
    world = make(judge=judge, settings=settings).begin()
    id = begun(world)  # noqa: A001 - it is what it is called
    judge.begun.clear()
    judge.end.clear()
    commit = world.repository.write(
        {"api.yaml": rules(orders=30).encode()},
        parents=(world.tip(MAIN),),
        author=world.repository.info(world.tip(MAIN)).author,
        message="theirs",
        at_us=world.clock.now_us(),
    )
    world.repository.move(MAIN, commit.id, expected=world.tip(MAIN))
    world.publishing.start()
    try:
        assert judge.begun.wait(60)
        world.report("n1", failure="rules: cannot be loaded")
        for _ in range(1_500):
            if world.state_of(id) == "rolled back":
                break
            Flag().wait(0.02)
        assert world.state_of(id) == "rolled back"
    finally:
        judge.end.set()


def test_a_publisher_that_begins_anew_holds_the_step_anew(make: Make, world: World) -> None:
    begun(world)
    world.clock.advance(s=30)
    # All of this was before the step, as far as the counts can tell.
    world.report(counts={"2/CRITICAL": (1_000, 900)}, since_us=0)
    world.close()
    other = make(settings=SETTINGS, clock=world.clock)
    other.clock.advance(s=60)
    other.look()
    assert other.rollout().canary is not None


# The sums, without a fleet.


def report(node: str, canary: tuple[int, ...], live: tuple[int, ...] = ()) -> NodeReport:
    counts = {count_name(2): canary, count_name(1): live}
    return NodeReport(node, 1, 1, 2, 0, 10, 0, "", counts)


def figures(tally: CanaryTally, *reports: NodeReport) -> tuple[int, ...]:
    return tally.figures(reports, 0)[:4]


STATE = CanaryState(2, 100, 5)


def test_what_each_node_counts_is_added_up_once() -> None:
    tally = CanaryTally(STATE, 1)
    figures(tally, report("a", (0, 0), (50, 5)), report("b", (0, 0)))
    reports = (report("a", (10, 1), (60, 6)), report("b", (5, 0), (7, 7)))
    assert figures(tally, *reports) == (15, 1, 17, 8)
    assert figures(tally, *reports) == (15, 1, 17, 8)
    assert figures(tally, report("b", (9, 0), (7, 7))) == (19, 1, 17, 8)


def test_what_a_node_counted_before_it_was_heard_of_is_not_counted() -> None:
    tally = CanaryTally(STATE, 1)
    assert figures(tally, report("a", (1_000, 1_000))) == (0, 0, 0, 0)
    assert figures(tally, report("a", (1_010, 1_001))) == (10, 1, 0, 0)


def test_a_count_that_begins_anew_is_counted_on_and_the_other_is_not() -> None:
    tally = CanaryTally(STATE, 1)
    figures(tally, report("a", (10, 1), (100, 0)))
    assert figures(tally, report("a", (3, 1), (110, 0))) == (3, 1, 10, 0)
    assert figures(tally, report("a", (4, 0), (111, 0))) == (7, 1, 11, 0)


def test_the_next_step_begins_where_the_last_one_ended() -> None:
    first = CanaryTally(STATE, 1)
    figures(first, report("a", (0, 0)))
    figures(first, report("a", (1_000, 40)))
    second = CanaryTally(STATE._replace(share=500), 1, before=first)
    assert figures(second, report("a", (1_000, 40))) == (0, 0, 0, 0)
    assert figures(second, report("a", (1_500, 60))) == (500, 20, 0, 0)
    # Another canary has counts of its own, and nothing is known of them.
    other = CanaryTally(CanaryState(3, 100, 9), 1, before=second)
    counts = {count_name(3): (7, 7)}
    assert figures(other, NodeReport("a", 1, 1, 3, 0, 10, 0, "", counts)) == (0, 0, 0, 0)


def test_a_report_without_counts_counts_nothing() -> None:
    tally = CanaryTally(STATE, 1)
    silent = NodeReport("a", 1, 1, 2, 0, 10, 0, "", {})
    figures(tally, silent, report("b", ()))
    assert figures(tally, silent, report("b", (7,))) == (7, 0, 0, 0)
