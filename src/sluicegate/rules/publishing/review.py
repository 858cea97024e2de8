"""Review: what happens to a proposal until it may go live, as bare functions.

From the state of the ledger to the change; what may not be is raised, and nothing happens. They
know no repository and no clock. The ledger calls them again when somebody else was faster, so each
looks at the state it is given and at nothing that was read before.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import (
    APPROVED,
    FAILED,
    NOT_JUDGED,
    OPEN,
    PASSED,
    REJECTED,
    GateFinding,
)
from sluicegate.rules.publishing.ledger import LedgerChange, LedgerState, plain_text
from sluicegate.rules.publishing.records import CommitNote, FleetRecord, Proposal, ProposalStep
from sluicegate.rules.publishing.settings import PublishingSettings

MARKS_MAX: Final = 10_000  # notes that wait for the outbox; older ones go
STEPS_MAX: Final = 1_000  # of a proposal


def proposal_of(state: LedgerState, id: str) -> Proposal:  # noqa: A002 - it is what it is called
    """The proposal of this id."""
    proposal = state.proposals.get(id)
    if proposal is None:
        raise BadValue("proposal", id, "give the id of a proposal, as `proposals` lists them")
    return proposal


def with_step(it: Proposal, at_us: int, by: str, what: str, why: str = "") -> Proposal:
    """The proposal with one thing more that befell it; of very many, the first and the latest."""
    steps = (*it.steps, ProposalStep(at_us, by, what, why))
    if len(steps) > STEPS_MAX:
        steps = (steps[0], *steps[-STEPS_MAX + 1 :])
    return it._replace(steps=steps)


def may_go_live(it: Proposal) -> str:
    """Why a proposal may not go live as far as the gate is concerned; empty if it may."""
    if it.override or (it.verdict is not None and it.verdict.result == PASSED):
        return ""
    if it.verdict is not None and it.verdict.result == FAILED:
        return (
            f"the gate found that it must not go live: {it.verdict.sentence}; somebody other than "
            "its proposer may approve it with an override that says why"
        )
    sentence = "there was none" if it.verdict is None else it.verdict.sentence
    return f"no gate has judged it ({sentence}); approve it with an override that says why"


def rejected_by_gate(it: Proposal) -> bool:
    """Whether only the gate has rejected it: no person, and nobody has overridden that before."""
    failed = it.verdict is not None and it.verdict.result == FAILED
    return it.state == REJECTED and failed and not it.override


def with_note(fleet: FleetRecord, commit: str, text: str) -> FleetRecord:
    """The fleet's record with a note that a commit is still to get."""
    return fleet._replace(notes=(*fleet.notes, CommitNote(commit, plain_text(text)))[-MARKS_MAX:])


def enter_proposal(state: LedgerState, it: Proposal) -> LedgerChange | None:
    """A new proposal; the same one again changes nothing."""
    if it.id in state.proposals:
        return None
    return LedgerChange(
        f"{it.proposer} proposed {it.id}: {it.title}", "propose", it.reason, proposals=(it,)
    )


def record_verdict(
    state: LedgerState,
    id: str,  # noqa: A002 - likewise
    verdict: GateFinding | None,
    *,
    live: str,
    candidate: str,
    at_us: int,
    by: str,
) -> LedgerChange:
    """What the gate found; what fails is rejected, and its commit gets a note."""
    it = proposal_of(state, id)
    if it.state not in (OPEN, APPROVED):
        raise BadValue("proposal", id, f"it is {it.state}; only what is open can be judged")
    it = it._replace(verdict=verdict, judged_on=live, candidate=candidate)
    if verdict is not None and verdict.result != NOT_JUDGED:
        it = it._replace(override="")  # it was of another finding
    if verdict is None:
        return LedgerChange(f"{id} was checked against what is live now", "judge", proposals=(it,))
    it = with_step(it, at_us, by, f"judged: {verdict.result}", verdict.sentence)
    if verdict.result == FAILED:
        return _reject(state, it, f"the gate: {verdict.sentence}", at_us=at_us, by=by, call="judge")
    if it.state == APPROVED and may_go_live(it):
        it = it._replace(state=OPEN, approvals=())
    return LedgerChange(
        f"{id} was judged: {verdict.result}", "judge", verdict.sentence, proposals=(it,)
    )


def record_approval(
    state: LedgerState,
    id: str,  # noqa: A002 - likewise
    *,
    override: str,
    settings: PublishingSettings,
    at_us: int,
    by: str,
) -> LedgerChange:
    """One more approval; enough of them approve it.

    With an override also of what the gate has not judged, or has failed; the latter never by its
    proposer. What the gate has passed needs none, and is not recorded as overridden.
    """
    it = proposal_of(state, id)
    failed = it.verdict is not None and it.verdict.result == FAILED
    if it.state not in (OPEN, APPROVED) and not rejected_by_gate(it):
        raise BadValue("proposal", id, f"it is {it.state}; only what is open can be approved")
    if is_own(it, by) and (failed or not settings.own_approval):
        problem = "you proposed it, and the gate failed it" if failed else "you proposed it"
        raise BadValue("proposal", id, f"{problem}; have somebody else approve it")
    if override and may_go_live(it._replace(override="")):
        it = it._replace(override=override)
        why = f"although the gate {'failed' if failed else 'has not judged'} it: {override}"
    else:
        why = override
    if hindrance := may_go_live(it):
        raise BadValue("proposal", id, hindrance)
    if by in it.approvals and not override:
        raise BadValue("proposal", id, "you have approved it already")
    approvals = it.approvals if by in it.approvals else (*it.approvals, by)
    enough = len(approvals) >= settings.approvals_min
    it = it._replace(approvals=approvals, state=APPROVED if enough else OPEN)
    it = with_step(it, at_us, by, "approved", why)
    fleet = with_note(state.fleet, it.commit, f"{by} approved {id} {why}") if failed else None
    sentence = f"{by} approved {id}: {it.title}"
    return LedgerChange(sentence, "approve", why, proposals=(it,), fleet=fleet)


def record_rejection(
    state: LedgerState,
    id: str,  # noqa: A002 - likewise
    reason: str,
    *,
    at_us: int,
    by: str,
) -> LedgerChange:
    """Turned down by a person."""
    it = proposal_of(state, id)
    if it.state not in (OPEN, APPROVED):
        raise BadValue("proposal", id, f"it is {it.state}; only what is open can be rejected")
    return _reject(state, it, reason, at_us=at_us, by=by, call="reject")


def is_own(it: Proposal, name: str) -> bool:
    """Whether this identity has a part in the proposal; of a push only what git says is known."""
    authors = {it.author.name, it.author.email, *it.authors}
    names = {it.proposer, *authors, *(one.partition("@")[0] for one in authors)}
    return name == it.proposer or name.casefold() in {one.casefold() for one in names if one}


def _reject(
    state: LedgerState, it: Proposal, reason: str, *, at_us: int, by: str, call: str
) -> LedgerChange:
    it = with_step(it._replace(state=REJECTED, approvals=()), at_us, by, "rejected", reason)
    fleet = with_note(state.fleet, it.commit, f"Rejected as {it.id}: {reason}")
    return LedgerChange(
        f"{it.id} was rejected: {it.title}", call, reason, proposals=(it,), fleet=fleet
    )
