"""Every store that writes files, behind one face: write number n, and find the numbers again."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

from sluicegate.apps.pubsub.usage_file import UsageFile
from sluicegate.contracts.engine import Change, Engine
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.rulebook import Author
from sluicegate.contracts.usage import PeriodCount
from sluicegate.limits.glass.file import FileGlassStore
from sluicegate.policies.quota.usage import SavedUsage
from sluicegate.rules.repository.repository import Repository
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log
from sluicegate.stores.open_engine import open_engine
from sluicegate.system import SystemClock
from sluicegate.testing.engines import resolve

NUMBERS = 60  # of one run
FAILURES = (SluicegateError, OSError, sqlite3.Error)  # what a store may raise for a bad disk
MONTH = 24_000


def value_of(number: int) -> bytes:
    """Bytes that name themselves, of several lengths, some longer than a page."""
    head = b"%d " % number
    return head + sha256(head).hexdigest().encode() * (1 + number * 7 % 100)


class Store(ABC):
    """One store in one folder. A write that returned is acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    async def open(self) -> None:
        """Open it, and make what it needs; faults begin after this."""

    @abstractmethod
    async def write(self, number: int) -> None: ...

    @abstractmethod
    async def found(self) -> Mapping[int, bytes]:
        """Return the values by their numbers."""

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let it go."""


class EngineStore(Store):
    """An embedded engine: values of several partitions, and the same place again and again."""

    scheme = ""
    query = ""
    engine: Engine

    async def open(self) -> None:
        self.engine = open_engine(f"{self.scheme}:{self.folder}{self.query}")
        await self.engine.write([Change("t", b"begin", b"", b"")])

    async def write(self, number: int) -> None:
        value = value_of(number)
        row = Change("t", b"p%d" % (number % 5), b"%d" % number, value)
        await self.engine.write([row, Change("t", row.partition, b"newest", b"%d" % number)])

    async def found(self) -> Mapping[int, bytes]:
        rows: dict[int, bytes] = {}
        newest: dict[int, int] = {}
        for at in range(5):
            places = [(b"p%d" % at, b"%d" % number) for number in range(at, NUMBERS + 1, 5)]
            values = await resolve(self.engine.read("t", [*places, (b"p%d" % at, b"newest")]))
            for (_, sort), value in zip(places, values, strict=False):
                if value is not None:
                    rows[int(sort)] = value
                    newest[at] = int(sort)
            last = values[-1]
            assert (None if last is None else int(last)) == newest.get(at), "a torn call"
        return rows

    async def close(self) -> None:
        await self.engine.close()


class Lmdb(EngineStore):
    scheme = "lmdb"


class Rocks(EngineStore):
    scheme = "rocksdb"


class LmdbUnsynced(Lmdb):
    """A control: it acknowledges before its data are on disk."""

    query = "?sync=off"


class RocksUnsynced(Rocks):
    query = "?sync=off"


class EventLogStore(Store):
    """The log in files, as dead letters and the history of pub/sub use it; short segments."""

    query = "?segment_bytes_max=16384"

    async def open(self) -> None:
        self.log = open_log(f"files:{self.folder}{self.query}")
        self.log.append("begin", b"", 1).result(30)

    async def write(self, number: int) -> None:
        self.log.append("number", value_of(number), number + 1).result(30)

    async def found(self) -> Mapping[int, bytes]:
        rows: dict[int, bytes] = {}
        before = -1
        with closing(self.log.reader()) as reader:
            while not reader.at_end:
                for event in reader.read(1_000, 0):
                    assert event.offset > before, "an offset twice"
                    before = event.offset
                    if event.kind == "number":
                        assert event.at_us - 1 not in rows, "an event twice"
                        rows[event.at_us - 1] = event.body
        return rows

    async def close(self) -> None:
        self.log.close(30_000_000)


class EventLogUnsynced(EventLogStore):
    query = "?sync=system"


class Blobs(Store):
    async def open(self) -> None:
        self.blobs = open_blobs(f"files:{self.folder}")
        self.blobs.put("begin", b"")

    async def write(self, number: int) -> None:
        self.blobs.put(f"{number % 5}/{number}", value_of(number), if_absent=number % 2 == 0)

    async def found(self) -> Mapping[int, bytes]:
        rows: dict[int, bytes] = {}
        for name in self.blobs.names():
            blob = self.blobs.get(name, bytes_max=1 << 20)
            if name != "begin" and blob is not None:
                rows[int(name.rpartition("/")[2])] = blob.data
        return rows


class Rules(Store):
    """Commits of a rulebook; each moves the branch."""

    author = Author("a", "a@localhost")

    async def open(self) -> None:
        path = self.folder / "rules.git"
        if path.exists():
            self.rules = Repository.open(path)
        else:
            self.folder.mkdir(exist_ok=True)
            self.rules = Repository.create(path, files={"begin": b""})

    async def write(self, number: int) -> None:
        tip = self.rules.tip("refs/heads/main")
        assert tip is not None
        commit = self.rules.write(
            {"number.yaml": value_of(number)},
            parents=[tip],
            author=self.author,
            message=f"{number}\n",
            at_us=(number + 1) * 1_000_000,
        )
        self.rules.move("refs/heads/main", commit.id, expected=tip)

    async def found(self) -> Mapping[int, bytes]:
        tip = self.rules.tip("refs/heads/main")
        assert tip is not None
        return {
            int(commit.message): self.rules.files(commit.id)["number.yaml"]
            for commit in self.rules.log(tip, count_max=NUMBERS + 1)
            if commit.message.strip().isdigit()
        }

    async def close(self) -> None:
        self.rules.close()


class Usage(Store):
    """The usage of pub/sub accounts, one account for each number."""

    async def open(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.file = UsageFile(str(self.folder))
        _, self.saved = self.file.begin(MONTH)

    async def write(self, number: int) -> None:
        count = PeriodCount(number, number, number, number)
        month = PeriodCount(MONTH, number, number, number)
        self.file.save({0: number}, [SavedUsage(str(number), count, month)])

    async def found(self) -> Mapping[int, bytes]:
        _, saved = self.file.begin(MONTH)
        assert all(one.hour == PeriodCount(*(int(one.account),) * 4) for one in saved)
        return {int(one.account): value_of(int(one.account)) for one in saved}

    async def close(self) -> None:
        self.file.close()


class Audit(Store):
    """The audit of break-glass overrides, and the page that is replaced with each line."""

    async def open(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.glass = FileGlassStore(str(self.folder / "overrides.json"), SystemClock())

    async def write(self, number: int) -> None:
        page = await self.glass.read()
        line = json.dumps([number, value_of(number).decode()]).encode()
        if not await self.glass.swap(page, line, [line], 0):
            raise OSError("somebody else was faster")

    async def found(self) -> Mapping[int, bytes]:
        rows: dict[int, bytes] = {}
        for line in await self.glass.lines(10_000):
            with suppress(ValueError):  # a torn line is passed over, as every reader does
                number, text = json.loads(line)
                rows[number] = text.encode()
        return rows


STORES: dict[str, type[Store]] = {
    "lmdb": Lmdb,
    "rocksdb": Rocks,
    "event log": EventLogStore,
    "blobs": Blobs,
    "rules": Rules,
    "usage": Usage,
    "audit": Audit,
}
CONTROLS: dict[str, type[Store]] = {
    "lmdb": LmdbUnsynced,
    "rocksdb": RocksUnsynced,
    "event log": EventLogUnsynced,
}


async def find_all(kind: type[Store], folder: Path) -> Mapping[int, bytes]:
    """Open the store again on a good disk, and return its numbers."""
    store = kind(folder)
    await store.open()
    try:
        return await store.found()
    finally:
        await store.close()


def found_in(kind: type[Store], folder: Path) -> Mapping[int, bytes]:
    return asyncio.run(find_all(kind, folder))
