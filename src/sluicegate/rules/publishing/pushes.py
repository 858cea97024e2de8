"""Pushes: what people push to the branch becomes a proposal; nothing of it is followed by itself.

A push goes on from what was last seen on the branch, or from where that left live: whoever mends a
proposal of theirs may push it anew. One that lacks what was live there has rewritten the history
under us. It is refused, with a note on its commit, and the branch is not followed until somebody
has put it right. A branch that was only set back is told, and moved forward again with live.
"""

from __future__ import annotations

from typing import final

from sluicegate.rules.publishing.drafts import ID_CHARS, Drafts
from sluicegate.rules.publishing.ledger import OUTBOX, Change, Ledger, State
from sluicegate.rules.publishing.records import Proposal
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.repository.repository import Repository


@final
class Pushes:
    """Looks at the branch. Of several commits pushed at once, the last one is the proposal."""

    __slots__ = ("_branch", "_drafts", "_ledger", "_repository")

    def __init__(
        self,
        repository: Repository,
        ledger: Ledger,
        drafts: Drafts,
        *,
        settings: PublishingSettings,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._drafts = drafts
        self._branch = settings.branch

    def look(self) -> Proposal | None:
        """What has been pushed since the last look, as a proposal; None if nothing was."""
        tip = self._repository.tip(self._branch) if self._branch else None
        state = self._ledger.state()
        live, fleet = state.live, state.fleet
        if tip is not None and live is not None and tip in (fleet.seen, live.commit):
            if fleet.refused:
                self._ledger.change(OUTBOX, lambda state: _saw(state, tip))  # it was put right
            return None
        if tip is None or live is None or tip == fleet.refused:
            return None
        by = self._who(tip)
        ancestor = self._repository.is_ancestor
        goes_on = ancestor(fleet.seen, tip)
        if ancestor(tip, live.commit):
            if not goes_on:
                self._ledger.change(by, lambda state: self._set_back(state, tip))
            return None
        shared = self._repository.merge_base(fleet.seen, live.commit) or live.commit
        if not (goes_on or ancestor(shared, tip)):
            return self._refuse(tip, fleet.seen, shared, by)
        commit = self._repository.info(tip)
        base = self._repository.merge_base(tip, live.commit) or shared
        it = self._drafts.pushed(commit, base)
        self._ledger.change(OUTBOX, lambda state: _saw(state, tip))
        return it

    def _who(self, tip: str) -> str:
        author = self._repository.info(tip).author
        return f"git:{author.name} <{author.email}>"

    def _refuse(self, tip: str, seen: str, shared: str, by: str) -> Proposal:
        why = (
            f"the history of {self._branch} was rewritten: {tip[:ID_CHARS]} does not follow on "
            f"{seen[:ID_CHARS]}, which was there, nor on {shared[:ID_CHARS]}, which was live. It "
            "is not followed. Fetch refs/sluicegate/live, rebase on it, and push that"
        )
        it = self._drafts.pushed(self._repository.info(tip), shared, why)
        self._ledger.change(OUTBOX, lambda state: _saw(state, tip, refused=True))
        return it

    def _set_back(self, state: State, tip: str) -> Change | None:
        if state.fleet.seen == tip:
            return None
        return Change(
            f"{self._branch} was set back from {state.fleet.seen[:ID_CHARS]} to {tip[:ID_CHARS]}, "
            "which was live before; it is moved forward again with live",
            "push",
            fleet=state.fleet._replace(seen=tip),
        )


def _saw(state: State, tip: str, *, refused: bool = False) -> Change | None:
    fleet = state.fleet
    after = fleet._replace(refused=tip) if refused else fleet._replace(seen=tip, refused="")
    if after == fleet:
        return None
    return Change("looked at the branch", OUTBOX, fleet=after)
