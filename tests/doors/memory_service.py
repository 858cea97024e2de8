"""The public key-value service in memory for the doors in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from sluicegate.contracts.access import EVERY_GRANT, EVERY_TABLE_GRANT, Grant, Identity, TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import (
    CallContext,
    PlacePage,
    Row,
    RowPage,
    RowsUpdate,
    Write,
    WriteCondition,
    WriteIfResult,
)
from sluicegate.contracts.reasons import Reason
from sluicegate.testing import HandClock
from sluicegate.testing.key_values import MemoryKeyValues, MemoryUploads
from sluicegate.wire.row_stream import StreamRow

NOW_US = 1_700_000_000_000_000


def refused(reason: Reason | None, after_us: int) -> Refused:
    """A refusal for that reason, until then."""
    return Refused(Decision(False, 0, after_us, 0, reason, "ann"))


class MemoryService:
    """Tables in memory, and what was asked of them; `late` answers later."""

    def __init__(self, *, far: bool = False) -> None:
        self.far = far
        self.clock = HandClock(NOW_US)
        self.values = MemoryKeyValues(self.clock, late=far)
        self.spans: list[KeyRange] = []
        self.ready = ""
        self.failed = ""
        self.folders: list[str] = []

    @property
    def contexts(self) -> list[CallContext]:
        return [one.call for one in self.values.calls]

    def fill(self, table: str, rows: Mapping[Place, tuple[bytes, int]]) -> None:
        """These are the rows now: their values, and for how long they stay."""
        loaded = [StreamRow(*place, *row) for place, row in rows.items()]
        self.values.load(table, loaded, replace=True)

    def rows(self, table: str = "t") -> dict[Place, tuple[bytes, int]]:
        """What is there, and until when."""
        entries = self.values.enter("look", table, TableGrant.READ, CallContext(ALL))
        self.values.calls.pop()
        return {place: (row.value, row.expires_us) for place, row in entries.items()}

    # The service.

    @property
    def uploads(self) -> MemoryUploads:
        return self.values.uploads

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        if partition == b"bug":
            raise ZeroDivisionError
        return self.values.get(table, partition, sort, call)

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        return self.values.get_each(table, places, call)

    def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> Awaitable[RowPage]:
        self.spans.append(span)
        return self.values.scan(table, partition, span, call, token)

    def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> Awaitable[PlacePage]:
        return self.values.walk(table, after, rows_max, call)

    def write(self, table: str, writes: Sequence[Write], call: CallContext) -> Awaitable[None]:
        return self.values.write(table, writes, call)

    def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> Awaitable[WriteIfResult]:
        return self.values.write_if(table, write, condition, call)

    def update(self, table: str, update: RowsUpdate, call: CallContext) -> Awaitable[None]:
        return self.values.update(table, update, call)

    def remove(self, table: str, places: Sequence[Place], call: CallContext) -> Awaitable[int]:
        return self.values.remove(table, places, call)

    def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> Awaitable[bool]:
        return self.values.expire(table, partition, sort, ttl_us, call)

    # The desk.

    def state(self, by: Identity) -> dict[str, object]:
        by.require(Grant.AUDIT)
        return {"asked": len(self.values.calls)}

    def hot(self, by: Identity) -> MaybeAwaitable[Mapping[str, object]]:
        by.require(Grant.AUDIT)
        return _later({"keys": []}) if self.far else {"keys": []}

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Sequence[Mapping[str, object]]:
        by.require(Grant.AUDIT)
        return [{"entity": user}]

    def metrics(self) -> str:
        return "# TYPE up gauge\nup 1\n"

    def not_ready(self) -> str:
        return self.ready

    def not_alive(self) -> str:
        return self.failed

    async def backup(self, folder: str, by: Identity) -> int:
        by.require(Grant.OPERATE)
        self.folders.append(folder)
        return 4096


async def _later(value: Mapping[str, object]) -> Mapping[str, object]:
    await asyncio.sleep(0)
    return value


ALL = Identity("all", EVERY_GRANT, {"*": EVERY_TABLE_GRANT})
READS = Identity("reads", (), {"t": frozenset({TableGrant.READ})})


class Keeper:
    """Two tokens, and perhaps everybody."""

    def __init__(self, *, everybody: bool = True) -> None:
        anybody = Identity("anybody", EVERY_GRANT, {"*": EVERY_TABLE_GRANT})
        self.anonymous = anybody if everybody else None

    def by_token(self, token: str) -> Identity | None:
        return {"all": ALL, "reads": READS}.get(token)

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return None
