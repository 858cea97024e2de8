"""Decisions as bare functions: from a state of the ledger to a change, or to why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.rulebook import APPROVED, BY_NODES, PASSED, Author, GateFinding
from sluicegate.rules.publishing import review, rollouts
from sluicegate.rules.publishing.canary import CanaryState
from sluicegate.rules.publishing.ledger import NOTHING, LedgerChange, LedgerState
from sluicegate.rules.publishing.records import CanaryRun, Proposal
from sluicegate.rules.publishing.review import is_own
from sluicegate.rules.publishing.settings import PublishingSettings

SETTINGS = PublishingSettings()


def proposal(number: int, author: Author = Author("ann", "")) -> Proposal:  # noqa: B008 - a value
    return Proposal(
        f"p{number}",
        f"{number:040x}",
        "0" * 40,
        author,
        author.name,
        number,
        f"change {number}",
        "",
        state=APPROVED,
        verdict=GateFinding(PASSED, "fine", 1.0, {}),
    )


def after(state: LedgerState, change: LedgerChange | None) -> LedgerState:
    """The state after a change, as the ledger makes it."""
    if change is None:
        return state
    return LedgerState(
        "",
        {**state.proposals, **{one.id: one for one in change.proposals}},
        {**state.versions, **{one.number: one for one in change.versions}},
        {**state.rollouts, **{one.number: one for one in change.rollouts}},
        state.fleet if change.fleet is None else change.fleet,
    )


def begun(count: int) -> LedgerState:
    state = after(NOTHING, rollouts.first_release(NOTHING, "f" * 40, why="", at_us=0, by="cat"))
    return state._replace(proposals={f"p{n}": proposal(n) for n in range(count)})


def live(state: LedgerState) -> str:
    assert state.live is not None
    return state.live.commit


def canary(state: LedgerState, share: int = 100) -> LedgerState:
    change = rollouts.begin_canary(
        state,
        "p0",
        "c" * 40,
        live=live(state),
        share=share,
        kind=BY_NODES,
        failing=(),
        at_us=1,
        by="bob",
    )
    return after(state, change)


def test_who_made_a_push_is_known_by_name_and_address() -> None:
    it = proposal(1, Author("Dan Dann", "dd@example.org"))._replace(
        proposer="git:Dan Dann <dd@example.org>"
    )
    for name in ("Dan Dann", "dan dann", "dd@example.org", "dd", "DD"):
        assert is_own(it, name)
    for name in ("dan", "example.org", "", "d"):
        assert not is_own(it, name)
    assert not is_own(proposal(2), "")
    assert is_own(proposal(2, Author("", "")), "")  # whoever has no name is like the other


def test_what_somebody_else_has_decided_on_a_canary_holds() -> None:
    state = canary(begun(1))
    earlier = state.fleet.canary
    assert earlier is not None
    wider = after(state, rollouts.widen_canary(state, earlier, 500, why="", at_us=2, by="bob"))
    # Whoever looked before that decides on something that is no more.
    with pytest.raises(Conflict, match="5%"):
        rollouts.widen_canary(wider, earlier, 2_500, why="", at_us=3, by="sluicegate")
    with pytest.raises(Conflict, match="5%"):
        rollouts.end_canary(wider, earlier, why="", at_us=3, by="sluicegate")
    now = wider.fleet.canary
    assert now is not None
    ended = after(wider, rollouts.end_canary(wider, now, why="", at_us=3, by="bob"))
    with pytest.raises(Conflict, match="ended"):
        rollouts.end_canary(ended, now, why="", at_us=4, by="sluicegate")
    with pytest.raises(Conflict, match="ended"):
        rollouts.current_canary(ended, "p0")


@pytest.mark.parametrize("share", [99, 100])
def test_a_canary_grows_or_ends(share: int) -> None:
    state = canary(begun(1))
    run = state.fleet.canary
    assert run is not None
    with pytest.raises(BadValue, match="give more"):
        rollouts.widen_canary(state, run, share, why="", at_us=2, by="bob")


def test_what_is_prepared_on_another_live_is_not_decided() -> None:
    state = begun(2)
    before = live(state)
    state = after(
        state, rollouts.publish_proposal(state, "p0", "a" * 40, live=before, at_us=1, by="bob")
    )
    with pytest.raises(rollouts.LiveMoved):
        rollouts.publish_proposal(state, "p1", "b" * 40, live=before, at_us=2, by="bob")
    with pytest.raises(rollouts.LiveMoved):
        rollouts.roll_back_to(state, "b" * 40, "1", live=before, why="", at_us=2, by="bob")


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "canary", "wider", "end", "back", "pin"]), st.integers(0, 9)
    ),
    max_size=40,
)


@given(acts=ACTS)
def test_whatever_is_decided_numbers_rise_and_orders_say_what_runs(
    acts: list[tuple[str, int]],
) -> None:
    state = begun(40)
    fresh = iter(range(40))
    lives = [1]
    for at_us, (act, n) in enumerate(acts):
        before = state
        try:
            state = after(state, decided(state, act, n, next(fresh), at_us))
        except (BadValue, Conflict):
            assert state is before
            continue
        fleet, rollouts = state.fleet, state.rollouts[state.fleet.rollouts]
        assert sorted(state.versions) == [*range(1, fleet.versions + 1)]
        assert sorted(state.rollouts) == [*range(1, fleet.rollouts + 1)]
        assert fleet.versions - before.fleet.versions in (0, 1)
        assert fleet.rollouts - before.fleet.rollouts in (0, 1)
        assert (rollouts.live, rollouts.pins) == (fleet.live, fleet.pins)
        assert (rollouts.canary is None) == (fleet.canary is None)
        # What is live never has a lower number than before, and `back` where a canary had more.
        lives.append(fleet.live)
        assert lives == sorted(lives)
        ended = [
            one.number
            for one in state.versions.values()
            if one.kind == "canary"
            and (fleet.canary is None or one.number != fleet.canary.state.version)
        ]
        assert rollouts.back == any(number > fleet.live for number in ended)
        states = [it.state for it in state.proposals.values()]
        assert states.count("live") <= 1
        assert states.count("canary") == (fleet.canary is not None)


def decided(state: LedgerState, act: str, n: int, fresh: int, at_us: int) -> LedgerChange | None:
    """One decision of this kind; which one follows from `n`."""
    now, run = live(state), state.fleet.canary
    name, commit = f"p{fresh}", f"{fresh + 1_000:040x}"
    ended = CanaryRun("p0", BY_NODES, "", CanaryState(1, 1, 0))
    match act:
        case "publish":
            return rollouts.publish_proposal(state, name, commit, live=now, at_us=at_us, by="bob")
        case "canary":
            return rollouts.begin_canary(
                state,
                name,
                commit,
                live=now,
                share=100 * n + 1,
                kind=BY_NODES,
                failing=(),
                at_us=at_us,
                by="bob",
            )
        case "wider":
            share = 10_000 if n > 6 else 1_000 * n
            return rollouts.widen_canary(state, run or ended, share, why="", at_us=at_us, by="bob")
        case "end":
            return rollouts.end_canary(state, run or ended, why="", at_us=at_us, by="bob")
        case "back":
            return rollouts.roll_back_to(
                state, commit, "1", live=now, why="", at_us=at_us, by="bob"
            )
    return rollouts.pin_node(
        state, f"n{n % 3}", n % 4, why="", settings=SETTINGS, at_us=at_us, by="bob"
    )


def test_notes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "MARKS_MAX", 3)
    fleet = begun(0).fleet
    for n in range(5):
        fleet = review.with_note(fleet, "c" * 40, f"note {n}\0")
    assert [mark.text for mark in fleet.notes] == ["note 2?", "note 3?", "note 4?"]


def test_pins_are_bounded() -> None:
    state = begun(0)
    few = PublishingSettings(pins_max=1)
    state = after(state, rollouts.pin_node(state, "n1", 1, why="", settings=few, at_us=1, by="bob"))
    with pytest.raises(BadValue, match="pins_max"):
        rollouts.pin_node(state, "n2", 1, why="", settings=few, at_us=1, by="bob")
    with pytest.raises(BadValue, match="nothing is live"):
        rollouts.pin_node(NOTHING, "n2", 1, why="", settings=few, at_us=1, by="bob")
