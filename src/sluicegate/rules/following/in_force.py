"""In force: what a node runs, how that changes in one step, and how it outlives the process.

It is given the rollout to run; the caller decides whether it is to be followed. All releases that
it names are obtained and built first, beside what runs. Then the books are handed over,
and only when that has gone well is anything else changed: in memory, and after that on the disk.
One thread uses it; what it tells of itself may be read by any.

Swap: books go to whoever puts them in force, in the thread where that must happen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from threading import Event
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.rulebook import Rollout
from sluicegate.rules.following.failures import DISK, REFUSED, RULES, FailureRecord
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.held_releases import (
    DELTA,
    WHOLE,
    HeldRelease,
    obtain,
    rebase,
    restore,
    without_data,
)
from sluicegate.rules.following.last_good import LastGood
from sluicegate.rules.following.target import RolloutTarget, choose, is_older, is_older_after
from sluicegate.rules.releases.signatures import SignedRollout, open_rollout
from sluicegate.rules.releases.store import ReleaseStore

MISSED_MAX: Final = 1_000  # rollouts that were missed and are looked at

_log: Final = logging.getLogger("sluicegate.rules")


class InForce(NamedTuple):
    """What is in force: by which rollouts, since when, and how long it took to be so."""

    books: FleetBooks
    rollout: Rollout
    made_us: int  # of the live release
    since_us: int
    took_us: int


@final
class RulesInForce:
    """The rules in force, the releases they are of, and the same on the disk."""

    def __init__(
        self,
        store: ReleaseStore,
        swap: Swap,
        record: FailureRecord,
        clock: Clock,
        *,
        node: str,
        last_good: LastGood | None,
    ) -> None:
        self._store = store
        self._swap = swap
        self._record = record
        self._clock = clock
        self._node = node
        self._last_good = last_good
        self._releases: dict[int, HeldRelease] = {}
        self._to_save = b""
        self.now: InForce | None = None
        self.pending_rollout: SignedRollout | None = None  # not all of it was saved for this node
        self.ways = {WHOLE: 0, DELTA: 0}

    def run(self, signed_rollout: SignedRollout, *, announced_us: int) -> None:
        """Run what this rollout says; whatever is raised, what ran before runs on."""
        target = choose(signed_rollout.rollout, self._node)
        releases = self._obtain(target)
        books = _books(target, releases)
        before = self.now
        made_us = releases[target.version].release.made_us
        if before is not None and books.same_as(before.books):
            now = before._replace(rollout=signed_rollout.rollout, made_us=made_us)
        else:
            self._swap.put_in_force(books)
            since_us = self._clock.now_us()
            took_us = max(0, since_us - announced_us)
            now = InForce(books, signed_rollout.rollout, made_us, since_us, took_us)
            _log.info(
                "the rules of rollout %d are in force: %r", signed_rollout.rollout.number, books
            )
        self.now, self._releases = now, releases
        self._to_save = signed_rollout.signed
        self.save()

    def goes_back(self, rollout: Rollout) -> bool:
        """Whether a rollout leads to older rules, and no rollout since says `back`."""
        current = None if self.now is None else self.now.rollout
        if current is None or not is_older(rollout, current):
            return False
        first = max(current.number + 1, rollout.number - MISSED_MAX)
        missed = [self._store.rollout_at(number) for number in range(first, rollout.number)]
        return is_older_after(rollout, current, [one.rollout for one in missed if one is not None])

    # The disk.

    def restore(self) -> int:
        """Put in force what is kept; the highest number of rollouts that was ever seen, or 0.

        What is wrong with what is kept is noted, and raised only by whoever takes the books.
        """
        if self._last_good is None:
            return 0
        highest = 0
        try:
            signed = self._last_good.rollout()
            if signed is None:
                return 0
            signed_rollout = open_rollout(signed, self._store.verifier)
            highest = signed_rollout.rollout.number
            state = self._last_good.load()
            if state is None:
                return highest
            signed_rollout = open_rollout(state.rollout, self._store.verifier)
            releases: dict[int, HeldRelease] = {}
            for chain in state.chains:
                one = restore(self._store, chain)
                releases[one.release.version] = one
        except Exception as error:
            self._record.add(DISK, error)
            _log.warning("what is kept of the rules cannot be used: %s", error)
            return highest
        target = choose(signed_rollout.rollout, self._node)
        if not all(version in releases for version in target.versions):
            target = RolloutTarget(next(iter(releases)))  # a node of another name ran this
            self.pending_rollout = signed_rollout
        books = _books(target, releases)
        self._swap.put_in_force(books)
        made_us = releases[target.version].release.made_us
        self.now = InForce(books, signed_rollout.rollout, made_us, self._clock.now_us(), 0)
        self._releases = releases
        return highest

    def pending(self) -> SignedRollout | None:
        """The newer rollout that was seen before the end and could not be followed."""
        if self._last_good is None:
            return None
        try:
            data = self._last_good.pending()
            return None if data is None else open_rollout(data, self._store.verifier)
        except SluicegateError as error:
            self._record.add(DISK, error)
            return None

    def save(self) -> None:
        """Keep what is in force on the disk, if that is not done yet."""
        signed, releases, last_good = self._to_save, self._releases, self._last_good
        if not signed:
            return
        if last_good is not None:
            try:
                releases = {
                    version: rebase(self._store, releases[version], last_good)
                    for version in releases
                }
                self._releases = releases  # what was fetched for it is not fetched again
                last_good.save(signed, [one.chain for one in releases.values()])
            except SluicegateError as error:
                if self._record.add(DISK, error):
                    _log.warning("the rules in force could not be kept: %s", error)
                return
            self._record.clear(DISK)
        self._to_save = b""
        self._releases = {
            version: one._replace(chain=without_data(one.chain))
            for version, one in releases.items()
        }

    def save_pending(self, signed: bytes) -> None:
        """Save a rollout that was seen, so that an older one is not followed after a restart."""
        if self._last_good is None:
            return
        try:
            self._last_good.save_pending(signed)
        except SluicegateError as error:
            self._record.add(DISK, error)

    def close(self) -> None:
        """Let another process keep what it runs."""
        if self._last_good is not None:
            self._last_good.close()

    # Inside.

    def _obtain(self, target: RolloutTarget) -> dict[int, HeldRelease]:
        releases: dict[int, HeldRelease] = {}
        for version in target.versions:
            one = self._releases.get(version)
            if one is None:
                obtained = obtain(
                    self._store, version, [*self._releases.values(), *releases.values()]
                )
                one = obtained.held
                if obtained.passed_over and self._record.count(RULES, REFUSED):
                    _log.warning("a delta is passed over: %s", obtained.passed_over)
                if obtained.way in self.ways:
                    self.ways[obtained.way] += 1
            releases[version] = one
        return releases


def _books(target: RolloutTarget, releases: Mapping[int, HeldRelease]) -> FleetBooks:
    live = releases[target.version].book
    if not target.canary:
        return FleetBooks(live, target.version)
    canary = releases[target.canary].book
    return FleetBooks(live, target.version, canary, target.canary, target.share, target.salt)


LOOK_S: Final = 0.1
LOOKS_MAX: Final = 600  # an event loop that needs a minute to take books is stuck

PutInForce = Callable[[FleetBooks], None]


@final
class Swap:
    """Calls `put` in the loop's thread; without a loop, or before the start, in that which asks."""

    __slots__ = ("_closed", "_loop", "_put", "started")

    def __init__(
        self, put: PutInForce, loop: asyncio.AbstractEventLoop | None, closed: Event
    ) -> None:
        self._put = put
        self._loop = loop
        self._closed = closed
        self.started = False  # until then, who asks is whoever starts, in the loop's own thread

    def put_in_force(self, books: FleetBooks) -> None:
        """Put them in force where that must happen; what is raised there is raised here."""
        loop = self._loop
        if loop is None or not self.started:
            self._put(books)
            return
        done = Event()
        failed: list[Exception] = []

        def put() -> None:
            try:
                self._put(books)
            except Exception as error:
                failed.append(error)
            finally:
                done.set()

        try:
            loop.call_soon_threadsafe(put)
        except RuntimeError as error:
            raise Unavailable("the event loop", str(error)) from None
        for _ in range(LOOKS_MAX):
            if done.wait(LOOK_S):
                break
            if self._closed.is_set():
                # Whoever closes may be what the loop is busy with.
                raise Unavailable("the event loop", "it has not taken the rules before the end")
        else:
            raise Unavailable("the event loop", "it has not taken the new rules")
        if failed:
            raise failed[0]
