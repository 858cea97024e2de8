"""Ten processes on one store, stepped by hand: writers, readers and collectors of the real code.

Each call of the engine or the blob store is a step. Between two steps any other process may run,
for as long as the seed says, or the process is killed. Then a put or a delete that was on its way
may still arrive, at any time. Each process has a separate clock, which jumps.

The law: an entry whose writer has returned refers to a content whose blob is there, as long as the
entry is there. It is checked after each step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import lru_cache
from hashlib import sha256
from types import coroutine
from typing import Any, TypeVar

from sluicegate.apps.images.collect import Collector
from sluicegate.apps.images.contents import Content, Contents, blob_name, is_referable
from sluicegate.apps.images.maps import CONTENTS, URLS, ImageMaps, url_place
from sluicegate.apps.images.records import ContentRecord, UrlRecord, decode, encode
from sluicegate.contracts.blob_store import Blob
from sluicegate.contracts.engine import Change, Entry, Place
from sluicegate.contracts.errors import Conflict, SluicegateError
from sluicegate.testing import HandClock

GRACE_S = 60.0
STEPS = 400
KILL = 0.01
BODIES = [b"body %d" % number for number in range(3)]
NAMES = [f"http://example.com/{number}" for number in range(4)]
ROLES = ("write",) * 5 + ("read",) * 2 + ("collect",) * 3
PLACES = {name: url_place(name) for name in NAMES}
PREFIXES = sorted({sha256(body).hexdigest()[:2] + "/" for body in BODIES})

T = TypeVar("T")
Process = Coroutine[Any, Any, None]


@lru_cache(1_000)
def _url(raw: bytes) -> UrlRecord:
    return decode(UrlRecord, raw)


@lru_cache(1_000)
def _content(raw: bytes) -> ContentRecord:
    return decode(ContentRecord, raw)


class LostError(AssertionError):
    """The law is broken."""


@coroutine
def step() -> Generator[None, None, None]:
    """Let another process run, or this one be killed."""
    yield


class World:
    """The stores, the processes and the acknowledged entries."""

    def __init__(
        self, seed: int, *, swaps: bool = True, reuses: bool = False, checks: bool = True
    ) -> None:
        """Three controls: collectors without `swaps`, writers without `checks`, `reuses`.

        With the last one, all generations have the same number.
        """
        self.chance = random.Random(seed)
        self.swaps = swaps
        self.reuses = reuses
        self.checks = checks
        self.rows: dict[str, dict[Place, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.late: list[Callable[[], object]] = []  # calls on their way, whose process was killed
        self.acknowledged: dict[str, bytes] = {}  # the entry that a writer has returned for
        self.changed = False
        self.removed = 0
        self.served = 0

    def check(self) -> None:
        """Raise `LostError` where an acknowledged entry has no blob."""
        if not self.changed:
            return
        self.changed = False
        urls, contents = self.rows.get(URLS, {}), self.rows.get(CONTENTS, {})
        for name, entry in self.acknowledged.items():
            if urls.get(PLACES[name]) != entry:
                continue  # another one replaced it
            digest = _url(entry).content
            raw = contents.get((bytes.fromhex(digest), b""))
            record = None if raw is None else _content(raw)
            if record is None or not is_referable(record):
                raise LostError(f"{name}: the content is {record}")
            if blob_name(digest, record.generation) not in self.blobs:
                raise LostError(f"{name}: the blob of {record} is deleted")

    def play(self) -> None:
        """Step the processes in an order of the seed's, and kill some at any step."""
        processes = [self._start(role) for role in ROLES]
        try:
            for _ in range(STEPS):
                self._turn(processes)
        finally:
            for process in processes:
                process.close()
        while self.late:
            self.late.pop()()
        self.changed = True
        self.check()

    def _turn(self, processes: list[Process]) -> None:
        """One process runs, often for many steps while all others pause."""
        chance = self.chance
        at = chance.randrange(len(processes))
        for _ in range(chance.choice((1, 1, 2, 5, 60))):
            if chance.random() < KILL:
                processes[at].close()
                processes[at] = self._start(ROLES[at])
            elif not self._step(processes[at]):
                processes[at] = self._start(ROLES[at])
            if self.late and chance.random() < 0.05:
                self.late.pop(chance.randrange(len(self.late)))()
                self.changed = True
            self.check()

    def leftovers(self) -> set[str]:
        """Blobs that quiet collections leave although no content names them."""
        clock = HandClock(10**18)
        maps = ImageMaps(self._engine())
        contents = self._contents(maps, clock)
        self._finish(contents.store(BODIES[0]))  # beside no content, blobs are left alone
        for _ in range(5):
            clock.advance(s=2 * GRACE_S)
            self._finish(_collector(maps, contents, clock).collect())
            self.check()
            self._finish(contents.store(BODIES[0]))
        rows = self.rows[CONTENTS].items()
        records = [(place[0].hex(), decode(ContentRecord, raw)) for place, raw in rows]
        return set(self.blobs) - {blob_name(one, record.generation) for one, record in records}

    def _finish(self, work: Coroutine[Any, Any, object]) -> None:
        while self._step(work):
            pass

    def _step(self, process: Coroutine[Any, Any, object]) -> bool:
        """One step; whether there is another."""
        try:
            process.send(None)
        except StopIteration:
            return False
        return True

    def _start(self, role: str) -> Process:
        clock = HandClock(10**15 + self.chance.randrange(600) * 1_000_000)
        maps = ImageMaps(self._engine(blind=role == "collect" and not self.swaps))
        if self.reuses:
            maps.new_generation = _first_generation  # type: ignore[method-assign]
        contents = self._contents(maps, clock)
        if role == "collect":
            return self._collect(maps, contents, clock)
        if role == "read":
            return self._read(maps, contents)
        return self._write(maps, contents, clock)

    def _engine(self, *, blind: bool = False) -> Any:
        return Engine(self, blind=blind)

    def _contents(self, maps: ImageMaps, clock: HandClock) -> Contents:
        return Contents(Blobs(self.blobs), maps, clock, run=self._call)

    async def _call(self, work: Callable[[], T]) -> T:
        """A call of the blob store; that of a killed process may still arrive."""
        try:
            await step()
        except GeneratorExit:
            if self.chance.random() < 0.5:
                self.late.append(work)
            raise
        result = work()
        self.changed = True
        await step()
        return result

    async def _write(self, maps: ImageMaps, contents: Contents, clock: HandClock) -> None:
        chance = self.chance
        while True:
            clock.advance(s=chance.choice((0, 1, 2 * GRACE_S)))
            name, body = chance.choice(NAMES), chance.choice(BODIES)
            if chance.random() < 0.4:  # the entry goes
                await maps.engine.write([Change(URLS, *PLACES[name], None)])
                continue
            tag = f"{chance.getrandbits(60)}"

            async def put(content: Content) -> None:
                await maps.put_url(UrlRecord(name, content.digest, etag=tag))  # noqa: B023

            again = chance.random() < 0.1
            if self.checks:
                content = await contents.refer(body, put, again=again)
            else:
                content = await contents.store(body, again=again)
                await put(content)
            self.acknowledged[name] = encode(UrlRecord(name, content.digest, etag=tag))

    async def _read(self, maps: ImageMaps, contents: Contents) -> None:
        while True:
            await step()
            name = self.chance.choice(NAMES)
            before = self.rows.get(URLS, {}).get(PLACES[name])
            if before is None or self.acknowledged.get(name) != before:
                continue
            data = await contents.original(_url(before).content)
            if self.rows[URLS].get(PLACES[name]) == before and data is None:
                raise LostError(f"{name}: a reader found nothing")
            self.served += 1

    async def _collect(self, maps: ImageMaps, contents: Contents, clock: HandClock) -> None:
        while True:
            clock.advance(s=self.chance.choice((1, GRACE_S, 10 * GRACE_S)))
            try:
                found = await _collector(maps, contents, clock).collect()
                self.removed += found.removed
            except SluicegateError:  # another one collects
                await step()


