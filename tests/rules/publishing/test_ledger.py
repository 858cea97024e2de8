"""The ledger: one commit a change, nothing lost, and formats that newer programs may extend."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import (
    LIVE,
    REJECTED,
    Author,
    Canary,
    GateFinding,
    Rollout,
)
from sluicegate.rules.publishing.canary import CanaryState
from sluicegate.rules.publishing.ledger import (
    NOTHING,
    OUTBOX,
    LedgerChange,
    LedgerState,
    RulebookLedger,
)
from sluicegate.rules.publishing.records import (
    CanaryRun,
    CommitNote,
    Delivered,
    FleetRecord,
    Proposal,
    ProposalStep,
    ReleaseRecord,
    parse_record,
    record_bytes,
)
from sluicegate.rules.publishing.review import STEPS_MAX, enter_proposal, with_step
from sluicegate.rules.publishing.rollouts import first_release, pin_node
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.repository.settings import RepositorySettings
from tests.rules.publishing.world import BOB, LEDGER_REF, Make, World, rules

PROPOSAL = Proposal(
    "p1234567",
    "a" * 40,
    "b" * 40,
    Author("ann", "ann@example.org"),
    "ann",
    7,
    "Less \u201clogins\u201d",
    "Bots.\nMany.",
    verdict=GateFinding("passed", "fine", 0.5, {"a": [1, 2, {"b": None}]}),
    approvals=("bob", "cat"),
    steps=(ProposalStep(7, "ann", "proposed"), ProposalStep(8, "bob", "approved", "why not")),
)
VERSION = ReleaseRecord(3, "a" * 40, "b" * 40, "p1234567", "publish", "bob", "why", 9)
ROLLOUT = Rollout(4, 3, Canary(5, "nodes", 100, "salt"), {"n1": 2}, True, "why", 10)
FLEET = FleetRecord(
    live=3,
    versions=5,
    rollouts=4,
    highest=5,
    canary=CanaryRun("p1234567", "nodes", "salt", CanaryState(5, 100, 11), ("n9",)),
    pins={"n1": 2},
    delivered=Delivered(2, 3),
    notes=(CommitNote("a" * 40, "Live"),),
    branch_tip="c" * 40,
    refused_tip="d" * 40,
)
RECORDS: list[tuple[Any, ...]] = [
    PROPOSAL,
    PROPOSAL._replace(verdict=None),
    VERSION,
    ROLLOUT,
    ROLLOUT._replace(canary=None),
    FLEET,
    FleetRecord(),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_read_as_it_was_written(record: tuple[Any, ...]) -> None:
    assert parse_record(type(record), "x.json", record_bytes(record)) == record


def test_records_are_stored_under_the_names_they_always_had() -> None:
    fields = json.loads(record_bytes(FLEET))
    assert [*fields] == sorted(
        [
            "format",
            "live",
            "versions",
            "orders",
            "highest",
            "canary",
            "pins",
            "told",
            "marks",
            "seen",
            "refused",
        ]
    )
    assert fields["told"] == {"versions": 2, "orders": 3}
    assert fields["canary"]["troubled"] == ["n9"]


@pytest.mark.parametrize("record", RECORDS)
def test_newer_programs_may_add_fields_and_newer_formats_are_refused(
    record: tuple[Any, ...],
) -> None:
    kind, fields = type(record), json.loads(record_bytes(record))
    assert parse_record(kind, "x.json", json.dumps({**fields, "novel": 1}).encode()) == record
    with pytest.raises(Unavailable, match="upgrade"):
        parse_record(kind, "x.json", json.dumps({**fields, "format": 2}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": "1"}',
        b'{"format": 1, "id": 7}',
        b'{"format": 1, "steps": 7}',
    ],
)
def test_a_damaged_record_is_named(data: bytes) -> None:
    with pytest.raises(Unavailable, match="proposals/x"):
        parse_record(Proposal, "proposals/x.json", data)


def new_ledger(world: World, settings: PublishingSettings | None = None) -> RulebookLedger:
    return RulebookLedger(world.repository, settings=settings or world.settings, clock=world.clock)


def test_the_state_of_a_new_ledger_is_what_another_one_has_written(world: World) -> None:
    world.live({"web.yaml": rules(login=1)})
    assert new_ledger(world).state() == world.ledger.state()


def test_a_ledger_follows_what_another_one_writes(world: World) -> None:
    other = new_ledger(world)
    other.state()
    for version in (1, 0):
        world.admin.pin("n1", version, reason="x", by=BOB)
        assert other.state() == world.ledger.state()


def test_a_change_is_worked_out_again_when_somebody_was_faster(world: World) -> None:
    other = new_ledger(world)
    states: list[LedgerState] = []

    def make(state: LedgerState) -> LedgerChange | None:
        states.append(state)
        if len(states) == 1:
            other.change("eve", lambda now: pin(now, "theirs"))
        return pin(state, "mine")

    state = world.ledger.change("ann", make)
    assert len(states) == 2
    assert states[1].fleet.pins == {"theirs": 1}
    assert state.fleet.pins == {"theirs": 1, "mine": 1}
    assert other.state() == state


def pin(state: LedgerState, node: str) -> LedgerChange | None:
    return pin_node(state, node, 1, why="x", settings=PublishingSettings(), at_us=1, by="ann")


def test_what_a_change_raises_leaves_no_trace(world: World) -> None:
    tip = world.tip(LEDGER_REF)

    def make(state: LedgerState) -> LedgerChange | None:
        raise BadValue("x", 1, "no")

    with pytest.raises(BadValue):
        world.ledger.change("ann", make)
    assert world.ledger.change("ann", lambda state: None).tip == tip
    assert world.tip(LEDGER_REF) == tip


def test_old_proposals_leave_the_state_and_stay_in_the_history(world: World) -> None:
    ledger = new_ledger(world, PublishingSettings(proposals_max=3))
    for n in range(6):
        it = PROPOSAL._replace(
            id=f"p{n}", at_us=n, state=LIVE if n == 0 else REJECTED, verdict=None
        )
        ledger.change("ann", partial(enter_proposal, it=it))
    assert sorted(ledger.state().proposals) == ["p0", "p4", "p5"]  # what is live stays
    assert new_ledger(world).state() == ledger.state()
    assert len([one for one in ledger.entries(100) if one.call == "propose"]) == 6


def test_old_versions_and_orders_leave_the_state_once_they_are_told(world: World) -> None:
    settings = PublishingSettings(releases_max=3, rollouts_max=2)
    folder = world.folder
    world.close()
    other = World(folder, settings=settings, clock=world.clock)
    other.admin.pin("n1", 1, reason="x", by=BOB)
    for n in range(6):
        other.live({"web.yaml": rules(login=n + 1)})
    state = other.ledger.state()
    assert sorted(state.versions) == [1, 5, 6, 7]  # the pinned one stays
    assert sorted(state.rollouts) == [7, 8]
    assert other.store.versions() == [1, 2, 3, 4, 5, 6, 7]
    other.close()


def test_more_records_than_the_repository_would_read_are_refused(world: World) -> None:
    small = Repository.open(
        world.repository.path, settings=RepositorySettings(files_max=100), clock=world.clock
    )
    with pytest.raises(BadValue, match="files_max"):
        RulebookLedger(small, settings=PublishingSettings(), clock=world.clock)
    small.close()


def test_the_audit_goes_as_far_back_as_is_asked(world: World) -> None:
    for n in range(120):
        world.ledger.change("ann", partial(pin, node=f"n{n}"))
    everything = world.ledger.entries(1_000)
    assert len(everything) == 121
    assert everything[-1].call == "begin"
    world.ledger.change(OUTBOX, lambda state: LedgerChange("told", OUTBOX))
    for count in (1, 2, 99, 100, 101, 121, 122):
        assert world.ledger.entries(count) == everything[:count]


def test_what_befell_a_proposal_is_bounded() -> None:
    it = PROPOSAL
    for n in range(STEPS_MAX + 10):
        it = with_step(it, n, "ann", f"step {n}")
    assert len(it.steps) == STEPS_MAX
    assert it.steps[0].what == "proposed"
    assert it.steps[-1].what == f"step {STEPS_MAX + 9}"


def test_the_first_version_is_the_first() -> None:
    change = first_release(NOTHING, "a" * 40, why="x", at_us=1, by="ann")
    assert change.versions[0].number == change.rollouts[0].number == change.rollouts[0].live == 1


def test_an_instant_is_kept_to_the_microsecond(world: World) -> None:
    world.clock.advance(us=7)
    world.ledger.change("ann", lambda state: pin(state, "n1"))
    assert world.ledger.entries(1)[0].at_us == world.clock.now_us()


def test_without_a_ledger_nothing_is_known(make: Make) -> None:
    assert make().ledger.state() == NOTHING
