"""Pushes: what people push to the branch becomes a proposal; nothing of it is followed by itself.

A push goes on from what was last seen on the branch, or from where that left live: whoever mends a
proposal of theirs may push it anew. One that lacks what was live there has rewritten the history
under us. It is refused, with a note on its commit, and the branch is not followed until somebody
has put it right. A branch that was only set back is told, and moved forward again with live.

Mirror: the branch as it is kept elsewhere, where people push and pull.

What is pushed there is brought here and treated as if it had been pushed here; what goes live here
is sent there, never by force. Where both have moved they are merged. What cannot be, as a history
that was rewritten, is brought here as it is, and refused as any such push. A place that does not
answer is asked again later; until then nothing but it stands still.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.rules.publishing.ledger import OUTBOX, LedgerChange, LedgerState, RulebookLedger
from sluicegate.rules.publishing.proposals import ID_CHARS, Proposals
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
        ledger: RulebookLedger,
        drafts: Proposals,
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
        if tip is not None and live is not None and tip in (fleet.branch_tip, live.commit):
            if fleet.refused_tip:
                self._ledger.change(
                    OUTBOX, lambda state: _record_tip(state, tip)
                )  # it was put right
            return None
        if tip is None or live is None or tip == fleet.refused_tip:
            return None
        by = self._who(tip)
        ancestor = self._repository.is_ancestor
        goes_on = ancestor(fleet.branch_tip, tip)
        if ancestor(tip, live.commit):
            if not goes_on:
                self._ledger.change(by, lambda state: self._set_back(state, tip))
            return None
        shared = self._repository.merge_base(fleet.branch_tip, live.commit) or live.commit
        if not (goes_on or ancestor(shared, tip)):
            return self._refuse(tip, fleet.branch_tip, shared, by)
        commit = self._repository.info(tip)
        base = self._repository.merge_base(tip, live.commit) or shared
        it = self._drafts.propose_push(commit, base)
        self._ledger.change(OUTBOX, lambda state: _record_tip(state, tip))
        return it

    def _who(self, tip: str) -> str:
        author = self._repository.info(tip).author
        return f"git:{author.name} <{author.email}>"

    def _refuse(self, tip: str, previous: str, shared: str, by: str) -> Proposal:
        why = (
            f"the history of {self._branch} was rewritten: {tip[:ID_CHARS]} does not follow on "
            f"{previous[:ID_CHARS]}, which was there, nor on {shared[:ID_CHARS]}, which was live. "
            "It is not followed. Fetch refs/sluicegate/live, rebase on it, and push that"
        )
        it = self._drafts.propose_push(self._repository.info(tip), shared, why)
        self._ledger.change(OUTBOX, lambda state: _record_tip(state, tip, refused=True))
        return it

    def _set_back(self, state: LedgerState, tip: str) -> LedgerChange | None:
        if state.fleet.branch_tip == tip:
            return None
        return LedgerChange(
            f"{self._branch} was set back from {state.fleet.branch_tip[:ID_CHARS]} to "
            f"{tip[:ID_CHARS]}, which was live before; it is moved forward again with live",
            "push",
            fleet=state.fleet._replace(branch_tip=tip),
        )


def _record_tip(state: LedgerState, tip: str, *, refused: bool = False) -> LedgerChange | None:
    fleet = state.fleet
    after = (
        fleet._replace(refused_tip=tip)
        if refused
        else fleet._replace(branch_tip=tip, refused_tip="")
    )
    if after == fleet:
        return None
    return LedgerChange("looked at the branch", OUTBOX, fleet=after)


@final
class RemoteMirror:
    """Looks at the remote now and then; nothing where there is none."""

    __slots__ = ("_clock", "_in_sync", "_next_us", "_repository", "_settings")

    def __init__(
        self, repository: Repository, *, settings: PublishingSettings, clock: Clock
    ) -> None:
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._next_us = 0
        self._in_sync = ""  # what the branch here was when both were the same

    def look(self) -> None:
        """Bring what was pushed there, and send what is live; when it is time, or sent is due."""
        settings = self._settings
        if not settings.remote or not settings.branch:
            return
        tip = self._repository.tip(settings.branch)
        now_us = self._clock.now_us()
        if now_us < self._next_us and tip == self._in_sync:
            return
        self._next_us = now_us + settings.remote_look_us
        remote_tip = self._fetch()
        tip = self._repository.tip(settings.branch)
        if remote_tip != tip:
            tip = self._sync(tip, remote_tip)
        self._in_sync = tip or ""

    def _fetch(self) -> str | None:
        """What the branch is there; None where there is none yet."""
        settings = self._settings
        try:
            return self._repository.fetch(
                settings.remote, settings.branch, timeout_us=settings.remote_us_max
            )
        except BadValue as error:
            if error.field != "ref":
                raise
            return None

    def _sync(self, tip: str | None, remote_tip: str | None) -> str | None:
        """Make both the same, whichever has to move; what the branch is here then."""
        settings, repository = self._settings, self._repository
        if remote_tip is None or (tip is not None and repository.is_ancestor(remote_tip, tip)):
            repository.push(settings.remote, settings.branch, timeout_us=settings.remote_us_max)
            return tip
        to = remote_tip
        if tip is not None and not repository.is_ancestor(tip, remote_tip):
            to = self._merge(tip, remote_tip)
        try:
            repository.move(settings.branch, to, expected=tip)
        except Conflict:
            return None  # somebody pushes here just now; the next look sees both
        return to

    def _merge(self, tip: str, remote_tip: str) -> str:
        """A commit that goes on from both; `remote_tip` where there is none, to be refused.

        Who pushed there could not know what has gone live here meanwhile.
        """
        repository = self._repository
        try:
            files = repository.rebase(remote_tip, tip).id
        except (BadValue, Conflict):
            return remote_tip
        pushed = repository.info(remote_tip)
        return repository.write(
            {},
            parents=(tip, remote_tip),
            tree_of=files,
            author=pushed.author,
            message=pushed.message,
            at_us=self._clock.now_us(),
        ).id
