"""Admin: the operations of a rulebook in this process, as `contracts.rule_admin` lists them.

Each call is checked for its grant, run, and audited: a change is a commit of the ledger, a refusal
goes to its own log (`refusal_log.py`). Of calls that only read, those without the grant are logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError, Unavailable
from sluicegate.contracts.rule_admin import Answer, Operation, RuleAdmin
from sluicegate.contracts.rulebook import STATES
from sluicegate.rules.following.fleet_status import FleetReports, FleetStatus
from sluicegate.rules.publishing import review, views
from sluicegate.rules.publishing.ledger import LedgerChange, LedgerState, RulebookLedger
from sluicegate.rules.publishing.proposals import Proposals
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.refusal_log import Refusal, RefusalLog
from sluicegate.rules.publishing.revisions import Revisions
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.upkeep import CanaryMonitor, Upkeep
from sluicegate.rules.releases.documents import check_node

COUNT_MAX: Final = 10_000


@final
class RulebookAdmin(RuleAdmin):
    """The operations of the rulebook in this process."""

    def __init__(
        self,
        ledger: RulebookLedger,
        drafts: Proposals,
        publisher: Publisher,
        monitor: CanaryMonitor,
        upkeep: Upkeep,
        fleet: FleetReports,
        revisions: Revisions,
        refusals: RefusalLog,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._drafts = drafts
        self._publisher = publisher
        self._monitor = monitor
        self._upkeep = upkeep
        self._fleet = fleet
        self._revisions = revisions
        self._refusals = refusals
        self._settings = settings
        self._clock = clock

    def call(self, operation: Operation, arguments: Mapping[str, Any], *, by: Identity) -> Any:
        """Check the grant, run the operation's method below, and record a refusal."""
        try:
            by.require(operation.grant)
            return getattr(self, f"_{operation.name}")(by=by.name, **arguments)
        except SluicegateError as error:
            if operation.changes or isinstance(error, Forbidden):
                self._record_refusal(operation.name, operation.subject_of(arguments), by, error)
            raise

    def begin(self, files: Mapping[str, str] | None, *, message: str, by: Identity) -> Answer:
        """Make the first release: of these files, or of the branch (None). The status.

        It is for whoever creates the rulebook, and no operation of the table.
        """
        try:
            by.require(Grant.APPROVE)
            data = None if files is None else {name: files[name].encode() for name in files}
            self._publisher.begin(data, message=message, by=by.name)
        except SluicegateError as error:
            self._record_refusal("begin", "", by, error)
            raise
        return self._status_now()

    # Read.

    def _rules(self, at: str, *, by: str) -> Answer:
        return self._revisions.rules(at)

    def _file(self, name: str, at: str, *, by: str) -> Answer:
        return self._revisions.file(name, at)

    def _diff(self, before: str, after: str, *, by: str) -> Answer:
        return self._revisions.diff(before, after)

    def _proposals(self, state: str, *, count_max: int, by: str) -> Sequence[Answer]:
        if state and state not in STATES:
            raise BadValue("state", state, f"give one of {', '.join(STATES)}")
        count_max = _count(count_max)
        listed = [it for it in self._ledger.state().proposals.values() if state in ("", it.state)]
        listed.sort(key=lambda it: (it.at_us, it.id), reverse=True)
        return [views.proposal_view(it) for it in listed[:count_max]]

    def _proposal(self, id: str, *, by: str) -> Answer:  # noqa: A002 - the contract's name
        return views.proposal_view(self._revisions.proposal(id), whole=True)

    def _report(self, id: str, *, by: str) -> Answer:  # noqa: A002 - likewise
        verdict = self._revisions.proposal(id).verdict
        if verdict is None or not verdict.report:
            # A gate that could not judge has a sentence and no report.
            why = verdict.sentence if verdict else "the gate has not judged it; have it judged"
            raise BadValue("proposal", id, f"there is no report: {why}")
        return verdict.report

    def _versions(self, *, count_max: int, before: int, by: str) -> Sequence[Answer]:
        state = self._ledger.state()
        listed = [number for number in state.versions if not before or number < before]
        latest = sorted(listed, reverse=True)[: _count(count_max)]
        return [views.version_view(state.versions[number], state) for number in latest]

    def _status(self, *, by: str) -> Answer:
        return self._status_now()

    def _wait(self, version: int, *, nodes: int, timeout_s: float, by: str) -> Answer:
        fleet = self._ledger.state().fleet
        # Of what is live, the newest rollout counts; what was live earlier has none of its own.
        rollout = fleet.rollouts if version == fleet.live else 0
        reached, reports = self._fleet.wait_for(
            version, nodes=nodes, timeout_s=timeout_s, rollout=rollout
        )
        return {**self._status_now(reports), "reached": reached}

    def _audit(self, *, count_max: int, by: str) -> Sequence[Answer]:
        count_max = _count(count_max)
        done = [views.entry_view(one) for one in self._ledger.entries(count_max)]
        refusals = [views.refusal_view(one) for one in self._refusals.latest(count_max)]
        both = sorted([*done, *refusals], key=lambda one: int(one["at_us"]), reverse=True)
        return both[:count_max]

    # Propose.

    def _propose(
        self,
        changes: Mapping[str, str | None],
        *,
        base: str,
        message: str,
        reason: str,
        confirm: bool,
        by: str,
    ) -> Answer:
        commit = self._revisions.find(base).commit
        it = self._drafts.propose(changes, commit, message, reason, by, confirm=confirm)
        return self._reconciled(it.id)

    def _judge(self, id: str, *, by: str) -> Answer:  # noqa: A002 - likewise
        return self._reconciled(self._drafts.judge(self._revisions.proposal(id).id, by).id)

    # Approve.

    def _approve(self, id: str, *, override: str, by: str) -> Answer:  # noqa: A002 - likewise
        id, now_us = self._revisions.proposal(id).id, self._clock.now_us()  # noqa: A001
        self._ledger.change(
            by,
            lambda state: review.record_approval(
                state,
                id,
                override=override.strip(),
                settings=self._settings,
                at_us=now_us,
                by=by,
            ),
        )
        return self._proposal_now(id)

    def _reject(self, id: str, *, reason: str, by: str) -> Answer:  # noqa: A002 - likewise
        _check_reason(reason)
        id, now_us = self._revisions.proposal(id).id, self._clock.now_us()  # noqa: A001
        self._ledger.change(
            by, lambda state: review.record_rejection(state, id, reason, at_us=now_us, by=by)
        )
        return self._reconciled(id)

    def _publish(self, id: str, *, by: str) -> Answer:  # noqa: A002 - likewise
        id = self._revisions.proposal(id).id  # noqa: A001
        self._publisher.publish(id, by=by)
        return self._proposal_now(id)

    def _canary(self, id: str, *, share: int, kind: str, by: str) -> Answer:  # noqa: A002
        id = self._revisions.proposal(id).id  # noqa: A001
        # To end one, nobody needs to know how the nodes are.
        failing = self._monitor.failing() if share else ()
        self._publisher.canary(id, share=share, kind=kind, by=by, failing=failing)
        return self._proposal_now(id)

    def _roll_back(self, to: str, *, reason: str, by: str) -> Answer:
        _check_reason(reason)
        revision = self._revisions.find(to)
        self._publisher.roll_back(revision.commit, revision.called, why=reason, by=by)
        return self._status_now()

    def _pin(self, node: str, version: int, *, reason: str, by: str) -> Answer:
        _check_reason(reason)
        self._publisher.pin(node, version, why=reason, by=by)
        return self._status_now()

    def _forget(self, node: str, *, reason: str, by: str) -> Answer:
        _check_reason(reason)
        pinned = self._ledger.state().fleet.pins.get(check_node(node))
        if pinned is not None:
            raise BadValue("node", node, f"it is pinned to release {pinned}; unpin it first")
        self._fleet.forget(node)
        sentence = f"{by} removed the node {node}"
        self._ledger.change(by, lambda state: LedgerChange(sentence, "forget", reason))
        return self._status_now()

    # Inside.

    def _record_refusal(self, call: str, what: str, by: Identity, error: SluicegateError) -> None:
        refusal = Refusal(
            self._clock.now_us(), by.name, call, what, type(error).__name__, str(error)
        )
        self._refusals.record(refusal)

    def _proposal_now(self, id: str) -> Answer:  # noqa: A002 - likewise
        state = self._ledger.state()
        view = views.proposal_view(review.proposal_of(state, id), whole=True)
        return {**view, **views.delivery_view(state, self._failures(state))}

    def _reconciled(self, id: str) -> Answer:  # noqa: A002 - likewise
        """The proposal, with the notes on its commit written if that can be now."""
        with suppress(SluicegateError):  # the publisher keeps it as its failure, and tries again
            self._publisher.reconcile()
        return self._proposal_now(id)

    def _status_now(self, fleet: FleetStatus | None = None) -> dict[str, Any]:
        state = self._ledger.state()
        failures = self._failures(state)
        try:
            fleet = self._fleet.look() if fleet is None else fleet
        except Unavailable as error:
            # What was decided is told all the same: whoever decided it waits for the answer.
            fleet = FleetStatus(self._clock.now_us(), ())
            failures["nodes"] = str(error)
        rollouts = state.rollouts.get(state.fleet.rollouts)
        live = state.live
        return {
            "live": None if live is None else views.version_view(live, state),
            "orders": views.rollout_view(rollouts),
            "canary": _canary_view(state),
            **views.delivery_view(state, failures),
            **views.fleet_view(fleet, rollouts),
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


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise BadValue("reason", reason, "say why")


def _canary_view(state: LedgerState) -> dict[str, Any] | None:
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
