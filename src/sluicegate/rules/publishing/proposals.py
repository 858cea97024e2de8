"""Proposals: a change becomes a proposal, and a proposal is made ready to go live.

What is checked and judged is never the proposal's own files but what would be live: the proposal
merged with what is live now. When that has moved on, both are done again before anything is in
force. A merge that is not plain is a `Conflict` with the names of the files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError, Unavailable
from sluicegate.contracts.rulebook import (
    APPROVED,
    FAILED,
    NOT_JUDGED,
    OPEN,
    REJECTED,
    Commit,
    GateFinding,
    Judge,
)
from sluicegate.rules.publishing import review
from sluicegate.rules.publishing.ledger import (
    LedgerChange,
    LedgerState,
    RulebookLedger,
    author_of,
    one_line,
)
from sluicegate.rules.publishing.limit_changes import describe, large_changes, unconfirmed
from sluicegate.rules.publishing.records import BY_PUSH, Proposal, ProposalStep, ReleaseRecord
from sluicegate.rules.publishing.revisions import RuleFiles
from sluicegate.rules.publishing.settings import PROPOSALS, PublishingSettings
from sluicegate.rules.repository.repository import Repository

TITLE_CHARS_MAX: Final = 200
ID_CHARS: Final = 12
GATE: Final = "the gate"
PUSHED_MAX: Final = 1_000  # commits of one push
CONFIRM_LINE: Final = "Confirm: true"  # of a commit's message, for large changes of limits
_BY_FIELD: Final = 'send "confirm": true'
_BY_LINE: Final = f"push a commit with the line '{CONFIRM_LINE}' in its message"
_READY_TRIES_MAX: Final = 16
_SECOND_US: Final = 1_000_000

_log: Final = logging.getLogger("sluicegate.rules")


@final
class Proposals:
    """Makes proposals, and has them judged. `judge` is None where there is no gate."""

    __slots__ = ("_clock", "_judge", "_ledger", "_repository", "_rule_files", "_settings")

    def __init__(
        self,
        repository: Repository,
        ledger: RulebookLedger,
        rule_files: RuleFiles,
        judge: Judge | None,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._rule_files = rule_files
        self._judge = judge
        self._settings = settings
        self._clock = clock

    # A change becomes a proposal.

    def propose(
        self,
        changes: Mapping[str, str | None],
        base: str,
        message: str,
        reason: str,
        by: str,
        *,
        confirm: bool,
    ) -> Proposal:
        """A proposal of these files in place of those at the commit `base`.

        One that changes limits 10-fold, or removes some, takes `confirm`.
        """
        title, reason = (
            self._check_text("message", message),
            self._check_text("reason", reason, may_lack=True),
        )
        if not title:
            raise BadValue("message", message, "say what changes, in a line")
        if not changes:
            raise BadValue("changes", dict(changes), "give at least one file")
        for name in changes:
            self._rule_files.check_name(name)
        live = self._live(self._ledger.state())
        files = {
            name: None if text is None else text.encode("utf-8", "surrogatepass")
            for name, text in changes.items()
        }
        self._not_since(base, live.commit, files)
        text = f"{one_line(title)}\n\n{reason}\n" if reason else f"{one_line(title)}\n"
        commit = self._write(files, base, text, by)
        if not self._repository.changes(base, commit.id):
            raise BadValue("changes", sorted(changes), "give other files than those at the base")
        candidate = self.check(commit.id, live.commit)
        it = self._new_proposal(commit, base, by)._replace(
            reason=reason, judged_on=live.commit, candidate=candidate
        )
        return self._enter(self._confirm(it, confirm, _BY_FIELD), by)

    def propose_push(self, commit: Commit, base: str, refusal: str = "") -> Proposal:
        """A proposal of what somebody has pushed; what cannot be one is kept as rejected."""
        author = commit.author
        by = one_line(f"git:{author.name} <{author.email}>")
        it = self._new_proposal(commit, base, by)._replace(
            source=BY_PUSH,
            reason=commit.message.partition("\n\n")[2].strip(),
            authors=self._authors(commit, base),
        )
        live = self._live(self._ledger.state())
        try:
            if not refusal:
                candidate = self.check(commit.id, live.commit)
                it = it._replace(judged_on=live.commit, candidate=candidate)
                confirm = CONFIRM_LINE in commit.message.splitlines()
                it = self._confirm(it, confirm, _BY_LINE)
        except (BadValue, Conflict) as error:
            refusal = str(error)
        if not refusal:
            return self._enter(it, by)
        self._keep_ref(it)
        state = self._ledger.change(by, lambda state: _refuse_push(state, it, refusal))
        return state.proposals[it.id]

    def check(self, commit: str, live: str) -> str:
        """The commit that would be live: this one merged with what is; its rules are good."""
        candidate = self._repository.rebase(commit, live).id
        if not self._repository.changes(live, candidate):
            raise BadValue("changes", commit[:ID_CHARS], "it changes nothing of what is live")
        self._rule_files.compile(candidate)
        return candidate

    # A proposal is judged.

    def judge(self, id: str, by: str) -> Proposal:  # noqa: A002 - it is what it is called
        """Have it judged against what is live now; without a gate it is only checked."""
        state = self._ledger.state()
        it, live = review.proposal_of(state, id), self._live(state).commit
        candidate = self.check(it.commit, live)
        verdict = self._verdict(live, candidate)
        return self._record_verdict(id, verdict, live, candidate, by)

    def ready(self, id: str, by: str) -> tuple[Proposal, str, str]:  # noqa: A002 - likewise
        """An approved proposal, what would be live with it, and on what that stands.

        What was judged against something else is judged again, and may be refused now.
        """
        for _ in range(_READY_TRIES_MAX):
            state = self._ledger.state()
            it, live = review.proposal_of(state, id), self._live(state).commit
            if it.state != APPROVED:
                raise BadValue("proposal", id, f"it is {it.state}; only what is approved goes live")
            if it.judged_on != live and self._judge is None:
                return it, self.check(it.commit, live), live
            if it.judged_on != live:
                it = self.judge(id, by)
            if it.state != APPROVED:
                raise BadValue("proposal", id, review.may_go_live(it) or f"it is {it.state}")
            if it.judged_on == live:
                # Made again: it may be long ago, and what no ref leads to is cleaned up.
                return it, self._repository.rebase(it.commit, live).id, live
        raise Conflict("what is live", f"it moved {_READY_TRIES_MAX} times; try again")

    def live(self) -> ReleaseRecord:
        """What is decided to be live."""
        return self._live(self._ledger.state())

    # Inside.

    def _authors(self, commit: Commit, base: str) -> tuple[str, ...]:
        """Names and addresses of all who have a part in what was pushed since the base."""
        authors: set[str] = set()
        seen, ahead = {commit.id}, [commit]
        while ahead:
            one = ahead.pop()
            authors |= {one.author.name, one.author.email}
            for parent in one.parents:
                if parent not in seen and not self._repository.is_ancestor(parent, base):
                    if len(seen) >= PUSHED_MAX:
                        remedy = f"at most {PUSHED_MAX:,} commits at once; squash them"
                        raise BadValue("push", f"{len(seen):,} commits", remedy)
                    seen.add(parent)
                    ahead.append(self._repository.info(parent))
        return tuple(sorted(authors))

    def _write(self, files: Mapping[str, bytes | None], base: str, message: str, by: str) -> Commit:
        """A commit that no earlier proposal has; git counts in seconds, and people are quicker."""
        proposals = self._ledger.state().proposals
        at_us = self._clock.now_us()
        while True:
            commit = self._repository.write(
                files, parents=(base,), author=author_of(by), message=message, at_us=at_us
            )
            previous = proposals.get(proposal_id(commit.id))
            if previous is None or previous.state == OPEN:
                return commit
            at_us += _SECOND_US

    def _live(self, state: LedgerState) -> ReleaseRecord:
        if state.live is None:
            raise Unavailable("the rulebook", "nothing is live yet; begin with a first version")
        return state.live

    def _check_text(self, field: str, text: str, *, may_lack: bool = False) -> str:
        most = self._settings.message_chars_max
        if len(text) > most:
            raise BadValue(field, text, f"give at most {most:,} characters (message_chars_max)")
        if not (may_lack or text.strip()):
            raise BadValue(field, text, "say something")
        return text.strip()

    def _not_since(self, base: str, live: str, files: Mapping[str, bytes | None]) -> None:
        ancestor = self._repository.merge_base(base, live)
        if ancestor is None:
            raise BadValue("base", base, "give a commit that has a history with what is live")
        moved = [one.name for one in self._repository.changes(ancestor, live) if one.name in files]
        if moved:
            problem = f"changed since {base[:ID_CHARS]}, live is now {live[:ID_CHARS]}"
            raise Conflict(", ".join(moved), problem)

    def _new_proposal(self, commit: Commit, base: str, proposer: str) -> Proposal:
        now_us = self._clock.now_us()
        return Proposal(
            id=proposal_id(commit.id),
            commit=commit.id,
            base=base,
            author=commit.author,
            proposer=proposer,
            at_us=now_us,
            title=one_line(commit.message.partition("\n")[0])[:TITLE_CHARS_MAX],
            reason="",
            steps=(ProposalStep(now_us, proposer, "proposed"),),
        )

    def _confirm(self, it: Proposal, confirm: bool, how: str) -> Proposal:
        """The proposal, its large changes of limits in its history; an error without `confirm`."""
        changes = large_changes(self._rule_files.changes(it.judged_on, it.candidate))
        if not changes:
            return it
        if not confirm:
            raise unconfirmed(changes, how)
        return review.with_step(it, it.at_us, it.proposer, "confirmed", describe(changes))

    def _keep_ref(self, it: Proposal) -> None:
        """So that no clean-up of the repository takes it for garbage."""
        ref = PROPOSALS + it.id
        tip = self._repository.tip(ref)
        if tip != it.commit:
            self._repository.move(ref, it.commit, expected=tip)

    def _enter(self, it: Proposal, by: str) -> Proposal:
        self._keep_ref(it)
        # What no judge has seen yet says so: until then, whatever is approved is judged first.
        new = it if self._judge is None else it._replace(judged_on="", candidate="")
        state = self._ledger.change(by, lambda state: review.enter_proposal(state, new))
        current = state.proposals[it.id]
        settled = current.verdict is not None or current.state not in (OPEN, APPROVED)
        if self._judge is None or settled:
            return current
        try:
            verdict = self._verdict(it.judged_on, it.candidate)
        except SluicegateError as error:
            # It is proposed all the same; whoever approves is told that nobody could judge it.
            verdict = GateFinding(NOT_JUDGED, str(error), None, {})
        try:
            return self._record_verdict(it.id, verdict, it.judged_on, it.candidate, GATE)
        except BadValue:
            # Somebody has turned it down meanwhile, or it was judged and went live.
            return self._ledger.state().proposals[it.id]

    def _verdict(self, live: str, candidate: str) -> GateFinding | None:
        if self._judge is None:
            return None
        files = self._rule_files.files
        verdict = self._judge.judge(files(live), files(candidate))
        size = len(json.dumps(verdict.report))
        most = self._settings.report_bytes_max
        if size > most:
            remedy = f"the report has {size:,} bytes; at most {most:,} are kept (report_bytes_max)"
            classes = verdict.report.get("classes")
            verdict = verdict._replace(report={"cut": remedy, "classes": classes})
        return verdict

    def _record_verdict(
        self,
        id: str,  # noqa: A002 - likewise
        verdict: GateFinding | None,
        live: str,
        candidate: str,
        by: str,
    ) -> Proposal:
        now_us = self._clock.now_us()
        state = self._ledger.change(
            by,
            lambda state: review.record_verdict(
                state, id, verdict, live=live, candidate=candidate, at_us=now_us, by=by
            ),
        )
        if verdict is not None and verdict.result == FAILED:
            _log.warning("proposal %s is rejected: %s", id, verdict.sentence)
        return state.proposals[id]


def proposal_id(commit: str) -> str:
    """What the proposal of a commit is called: a push that is noticed twice is one proposal."""
    return f"p{commit[: ID_CHARS - 1]}"


def _refuse_push(state: LedgerState, it: Proposal, refusal: str) -> LedgerChange | None:
    """A push that cannot be proposed: kept, rejected, with a note for whoever made it."""
    if it.id in state.proposals:
        return None
    it = review.with_step(it._replace(state=REJECTED), it.at_us, GATE, "rejected", refusal)
    fleet = review.with_note(state.fleet, it.commit, f"Rejected as {it.id}: {refusal}")
    return LedgerChange(
        f"a push by {it.proposer} was refused: {it.title}",
        "push",
        refusal,
        proposals=(it,),
        fleet=fleet,
    )
