"""Status: what a node says of the rules it runs: as metrics, as a status, as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.following.in_force import InForce
from sluicegate.wire.timestamps import rfc3339

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"

Counts = Mapping[str, Sequence[int]]


class FollowerMetrics(NamedTuple):
    """What there is to measure.

    `checked_us` is when the store last said that nothing is newer; before it was asked for the
    first time, when the saved rollout was made. `expires_us` is of the newest rollout; 0: never.
    """

    version: int
    canary: int
    rollout: int
    made_us: int
    since_us: int
    took_us: int
    checked_us: int
    expires_us: int
    accepted: int
    refused: int
    whole: int
    deltas: int
    reports: int
    failure_counts: Mapping[tuple[str, str], int]


class FollowAttempt(NamedTuple):
    """The last attempt to follow a rollout: when, and why it failed; empty if it did not."""

    at_us: int
    reason: str


def status_of(
    now: InForce,
    last: FollowAttempt,
    failures: Mapping[str, str],
    *,
    node: str,
    highest: int,
    expires_us: int,
    checked_us: int,
) -> Mapping[str, object]:
    """What JSON can hold; with the fields of rules that follow files, and those of a fleet."""
    books = now.books
    return {
        "version": books.live.version,
        "files": [
            {"name": one.name, "format": one.format, "rules": one.rules, "sha": one.sha}
            for one in books.live.files
        ],
        "last_load": {
            "result": REFUSED if last.reason else ACCEPTED,
            "file": None,
            "line": None,
            "reason": last.reason,
            "at": rfc3339(last.at_us),
        },
        "fleet": {
            "node": node,
            "orders": now.rollout.number,
            "orders_seen": highest,
            "version": books.live_version,
            "canary": books.canary_version,
            "share": books.share,
            "since": rfc3339(now.since_us),
            "took_us": now.took_us,
            "checked": rfc3339(checked_us),
            "expires": rfc3339(expires_us) if expires_us else None,
            "trouble": dict(failures),
        },
    }


def report_of(
    now: InForce | None, failures: Mapping[str, str], counts: Counts, *, node: str, at_us: int
) -> NodeReport:
    """What the fleet is told."""
    return NodeReport(
        node=node,
        rollout=0 if now is None else now.rollout.number,
        version=0 if now is None else now.books.live_version,
        canary=0 if now is None else now.books.canary_version,
        at_us=at_us,
        since_us=0 if now is None else now.since_us,
        took_us=0 if now is None else now.took_us,
        failure="; ".join(f"{part}: {sentence}" for part, sentence in failures.items()),
        counts=counts,
    )
