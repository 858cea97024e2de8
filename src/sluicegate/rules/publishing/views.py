"""Views: results of the admin, as plain values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sluicegate.contracts.rulebook import NOT_JUDGED, Commit, Rollout
from sluicegate.rules.following.fleet_status import FleetStatus, NodeStatus
from sluicegate.rules.publishing.ledger import LedgerEntry, LedgerState
from sluicegate.rules.publishing.records import Proposal, ReleaseRecord
from sluicegate.rules.publishing.refusal_log import Refusal

DONE: Final = "done"
REFUSED: Final = "refused"


def commit_view(commit: Commit) -> dict[str, Any]:
    """A commit."""
    subject, _, reason = commit.message.partition("\n\n")
    return {
        "commit": commit.id,
        "parents": list(commit.parents),
        "author": commit.author._asdict(),
        "at_us": commit.at_us,
        "message": subject,
        "reason": reason.strip(),
    }


def proposal_view(it: Proposal, *, whole: bool = False) -> dict[str, Any]:
    """A proposal; with all figures behind its verdict, and all that befell it, if `whole`."""
    verdict = it.verdict
    verdict_view: dict[str, Any] | None = None
    if verdict is not None:
        verdict_view = {
            "result": verdict.result,
            "sentence": verdict.sentence,
            "confidence": verdict.confidence,
            "newly_refused": newly_refused(verdict.report),
        }
        if whole:
            verdict_view["report"] = dict(verdict.report)
    view = {
        "id": it.id,
        "state": it.state,
        "message": it.title,
        "reason": it.reason,
        "proposer": it.proposer,
        "author": it.author._asdict(),
        "source": it.source,
        "at_us": it.at_us,
        "commit": it.commit,
        "base": it.base,
        "judged": NOT_JUDGED if verdict is None else verdict.result,
        "verdict": verdict_view,
        "approvals": list(it.approvals),
        "override": it.override,
        "version": it.version or None,
    }
    if whole:
        view["history"] = [step._asdict() for step in it.steps]
    return view


def newly_refused(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By class, the captured requests and those newly refused; empty if nothing was replayed."""
    return [
        {
            "class": one["class"],
            "requests": one["requests"],
            "newly_refused": one["newly_refused"],
            "share": one["newly_refused_share"],
        }
        for one in report.get("classes") or ()
    ]


def version_view(it: ReleaseRecord, state: LedgerState) -> dict[str, Any]:
    """A release, as its record has it."""
    run = state.fleet.canary
    return {
        "version": it.number,
        "commit": it.commit,
        "before": it.before or None,
        "proposal": it.proposal or None,
        "kind": it.kind,
        "by": it.by,
        "why": it.why,
        "at_us": it.at_us,
        "live": it.number == state.fleet.live,
        "canary": run is not None and it.number == run.state.version,
        "told": it.number <= state.fleet.delivered.versions,
    }


def rollout_view(rollouts: Rollout | None) -> dict[str, Any] | None:
    """A rollout; None before the first."""
    if rollouts is None:
        return None
    canary = None if rollouts.canary is None else rollouts.canary._asdict()
    return {**rollouts._asdict(), "canary": canary, "pins": dict(rollouts.pins)}


def fleet_view(fleet: FleetStatus, rollouts: Rollout | None) -> dict[str, Any]:
    """What the nodes have reported, and how far each is behind the rollout."""
    number = 0 if rollouts is None else rollouts.number
    return {
        "at_us": fleet.at_us,
        "versions": {str(version): count for version, count in sorted(fleet.versions().items())},
        "nodes": [_node_view(node, number) for node in fleet.nodes],
    }


def _node_view(node: NodeStatus, number: int) -> dict[str, Any]:
    report = node.report
    view: dict[str, Any] = {
        "node": node.node,
        "age_us": node.age_us,
        "stale": node.stale,
        "trouble": node.wrong,
    }
    if report is None:
        return view
    return {
        **view,
        "version": report.version,
        "canary": report.canary or None,
        "orders": report.rollout,
        "behind": max(0, number - report.rollout),
        "since_us": report.since_us,
        "took_us": report.took_us,
        "trouble": report.failure,
        "counts": {name: list(numbers) for name, numbers in report.counts.items()},
    }


def entry_view(entry: LedgerEntry) -> dict[str, Any]:
    """A change, as the audit tells it."""
    return {
        "at_us": entry.at_us,
        "by": entry.by,
        "call": entry.call,
        "result": DONE,
        "sentence": entry.sentence,
        "why": entry.why,
        "proposal": entry.proposal or None,
        "version": int(entry.version) if entry.version.isdecimal() else None,
        "commit": entry.commit,
    }


def refusal_view(refusal: Refusal) -> dict[str, Any]:
    """A refused call, as the audit tells it."""
    return {
        "at_us": refusal.at_us,
        "by": refusal.by,
        "call": refusal.call,
        "result": REFUSED,
        "sentence": f"{refusal.by} was refused {refusal.call} {refusal.what}".rstrip(),
        "why": refusal.why,
        "error": refusal.error,
    }


def delivery_view(state: LedgerState, failures: Mapping[str, str]) -> dict[str, Any]:
    """How far what was decided has got, and what keeps it."""
    fleet = state.fleet
    return {
        "told": {"versions": fleet.delivered.versions, "orders": fleet.delivered.rollouts},
        "decided": {"versions": fleet.versions, "orders": fleet.rollouts},
        "troubles": dict(failures),
    }
