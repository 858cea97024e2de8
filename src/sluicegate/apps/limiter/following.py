"""Following: what a limiter that follows a rulebook reports of its decisions."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.following.fleet_books import FleetBooks


def counts_of(books: FleetBooks | None, ledgers: Sequence[ServiceLedger]) -> dict[str, list[int]]:
    """Decisions by version and class: how many, and how many refused."""
    if books is None:
        return {}
    counts: dict[str, list[int]] = {}
    for version, ledger in zip((books.live_version, books.canary_version), ledgers, strict=False):
        for criticality in Criticality:
            name = f"{version}/{criticality.name}"
            counts[name] = [ledger.asked[criticality], ledger.refused[criticality]]
    return counts
