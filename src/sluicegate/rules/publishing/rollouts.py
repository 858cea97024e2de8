"""Rollouts: what a fleet is to run, as functions from the state of the ledger to the change.

As in `review.py`: no repository, no clock, and nothing but the state that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError
from sluicegate.contracts.rulebook import (
    APPROVED,
    CANARY,
    LIVE,
    REPLACED,
    ROLLED_BACK,
    Canary,
    Rollout,
)
from sluicegate.rules.publishing.canary import WHOLE, CanaryState, percent
from sluicegate.rules.publishing.ledger import OUTBOX, LedgerChange, LedgerState
from sluicegate.rules.publishing.records import (
    FIRST,
    PUBLISHED,
    ROLLBACK,
    TRIAL,
    CanaryRun,
    FleetRecord,
    Proposal,
    ReleaseRecord,
)
from sluicegate.rules.publishing.review import may_go_live, proposal_of, with_note, with_step
from sluicegate.rules.publishing.settings import PublishingSettings

_REASON_CHARS_MAX: Final = 4_000  # as a rollout can carry it


class LiveMoved(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """What is live has changed since this was prepared: prepare it again."""


def current_canary(state: LedgerState, proposal_id: str) -> CanaryRun:
    """The canary of this proposal; `Conflict` if it has ended."""
    run = state.fleet.canary
    if run is None or run.proposal != proposal_id:
        raise Conflict(f"the canary of {proposal_id}", "it has ended")
    return run


def first_release(
    state: LedgerState, commit: str, *, why: str, at_us: int, by: str
) -> LedgerChange:
    """The first release of all; nothing was live before."""
    if state.fleet.versions:
        raise Conflict("what is live", f"version {state.fleet.live} is live already")
    release = ReleaseRecord(1, commit, "", "", FIRST, by, why, at_us)
    fleet = state.fleet._replace(live=1, versions=1, branch_tip=commit)
    fleet = with_note(fleet, commit, f"Live as version 1, by {by}")
    change = LedgerChange(f"{by} began with version 1", "begin", why, versions=(release,))
    return _roll_out(change, fleet, f"version 1: {why}", at_us)


def publish_proposal(
    state: LedgerState, proposal_id: str, commit: str, *, live: str, at_us: int, by: str
) -> LedgerChange:
    """An approved proposal goes live for everybody; `commit` is it, merged with `live`."""
    it = _ready(state, proposal_id, live)
    number = state.fleet.versions + 1
    release = ReleaseRecord(number, commit, live, it.id, PUBLISHED, by, it.title, at_us)
    fleet = state.fleet._replace(live=number, versions=number)
    fleet = with_note(fleet, commit, f"Live as version {number}, published by {by} ({it.id})")
    what = f"live as version {number}"
    change = LedgerChange(
        f"{by} published {it.id} as version {number}: {it.title}",
        "publish",
        it.reason,
        proposals=(
            with_step(it._replace(state=LIVE, version=number), at_us, by, what),
            *_end_live(state, REPLACED, at_us, by, what),
        ),
        versions=(release,),
    )
    return _roll_out(change, fleet, f"version {number}: {it.title}", at_us)


def begin_canary(
    state: LedgerState,
    proposal_id: str,
    commit: str,
    *,
    live: str,
    share: int,
    kind: str,
    failing: tuple[str, ...],
    at_us: int,
    by: str,
) -> LedgerChange:
    """An approved proposal is in force for a share; `failing` nodes reported failures before."""
    it = _ready(state, proposal_id, live)
    number = state.fleet.versions + 1
    release = ReleaseRecord(number, commit, live, it.id, TRIAL, by, it.title, at_us)
    # Who is in the share follows from the salt: another canary is tried by others first.
    run = CanaryRun(it.id, kind, commit[:16], CanaryState(number, share, at_us), failing)
    what = f"canary of version {number} for {percent(share)} of {kind}"
    change = LedgerChange(
        f"{by} began the {what} ({it.id}): {it.title}",
        "canary",
        it.reason,
        proposals=(with_step(it._replace(state=CANARY, version=number), at_us, by, what),),
        versions=(release,),
    )
    fleet = state.fleet._replace(versions=number, canary=run)
    return _roll_out(change, fleet, f"{what}: {it.title}", at_us)


def widen_canary(
    state: LedgerState, run: CanaryRun, share: int, *, why: str, at_us: int, by: str
) -> LedgerChange:
    """The canary under way takes a larger share; the whole makes it live."""
    _check_under_way(state, run)
    it, number = proposal_of(state, run.proposal), run.state.version
    if share <= run.state.share:
        remedy = f"it has {run.state.share} of 10,000; give more, or 0 to take it back"
        raise BadValue("share", share, remedy)
    if share >= WHOLE:
        return _finish_canary(state, number, it, why, at_us, by)
    what = f"canary of version {number} for {percent(share)} of {run.by}"
    change = LedgerChange(
        f"{by} widened the {what} ({it.id})",
        "canary",
        why,
        proposals=(with_step(it, at_us, by, what, why),),
    )
    run = run._replace(state=CanaryState(number, share, at_us))
    return _roll_out(change, state.fleet._replace(canary=run), f"{what}: {it.title}", at_us)


def end_canary(
    state: LedgerState, run: CanaryRun, *, why: str, at_us: int, by: str
) -> LedgerChange:
    """The canary under way is taken back: everybody runs what is live."""
    _check_under_way(state, run)
    number = run.state.version
    it, fleet = _take_back(state, run, why, at_us, by)
    sentence = f"{by} took back the canary of version {number} ({it.id}): {it.title}"
    change = LedgerChange(sentence, "canary", why, proposals=(it,))
    return _roll_out(change, fleet, f"version {number} is taken back: {why}", at_us)


def roll_back_to(
    state: LedgerState, commit: str, to: str, *, live: str, why: str, at_us: int, by: str
) -> LedgerChange:
    """Earlier rules are live again as a new release; a canary under way ends."""
    _check_live(state, live)
    number = state.fleet.versions + 1
    release = ReleaseRecord(number, commit, live, "", ROLLBACK, by, why, at_us)
    proposals: list[Proposal] = []
    fleet = state.fleet
    if fleet.canary is not None:
        it, fleet = _take_back(state, fleet.canary, why, at_us, by)
        proposals.append(it)
    proposals += _end_live(state, ROLLED_BACK, at_us, by, f"rolled back to {to}", why)
    fleet = fleet._replace(live=number, versions=number)
    fleet = with_note(fleet, live, f"Rolled back by {by}: {why}")
    fleet = with_note(fleet, commit, f"Live as version {number}: back to {to}, by {by}")
    change = LedgerChange(
        f"{by} rolled back to {to}, as version {number}",
        "roll_back",
        why,
        proposals=proposals,
        versions=(release,),
    )
    return _roll_out(change, fleet, f"version {number} is back to {to}: {why}", at_us)


def renew_rollout(state: LedgerState, *, valid_us: int, at_us: int) -> LedgerChange | None:
    """The same rollout once more, where half of the time that it is valid has passed."""
    rollout = state.rollouts.get(state.fleet.rollouts)
    if rollout is None or rollout.expires_us - at_us > valid_us // 2:
        return None
    change = LedgerChange(f"rollout {rollout.number} was renewed", OUTBOX)
    return _roll_out(change, state.fleet, rollout.reason, at_us)


def pin_node(
    state: LedgerState,
    node: str,
    version: int,
    *,
    why: str,
    settings: PublishingSettings,
    at_us: int,
    by: str,
) -> LedgerChange | None:
    """One node runs that release whatever is live; 0 unpins it."""
    fleet = state.fleet
    if not fleet.versions:
        raise BadValue("version", version, "nothing is live yet")
    if version and version not in state.versions:
        remedy = "give the number of a release, as `versions` lists them"
        raise BadValue("version", version, remedy)
    if fleet.pins.get(node, 0) == version:
        return None
    pins = {name: at for name, at in fleet.pins.items() if name != node}
    if version:
        pins[node] = version
    if len(pins) > settings.pins_max:
        raise BadValue("node", node, f"at most {settings.pins_max:,} pins (pins_max); let one go")
    what = f"pinned {node} to version {version}" if version else f"let {node} go"
    change = LedgerChange(f"{by} {what}", "pin", why)
    return _roll_out(change, fleet._replace(pins=pins), f"{by} {what}: {why}", at_us)


# Inside.


def _check_live(state: LedgerState, live: str) -> None:
    if state.live is None or state.live.commit != live:
        raise LiveMoved(live)


def _ready(state: LedgerState, proposal_id: str, live: str) -> Proposal:
    it = proposal_of(state, proposal_id)
    if it.state != APPROVED:
        remedy = f"it is {it.state}; only what is approved goes live"
        raise BadValue("proposal", proposal_id, remedy)
    run = state.fleet.canary
    if run is not None:
        raise Conflict(
            "what is live",
            f"a canary of version {run.state.version} ({run.proposal}) is under way; finish it or "
            "take it back first",
        )
    _check_live(state, live)
    if hindrance := may_go_live(it):
        raise BadValue("proposal", proposal_id, hindrance)
    return it


def _check_under_way(state: LedgerState, run: CanaryRun) -> None:
    now = state.fleet.canary
    if now is None or now.state != run.state:
        share = "it has ended" if now is None else f"it has {percent(now.state.share)}"
        raise Conflict(f"the canary of version {run.state.version}", share)


def _finish_canary(
    state: LedgerState, number: int, it: Proposal, why: str, at_us: int, by: str
) -> LedgerChange:
    commit = state.versions[number].commit
    fleet = state.fleet._replace(live=number, canary=None)
    fleet = with_note(fleet, commit, f"Live as version {number}, after a canary ({it.id})")
    what = f"live as version {number}"
    change = LedgerChange(
        f"{by} made {it.id} live after its canary, as version {number}: {it.title}",
        "canary",
        why,
        proposals=(
            with_step(it._replace(state=LIVE), at_us, by, what, why),
            *_end_live(state, REPLACED, at_us, by, what),
        ),
    )
    return _roll_out(change, fleet, f"version {number}: {it.title}", at_us)


def _take_back(
    state: LedgerState, run: CanaryRun, why: str, at_us: int, by: str
) -> tuple[Proposal, FleetRecord]:
    it = proposal_of(state, run.proposal)
    it = with_step(it._replace(state=ROLLED_BACK), at_us, by, "rolled back", why)
    fleet = state.fleet._replace(canary=None, highest=max(state.fleet.highest, run.state.version))
    return it, with_note(fleet, it.commit, f"Rolled back as {it.id}: {why}")


def _end_live(
    state: LedgerState, now: str, at_us: int, by: str, what: str, why: str = ""
) -> Sequence[Proposal]:
    """The proposals that were live, as they are now."""
    return [
        with_step(it._replace(state=now), at_us, by, f"{now}: {what}", why)
        for it in state.proposals.values()
        if it.state == LIVE
    ]


def _roll_out(change: LedgerChange, fleet: FleetRecord, reason: str, at_us: int) -> LedgerChange:
    """The change with the rollout that follows from what is to run.

    It says `back` as long as something newer than what is live was in force for some of the fleet:
    a node that was away learns the latest rollout and none of those before.
    """
    highest, run = max(fleet.highest, fleet.live), fleet.canary
    rollout = Rollout(
        number=fleet.rollouts + 1,
        live=fleet.live,
        canary=Canary(run.state.version, run.by, run.state.share, run.salt) if run else None,
        pins=dict(fleet.pins),
        back=fleet.live < highest,
        reason=reason[:_REASON_CHARS_MAX],
        at_us=at_us,
    )
    fleet = fleet._replace(rollouts=rollout.number, highest=highest)
    return change._replace(rollouts=(rollout,), fleet=fleet)
