"""Names: which names, prefixes and conditions every blob store takes, and how it refuses others.

A name that one store takes is taken by all, so a rulebook can move from a folder to a bucket. The
tag of a store that makes its own is the digest of the bytes. If they changed and changed back, it
is the same tag again; that does no harm, since what is replaced is then what was read, to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from sluicegate.contracts.blob_store import NAME_CHARS_MAX
from sluicegate.contracts.errors import BadValue

SEGMENT_CHARS_MAX: Final = 250  # what every file system takes
SEGMENTS_MAX: Final = 32
BLOB_BYTES_MAX: Final = 1 << 30  # of one blob, where nothing else is set
NAME: Final = "blob_store.name"
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")
_WANTED: Final = (
    f"give 1 to {SEGMENTS_MAX} segments of A-Z a-z 0-9 _ . = - between slashes, none beginning "
    f"with a dot, each of at most {SEGMENT_CHARS_MAX} characters, all of at most {NAME_CHARS_MAX}"
)


def split_name(name: str) -> list[str]:
    """Return the segments of a good name; anything else is a `BadValue`."""
    segments = name.split("/") if 0 < len(name) <= NAME_CHARS_MAX else []
    if not 0 < len(segments) <= SEGMENTS_MAX or not all(map(_is_segment, segments)):
        raise BadValue(NAME, name, _WANTED)
    return segments


def is_name(name: str) -> bool:
    """Return whether a store may hold this; what else lies in a folder or bucket is not ours."""
    try:
        return bool(split_name(name))
    except BadValue:
        return False


def folder_of(prefix: str) -> list[str]:
    """Return the whole segments of a prefix: where to look for what begins with it."""
    whole, slash, rest = prefix.rpartition("/")
    folder = split_name(whole) if slash else []
    if rest:
        split_name(prefix)
    return folder


def select_names(found: Iterable[str], prefix: str, names_max: int) -> tuple[str, ...]:
    """Return those that begin with the prefix, in order; stops looking at one more than so many."""
    if names_max < 0:
        raise BadValue("blob_store.names_max", names_max, "give 0 or more")
    names: list[str] = []
    for name in found:
        if name.startswith(prefix):
            names.append(name)
        if len(names) > names_max:
            raise BadValue(
                "blob_store.names_max", names_max, f"more begin with {prefix!r}; ask for more names"
            )
    return tuple(sorted(names))


def check_put(
    name: str, data: bytes, bytes_max: int, *, if_absent: bool, if_tag: str | None
) -> list[str]:
    """The segments of a good name for bytes that are not too many, under one condition at most."""
    segments = split_name(name)
    if if_absent and if_tag is not None:
        raise BadValue("blob_store.if_tag", if_tag, "give it or if_absent; both never come true")
    if if_tag is not None and not if_tag:
        raise BadValue("blob_store.if_tag", if_tag, "give the tag of what was read")
    if len(data) > bytes_max:
        raise BadValue(NAME, name, f"it has {len(data):,} bytes, and the store takes {bytes_max:,}")
    return segments


def check_bytes(name: str, size: int, bytes_max: int) -> None:
    """Refuse a blob that is larger than was asked for."""
    if size > bytes_max:
        raise BadValue("blob_store.bytes_max", bytes_max, f"{name} has {size:,} bytes")


def tag_of(data: bytes) -> str:
    """Return the tag of these bytes."""
    return sha256(data).hexdigest()


def _is_segment(text: str) -> bool:
    return len(text) <= SEGMENT_CHARS_MAX and _SEGMENT.fullmatch(text) is not None
