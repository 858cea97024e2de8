"""The keys of a Redis in which spaces lie, and the scripts that work on them.

    prefix1:{space/bucket}:p          the bucket's partitions, in their order
    prefix1:{space/bucket}:k:PART     a partition's sort keys, in their order
    prefix1:{space/bucket}:v:PART     and their values

A partition falls into one of 256 buckets of its space, and a bucket's keys share a slot by their
tag. So one script can change a partition and what is known of it, all or none; a walk goes from
bucket to bucket and from partition to partition without looking at what else a server has, and
meets each exactly once; and a drop costs what its space holds. The 1 is the version of all this.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from sluicegate.stores.redis.script import Script, join_scripts

BUCKETS: Final = 256  # part of the format
VERSION: Final = 1
_SCRIPTS: Final = {
    "write": ("change", "write"),
    "swap": ("change", "swap"),
    "scan": ("scan",),
    "forget": ("forget",),
}


class EngineKeys(NamedTuple):
    """Where a partition is."""

    parts: bytes
    sorts: bytes
    values: bytes


def bucket_of(partition: bytes) -> int:
    """The part of its space that a partition is in."""
    return zlib.crc32(partition) % BUCKETS


def tag_of(space: str, bucket: int) -> str:
    """What the keys of a bucket have in common, and what their slot is found by."""
    return f"{space}/{bucket:02x}"


def parts_key(prefix: str, space: str, bucket: int) -> bytes:
    """The key of a bucket's partitions."""
    return f"{prefix}{VERSION}:{{{tag_of(space, bucket)}}}:p".encode()


def keys_of(prefix: str, space: str, partition: bytes) -> EngineKeys:
    """The keys of a partition."""
    parts = parts_key(prefix, space, bucket_of(partition))
    start = parts[:-1]
    return EngineKeys(parts, start + b"k:" + partition, start + b"v:" + partition)


def load_scripts() -> dict[str, Script]:
    """Every script, by its name."""
    return join_scripts(__package__, _SCRIPTS, "kv ")
