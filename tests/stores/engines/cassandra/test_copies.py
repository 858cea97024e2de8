"""The copies of a keyspace and the nodes of a ring, without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.engines.cassandra.schema import create_keyspace
from sluicegate.stores.engines.cassandra.url import parse_url

NETWORK = "org.apache.cassandra.locator.NetworkTopologyStrategy"


class Ring:
    """A session with a ring of nodes, and perhaps with the keyspace."""

    def __init__(self, centers: list[str], replication: dict[str, str] | None = None) -> None:
        self.tables = {"local": centers[:1], "peers": centers[1:]}
        self.replication = replication
        self.created: list[str] = []

    async def query(self, text: str) -> Any:
        found: list[object] = []
        if text.startswith("CREATE"):
            self.created.append(text)
        elif "system_schema" in text:
            found = [] if self.replication is None else [self.replication]
        else:
            found = [*self.tables[text.rpartition(".")[2]]]
        rows = [SimpleNamespace(as_tuple=lambda one=one: (one,)) for one in found]
        return SimpleNamespace(all=lambda: iter(rows))  # the driver returns a generator


def create(ring: Ring, query: str = "") -> None:
    asyncio.run(create_keyspace(ring, parse_url(f"cassandra://a/kv{query}")))


def test_single_node_with_default_copies_names_the_fix() -> None:
    ring = Ring(["dc1"])
    fix = "keyspace kv is unavailable: it wants 3 copies and the cluster has 1 node; add repl"
    with pytest.raises(Unavailable, match=fix):
        create(ring)
    assert not ring.created
    create(ring, "?replication=1")
    assert len(ring.created) == 1


def test_single_node_with_old_keyspace_names_the_statement() -> None:
    ring = Ring(["dc1"], {"class": NETWORK, "dc1": "3"})
    with pytest.raises(Unavailable, match=r"ALTER KEYSPACE kv WITH replication = .*: 1}"):
        create(ring, "?replication=1")


@pytest.mark.parametrize(
    ("centers", "replication", "query"),
    [
        (["dc1", "dc1"], None, ""),  # two of three are a quorum
        (["dc1"], {"class": NETWORK, "dc1": "1"}, ""),
        (["dc1"], {"class": "SimpleStrategy", "replication_factor": "1"}, "?create=no"),
        (["dc1", "dc2"], {"class": NETWORK, "dc1": "1", "dc2": "1"}, ""),
        (["dc1"], {"class": "SingleRegionStrategy"}, ""),
        (
            ["dc1", "dc2"],
            {"class": NETWORK, "dc1": "1", "dc2": "5"},
            "?consistency=local_quorum&datacenter=dc1",
        ),
    ],
)
def test_ring_with_quorum_passes(
    centers: list[str], replication: dict[str, str] | None, query: str
) -> None:
    ring = Ring(centers, replication)
    create(ring, query)
    assert bool(ring.created) is (replication is None)


@pytest.mark.parametrize(
    ("centers", "replication", "query"),
    [
        (["dc1", "dc1"], {"class": NETWORK, "dc1": "3"}, "?consistency=all"),
        (["dc1", "dc1"], {"class": NETWORK, "dc2": "1"}, ""),
        (["dc1", "dc1"], {"class": "SimpleStrategy", "replication_factor": "4"}, ""),
    ],
)
def test_ring_without_quorum_is_unavailable(
    centers: list[str], replication: dict[str, str], query: str
) -> None:
    with pytest.raises(Unavailable, match="copies and the cluster has 2 nodes"):
        create(Ring(centers, replication), query)
