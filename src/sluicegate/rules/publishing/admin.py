"""Desk: what people and machines may do with the rules; a `contracts.rule_desk.RuleDesk`.

Each call says who asks: it is checked for its grant, done, and told in the audit. What changes
something is a commit of the ledger; what was refused is noted apart (`refusals.py`). Of calls that
only read, those without the grant are noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError, Unavailable
from sluicegate.contracts.rule_admin import LIVE_REVISION, Answer
from sluicegate.contracts.rulebook import STATES
from sluicegate.rules.following.fleet_status import FleetReports, FleetStatus
from sluicegate.rules.publishing import review as reviewing
from sluicegate.rules.publishing import views
from sluicegate.rules.publishing.drafts import Proposals
from sluicegate.rules.publishing.ledger import LedgerState, RulebookLedger
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.refusal_log import Refusal, RefusalLog
from sluicegate.rules.publishing.revisions import Revisions, Showing
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.upkeep import Upkeep

COUNT_MAX: Final = 10_000


@final
class RulebookAdmin:
    """All that can be asked of a rulebook."""

    __slots__ = (
        "_clock",
        "_drafts",
        "_fleet",
        "_ledger",
        "_publisher",
        "_refusals",
        "_revisions",
        "_settings",
        "_showing",
        "_upkeep",
    )

    def __init__(
        self,
        ledger: RulebookLedger,
        drafts: Proposals,
        publisher: Publisher,
        upkeep: Upkeep,
        fleet: FleetReports,
        revisions: Revisions,
        showing: Showing,
        refusals: RefusalLog,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._drafts = drafts
        self._publisher = publisher
        self._upkeep = upkeep
        self._fleet = fleet
        self._revisions = revisions
        self._showing = showing
        self._refusals = refusals
        self._settings = settings
        self._clock = clock

    # Read.

    def rules(self, at: str = LIVE_REVISION, *, by: Identity) -> Answer:
        """The commit, its version, and its files by name, format, rules and digest."""
        with self._reads("rules", at, by):
            return self._showing.rules(at)

    def file(self, name: str, at: str = LIVE_REVISION, *, by: Identity) -> Answer:
        """One file, as text."""
        with self._reads("file", name, by):
            return self._showing.file(name, at)

    def diff(self, before: str, after: str, *, by: Identity) -> Answer:
        """What changes from one revision to the other: files by lines, and rules by their names."""
        with self._reads("diff", f"{before} {after}", by):
            return self._showing.diff(before, after)

    def proposals(self, state: str = "", *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest proposals, newest first."""
        with self._reads("proposals", state, by):
            if state and state not in STATES:
                raise BadValue("state", state, f"give one of {', '.join(STATES)}")
            count_max = _count(count_max)
            kept = [it for it in self._ledger.state().proposals.values() if state in ("", it.state)]
            kept.sort(key=lambda it: (it.at_us, it.id), reverse=True)
            return [views.proposal_view(it) for it in kept[:count_max]]

    def proposal(self, id: str, *, by: Identity) -> Answer:  # noqa: A002 - it is what it is called
        """One proposal: who, what, why, its state, its verdict, and everything that befell it."""
        with self._reads("proposal", id, by):
            return views.proposal_view(self._revisions.proposal(id), whole=True)

    def versions(self, *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest editions, newest first."""
        with self._reads("versions", "", by):
            state = self._ledger.state()
            latest = sorted(state.versions, reverse=True)[: _count(count_max)]
            return [views.version_view(state.versions[number], state) for number in latest]

    def status(self, *, by: Identity) -> Answer:
        """What the fleet is ordered to run, and what each node has reported."""
        with self._reads("status", "", by):
            return self._status()

    def wait(self, version: int, *, nodes: int, timeout_s: float, by: Identity) -> Answer:
        """The status once that many nodes run the version; `reached` says whether they do."""
        with self._reads("wait", str(version), by):
            fleet = self._ledger.state().fleet
            # Of what is live, the newest orders are meant; what was live has none of its own.
            rollout = fleet.rollouts if version == fleet.live else 0
            reached, seen = self._fleet.wait_for(
                version, nodes=nodes, timeout_s=timeout_s, rollout=rollout
            )
            return {**self._status(seen), "reached": reached}

    def audit(self, *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest calls that changed something or were refused, newest first."""
        with self._reads("audit", "", by):
            count_max = _count(count_max)
            done = [views.entry_view(one) for one in self._ledger.entries(count_max)]
            refused = [views.refusal_view(one) for one in self._refusals.latest(count_max)]
            both = sorted([*done, *refused], key=lambda one: int(one["at_us"]), reverse=True)
            return both[:count_max]

    # Propose.

    def propose(
        self,
        changes: Mapping[str, str | None],
        *,
        base: str,
        message: str,
        reason: str = "",
        by: Identity,
    ) -> Answer:
        """Propose files with these texts (None takes a file out), in place of those at `base`."""
        with self._asked("propose", ", ".join(changes), by, Grant.PROPOSE):
            commit = self._revisions.find(base).commit
            it = self._drafts.propose(changes, commit, message, reason, by.name)
            return self._settled(it.id)

    def judge(self, id: str, *, by: Identity) -> Answer:  # noqa: A002 - likewise
        """Try a proposal (again), on what has been captured by now; the proposal."""
        with self._asked("judge", id, by, Grant.PROPOSE):
            it = self._drafts.judge(self._revisions.proposal(id).id, by.name)
            return self._settled(it.id)

    # Approve.

    def approve(self, id: str, *, override: str = "", by: Identity) -> Answer:  # noqa: A002
        """Approve; where the gate could not judge, only with an `override` that says why."""
        with self._asked("approve", id, by, Grant.APPROVE):
            id, now_us = self._revisions.proposal(id).id, self._clock.now_us()  # noqa: A001
            self._ledger.change(
                by.name,
                lambda state: reviewing.approved(
                    state,
                    id,
                    override=override.strip(),
                    settings=self._settings,
                    at_us=now_us,
                    by=by.name,
                ),
            )
            return self._proposal(id)

    def reject(self, id: str, *, reason: str, by: Identity) -> Answer:  # noqa: A002
        """Turn down."""
        with self._asked("reject", id, by, Grant.APPROVE):
            _why(reason)
            id, now_us = self._revisions.proposal(id).id, self._clock.now_us()  # noqa: A001
            self._ledger.change(
                by.name,
                lambda state: reviewing.rejected(state, id, reason, at_us=now_us, by=by.name),
            )
            return self._settled(id)

    def publish(self, id: str, *, by: Identity) -> Answer:  # noqa: A002
        """Make an approved proposal live, for everybody at once."""
        with self._asked("publish", id, by, Grant.APPROVE):
            id = self._revisions.proposal(id).id  # noqa: A001
            self._publisher.publish(id, by=by.name)
            return self._proposal(id)

    def canary(self, id: str, *, share: int, kind: str, by: Identity) -> Answer:  # noqa: A002
        """Let it be in force for a share of callers or nodes (of 10,000), or for a larger one."""
        with self._asked("canary", f"{id} {share}", by, Grant.APPROVE):
            id = self._revisions.proposal(id).id  # noqa: A001
            # To end one, nobody needs to know how the nodes are.
            failing = self._upkeep.failing() if share else ()
            self._publisher.canary(id, share=share, kind=kind, by=by.name, failing=failing)
            return self._proposal(id)

    def roll_back(self, to: str, *, reason: str, by: Identity) -> Answer:
        """Make the rules of an earlier revision live again, as a new version."""
        with self._asked("roll_back", to, by, Grant.APPROVE):
            _why(reason)
            revision = self._revisions.find(to)
            self._publisher.roll_back(revision.commit, revision.called, why=reason, by=by.name)
            return self._status()

    def pin(self, node: str, version: int, *, reason: str, by: Identity) -> Answer:
        """Have one node run that version whatever is live; 0 lets it go. The status."""
        with self._asked("pin", f"{node} {version}", by, Grant.APPROVE):
            _why(reason)
            self._publisher.pin(node, version, why=reason, by=by.name)
            return self._status()

    # Begin.

    def begin(self, files: Mapping[str, str] | None, *, message: str, by: Identity) -> Answer:
        """The first version: these files, or what is on the branch (None). The status."""
        with self._asked("begin", "", by, Grant.APPROVE):
            data = None if files is None else {name: files[name].encode() for name in files}
            self._publisher.begin(data, message=message, by=by.name)
            return self._status()

    # Inside.

    def _reads(self, call: str, what: str, by: Identity) -> Any:
        return self._asked(call, what, by, Grant.READ_RULES, reads=True)

    @contextmanager
    def _asked(
        self, call: str, what: str, by: Identity, grant: Grant, *, reads: bool = False
    ) -> Iterator[None]:
        try:
            by.must(grant)
            yield
        except SluicegateError as error:
            if not reads or isinstance(error, Forbidden):
                self._refusals.note(
                    Refusal(
                        self._clock.now_us(), by.name, call, what, type(error).__name__, str(error)
                    )
                )
            raise

    def _proposal(self, id: str) -> Answer:  # noqa: A002 - likewise
        state = self._ledger.state()
        view = views.proposal_view(reviewing.known(state, id), whole=True)
        return {**view, **views.told_view(state, self._failures(state))}

    def _settled(self, id: str) -> Answer:  # noqa: A002 - likewise
        """The proposal, with the notes on its commit written if that can be now."""
        with suppress(SluicegateError):  # it is kept as the publisher's trouble, and tried again
            self._publisher.reconcile()
        return self._proposal(id)

    def _status(self, seen: FleetStatus | None = None) -> dict[str, Any]:
        state = self._ledger.state()
        failures = self._failures(state)
        try:
            seen = self._fleet.look() if seen is None else seen
        except Unavailable as error:
            # What was decided is told all the same: whoever decided it waits for the answer.
            seen = FleetStatus(self._clock.now_us(), ())
            failures["nodes"] = str(error)
        rollouts = state.rollouts.get(state.fleet.rollouts)
        live = state.live
        return {
            "live": None if live is None else views.version_view(live, state),
            "orders": views.rollout_view(rollouts),
            "canary": self._canary(state),
            **views.told_view(state, failures),
            **views.fleet_view(seen, rollouts),
        }

    def _canary(self, state: LedgerState) -> dict[str, Any] | None:
        run = state.fleet.canary
        if run is None:
            return None
        return {
            "proposal": run.proposal,
            "version": run.state.version,
            "by": run.by,
            "share": run.state.share,
            "since_us": run.state.since_us,
        }

    def _failures(self, state: LedgerState) -> dict[str, str]:
        failures = self._upkeep.failures
        if state.fleet.refused_tip:
            failures["branch"] = (
                f"a push of {state.fleet.refused_tip[:12]} was refused; see its note"
            )
        return failures


def _count(count_max: int) -> int:
    if not 1 <= count_max <= COUNT_MAX:
        raise BadValue("count_max", count_max, f"give 1 to {COUNT_MAX:,}")
    return count_max


def _why(reason: str) -> None:
    if not reason.strip():
        raise BadValue("reason", reason, "say why")
