"""Decisions: what a fleet is to run, as bare functions from the state of the ledger to the change.

As in `reviewing.py`: no repository, no clock, and nothing but the state that is given.
"""

from __future__ import annotations

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
from sluicegate.rules.publishing.ledger import LedgerChange, LedgerState
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
from sluicegate.rules.publishing.review import befell, known, marked, may_go_live
from sluicegate.rules.publishing.settings import PublishingSettings

_REASON_CHARS_MAX: Final = 4_000  # as orders can carry it


class LiveMoved(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """What is live has changed since this was prepared: prepare it again."""


def running(state: LedgerState, id: str) -> CanaryRun:  # noqa: A002 - likewise
    """The canary of this proposal; `Conflict` if it has ended."""
    run = state.fleet.canary
    if run is None or run.proposal != id:
        raise Conflict(f"the canary of {id}", "it has ended")
    return run


def first(state: LedgerState, commit: str, *, why: str, at_us: int, by: str) -> LedgerChange:
    """The first version of all; nothing was live before."""
    if state.fleet.versions:
        raise Conflict("what is live", f"version {state.fleet.live} is live already")
    version = ReleaseRecord(1, commit, "", "", FIRST, by, why, at_us)
    fleet = state.fleet._replace(live=1, versions=1, branch_tip=commit)
    fleet = marked(fleet, commit, f"Live as version 1, by {by}")
    fleet, rollouts = _ordered(fleet, f"version 1: {why}", at_us)
    return LedgerChange(
        f"{by} began with version 1",
        "begin",
        why,
        versions=(version,),
        rollouts=rollouts,
        fleet=fleet,
    )


def published(
    state: LedgerState,
    id: str,  # noqa: A002 - likewise
    commit: str,
    *,
    live: str,
    at_us: int,
    by: str,
) -> LedgerChange:
    """An approved proposal goes live for everybody; `commit` is it, merged with `live`."""
    it = _ready(state, id, live)
    version = ReleaseRecord(
        state.fleet.versions + 1, commit, live, id, PUBLISHED, by, it.title, at_us
    )
    fleet = state.fleet._replace(live=version.number, versions=version.number)
    fleet = marked(fleet, commit, f"Live as version {version.number}, published by {by} ({id})")
    fleet, rollouts = _ordered(fleet, f"version {version.number}: {it.title}", at_us)
    what = f"live as version {version.number}"
    it = befell(it._replace(state=LIVE, version=version.number), at_us, by, what)
    return LedgerChange(
        f"{by} published {id} as version {version.number}: {it.title}",
        "publish",
        it.reason,
        proposals=(it, *_replaced(state, REPLACED, at_us, by, what)),
        versions=(version,),
        rollouts=rollouts,
        fleet=fleet,
    )


def canary_begun(
    state: LedgerState,
    id: str,  # noqa: A002 - likewise
    commit: str,
    *,
    live: str,
    share: int,
    kind: str,
    failing: tuple[str, ...],
    at_us: int,
    by: str,
) -> LedgerChange:
    """An approved proposal is in force for a share; `troubled` nodes had trouble before."""
    it = _ready(state, id, live)
    version = ReleaseRecord(state.fleet.versions + 1, commit, live, id, TRIAL, by, it.title, at_us)
    # Who is in the share follows from the salt: another canary is tried by others first.
    run = CanaryRun(id, kind, commit[:16], CanaryState(version.number, share, at_us), failing)
    fleet = state.fleet._replace(versions=version.number, canary=run)
    what = f"canary of version {version.number} for {percent(share)} of {kind}"
    fleet, rollouts = _ordered(fleet, f"{what}: {it.title}", at_us)
    it = befell(it._replace(state=CANARY, version=version.number), at_us, by, what)
    return LedgerChange(
        f"{by} began the {what} ({id}): {it.title}",
        "canary",
        it.reason,
        proposals=(it,),
        versions=(version,),
        rollouts=rollouts,
        fleet=fleet,
    )


def canary_wider(
    state: LedgerState,
    run: CanaryRun,
    share: int,
    *,
    why: str,
    at_us: int,
    by: str,
) -> LedgerChange:
    """The canary under way takes a larger share; the whole makes it live."""
    _under_way(state, run)
    it, number = known(state, run.proposal), run.state.version
    if share <= run.state.share:
        remedy = f"it has {run.state.share} of 10,000; give more, or 0 to take it back"
        raise BadValue("share", share, remedy)
    if share >= WHOLE:
        return _canary_live(state, run, it, why, at_us, by)
    run = run._replace(state=CanaryState(number, share, at_us))
    what = f"canary of version {number} for {percent(share)} of {run.by}"
    fleet, rollouts = _ordered(state.fleet._replace(canary=run), f"{what}: {it.title}", at_us)
    it = befell(it, at_us, by, what, why)
    return LedgerChange(
        f"{by} widened the {what} ({it.id})",
        "canary",
        why,
        proposals=(it,),
        rollouts=rollouts,
        fleet=fleet,
    )


def _canary_live(
    state: LedgerState, run: CanaryRun, it: Proposal, why: str, at_us: int, by: str
) -> LedgerChange:
    number = run.state.version
    fleet = state.fleet._replace(live=number, canary=None)
    commit = state.versions[number].commit
    fleet = marked(fleet, commit, f"Live as version {number}, after a canary ({it.id})")
    fleet, rollouts = _ordered(fleet, f"version {number}: {it.title}", at_us)
    what = f"live as version {number}"
    it = befell(it._replace(state=LIVE), at_us, by, what, why)
    return LedgerChange(
        f"{by} made {it.id} live after its canary, as version {number}: {it.title}",
        "canary",
        why,
        proposals=(it, *_replaced(state, REPLACED, at_us, by, what)),
        rollouts=rollouts,
        fleet=fleet,
    )


def canary_ended(
    state: LedgerState, run: CanaryRun, *, why: str, at_us: int, by: str
) -> LedgerChange:
    """The canary under way is taken back: everybody runs what is live."""
    _under_way(state, run)
    it, fleet = _taken_back(state, run, why, at_us, by)
    fleet, rollouts = _ordered(fleet, f"version {run.state.version} is taken back: {why}", at_us)
    return LedgerChange(
        f"{by} took back the canary of version {run.state.version} ({it.id}): {it.title}",
        "canary",
        why,
        proposals=(it,),
        rollouts=rollouts,
        fleet=fleet,
    )


def rolled_back(
    state: LedgerState, commit: str, to: str, *, live: str, why: str, at_us: int, by: str
) -> LedgerChange:
    """Earlier rules are live again as a new version; a canary under way ends."""
    _on(state, live)
    version = ReleaseRecord(state.fleet.versions + 1, commit, live, "", ROLLBACK, by, why, at_us)
    proposals: list[Proposal] = []
    fleet = state.fleet
    if fleet.canary is not None:
        it, fleet = _taken_back(state, fleet.canary, why, at_us, by)
        proposals.append(it)
    proposals += _replaced(state, ROLLED_BACK, at_us, by, f"rolled back to {to}", why)
    fleet = fleet._replace(live=version.number, versions=version.number)
    fleet = marked(fleet, live, f"Rolled back by {by}: {why}")
    fleet = marked(fleet, commit, f"Live as version {version.number}: back to {to}, by {by}")
    fleet, rollouts = _ordered(fleet, f"version {version.number} is back to {to}: {why}", at_us)
    return LedgerChange(
        f"{by} rolled back to {to}, as version {version.number}",
        "roll_back",
        why,
        proposals=proposals,
        versions=(version,),
        rollouts=rollouts,
        fleet=fleet,
    )


def pinned(
    state: LedgerState,
    node: str,
    version: int,
    *,
    why: str,
    settings: PublishingSettings,
    at_us: int,
    by: str,
) -> LedgerChange | None:
    """One node runs that version whatever is live; 0 lets it go."""
    if not state.fleet.versions:
        raise BadValue("version", version, "nothing is live yet")
    if version and version not in state.versions:
        raise BadValue(
            "version", version, "give the number of an edition, as `versions` lists them"
        )
    if state.fleet.pins.get(node, 0) == version:
        return None
    pins = {name: at for name, at in state.fleet.pins.items() if name != node}
    if version:
        pins[node] = version
    if len(pins) > settings.pins_max:
        raise BadValue("node", node, f"at most {settings.pins_max:,} pins (pins_max); let one go")
    what = f"pinned {node} to version {version}" if version else f"let {node} go"
    fleet, rollouts = _ordered(state.fleet._replace(pins=pins), f"{by} {what}: {why}", at_us)
    return LedgerChange(f"{by} {what}", "pin", why, rollouts=rollouts, fleet=fleet)


# Inside.


def _on(state: LedgerState, live: str) -> None:
    if state.live is None or state.live.commit != live:
        raise LiveMoved(live)


def _ready(state: LedgerState, id: str, live: str) -> Proposal:  # noqa: A002 - likewise
    it = known(state, id)
    if it.state != APPROVED:
        raise BadValue("proposal", id, f"it is {it.state}; only what is approved goes live")
    run = state.fleet.canary
    if run is not None:
        raise Conflict(
            "what is live",
            f"a canary of version {run.state.version} ({run.proposal}) is under way; finish it or "
            "take it back first",
        )
    _on(state, live)
    if hindrance := may_go_live(it):
        raise BadValue("proposal", id, hindrance)
    return it


def _under_way(state: LedgerState, run: CanaryRun) -> None:
    now = state.fleet.canary
    if now is None or now.state != run.state:
        share = "it has ended" if now is None else f"it has {percent(now.state.share)}"
        raise Conflict(f"the canary of version {run.state.version}", share)


def _taken_back(
    state: LedgerState, run: CanaryRun, why: str, at_us: int, by: str
) -> tuple[Proposal, FleetRecord]:
    it = known(state, run.proposal)
    it = befell(it._replace(state=ROLLED_BACK), at_us, by, "rolled back", why)
    fleet = state.fleet._replace(canary=None, highest=max(state.fleet.highest, run.state.version))
    return it, marked(fleet, it.commit, f"Rolled back as {it.id}: {why}")


def _replaced(
    state: LedgerState, now: str, at_us: int, by: str, what: str, why: str = ""
) -> list[Proposal]:
    """What was live is that no longer."""
    return [
        befell(it._replace(state=now), at_us, by, f"{now}: {what}", why)
        for it in state.proposals.values()
        if it.state == LIVE
    ]


def _ordered(fleet: FleetRecord, reason: str, at_us: int) -> tuple[FleetRecord, tuple[Rollout]]:
    """The orders that follow from what runs.

    They say `back` as long as something newer than what is live was in force for some of the fleet:
    a node that was away learns the latest orders and none of those before.
    """
    highest = max(fleet.highest, fleet.live)
    run = fleet.canary
    rollouts = Rollout(
        number=fleet.rollouts + 1,
        live=fleet.live,
        canary=None
        if run is None
        else Canary(run.state.version, run.by, run.state.share, run.salt),
        pins=dict(fleet.pins),
        back=fleet.live < highest,
        reason=reason[:_REASON_CHARS_MAX],
        at_us=at_us,
    )
    return fleet._replace(rollouts=rollouts.number, highest=highest), (rollouts,)
