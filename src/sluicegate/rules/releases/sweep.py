"""Sweep: which blobs of the release store nobody needs any more, and when they are deleted.

Needed are the parts of the last releases, of those that run or are pinned, and of those that a
rollout under way may name. Anything else is marked when it is first found, and deleted when it has
been marked for a while. A publisher puts the release that needs a part sooner than that, so nothing
is taken from under it. The marks are in the store too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.rulebook import Release, Rollout
from sluicegate.rules.releases.documents import DELTAS, SNAPSHOTS, SWEEP
from sluicegate.rules.releases.json_fields import (
    Object,
    check_format,
    inner,
    whole,
    write_object,
)
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = 1
MARKS_BYTES_MAX: Final = 64 << 20
MARKS_MAX: Final = 100_000
GRACE_US_MIN: Final = 60_000_000


class SweepResult(NamedTuple):
    """What a sweep did: the names it deleted, and how many more wait for their time."""

    deleted: tuple[str, ...]
    waiting: int


def versions_in(rollout: Iterable[Rollout]) -> set[int]:
    """The numbers of the releases that these rollouts name."""
    versions: set[int] = set()
    for one in rollout:
        versions |= {one.live, *one.pins.values()}
        if one.canary is not None:
            versions.add(one.canary.version)
    return versions


def blobs_of(releases: Iterable[Release]) -> set[str]:
    """The names of the parts that these releases need."""
    names: set[str] = set()
    for release in releases:
        names.add(SNAPSHOTS + release.snapshot.digest)
        names |= {DELTAS + part.digest for part in release.deltas.values()}
    return names


def sweep(
    blobs: BlobStore, parts: Iterable[str], keep: set[str], *, now_us: int, grace_us: int
) -> SweepResult:
    """Mark and delete; `parts` were listed before `keep` was worked out."""
    if grace_us < GRACE_US_MIN:
        raise BadValue("sweep.grace_us", grace_us, f"give at least {GRACE_US_MIN:,}")
    marks, tag = _marks(blobs)
    useless = [name for name in parts if name not in keep][:MARKS_MAX]
    marks = {name: min(marks.get(name, now_us), now_us) for name in useless}
    going = tuple(name for name, since_us in marks.items() if now_us - since_us >= grace_us)
    pending = {name: since_us for name, since_us in marks.items() if name not in set(going)}
    try:
        # Written first: whoever sweeps at the same time finds out here, and leaves it to the other.
        blobs.put(SWEEP, _encode(pending), if_absent=tag is None, if_tag=tag)
    except Conflict:
        return SweepResult((), len(marks))
    for name in going:
        blobs.delete(name)
    return SweepResult(going, len(pending))


def _marks(blobs: BlobStore) -> tuple[Mapping[str, int], str | None]:
    blob = blobs.get(SWEEP, bytes_max=MARKS_BYTES_MAX)
    if blob is None:
        return {}, None
    try:
        fields = parse_object(blob.data, "sweep")
        check_format(fields, "sweep", FORMAT)
        marks: Object = inner(fields, "marks", "sweep", fields_max=MARKS_MAX)
        return {name: whole(marks, name, "sweep.marks") for name in marks}, blob.tag
    except BadValue:
        return {}, blob.tag  # begun anew: a part stays a little longer


def _encode(marks: Mapping[str, int]) -> bytes:
    return write_object({"format": FORMAT, "marks": dict(marks)})