def _collector(maps: ImageMaps, contents: Contents, clock: HandClock) -> Collector:
    collector = Collector(
        maps, contents, clock, engine="", fresh_s=0, grace_s=GRACE_S, keep_s=0, marks_bytes_max=512
    )
    collector.prefixes = PREFIXES
    return collector


async def _first_generation() -> int:
    return 0


class Blobs:
    """A blob store of a dictionary."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self._blobs = blobs

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        data = self._blobs.get(name)
        return None if data is None else Blob(data, "")

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        if if_absent and name in self._blobs:
            raise Conflict(name, "it is there")
        self._blobs[name] = data
        return ""

    def names(self, prefix: str = "", *, names_max: int = 0) -> list[str]:
        return sorted(name for name in self._blobs if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self._blobs.pop(name, None)

    def close(self) -> None:
        pass


class Engine:
    """An engine of dictionaries; `blind` swaps whatever is there."""

    name, durability, shared = "memory", "nothing", True

    def __init__(self, world: World, *, blind: bool = False) -> None:
        self._world = world
        self._blind = blind

    async def read(self, space: str, places: Sequence[Place]) -> list[bytes | None]:
        await step()
        rows = self._world.rows.setdefault(space, {})
        return [rows.get(place) for place in places]

    async def write(self, changes: Sequence[Change]) -> None:
        await step()
        for change in changes:
            self._put(change)
        await step()

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        await step()
        rows = self._world.rows.setdefault(change.space, {})
        blind = self._blind and change.space == CONTENTS
        done = blind or rows.get((change.partition, change.sort)) == expected
        if done:
            self._put(change)
        await step()
        return done

    async def walk(self, space: str, after: Place | None, rows_max: int) -> list[Entry]:
        await step()
        rows = sorted(self._world.rows.setdefault(space, {}).items())
        behind = [(*place, value) for place, value in rows if after is None or place > after]
        await step()
        return behind[:rows_max]

    def _put(self, change: Change) -> None:
        self._world.changed = True
        rows = self._world.rows.setdefault(change.space, {})
        if change.value is None:
            rows.pop((change.partition, change.sort), None)
        else:
            rows[change.partition, change.sort] = change.value
