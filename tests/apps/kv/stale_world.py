"""A world of readers and writers of one key, in which somebody chooses what happens next.

Under the real shield is a tiny engine that tells the instants of an operation apart: a write is
begun, durable, answered; a read is begun, done, answered. Which of them comes next, which client
asks or leaves, and whether the clock moves, is chosen: by a seed, or in turn by `every`.

Two things are held against it at each answer:

- A read that begins after a write was acknowledged is told that write, or a later one. Later is
  what became durable later.
- What is served from the cache is no older than what a writer of this node has made durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.apps.kv.shield.shield import COLD, FRESH, MISS, NEGATIVE, REFRESH, STALE, Shield
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.testing import HandClock
from tests.apps.kv.step_loop import StepLoop

SETTINGS = ShieldSettings(counters=4, saved_min=0.0, ahead_max=2)
TABLE, PARTITION, SORT = "t", b"p", b"s"
# To the age of a flight that is helped, of a refresh, of stale, of dead.
LEAPS_US = (1, 150_000, 250_000, 3_300_000, 3_600_000, 40_000_000)
CHOICES_MAX = 400

Choose = Callable[[int], int]


class Version(NamedTuple):
    """What the key has held."""

    number: int
    deleted: bool
    expires_us: int
    within: bool  # made durable while its writer was still between `writing` and `wrote`


@dataclass
class Plan:
    """Who takes part."""

    readers: int = 2
    writers: int = 1
    strong: int = 0
    each: int = 0  # that read as a multi-get does, without a flight
    uploads: int = 0
    reads: int = 1  # one after the other, by each reader
    cached: str = "fresh"  # what is kept when it begins
    leaps: int = 0
    cancels: int = 0
    faults: int = 0
    deletes: bool = False
    expiring: bool = False
    # What is left out, to see that it is missed.
    without: frozenset[str] = field(default_factory=frozenset)


class Stale(AssertionError):  # noqa: N818 - it names what was told
    """Somebody was told what was no longer true."""


class StaleWorld:
    """One run of a plan."""

    def __init__(self, plan: Plan, choose: Choose, draw: Callable[[], float]) -> None:
        self.plan = plan
        self.choose = choose
        self.clock = HandClock()
        self.loop = StepLoop(self.clock)
        self.shield: Shield[Row] = Shield(SETTINGS, _Chance(draw))
        self.versions = [Version(0, False, 0, True)]
        self.acked = 0
        self.gates: list[Callable[[], None]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.leaps, self.cancels, self.faults = plan.leaps, plan.cancels, plan.faults
        self.answers = 0
        self.from_cache = 0

    def run(self, *, by_steps: bool) -> None:
        """To its end; `by_steps` lets the world outside move between two callbacks too."""
        with self.loop:
            self._prepare()
            waiting = self._clients()
            for _ in range(CHOICES_MAX):
                if not by_steps:
                    self.loop.drain()
                moves = self._moves(waiting)
                if not moves:
                    break
                moves[self.choose(len(moves)) if len(moves) > 1 else 0]()
            else:
                raise AssertionError("it does not come to an end")
            self.loop.drain()
        self._ended()

    def _moves(self, waiting: list[Callable[[], None]]) -> list[Callable[[], None]]:
        moves: list[Callable[[], None]] = []
        if self.loop.ready:
            moves.append(self.loop.step)
        moves += [lambda i=i: self._open(i) for i in range(len(self.gates))]  # type: ignore[misc]
        moves += [lambda i=i: waiting.pop(i)() for i in range(len(waiting))]  # type: ignore[misc]
        if not moves:
            return moves
        if self.leaps:
            moves.append(self._leap)
        if self.cancels and any(not task.done() for task in self.tasks):
            moves.append(self._cancel)
        return moves

    def _open(self, index: int) -> None:
        self.gates.pop(index)()

    def _leap(self) -> None:
        self.leaps -= 1
        self.loop.advance(LEAPS_US[self.choose(len(LEAPS_US))])

    def _cancel(self) -> None:
        self.cancels -= 1
        alive = [task for task in self.tasks if not task.done()]
        alive[self.choose(len(alive))].cancel()

    def _clients(self) -> list[Callable[[], None]]:
        plan = self.plan
        works: list[Callable[[], Any]] = [
            *[lambda: self._reader(False)] * plan.readers,
            *[lambda: self._reader(True)] * plan.strong,
            *[self._reader_of_many] * plan.each,
            *[self._writer] * plan.writers,
            *[self._uploader] * plan.uploads,
        ]
        return [partial(self._start, work) for work in works]

    def _start(self, work: Callable[[], Any]) -> None:
        self.tasks.append(self.loop.create_task(work()))

    def _prepare(self) -> None:
        """What is kept in the cache, and how old it is."""
        cached = self.plan.cached
        if cached == "nothing":
            return
        if cached == "negative":
            self.versions[0] = Version(0, True, 0, True)
        key = self._key()
        self.shield.look(key, self.clock.now_us())
        fill = self.shield.begin(key, self.clock.now_us())
        self.clock.advance(ms=20)
        assert self.shield.land(fill, self._row(), self.clock.now_us())
        # By a draw of 0.5 it is refreshed ahead from 14 ms before its end, at 3.325 s.
        self.clock.advance(us={"refresh": 3_320_000, "stale": 3_400_000}.get(cached, 0))

    def _ended(self) -> None:
        for task in self.tasks:
            assert task.done()
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, SluicegateError):
                raise error
        assert not self.loop.errors, self.loop.errors
        stats = self.shield.stats()
        if not self.plan.without:
            assert (stats.writing, stats.ahead) == (0, 0)
        assert (stats.flights.flights, stats.flights.waiting) == (0, 0)

    # The engine.

    def _row(self) -> Row | None:
        last = self.versions[-1]
        if last.deleted or 0 < last.expires_us <= self.clock.now_us():
            return None
        return Row(SORT, b"%d" % last.number, last.expires_us)

    def _read(self) -> asyncio.Future[Row | None]:
        answer: asyncio.Future[Row | None] = self.loop.create_future()

        def done() -> None:
            row = self._row()
            failed = self._fault()

            def answered() -> None:
                if answer.done():
                    return
                if failed:
                    answer.set_exception(Unavailable("the engine", "it was told to fail"))
                else:
                    answer.set_result(row)

            self.gates.append(answered)

        self.gates.append(done)
        return answer

    def _write(self, pending: list[bool]) -> asyncio.Future[int]:
        """The number of the version it made; the engine goes on though nobody waits for it."""
        answer: asyncio.Future[int] = self.loop.create_future()

        def done() -> None:
            number = len(self.versions)
            deleted = self.plan.deletes and number % 2 == 1
            expires_us = self.clock.now_us() + 200_000 if self.plan.expiring else 0
            self.versions.append(Version(number, deleted, expires_us, bool(pending)))
            failed = self._fault()

            def answered() -> None:
                if answer.done():
                    return
                if failed:
                    answer.set_exception(Unavailable("the engine", "it was told to fail"))
                else:
                    answer.set_result(number)

            self.gates.append(answered)

        self.gates.append(done)
        return answer

    def _fault(self) -> bool:
        if not self.faults or self.choose(3):
            return False
        self.faults -= 1
        return True

    # The dispatcher.

    def _key(self) -> str:
        return self.shield.key(TABLE, PARTITION, SORT)

    async def _reader(self, strong: bool) -> None:
        for _ in range(self.plan.reads):
            try:
                await self._one_read(strong)
            except SluicegateError:
                self.answers += 1  # an error is no stale answer

    async def _one_read(self, strong: bool) -> None:
        floor = self.acked
        key = self._key()
        state, row = self.shield.look(key, self.clock.now_us(), strong=strong)

        async def fetch(_: Flight[Row | None]) -> Row | None:
            return await self._read()

        request = Request(key, deadline_us=self.clock.now_us() + 2_000_000)
        if state in {FRESH, NEGATIVE, REFRESH}:
            self._hold_cached(row)
            if state == REFRESH:
                self.shield.fetch_ahead(key, request, self.clock, fetch)
        elif state == COLD:
            row = self._alive(await self._read())
        else:
            assert state in {MISS, STALE}
            row = await self.shield.read(key, row, request, self.clock, fetch)
        self._hold(row, floor)

    async def _reader_of_many(self) -> None:
        floor = self.acked
        key = self._key()
        state, row = self.shield.look(key, self.clock.now_us())
        if state in {FRESH, NEGATIVE, REFRESH}:
            self._hold_cached(row)
        else:
            late = "epoch" in self.plan.without
            fill = self.shield.begin(key, self.clock.now_us())
            try:
                row = await self._read()
            except Unavailable:
                return
            if late:  # as if nobody had noted when it began
                fill = self.shield.begin(key, self.clock.now_us())
            self.shield.land(fill, row, self.clock.now_us())
            row = self._alive(row)
        self._hold(row, floor)

    def _alive(self, row: Row | None) -> Row | None:
        """What the layers below the shield do at the last moment."""
        return None if row is not None and 0 < row.expires_us <= self.clock.now_us() else row

    async def _writer(self) -> None:
        key = self._key()
        pending = [True]
        without = self.plan.without
        if "writing" not in without:
            self.shield.begin_write(key)
        try:
            number = await self._write(pending)
            if "order" in without:  # acknowledged before the shield is told
                self.acked = max(self.acked, number)
                moment = self.loop.create_future()
                self.gates.append(partial(_pass, moment))
                await moment
        finally:
            pending.clear()
            if "wrote" not in without:
                self.shield.end_write(key)
        self.acked = max(self.acked, number)

    async def _uploader(self) -> None:
        number = await self._write([])
        if "turned" not in self.plan.without:
            self.shield.replace_table(TABLE)
        self.acked = max(self.acked, number)

    # What is held against it.

    def _hold(self, row: Row | None, floor: int) -> None:
        self.answers += 1
        self._may_be(row, floor, "acknowledged before the read began")

    def _hold_cached(self, row: Row | None) -> None:
        self.from_cache += 1
        last = max(version.number for version in self.versions if version.within)
        self._may_be(row, last, "made durable before it was served from the cache")

    def _may_be(self, row: Row | None, floor: int, why: str) -> None:
        now_us = self.clock.now_us()
        if row is not None:
            if 0 < row.expires_us <= now_us:
                raise Stale(f"{row} was served past its expiry")
            if int(row.value) < floor:
                raise Stale(f"version {int(row.value)} was told; {floor} was {why}")
        elif not any(
            version.deleted or 0 < version.expires_us <= now_us for version in self.versions[floor:]
        ):
            raise Stale(f"nothing was told; version {floor} was {why}")


def _pass(moment: asyncio.Future[None]) -> None:
    if not moment.done():
        moment.set_result(None)


class _Chance:
    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw


def by_chance(seed: int, without: frozenset[str] = frozenset()) -> StaleWorld:
    """One run, chosen by a seed: who takes part, and all that happens.

    The power leans towards what could have happened for long, or towards what is new, so that some
    operations take as long as all others together.
    """
    rng = random.Random(seed)
    pick = rng.random
    power = rng.choice((0.3, 1.0, 3.0))
    plan = Plan(
        readers=rng.randrange(1, 4),
        writers=rng.randrange(1, 4),
        strong=pick() < 0.2,
        each=pick() < 0.4,
        uploads=pick() < 0.15,
        reads=rng.randrange(1, 3),
        cached=rng.choice(("fresh", "refresh", "stale", "negative", "nothing")),
        leaps=rng.randrange(4) if pick() < 0.5 else 0,
        cancels=rng.randrange(1, 3) if pick() < 0.4 else 0,
        faults=rng.randrange(1, 3) if pick() < 0.3 else 0,
        deletes=pick() < 0.3,
        expiring=pick() < 0.2,
        without=without,
    )
    return run(plan, lambda n: int(pick() ** power * n), draw=pick, by_steps=pick() < 0.7)


def run(
    plan: Plan, choose: Choose, *, draw: Callable[[], float] = lambda: 0.5, by_steps: bool = False
) -> StaleWorld:
    world = StaleWorld(plan, choose, draw)
    world.run(by_steps=by_steps)
    return world


class _Walk:
    """The choices of one run: the first as given, and 0 from there on."""

    def __init__(self, prefix: list[int]) -> None:
        self.prefix = prefix
        self.taken: list[tuple[int, int]] = []

    def choose(self, n: int) -> int:
        at = len(self.taken)
        chosen = self.prefix[at] if at < len(self.prefix) else 0
        self.taken.append((chosen, n))
        return chosen

    def next(self) -> _Walk | None:
        """The walk that goes another way at the last place where there is one."""
        taken = self.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return None
        prefix = [chosen for chosen, _ in taken]
        prefix[-1] += 1
        return _Walk(prefix)


def every(plan: Plan, *, by_steps: bool = False) -> Iterator[StaleWorld]:
    """All runs of a plan: each sequence of choices once."""
    walk: _Walk | None = _Walk([])
    while walk is not None:
        yield run(plan, walk.choose, by_steps=by_steps)
        walk = walk.next()
