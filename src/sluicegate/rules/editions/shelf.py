"""Shelf: everything a fleet needs, in a blob store, and nothing that was not verified.

    snapshots/<digest>     a whole edition's rules, packed
    deltas/<digest>        what leads from the rules of an earlier edition to them
    editions/<version>.json
    orders/<number>.json   written once: that is what makes a number one publisher's
    orders/current.json    the newest of them
    nodes/<node>.json      what nodes report of themselves

A publisher puts snapshot, deltas, edition and orders, in this order, and may repeat each after a
crash. A node reads them in the other direction. Every answer has been verified: the signature, the
size and the digest of the bytes, and the digest of what the rules say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, final

from sluicegate.contracts.blob_store import Blob, BlobStore
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError, Unavailable
from sluicegate.contracts.rulebook import Edition, NodeReport, Orders, Part
from sluicegate.rules.editions.documents import REPORT_BYTES_MAX, report_bytes
from sluicegate.rules.editions.layout import (
    CURRENT,
    DELTAS,
    EDITIONS,
    NODES,
    ORDERS,
    SNAPSHOTS,
    edition_name,
    node_name,
    numbers,
    orders_name,
    within,
)
from sluicegate.rules.editions.signed import (
    SignedEdition,
    SignedOrders,
    open_edition,
    open_orders,
)
from sluicegate.rules.editions.signing import ENVELOPE_BYTES_MAX, Untrusted, Verifier
from sluicegate.rules.editions.sweeping import Swept, needed, ordered, sweep
from sluicegate.rules.snapshot.delta import apply_delta
from sluicegate.rules.snapshot.packing import unpack
from sluicegate.rules.snapshot.snapshot import Snapshot

KEEP_DEFAULT: Final = 50
GRACE_US_DEFAULT: Final = 3_600_000_000
TRIES_MAX: Final = 5  # to move the current orders, while others move them too


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfBounds:
    """How large things may be; what is larger is refused unread, with the bound to raise."""

    snapshot_bytes_max: int = 512 << 20
    delta_bytes_max: int = 64 << 20
    unpacked_bytes_max: int = 2 << 30
    names_max: int = 1_000_000  # editions, parts or nodes that are listed

    def __post_init__(self) -> None:
        for name in ("snapshot_bytes_max", "delta_bytes_max", "unpacked_bytes_max", "names_max"):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 40:
                raise BadValue(f"shelf.{name}", value, "give from 1 to 2^40")


class Fetched(NamedTuple):
    """A snapshot, and what was fetched for it.

    `before` is the content that the fetched delta led from, empty if the whole was fetched; `data`
    is empty if nothing was needed. `passed_over` says why a delta that there was did not do.
    """

    snapshot: Snapshot
    part: Part | None
    data: bytes
    before: str
    passed_over: str


@final
class Shelf:
    """The editions and orders in a blob store, for publishers and for nodes."""

    __slots__ = ("blobs", "bounds", "verifier")

    def __init__(
        self, blobs: BlobStore, verifier: Verifier, *, bounds: ShelfBounds | None = None
    ) -> None:
        self.blobs: Final = blobs
        self.verifier: Final = verifier
        self.bounds: Final = ShelfBounds() if bounds is None else bounds

    # For the publisher.

    def put_snapshot(self, data: bytes) -> Part:
        """Keep a packed snapshot under its digest."""
        return self._put_part(SNAPSHOTS, data, "snapshot", self.bounds.snapshot_bytes_max)

    def put_delta(self, data: bytes) -> Part:
        """Keep a delta under its digest."""
        return self._put_part(DELTAS, data, "delta", self.bounds.delta_bytes_max)

    def put_edition(self, signed: bytes) -> Edition:
        """Keep a signed edition; `Conflict` if another one has its version."""
        edition = open_edition(signed, self.verifier).edition
        try:
            self.blobs.put(edition_name(edition.version), signed, if_absent=True)
        except Conflict:
            there = self.edition(edition.version)
            if there is None or there.edition != edition:
                raise Conflict(f"edition {edition.version}", "another edition has it") from None
        return edition

    def put_orders(self, signed: bytes) -> Orders:
        """Give orders; `Conflict` if others have their number, or newer ones are given.

        What a crash has left half done is completed by doing it again.
        """
        orders = open_orders(signed, self.verifier).orders
        current, tag = self._current()
        if current is not None and current.number >= orders.number:
            return self._given_before(orders, current)
        self._all_there(orders)
        try:
            self.blobs.put(orders_name(orders.number), signed, if_absent=True)
        except Conflict:
            self._same_number(orders)
        for _ in range(TRIES_MAX):
            try:
                self.blobs.put(CURRENT, signed, if_absent=tag is None, if_tag=tag)
            except Conflict:
                current, tag = self._current()
                if current is not None and current.number >= orders.number:
                    return self._given_before(orders, current)
            else:
                return orders
        raise Conflict("the orders", f"others move them all the time ({TRIES_MAX} tries)")

    def sweep(
        self,
        keep: int = KEEP_DEFAULT,
        *,
        now_us: int,
        grace_us: int = GRACE_US_DEFAULT,
    ) -> Swept:
        """Delete snapshots and deltas that nobody needs: no edition of the last `keep`, no orders.

        A part goes when it has been found so for `grace_us`, so that what is just being published
        stays. Editions and orders themselves stay: they are the history, and small.
        """
        if keep < 1:
            raise BadValue("sweep.keep", keep, "give 1 or more editions")
        parts = [*self._names(SNAPSHOTS), *self._names(DELTAS)]
        current, _ = self._current()
        known = [] if current is None else [current]
        at = 0 if current is None else current.number
        # Orders above the current ones are just being given.
        for number in [one for one in numbers(self._names(ORDERS), ORDERS) if one > at]:
            found = self.orders_of(number)
            known += [] if found is None else [found.orders]
        wanted = {*self.versions()[-keep:], *ordered(known)}
        editions = [self.edition(version) for version in sorted(wanted)]
        kept = needed(one.edition for one in editions if one is not None)
        return sweep(self.blobs, parts, kept, now_us=now_us, grace_us=grace_us)

    # For nodes, and whoever wants to know.

    def orders(self) -> SignedOrders | None:
        """The newest orders; None if none were ever given."""
        blob = self.blobs.get(CURRENT, bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_orders(blob.data, self.verifier)

    def orders_of(self, number: int) -> SignedOrders | None:
        """The orders of this number."""
        blob = self.blobs.get(orders_name(number), bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_orders(blob.data, self.verifier, number=number)

    def edition(self, version: int) -> SignedEdition | None:
        """The edition of this version."""
        blob = self.blobs.get(edition_name(version), bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_edition(blob.data, self.verifier, version=version)

    def versions(self) -> list[int]:
        """The versions of all editions, the oldest first."""
        return numbers(self._names(EDITIONS), EDITIONS)

    def snapshot(self, edition: Edition, have: Sequence[Snapshot] = ()) -> Fetched:
        """The rules of an edition: from those there are by a delta, or whole.

        A delta that is missing or damaged costs nothing but the way round it.
        """
        passed_over = ""
        for one in have:
            if one.content == edition.content:
                return Fetched(one, None, b"", one.content, "")
        for one in have:
            delta = edition.deltas.get(one.content)
            if delta is None:
                continue
            try:
                data = self._part(DELTAS, delta, "delta", self.bounds.delta_bytes_max)
                return Fetched(self.after_delta(edition, one, data), delta, data, one.content, "")
            except Unavailable:
                raise
            except SluicegateError as error:
                passed_over = str(error)
        data = self.snapshot_data(edition)
        return Fetched(self.unpacked(edition, data), edition.snapshot, data, "", passed_over)

    def snapshot_data(self, edition: Edition) -> bytes:
        """The bytes of an edition's snapshot, verified."""
        bytes_max = self.bounds.snapshot_bytes_max
        return self._part(SNAPSHOTS, edition.snapshot, "snapshot", bytes_max)

    def unpacked(self, edition: Edition, data: bytes) -> Snapshot:
        """The rules of an edition from the bytes of its snapshot, verified."""
        check_part(edition.snapshot, data, f"the snapshot of edition {edition.version}")
        bytes_max = self._unpacked_max(edition)
        return _says(edition, unpack(data, bytes_max=bytes_max))

    def after_delta(self, edition: Edition, before: Snapshot, data: bytes) -> Snapshot:
        """The rules of an edition from those before and the bytes of a delta, verified."""
        what = f"the delta to edition {edition.version}"
        part = edition.deltas.get(before.content)
        if part is None:
            raise Untrusted(what, "the edition knows no delta from these rules")
        check_part(part, data, what)
        return _says(edition, apply_delta(before, data, bytes_max=self._unpacked_max(edition)))

    def put_report(self, report: NodeReport) -> None:
        """Say what a node runs, in place of what it said before."""
        self.blobs.put(node_name(report.node), report_bytes(report))

    def report_blob(self, node: str) -> Blob | None:
        """What a node said last, as it is."""
        return self.blobs.get(node_name(node), bytes_max=REPORT_BYTES_MAX)

    def nodes(self) -> list[str]:
        """The names of all nodes that have ever reported and were not forgotten."""
        return within(self._names(NODES), NODES)

    def forget_node(self, node: str) -> None:
        """Take the report of a node that is gone for good out."""
        self.blobs.delete(node_name(node))

    # Inside.

    def _names(self, prefix: str) -> Sequence[str]:
        return self.blobs.names(prefix, names_max=self.bounds.names_max)

    def _put_part(self, where: str, data: bytes, what: str, bytes_max: int) -> Part:
        if not 1 <= len(data) <= bytes_max:
            remedy = f"give from 1 to {bytes_max:,} bytes ({what}_bytes_max)"
            raise BadValue(what, f"{len(data):,} bytes", remedy)
        part = Part(sha256(data).hexdigest(), len(data))
        name = where + part.digest
        try:
            self.blobs.put(name, data, if_absent=True)
        except Conflict:
            # It should be the same. What a disk has spoilt since is put right.
            if not self._intact(name, part):
                self.blobs.put(name, data)
        return part

    def _intact(self, name: str, part: Part) -> bool:
        try:
            blob = self.blobs.get(name, bytes_max=part.bytes)
        except BadValue:
            return False
        return blob is not None and sha256(blob.data).hexdigest() == part.digest

    def _part(self, where: str, part: Part, what: str, bytes_max: int) -> bytes:
        if part.bytes > bytes_max:
            remedy = f"raise {what}_bytes_max ({bytes_max:,}) if it is meant to be so large"
            raise BadValue(f"{what}.bytes", part.bytes, remedy)
        try:
            blob = self.blobs.get(where + part.digest, bytes_max=part.bytes)
        except BadValue:
            raise Untrusted(f"the {what} {part.digest}", "it is larger than it should be") from None
        if blob is None:
            raise Untrusted(f"the {what} {part.digest}", "it is not on the shelf")
        check_part(part, blob.data, f"the {what} {part.digest}")
        return blob.data

    def _unpacked_max(self, edition: Edition) -> int:
        bytes_max = self.bounds.unpacked_bytes_max
        if edition.bytes_unpacked > bytes_max:
            remedy = f"raise unpacked_bytes_max ({bytes_max:,}) if it is meant to be so large"
            raise BadValue("edition.bytes_unpacked", edition.bytes_unpacked, remedy)
        return bytes_max

    def _current(self) -> tuple[Orders | None, str | None]:
        blob = self.blobs.get(CURRENT, bytes_max=ENVELOPE_BYTES_MAX)
        if blob is None:
            return None, None
        return open_orders(blob.data, self.verifier).orders, blob.tag

    def _given_before(self, orders: Orders, current: Orders) -> Orders:
        """These orders, if they were given already; others of this number are a conflict."""
        if current.number > orders.number:
            given = self.orders_of(orders.number)
            if given is None or given.orders != orders:
                seen = f"orders {current.number} are given already"
                raise Conflict(f"orders {orders.number}", seen)
        elif current != orders:
            raise Conflict(f"orders {orders.number}", "others were given under this number")
        return orders

    def _same_number(self, orders: Orders) -> None:
        given = self.orders_of(orders.number)
        if given is None or given.orders != orders:
            raise Conflict(f"orders {orders.number}", "another publisher has taken this number")

    def _all_there(self, orders: Orders) -> None:
        """Orders name editions that are on the shelf, or a fleet would look for what is not."""
        wanted = {orders.live, *orders.pins.values()}
        if orders.canary is not None:
            wanted.add(orders.canary.version)
        for version in sorted(wanted):
            if self.edition(version) is None:
                remedy = "put its edition on the shelf first"
                raise BadValue("orders", f"edition {version}", remedy)


def check_part(part: Part, data: bytes, what: str) -> None:
    """`Untrusted` unless these are the bytes that were meant."""
    if len(data) != part.bytes:
        raise Untrusted(what, f"it has {len(data):,} bytes, not {part.bytes:,}")
    if sha256(data).hexdigest() != part.digest:
        raise Untrusted(what, "its digest is another")


def _says(edition: Edition, snapshot: Snapshot) -> Snapshot:
    if snapshot.content != edition.content:
        what = f"the snapshot of edition {edition.version}"
        raise Untrusted(what, "its rules are not those of the edition")
    return snapshot
