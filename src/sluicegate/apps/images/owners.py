"""Owners: on whose behalf an original is stored. By default the host of its URL, or `uploads`.

A caller that has authenticated may name another owner. Several owners may name the same URL or
upload the same bytes: the record keeps `OWNERS_MAX` of them. Pure.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from sluicegate.apps.images.records import UrlRecord
from sluicegate.contracts.errors import BadValue

UPLOAD: Final = "upload:"  # before the id, in the key of an upload
UPLOADS: Final = "uploads"
OWNERS_MAX: Final = 8
_OWNER: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,64}")


def check_owner(field: str, owner: str) -> str:
    """Return the owner; a `BadValue` for characters that a header or a list cannot hold."""
    if not _OWNER.fullmatch(owner):
        raise BadValue(field, owner, "give 1 to 64 letters, digits and _ . : @ -")
    return owner


def with_owner(record: UrlRecord, owner: str) -> UrlRecord:
    """Return the record with this owner, up to `OWNERS_MAX` owners."""
    named = record.owners.split()
    if not owner or owner in named or len(named) >= OWNERS_MAX:
        return record
    return record._replace(owners=" ".join((*named, owner)))


def without_owner(record: UrlRecord, owner: str) -> UrlRecord:
    """Return the record without this owner."""
    return record._replace(owners=" ".join(one for one in record.owners.split() if one != owner))


def owners_of(record: UrlRecord) -> tuple[str, ...]:
    """Return who was named, or the origin host."""
    if record.owners:
        return tuple(record.owners.split())
    if record.url.startswith(UPLOAD):
        return (UPLOADS,)
    return (urlsplit(record.url).hostname or "",)
