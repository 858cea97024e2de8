"""Suppression: the messages between nodes of a cluster and the masters of its accounts.

    node    SuppressReport: what was attempted here   ->  master
    node    <-  FactorMessage: the fraction of each account to reject  master

Plain values, filled by `policies/suppression/suppress.py` and `suppress_master.py`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sluicegate.contracts.access import Identity


class AccountCount(NamedTuple):
    """What one account attempted at one node, in messages, and the factor last heard.

    `late` of the delta were made while the node stood still.
    """

    account: str
    delta: int  # since the last report was sent
    total: int  # since the node started
    factor: float
    late: int = 0


class SuppressReport(NamedTuple):
    """What a node tells the master. `boot` grows with every start of the node.

    `term` and `generation` are those of the latest message that it has heard from this master;
    `leaving` says that it has no account of this master any more. It last stood still for
    `stood_us`, until `woke_us` before this report.
    """

    node: str
    boot: int
    counts: tuple[AccountCount, ...]
    term: int = 0
    generation: int = 0
    leaving: bool = False
    stood_us: int = 0
    woke_us: int = 0


class AccountFactor(NamedTuple):
    """The fraction to reject of one account, and its limit (messages a second, and at once)."""

    account: str
    factor: float
    per_s: int
    burst: int


class FactorMessage(NamedTuple):
    """What a master tells the nodes. (`term`, `generation`) grows with every message."""

    master: str
    term: int
    generation: int
    valid_us: int
    nodes: int
    factors: tuple[AccountFactor, ...]


class AccountMaster(Protocol):
    """What a door calls where nodes report."""

    def report(self, report: SuppressReport, by: Identity) -> FactorMessage | None:
        """Answer a report; None for one from before the node's last start."""
        ...


class NamedNode(Protocol):
    """What a door calls where a node asks another who it is."""

    def name_for(self, by: Identity) -> str:
        """The name that it goes by."""
        ...
