"""Usage: the messages about used amounts between nodes of a cluster and masters of accounts.

    node    UsageReport: what was used here  ->  master
    node    <-  UsageAnswer: what was used everywhere  master

Plain values, filled by `policies/quota/usage.py`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sluicegate.contracts.access import Identity


class PeriodCount(NamedTuple):
    """One account's messages in one hour or month at one node.

    `heard` is what the node last heard of all nodes together, `included` how many of its own were
    in that.
    """

    period: int
    used: int
    included: int
    heard: int


class UsageCount(NamedTuple):
    """What one account has used, and holds now, at one node."""

    account: str
    hour: PeriodCount
    month: PeriodCount
    connections: int
    channels: int


class UsageReport(NamedTuple):
    """What a node tells a master. `boot` grows with every start of the node."""

    node: str
    boot: int
    counts: tuple[UsageCount, ...]


class UsageTotal(NamedTuple):
    """What one account has used in the periods that were asked about, and what it holds now.

    The `own` are what of it the master has from the node that asked.
    """

    account: str
    hour: int
    hour_used: int
    hour_own: int
    month: int
    month_used: int
    month_own: int
    connections: int
    channels: int


class UsageAnswer(NamedTuple):
    """What a master tells a node."""

    master: str
    totals: tuple[UsageTotal, ...]


class UsageTotals(Protocol):
    """What a door calls where nodes report what was used."""

    def report_usage(self, report: UsageReport, by: Identity) -> UsageAnswer:
        """Answer a report."""
        ...
