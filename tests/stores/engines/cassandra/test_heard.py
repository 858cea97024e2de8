"""Nodes of a Cassandra that have not heard of tables that were just made; no cluster is asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.stores.engines.cassandra import session as cassandra_link
from sluicegate.stores.engines.cassandra.schema import GREETING
from sluicegate.stores.engines.cassandra.session import CassandraSession
from sluicegate.stores.engines.cassandra.url import parse_url

KEYSPACE = "Keyspace 'k' does not exist"
TABLE = "table rows_1 does not exist"
OLD_TABLE = "unconfigured table rows_1"


class Failure(Exception):  # noqa: N818 - as the driver's are called
    """Any of the driver's."""


class Invalid(Failure):
    """A request that a node refuses."""


class ResultRows(list[Any]):
    """Rows, as the driver has them."""

    def count(self, *_: object) -> int:
        return len(self)

    def all(self) -> ResultRows:
        return self

    def first(self) -> Any:
        return self[0]


def row(*values: object) -> Any:
    return SimpleNamespace(as_tuple=lambda: values)


class Nodes:
    """Nodes that fail so many asks of each kind, and answer those that follow."""

    def __init__(self, error: Exception, **failing: int) -> None:
        self.error = error
        self.failing = failing
        self.calls: dict[str, int] = {}
        self.closed = False

    def _ask(self, kind: str) -> None:
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] <= self.failing.get(kind, 0):
            raise self.error

    async def query(self, text: str) -> ResultRows:
        if text == GREETING:
            return ResultRows([row(1_000, "name")])
        if "data_center" in text:
            return ResultRows([row("datacenter1")])
        if text.startswith("CREATE TABLE"):
            self._ask("table")
        return ResultRows()

    async def create_prepared(self, text: str) -> str:
        self._ask("prepare")
        return text

    async def execute(self, _statement: object) -> ResultRows:
        self._ask("execute")
        return ResultRows([row(b"v")])

    async def execute_batch(self, _batch: object) -> ResultRows:
        self._ask("batch")
        return ResultRows([row(True)])

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassandra_link, "_UNHEARD_PAUSE_S", 0)


def link_to(nodes: Nodes, query: str = "") -> CassandraSession:
    link = CassandraSession(parse_url(f"cassandra://a/k?backoff_ms=1{query}"))

    async def create_session() -> Nodes:
        return nodes

    cluster = SimpleNamespace(create_session=create_session, destroy=lambda: None)
    link._driver = SimpleNamespace(  # type: ignore[assignment]
        create_cluster=lambda *_, **__: cluster,
        Consistency=link._driver.Consistency,
        SpeculativeExecutionPolicy=link._driver.SpeculativeExecutionPolicy,
        errors=SimpleNamespace(
            CassException=Failure,
            CassErrorServerInvalidQuery=Invalid,
            CassErrorServerConfigError=Invalid,
        ),
    )
    return link


async def run_statement(link: CassandraSession, *, batch: bool = False) -> Any:
    try:
        await link.ready()
        return await link.run("a statement", batch=batch)
    finally:
        await link.close()


@pytest.mark.parametrize("detail", [KEYSPACE, TABLE, OLD_TABLE, "keyspace k doesn't exist"])
@pytest.mark.parametrize("kind", ["table", "prepare", "execute"])
def test_a_node_that_has_not_heard_of_the_tables_is_asked_again(detail: str, kind: str) -> None:
    nodes = Nodes(Invalid(detail), **{kind: 3})
    assert asyncio.run(run_statement(link_to(nodes))) == [(b"v",)]
    assert nodes.calls["table"] == (5 if kind == "table" else 2)
    assert nodes.closed


def test_a_batch_is_sent_again_to_a_node_that_had_not_heard() -> None:
    nodes = Nodes(Invalid(TABLE), batch=2)
    assert asyncio.run(run_statement(link_to(nodes), batch=True)) == [(True,)]
    assert nodes.calls["batch"] == 3


@pytest.mark.parametrize("query", ["&create=no", "&heard_ms=0", "&heard_ms=2"])
@pytest.mark.parametrize("kind", ["prepare", "execute"])
def test_what_no_node_hears_of_in_time_is_told(query: str, kind: str) -> None:
    nodes = Nodes(Invalid(KEYSPACE), **{kind: 1 << 30})
    with pytest.raises(Unavailable, match="Keyspace 'k' does not exist"):
        asyncio.run(run_statement(link_to(nodes, query)))
    assert query == "&heard_ms=2" or nodes.calls[kind] == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Failure(KEYSPACE), Unavailable),
        (Invalid("no such column"), Unavailable),
        (Invalid("oversized mutation"), BadValue),
    ],
)
def test_whatever_else_a_node_says_is_not_asked_again(
    error: Exception, expected: type[SluicegateError]
) -> None:
    nodes = Nodes(error, execute=1)
    with pytest.raises(expected):
        asyncio.run(run_statement(link_to(nodes)))
    assert nodes.calls["execute"] == 1


def test_nobody_is_asked_again_behind_a_close() -> None:
    async def story() -> None:
        nodes = Nodes(Invalid(TABLE), execute=1 << 30)
        link = link_to(nodes)
        await link.ready()
        call = asyncio.create_task(link.run("a statement"))
        for _ in range(3):
            await asyncio.sleep(0)
        await link.close()
        with pytest.raises(Unavailable, match="closed"):
            await call

    asyncio.run(story())
