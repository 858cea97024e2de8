"""Five nodes of `sluicegate pubsub`: an account's limit holds over all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.kernels.hash_ring import Rendezvous
from tests.apps.pubsub.cluster import Load, PubSubCluster
from tests.engines.child import PATIENCE_S
from tests.prove.seeds import seeds

L = 100
WHO = ("ann", "bob")
FLAGS = ("--account-rate", str(L), "--channel-rate", "0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubCluster]:
    with PubSubCluster(tmp_path_factory.mktemp("cluster"), 5, *FLAGS) as running:
        yield running


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=3, part=1))
def test_an_account_at_ten_times_its_limit_is_held_to_it_also_when_its_master_is_killed(
    cluster: PubSubCluster, seed: int
) -> None:
    """Beside it one that conforms moves from node to node, and is never refused."""
    master = Rendezvous(dict.fromkeys(cluster.names, 1.0)).owner("ann")
    others = [name for name in cluster.names if name != master]

    channels = {(who, at): cluster.channel_at(at, who) for who in WHO for at in cluster.names}

    def place(account: str, now_s: float, number: int) -> tuple[str, str]:
        if account == "bob":
            home = others[int(now_s / 0.7) % len(others)]
            return others[number % len(others)], channels["bob", home]
        nodes = cluster.names if now_s < 6 else others
        return nodes[number % len(nodes)], channels["ann", nodes[number // 7 % len(nodes)]]

    load = Load(cluster, WHO)
    # Short of its limit by what a machine that stalls for a second makes a burst of.
    rates = {"ann": 10.0 * L, "bob": 0.8 * L}
    settled_s: list[float] = []

    def enough(now_s: float) -> bool:
        """What a dead node had is the others'."""
        if now_s >= 10 and load.rate("ann", now_s - 2.5, now_s - 0.5) >= 0.88 * L:
            settled_s.append(now_s)
        return bool(settled_s)

    kill = [(6.2, cluster.nodes[master].child.kill)]
    try:
        asyncio.run(load.run(PATIENCE_S, rates, place, kill, enough))
    finally:
        cluster.restart(master)
    assert 0.9 * L <= load.rate("ann", 4, 6) <= 1.1 * L
    assert settled_s
    assert load.highest("ann", 4, settled_s[0], 2.0) <= 1.5 * L
    assert not load.refused["bob"]
    assert not load.failed["bob"]
    assert load.rate("bob", 0, 10) >= 0.75 * L


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=3, part=1))
def test_nodes_that_do_not_report_admit_an_accounts_limit_each(tmp_path: Path, seed: int) -> None:
    """The control: what the reports are for."""
    with PubSubCluster(tmp_path, 5, *FLAGS, apart=True) as apart:
        load = Load(apart, ("ann",))
        asyncio.run(load.run(4.0, {"ann": 10.0 * L}, lambda _, __, n: (apart.names[n % 5], "c")))
        assert load.rate("ann", 2, 4) >= 4 * L
