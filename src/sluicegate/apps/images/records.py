"""Records: what the three maps hold, and how it is written. Pure.

A record is a JSON object with the version of its form in `v`. A reader refuses a version that it
does not know, so an older build never guesses at what a newer one wrote; a new field is a new
version. Older versions are read: fields that they lack have their defaults. Times are microseconds
since the epoch.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias, TypeVar

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.json_objects import encode_json, parse_object

VERSION: Final = 2
_OLDEST: Final = 1  # that is read: it lacks fields that have defaults
WRITING: Final = "writing"  # its blob may be there or not
LIVE: Final = "live"
CONDEMNED: Final = "condemned"  # nothing referred to it at `since_us`
GONE: Final = "gone"  # its blob may be deleted at any time from `since_us` on


class UrlRecord(NamedTuple):
    """URL to content: what it had when the origin was asked last, or how that failed.

    With both, what it had is served while the failure lasts.
    """

    url: str
    content: str = ""  # a digest in hex; empty is none
    etag: str = ""
    last_modified: str = ""
    checked_us: int = 0
    changed_us: int = 0
    failure: str = ""  # the kind; empty is none
    detail: str = ""
    until_us: int = 0  # that the failure holds
    owners: str = ""  # separated by spaces; none is the host of the URL. Since version 2
    lifetime_s: int = -1  # that the origin said, within our bound; -1 is none
    directives: str = ""  # of its Cache-Control (`policies/images/cache_control.py`)


class ContentRecord(NamedTuple):
    """Digest to stored bytes. Each `generation` has a blob of another name, and is never reused."""

    state: str
    size: int
    generation: int = 0
    since_us: int = 0
    run: int = 0  # the collection that may remove it, if it is condemned


class VariantRecord(NamedTuple):
    """Original, specification and engine to processed content, or to how processing failed."""

    spec: str
    engine: str
    content: str = ""
    generation: int = 0
    size: int = 0
    type: str = ""
    width: int = 0
    height: int = 0
    took_us: int = 0
    at_us: int = 0
    failure: str = ""
    detail: str = ""
    until_us: int = 0
    placeholder: str = ""
    frames: int = 1  # since version 2
    pages: int = 1  # of the original, since version 2


class LookRecord(NamedTuple):
    """Original to what it looks like; `same_as` is the one whose variants it shares."""

    url: str  # where it was seen first, or the upload
    hash: int
    colours: str  # in hex
    width: int
    height: int
    at_us: int
    same_as: str = ""


class BoundsRecord(NamedTuple):
    """By which bounds originals are refused, and since when."""

    bounds: str
    since_us: int


class LeaseRecord(NamedTuple):
    """The collector, the end of its lease, and the number of its run, which is not reused."""

    run: int
    holder: str = ""
    until_us: int = 0


class BlockRecord(NamedTuple):
    """A blocked URL or hash, the caller that blocked it, and the reason."""

    kind: str
    value: str
    by: str
    at_us: int
    reason: str = ""


class TakedownRecord(NamedTuple):
    """One call that removed, purged or unblocked: the audit of it."""

    at_us: int
    by: str
    action: str
    kind: str
    value: str
    urls: int = 0
    variants: int = 0
    blocked: bool = False
    reason: str = ""


Record: TypeAlias = (
    "UrlRecord | ContentRecord | VariantRecord | LookRecord | BoundsRecord | LeaseRecord"
    " | BlockRecord | TakedownRecord"
)
R = TypeVar(
    "R",
    UrlRecord,
    ContentRecord,
    VariantRecord,
    LookRecord,
    BoundsRecord,
    LeaseRecord,
    BlockRecord,
    TakedownRecord,
)


def encode(record: Record) -> bytes:
    """The record as it is stored; fields that have their default are left out."""
    defaults = record._field_defaults
    named = record._asdict().items()
    fields = {name: value for name, value in named if defaults.get(name, ...) != value}
    return encode_json({"v": VERSION, **fields})


def decode(kind: type[R], data: bytes) -> R:
    """The record that was stored."""
    fields = parse_object(data, "the stored record")
    version = fields.pop("v", None)
    if version not in range(_OLDEST, VERSION + 1):
        remedy = f"this build reads versions up to {VERSION}: start the build that wrote it"
        raise BadValue("the stored record's version", version, remedy)
    return kind(**fields)
