"""Store: everything a fleet needs, in a blob store, and nothing that was not verified.

    snapshots/<digest>     a whole release's rules, packed
    deltas/<digest>        what leads from the rules of an earlier release to them
    editions/<version>.json
    orders/<number>.json   written once: that is what makes a number one publisher's
    orders/current.json    the newest of them
    nodes/<node>.json      what nodes report of themselves

A publisher puts snapshot, deltas, release and rollouts, in this order, and may repeat each after a
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
from sluicegate.contracts.rulebook import BlobPart, NodeReport, Release, Rollout
from sluicegate.rules.releases.documents import (
    CURRENT,
    DELTAS,
    NODES,
    RELEASES,
    REPORT_BYTES_MAX,
    ROLLOUT,
    SNAPSHOTS,
    node_name,
    numbers,
    release_name,
    report_bytes,
    rollout_name,
    within,
)
from sluicegate.rules.releases.signatures import (
    ENVELOPE_BYTES_MAX,
    SignedRelease,
    SignedRollout,
    Untrusted,
    Verifier,
    open_release,
    open_rollout,
)
from sluicegate.rules.releases.sweep import SweepResult, blobs_of, sweep, versions_in
from sluicegate.rules.snapshot.codec import unpack
from sluicegate.rules.snapshot.delta import apply_delta
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

KEEP_DEFAULT: Final = 50
GRACE_US_DEFAULT: Final = 3_600_000_000
TRIES_MAX: Final = 5  # to move the current rollout, while others move them too


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStoreBounds:
    """How large things may be; what is larger is refused unread, with the bound to raise."""

    snapshot_bytes_max: int = 512 << 20
    delta_bytes_max: int = 64 << 20
    unpacked_bytes_max: int = 2 << 30
    names_max: int = 1_000_000  # releases, parts or nodes that are listed

    def __post_init__(self) -> None:
        for name in ("snapshot_bytes_max", "delta_bytes_max", "unpacked_bytes_max", "names_max"):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 40:
                raise BadValue(f"releases.{name}", value, "give from 1 to 2^40")


class Fetched(NamedTuple):
    """A snapshot, and what was fetched for it.

    `before` is the content that the fetched delta led from, empty if the whole was fetched; `data`
    is empty if nothing was needed. `passed_over` says why a delta that there was did not do.
    """

    snapshot: RulesSnapshot
    part: BlobPart | None
    data: bytes
    before: str
    passed_over: str


@final
class ReleaseStore:
    """The releases and rollouts in a blob store, for publishers and for nodes."""

    __slots__ = ("blobs", "bounds", "verifier")

    def __init__(
        self, blobs: BlobStore, verifier: Verifier, *, bounds: ReleaseStoreBounds | None = None
    ) -> None:
        self.blobs: Final = blobs
        self.verifier: Final = verifier
        self.bounds: Final = ReleaseStoreBounds() if bounds is None else bounds

    # For the publisher.

    def put_snapshot(self, data: bytes) -> BlobPart:
        """Keep a packed snapshot under its digest."""
        return self._put_part(SNAPSHOTS, data, "snapshot", self.bounds.snapshot_bytes_max)

    def put_delta(self, data: bytes) -> BlobPart:
        """Keep a delta under its digest."""
        return self._put_part(DELTAS, data, "delta", self.bounds.delta_bytes_max)

    def put_release(self, signed: bytes) -> Release:
        """Keep a signed release; `Conflict` if another one has its version."""
        release = open_release(signed, self.verifier).release
        try:
            self.blobs.put(release_name(release.version), signed, if_absent=True)
        except Conflict:
            stored = self.release(release.version)
            if stored is None or stored.release != release:
                raise Conflict(f"release {release.version}", "another release has it") from None
        return release

    def put_rollout(self, signed: bytes) -> Rollout:
        """Put a rollout; `Conflict` if another has its number, or a newer one is there.

        What a crash has left half done is completed by doing it again.
        """
        rollout = open_rollout(signed, self.verifier).rollout
        current, tag = self._current()
        if current is not None and current.number >= rollout.number:
            return self._check_given(rollout, current)
        self._check_stored(rollout)
        try:
            self.blobs.put(rollout_name(rollout.number), signed, if_absent=True)
        except Conflict:
            self._same_number(rollout)
        for _ in range(TRIES_MAX):
            try:
                self.blobs.put(CURRENT, signed, if_absent=tag is None, if_tag=tag)
            except Conflict:
                current, tag = self._current()
                if current is not None and current.number >= rollout.number:
                    return self._check_given(rollout, current)
            else:
                return rollout
        raise Conflict("the rollout", f"others move them all the time ({TRIES_MAX} tries)")

    def sweep(
        self,
        keep: int = KEEP_DEFAULT,
        *,
        now_us: int,
        grace_us: int = GRACE_US_DEFAULT,
    ) -> SweepResult:
        """Delete snapshots and deltas that nobody needs: no release of the last `keep`, no rollout.

        A part goes when it has been found so for `grace_us`, so that what is just being published
        stays. Releases and rollouts themselves stay: they are the history, and small.
        """
        if keep < 1:
            raise BadValue("sweep.keep", keep, "give 1 or more releases")
        parts = [*self._names(SNAPSHOTS), *self._names(DELTAS)]
        current, _ = self._current()
        rollouts = [] if current is None else [current]
        at = 0 if current is None else current.number
        # A rollout above the current one is just being put.
        for number in [one for one in numbers(self._names(ROLLOUT), ROLLOUT) if one > at]:
            signed = self.rollout_at(number)
            rollouts += [] if signed is None else [signed.rollout]
        versions = {*self.versions()[-keep:], *versions_in(rollouts)}
        releases = [self.release(version) for version in sorted(versions)]
        names = blobs_of(one.release for one in releases if one is not None)
        return sweep(self.blobs, parts, names, now_us=now_us, grace_us=grace_us)

    # For nodes, and whoever wants to know.

    def rollout(self) -> SignedRollout | None:
        """The newest rollout; None before the first."""
        blob = self.blobs.get(CURRENT, bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_rollout(blob.data, self.verifier)

    def rollout_at(self, number: int) -> SignedRollout | None:
        """The rollout of this number."""
        blob = self.blobs.get(rollout_name(number), bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_rollout(blob.data, self.verifier, number=number)

    def release(self, version: int) -> SignedRelease | None:
        """The release of this version."""
        blob = self.blobs.get(release_name(version), bytes_max=ENVELOPE_BYTES_MAX)
        return None if blob is None else open_release(blob.data, self.verifier, version=version)

    def versions(self) -> list[int]:
        """The versions of all releases, the oldest first."""
        return numbers(self._names(RELEASES), RELEASES)

    def snapshot(self, release: Release, have: Sequence[RulesSnapshot] = ()) -> Fetched:
        """The rules of a release: from those there are by a delta, or whole.

        A delta that is missing or damaged costs nothing but the way round it.
        """
        passed_over = ""
        for one in have:
            if one.content == release.content:
                return Fetched(one, None, b"", one.content, "")
        for one in have:
            delta = release.deltas.get(one.content)
            if delta is None:
                continue
            try:
                data = self._part(DELTAS, delta, "delta", self.bounds.delta_bytes_max)
                return Fetched(self.after_delta(release, one, data), delta, data, one.content, "")
            except Unavailable:
                raise
            except SluicegateError as error:
                passed_over = str(error)
        data = self.snapshot_data(release)
        return Fetched(self.unpacked(release, data), release.snapshot, data, "", passed_over)

    def snapshot_data(self, release: Release) -> bytes:
        """The bytes of a release's snapshot, verified."""
        bytes_max = self.bounds.snapshot_bytes_max
        return self._part(SNAPSHOTS, release.snapshot, "snapshot", bytes_max)

    def unpacked(self, release: Release, data: bytes) -> RulesSnapshot:
        """The rules of a release from the bytes of its snapshot, verified."""
        check_part(release.snapshot, data, f"the snapshot of release {release.version}")
        bytes_max = self._unpacked_max(release)
        return _check_content(release, unpack(data, bytes_max=bytes_max))

    def after_delta(self, release: Release, before: RulesSnapshot, data: bytes) -> RulesSnapshot:
        """The rules of a release from those before and the bytes of a delta, verified."""
        what = f"the delta to release {release.version}"
        part = release.deltas.get(before.content)
        if part is None:
            raise Untrusted(what, "the release knows no delta from these rules")
        check_part(part, data, what)
        return _check_content(
            release, apply_delta(before, data, bytes_max=self._unpacked_max(release))
        )

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

    def _put_part(self, where: str, data: bytes, what: str, bytes_max: int) -> BlobPart:
        if not 1 <= len(data) <= bytes_max:
            remedy = f"give from 1 to {bytes_max:,} bytes ({what}_bytes_max)"
            raise BadValue(what, f"{len(data):,} bytes", remedy)
        part = BlobPart(sha256(data).hexdigest(), len(data))
        name = where + part.digest
        try:
            self.blobs.put(name, data, if_absent=True)
        except Conflict:
            # It should be the same. What a disk has spoilt since is put right.
            if not self._intact(name, part):
                self.blobs.put(name, data)
        return part

    def _intact(self, name: str, part: BlobPart) -> bool:
        try:
            blob = self.blobs.get(name, bytes_max=part.bytes)
        except BadValue:
            return False
        return blob is not None and sha256(blob.data).hexdigest() == part.digest

    def _part(self, where: str, part: BlobPart, what: str, bytes_max: int) -> bytes:
        if part.bytes > bytes_max:
            remedy = f"raise {what}_bytes_max ({bytes_max:,}) if it is meant to be so large"
            raise BadValue(f"{what}.bytes", part.bytes, remedy)
        try:
            blob = self.blobs.get(where + part.digest, bytes_max=part.bytes)
        except BadValue:
            raise Untrusted(f"the {what} {part.digest}", "it is larger than it should be") from None
        if blob is None:
            raise Untrusted(f"the {what} {part.digest}", "it is not in the store")
        check_part(part, blob.data, f"the {what} {part.digest}")
        return blob.data

    def _unpacked_max(self, release: Release) -> int:
        bytes_max = self.bounds.unpacked_bytes_max
        if release.bytes_unpacked > bytes_max:
            remedy = f"raise unpacked_bytes_max ({bytes_max:,}) if it is meant to be so large"
            raise BadValue("edition.bytes_unpacked", release.bytes_unpacked, remedy)
        return bytes_max

    def _current(self) -> tuple[Rollout | None, str | None]:
        blob = self.blobs.get(CURRENT, bytes_max=ENVELOPE_BYTES_MAX)
        if blob is None:
            return None, None
        return open_rollout(blob.data, self.verifier).rollout, blob.tag

    def _check_given(self, rollout: Rollout, current: Rollout) -> Rollout:
        """This rollout, if it is there already; another of this number is a conflict."""
        if current.number > rollout.number:
            stored = self.rollout_at(rollout.number)
            if stored is None or stored.rollout != rollout:
                problem = f"rollout {current.number} is there already"
                raise Conflict(f"rollout {rollout.number}", problem)
        elif current != rollout:
            raise Conflict(f"rollout {rollout.number}", "another one has this number")
        return rollout

    def _same_number(self, rollout: Rollout) -> None:
        stored = self.rollout_at(rollout.number)
        if stored is None or stored.rollout != rollout:
            raise Conflict(f"rollout {rollout.number}", "another publisher has taken this number")

    def _check_stored(self, rollout: Rollout) -> None:
        """Refuse a rollout whose releases are not in the store."""
        versions = {rollout.live, *rollout.pins.values()}
        if rollout.canary is not None:
            versions.add(rollout.canary.version)
        for version in sorted(versions):
            if self.release(version) is None:
                remedy = "put its release in the store first"
                raise BadValue("orders", f"release {version}", remedy)


def check_part(part: BlobPart, data: bytes, what: str) -> None:
    """`Untrusted` unless these are the bytes that were meant."""
    if len(data) != part.bytes:
        raise Untrusted(what, f"it has {len(data):,} bytes, not {part.bytes:,}")
    if sha256(data).hexdigest() != part.digest:
        raise Untrusted(what, "its digest is another")


def _check_content(release: Release, snapshot: RulesSnapshot) -> RulesSnapshot:
    if snapshot.content != release.content:
        what = f"the snapshot of release {release.version}"
        raise Untrusted(what, "its rules are not those of the release")
    return snapshot
