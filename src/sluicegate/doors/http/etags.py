"""Etags: what an answer is known by, so that who changes something changes what they have seen.

An answer's tag is a digest of it. Where it tells of a commit, the commit's id is as good. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.message import HttpRequest

IF_MATCH: Final = b"if-match"
IF_NONE_MATCH: Final = b"if-none-match"
TAGS_MAX: Final = 16
ANY: Final = "*"

_NOTHING: Final = "\0"  # the tag of no answer
_DIGEST_CHARS: Final = 32
_LIST: Final = re.compile(r'\s*(?:W/)?"[!#-~\x80-\xff]*"\s*(?:,\s*(?:W/)?"[!#-~\x80-\xff]*"\s*)*')
_ONE: Final = re.compile(r'(W/)?"([^"]*)"')


def tag_of(body: bytes) -> str:
    """The tag of an answer, without its quotes."""
    return sha256(body).hexdigest()[:_DIGEST_CHARS]


def wanted_tags(request: HttpRequest, name: bytes) -> tuple[str, ...]:
    """The tags that a condition names, `ANY` among them if it is a star; empty without one.

    `If-Match` leaves weak tags out: they never tell that something is the same byte by byte.
    """
    value = b", ".join(value for one, value in request.headers if one == name).decode("latin-1")
    if not value:
        return ()
    if value.strip() == ANY:
        return (ANY,)
    if not _LIST.fullmatch(value):
        raise BadValue(name.decode(), value, 'write it as "tag", "tag" or *')
    tags = _ONE.findall(value)
    if len(tags) > TAGS_MAX:
        raise BadValue(name.decode(), f"{len(tags)} tags", f"give at most {TAGS_MAX}")
    usable = tuple(tag for weak, tag in tags if name == IF_NONE_MATCH or not weak)
    return usable or (_NOTHING,)


def matches(tags: tuple[str, ...], body: bytes, answer: Mapping[str, object]) -> bool:
    """Whether an answer is one that the condition names."""
    return ANY in tags or tag_of(body) in tags or answer.get("commit") in tags
