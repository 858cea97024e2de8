"""Account limiters of 1,000 nodes and 100,000 accounts on virtual time: calls and CPU of a node.

Claim: what a node says and does goes by the accounts that are active on it, whatever the size of
the cluster: at most min(accounts, nodes) calls in a report's interval (2 s, the source's).

All 1,000 nodes are real account limiters, and masters of what hashing gives them; so many of them
are attempted as `--attempted` says, each at accounts of its own draw. Their reports are answered by
the masters, whose time is shown apart: on average a node answers as many as it sends. The peer is
the node with a tenth of the accounts, in the same run.
"""

from __future__ import annotations

import argparse
import random
import time

from benchmarks.rounds import Bars
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.request import Request
from sluicegate.policies.suppression.suppress import SuppressSettings
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.testing import SeededChance

NODES = 1_000
ACCOUNTS = 100_000
ACTIVE = (10, 100, 1_000, 5_000)  # accounts of a node
INTERVAL_US = 2_000_000
INTERVALS = 3
ATTEMPTS = 3  # of an account in an interval
SPREAD_MAX = 2.0  # of the cost of an account at a node with ten times as many


def limit_of(_: str) -> AccountLimit | None:
    """The same of every account."""
    return AccountLimit(1_000)


def node_of(name: str, members: list[str]) -> AccountLimiter:
    """One that reports every 2 s, as the source's do."""
    settings = SuppressSettings(
        interval_us=INTERVAL_US, early_us=INTERVAL_US, heartbeat_us=INTERVAL_US,
        doubt_us=2 * INTERVAL_US, accounts_max=ACCOUNTS,
    )  # fmt: skip
    node = AccountLimiter(name, 1, limit_of, SeededChance(1), 0, node=settings)
    node.change_members(members)
    return node


def run(active: int, attempted: int) -> tuple[float, float, float]:
    """Of a node and an interval, once all is known: calls, ms for itself, and ms as a master."""
    rng = random.Random(active)
    members = [f"n{number}" for number in range(NODES)]
    nodes = {name: node_of(name, members) for name in members}
    accounts = {
        name: [
            Request("k", caller=f"account {number}")
            for number in rng.sample(range(ACCOUNTS), active)
        ]
        for name in rng.sample(members, attempted)
    }
    calls, own_s, master_s = 0, 0.0, 0.0
    for turn in range(INTERVALS):
        now_us = (turn + 1) * INTERVAL_US
        calls, own_s, master_s = 0, 0.0, 0.0
        for name, requests in accounts.items():
            node = nodes[name]
            began = time.thread_time()
            for request in requests * ATTEMPTS:
                node.admit(request, now_us)
            reports = node.reports(now_us)
            own_s += time.thread_time() - began
            calls += len(reports)
            for member, report in reports:
                began = time.thread_time()
                answer = nodes[member].receive_report(report, now_us)
                between = time.thread_time()
                if answer is not None:
                    node.receive_factors(member, answer, now_us)
                master_s += between - began
                own_s += time.thread_time() - between
    return calls / attempted, own_s * 1e3 / attempted, master_s * 1e3 / attempted


def main() -> None:
    """Measure, print, and check the bars."""
    parser = argparse.ArgumentParser(description="What an account limiter costs a node.")
    parser.add_argument("--attempted", type=int, default=5, help="nodes that are attempted")
    attempted = parser.parse_args().attempted
    print(f"{NODES:,} nodes, {ACCOUNTS:,} accounts, {ATTEMPTS} attempts of each in 2 s")
    bars = Bars()
    each_us: list[float] = []
    for active in ACTIVE:
        calls, own_ms, master_ms = run(active, attempted)
        each_us.append((own_ms + master_ms) * 1e3 / active)
        print(
            f"  {active:>5,} accounts on a node: {calls:7.1f} calls in 2 s,"
            f" {own_ms:8.2f} ms for its own, {master_ms:8.2f} ms as a master,"
            f" {each_us[-1]:6.1f} us an account"
        )
        most = min(active, NODES)
        bars.check(calls <= most, f"{calls:,.1f} of at most {most:,} calls every 2 s")
    spread = each_us[-1] / each_us[-2]
    bars.check(spread <= SPREAD_MAX, f"{spread:.2f} of at most {SPREAD_MAX} x an account's cost")
    bars.exit()


if __name__ == "__main__":
    main()
