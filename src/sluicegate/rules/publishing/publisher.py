"""Publisher: the only one who decides what is live, and has it brought to the world.

A decision is one commit of the ledger: after it, the change will be everywhere, whatever dies. What
follows from it is the outbox's; where that cannot be done just now it is done later, and `trouble`
says why. Nothing is decided while somebody else has moved what is live.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError
from sluicegate.contracts.rulebook import APPROVED, BY_CALLERS, BY_NODES, CANARY
from sluicegate.rules.publishing import review, rollouts
from sluicegate.rules.publishing.canary import WHOLE
from sluicegate.rules.publishing.ledger import (
    OUTBOX,
    LedgerChange,
    LedgerState,
    RulebookLedger,
    author_of,
    one_line,
)
from sluicegate.rules.publishing.outbox import DECIDED, MERGED, At, ReleaseOutbox, proceed
from sluicegate.rules.publishing.proposals import Proposals
from sluicegate.rules.publishing.revisions import RuleFiles
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.documents import check_node
from sluicegate.rules.repository.repository import Repository

TRIES_MAX: Final = 50

_log: Final = logging.getLogger("sluicegate.rules")


@final
class Publisher:
    """Begins, publishes, tries, pins and rolls back; `by` is the name of whoever asks."""

    def __init__(
        self,
        repository: Repository,
        ledger: RulebookLedger,
        rule_files: RuleFiles,
        drafts: Proposals,
        outbox: ReleaseOutbox,
        *,
        settings: PublishingSettings,
        clock: Clock,
        at: At = proceed,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._rule_files = rule_files
        self._drafts = drafts
        self._outbox = outbox
        self._settings = settings
        self._clock = clock
        self._at = at
        self.failure = ""  # why what was decided is not everywhere yet; empty if it is

    def reconcile(self) -> LedgerState:
        """Bring to the world what it lacks; where that cannot be, it raises and says why."""
        try:
            state = self._outbox.reconcile()
        except SluicegateError as error:
            self.failure = str(error)
            raise
        self.failure = ""
        return state

    def begin(self, files: Mapping[str, bytes] | None, *, message: str, by: str) -> LedgerState:
        """The first version: these files, or what the branch has (None)."""
        self._outbox.check_new()
        now_us = self._clock.now_us()
        tip = self._repository.tip(self._settings.branch) if self._settings.branch else None
        if files is not None:
            for name in files:
                self._rule_files.check_name(name)
            current = {} if tip is None else self._rule_files.files(tip)
            commit = self._repository.write(
                {**dict.fromkeys(current), **files},
                parents=() if tip is None else (tip,),
                author=author_of(by),
                message=message,
                at_us=now_us,
            ).id
        elif tip is None:
            branch = self._settings.branch
            raise BadValue(
                "files", files, f"give files; there is nothing on {branch or 'a branch'}"
            )
        else:
            commit = tip
        self._rule_files.compile(commit)
        return self._decide(
            by,
            lambda state: rollouts.first_release(state, commit, why=message, at_us=now_us, by=by),
        )

    def publish(self, id: str, *, by: str) -> LedgerState:  # noqa: A002 - it is what it is called
        """Make an approved proposal, or the canary under way, live for everybody."""
        run = self._outbox.check().fleet.canary
        if run is not None and run.proposal == id:
            return self.canary(id, share=WHOLE, kind=run.by, by=by)
        return self._go_live(id, partial(rollouts.publish_proposal, proposal_id=id, by=by), by)

    def canary(
        self,
        id: str,  # noqa: A002 - likewise
        *,
        share: int,
        kind: str,
        by: str,
        failing: Sequence[str] = (),
        why: str = "",
    ) -> LedgerState:
        """Begin, widen or take back a canary; `failing` are nodes that report a failure already."""
        if not 0 <= share <= WHOLE:
            raise BadValue("share", share, f"give 0 to {WHOLE:,} of {WHOLE:,}")
        if kind not in (BY_CALLERS, BY_NODES):
            raise BadValue("kind", kind, f"give {BY_CALLERS} or {BY_NODES}")
        state = self._outbox.check()
        it = review.proposal_of(state, id)
        if it.state == CANARY:
            return self._on_canary(id, share, kind, why, by)
        if it.state == APPROVED and share == 0:
            raise BadValue("share", share, "it is no canary yet; give more than 0")
        if share == WHOLE:
            return self.publish(id, by=by)
        make = partial(
            rollouts.begin_canary,
            proposal_id=id,
            share=share,
            kind=kind,
            failing=tuple(failing),
            by=by,
        )
        return self._go_live(id, make, by)

    def decide(self, by: str, make: Callable[[LedgerState], LedgerChange | None]) -> LedgerState:
        """Decide what `make` says of the state, unless somebody else has moved what is live."""
        self._outbox.check()
        return self._decide(by, make)

    def roll_back(self, to: str, called: str, *, why: str, by: str) -> LedgerState:
        """The rules of a commit that was live before are live again, as a new version."""
        if not why.strip():
            raise BadValue("reason", why, "say why")
        make = partial(rollouts.roll_back_to, to=called, why=why, by=by)
        for _ in range(TRIES_MAX):
            state = self._outbox.check()
            live = self._drafts.live().commit
            # A commit between two versions was never tried, and a canary may never have been live.
            published = any(version.commit == to for version in state.versions.values())
            if not (published and self._repository.is_ancestor(to, live)):
                raise BadValue("to", called, "give a version that was live")
            now_us = self._clock.now_us()
            run = state.fleet.canary
            if not self._repository.changes(to, live):
                if run is None:
                    raise BadValue("to", called, "these rules are live already")
                # Only the canary is in the way of what was meant.
                return self._on_canary(run.proposal, 0, run.by, why, by)
            commit = self._repository.write(
                {},
                parents=(live,),
                tree_of=to,
                author=author_of(by),
                message=f"Roll back to {one_line(called)}\n\n{why.strip()}",
                at_us=now_us,
            ).id
            self._rule_files.compile(commit)
            self._at(MERGED)
            try:
                return self._decide(by, partial(make, commit=commit, live=live, at_us=now_us))
            except rollouts.LiveMoved:
                continue
        raise Conflict("what is live", f"others moved it {TRIES_MAX} times; try again")

    def pin(self, node: str, version: int, *, why: str, by: str) -> LedgerState:
        """One node runs that version whatever is live; 0 lets it go."""
        check_node(node)
        now_us = self._clock.now_us()
        return self.decide(
            by,
            lambda state: rollouts.pin_node(
                state, node, version, why=why, settings=self._settings, at_us=now_us, by=by
            ),
        )

    def renew(self) -> None:
        """Renew the rollout before it expires, where rollouts do."""
        valid_us = self._settings.rollout_valid_us
        if valid_us:
            now_us = self._clock.now_us()
            make = partial(rollouts.renew_rollout, valid_us=valid_us, at_us=now_us)
            if make(self._ledger.state()) is not None:
                self.decide(OUTBOX, make)

    # Inside.

    def _go_live(self, id: str, make: Callable[..., LedgerChange], by: str) -> LedgerState:  # noqa: A002
        for _ in range(TRIES_MAX):
            self._outbox.check()
            _, commit, live = self._drafts.ready(id, by)
            self._at(MERGED)
            now_us = self._clock.now_us()
            try:
                return self._decide(by, partial(make, commit=commit, live=live, at_us=now_us))
            except rollouts.LiveMoved:
                continue  # it is merged with what is live now, and judged again
        raise Conflict("what is live", f"others moved it {TRIES_MAX} times; try again")

    def _on_canary(self, id: str, share: int, kind: str, why: str, by: str) -> LedgerState:  # noqa: A002
        now_us = self._clock.now_us()

        def make(state: LedgerState) -> LedgerChange:
            run = rollouts.current_canary(state, id)
            if share == 0:
                return rollouts.end_canary(state, run, why=why or "asked", at_us=now_us, by=by)
            if kind != run.by:
                raise BadValue("kind", kind, f"this canary is by {run.by}; end it to change that")
            return rollouts.widen_canary(state, run, share, why=why, at_us=now_us, by=by)

        return self._decide(by, make)

    def _decide(self, by: str, make: Callable[[LedgerState], LedgerChange | None]) -> LedgerState:
        state = self._ledger.change(by, partial(self._until_expiry, make))
        self._at(DECIDED)
        try:
            return self.reconcile()
        except SluicegateError as error:
            # It is decided, and will be done; whoever asked must not think that it was refused.
            _log.warning("decided, and not everywhere yet: %s", error)
            return state

    def _until_expiry(
        self, make: Callable[[LedgerState], LedgerChange | None], state: LedgerState
    ) -> LedgerChange | None:
        """The change, with the time until which its rollouts are valid."""
        change, valid_us = make(state), self._settings.rollout_valid_us
        if change is None or not valid_us:
            return change
        expiring = [it._replace(expires_us=it.at_us + valid_us) for it in change.rollouts]
        return change._replace(rollouts=expiring)
