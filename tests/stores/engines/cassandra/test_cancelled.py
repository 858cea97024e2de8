"""A swap of Cassandra whose asker goes away keeps its turn; no cluster is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sluicegate.contracts.engine import Change
from sluicegate.stores.engines.cassandra.engine import open_cassandra


class Statement:
    """One statement, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self) -> Statement:
        return Statement(self.name)

    def bind_list(self, values: Sequence[object]) -> None:
        pass

    def add_statement(self, statement: Statement) -> None:
        self.name += f" {statement.name}"

    def set_is_idempotent(self, again: bool) -> None:
        pass


class Session:
    """Tells what came, and answers batches when it may."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_answer = asyncio.Event()

    async def execute(self, statement: Statement) -> None:
        self.events.append(statement.name)

    async def execute_batch(self, batch: Statement) -> Any:
        self.events.append(batch.name)
        await self.may_answer.wait()
        self.events.append("answered")
        return SimpleNamespace(all=lambda: [SimpleNamespace(as_tuple=lambda: (True,))])

    async def close(self) -> None:
        pass


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_write_waits_for_a_conditional_write_whose_asker_was_cancelled() -> None:
    async def story() -> None:
        engine = open_cassandra("cassandra://a/k")
        session = Session()
        link = engine._link
        link._session = session
        link._prepared = {name: Statement(name) for name in ("try", "put_if", "put", "know")}
        link._driver = SimpleNamespace(  # type: ignore[assignment]
            create_batch_unlogged=lambda **_: Statement("batch"),
            errors=SimpleNamespace(CassException=OSError),
        )
        swap = asyncio.create_task(engine.swap(Change("t", b"p", b"", b"v"), b"old"))
        await settled()
        swap.cancel()
        await settled()
        assert swap.cancelled()
        write = asyncio.create_task(engine.write([Change("t", b"p", b"", b"w")]))
        await settled()
        assert session.events == ["know", "batch try put_if"], "the write waits"
        session.may_answer.set()
        await write
        assert session.events[2:] == ["answered", "put"]
        await engine.close()

    asyncio.run(story())
