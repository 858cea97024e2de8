"""Running: what a node runs, how that changes in one step, and how it outlives the process.

It is told which orders to run; whether they are to be followed is decided by whoever tells. All
editions they name are obtained and built first, beside what runs. Then the books are handed over,
and only when that has gone well is anything else changed: in memory, and after that on the disk.
One thread uses it; what it tells of itself may be read by any.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.rulebook import Orders
from sluicegate.rules.editions.shelf import Shelf
from sluicegate.rules.editions.signed import SignedOrders, open_orders
from sluicegate.rules.following.choosing import Target, choose, goes_back, goes_back_after
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.handing import Handing
from sluicegate.rules.following.holding import (
    DELTA,
    WHOLE,
    Held,
    obtain,
    rebase,
    restore,
    without_data,
)
from sluicegate.rules.following.last_good import LastGood
from sluicegate.rules.following.record import DISK, REFUSED, RULES, Record

MISSED_MAX: Final = 1_000  # orders that were missed and are looked at

_log: Final = logging.getLogger("sluicegate.rules")


class Now(NamedTuple):
    """What is in force: by which orders, since when, and how long it took to be so."""

    books: FleetBooks
    orders: Orders
    made_us: int  # of the live edition
    since_us: int
    took_us: int


@final
class Running:
    """The rules in force, the editions they are of, and the same on the disk."""

    __slots__ = (
        "_clock",
        "_handing",
        "_held",
        "_last_good",
        "_node",
        "_record",
        "_shelf",
        "_unsaved",
        "behind",
        "now",
        "ways",
    )

    def __init__(
        self,
        shelf: Shelf,
        handing: Handing,
        record: Record,
        clock: Clock,
        *,
        node: str,
        last_good: LastGood | None,
    ) -> None:
        self._shelf = shelf
        self._handing = handing
        self._record = record
        self._clock = clock
        self._node = node
        self._last_good = last_good
        self._held: dict[int, Held] = {}
        self._unsaved = b""
        self.now: Now | None = None
        self.behind: SignedOrders | None = None  # orders of which not all was kept for this node
        self.ways = {WHOLE: 0, DELTA: 0}

    def run(self, given: SignedOrders, *, announced_us: int) -> None:
        """Run what these orders say; whatever is raised, what ran before runs on."""
        target = choose(given.orders, self._node)
        held = self._obtain(target)
        books = _books(target, held)
        before = self.now
        made_us = held[target.version].edition.made_us
        if before is not None and books.same_as(before.books):
            now = before._replace(orders=given.orders, made_us=made_us)
        else:
            self._handing.over(books)
            since_us = self._clock.now_us()
            took_us = max(0, since_us - announced_us)
            now = Now(books, given.orders, made_us, since_us, took_us)
            _log.info("the rules of orders %d are in force: %r", given.orders.number, books)
        self.now, self._held = now, held
        self._unsaved = given.signed
        self.keep()

    def leads_back(self, orders: Orders) -> bool:
        """Whether orders lead to older rules, and neither they nor any that were missed mean it."""
        taken = None if self.now is None else self.now.orders
        if taken is None or not goes_back(orders, taken):
            return False
        first = max(taken.number + 1, orders.number - MISSED_MAX)
        missed = [self._shelf.orders_of(number) for number in range(first, orders.number)]
        return goes_back_after(orders, taken, [one.orders for one in missed if one is not None])

    # The disk.

    def restore(self) -> int:
        """Put in force what is kept; the highest number of orders that was ever seen, or 0.

        What is wrong with what is kept is noted, and raised only by whoever takes the books.
        """
        if self._last_good is None:
            return 0
        seen = 0
        try:
            signed = self._last_good.orders()
            if signed is None:
                return 0
            given = open_orders(signed, self._shelf.verifier)
            seen = given.orders.number
            kept = self._last_good.load()
            if kept is None:
                return seen
            given = open_orders(kept.orders, self._shelf.verifier)
            held: dict[int, Held] = {}
            for chain in kept.chains:
                one = restore(self._shelf, chain)
                held[one.edition.version] = one
        except Exception as error:
            self._record.failed(DISK, error)
            _log.warning("what is kept of the rules cannot be used: %s", error)
            return seen
        target = choose(given.orders, self._node)
        if not all(version in held for version in target.versions):
            target = Target(next(iter(held)))  # a node of another name ran this
            self.behind = given
        books = _books(target, held)
        self._handing.over(books)
        made_us = held[target.version].edition.made_us
        self.now = Now(books, given.orders, made_us, self._clock.now_us(), 0)
        self._held = held
        return seen

    def wanted(self) -> SignedOrders | None:
        """The newer orders that were seen before the end and could not be followed."""
        if self._last_good is None:
            return None
        try:
            data = self._last_good.wanted()
            return None if data is None else open_orders(data, self._shelf.verifier)
        except SluicegateError as error:
            self._record.failed(DISK, error)
            return None

    def keep(self) -> None:
        """Keep what is in force on the disk, if that is not done yet."""
        signed, held, last_good = self._unsaved, self._held, self._last_good
        if not signed:
            return
        if last_good is not None:
            try:
                held = {version: rebase(self._shelf, held[version], last_good) for version in held}
                self._held = held  # what was fetched for it is not fetched again
                last_good.save(signed, [one.chain for one in held.values()])
            except SluicegateError as error:
                if self._record.failed(DISK, error):
                    _log.warning("the rules in force could not be kept: %s", error)
                return
            self._record.well(DISK)
        self._unsaved = b""
        self._held = {
            version: one._replace(chain=without_data(one.chain)) for version, one in held.items()
        }

    def remember(self, signed: bytes) -> None:
        """Keep orders that were seen, so that older ones are not followed after a restart."""
        if self._last_good is None:
            return
        try:
            self._last_good.want(signed)
        except SluicegateError as error:
            self._record.failed(DISK, error)

    def close(self) -> None:
        """Let another process keep what it runs."""
        if self._last_good is not None:
            self._last_good.close()

    # Inside.

    def _obtain(self, target: Target) -> dict[int, Held]:
        held: dict[int, Held] = {}
        for version in target.versions:
            one = self._held.get(version)
            if one is None:
                obtained = obtain(self._shelf, version, [*self._held.values(), *held.values()])
                one = obtained.held
                if obtained.passed_over and self._record.passed(RULES, REFUSED):
                    _log.warning("a delta is passed over: %s", obtained.passed_over)
                if obtained.way in self.ways:
                    self.ways[obtained.way] += 1
            held[version] = one
        return held


def _books(target: Target, held: Mapping[int, Held]) -> FleetBooks:
    live = held[target.version].book
    if not target.canary:
        return FleetBooks(live, target.version)
    tried = held[target.canary].book
    return FleetBooks(live, target.version, tried, target.canary, target.share, target.salt)
