"""Forms: what the key-value routes read of a request's path, query and headers. Pure.

A key in a path or a query is bytes, percent-encoded: `%2F` is a slash in a key. A `%` without two
hex digits behind it is refused, for it may be a key that was never encoded. In a query a plus is a
space, as everywhere.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from sluicegate.contracts.access import Identity
from sluicegate.contracts.engine import BYTES_MAX_DEFAULT, ROWS_MAX_DEFAULT, KeyRange, Place
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    TAG_BYTES,
    CallContext,
    WriteCondition,
)
from sluicegate.doors.claims import (
    CRITICALITY,
    DEADLINE_MS,
    STRONG,
    criticality_of,
    left_us_of,
    strong_of,
)
from sluicegate.doors.http.etags import ANY, IF_MATCH, IF_NONE_MATCH, wanted_tags
from sluicegate.doors.http.fields import query_of, raw_query_of, whole_of
from sluicegate.doors.http.message import HttpRequest
from sluicegate.wire.key_values_messages import SHA256_BYTES, TTL_MS_MAX, KvBounds

DIGEST: Final = b"content-digest"
RANGE_FIELDS: Final = ("begin", "end", "reverse", "rows_max", "bytes_max", "token")
WALK_FIELDS: Final = ("after", "rows_max")
_PLACE_VERSION: Final = 1
_CLAIMS: Final = frozenset((CRITICALITY, DEADLINE_MS, STRONG))
_HALF_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_SHA_256: Final = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_DIGEST_CHARS_MAX: Final = 1_024
_BOOLS: Final = {"": True, "true": True, "1": True, "false": False, "0": False}


def call_of(request: HttpRequest, by: Identity) -> CallContext:
    """Who asks, and what the request claims; its time is counted from when its head was read."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in request.headers:
        if name in _CLAIMS:
            fields.setdefault(name, []).append(value)
    if not fields:
        return CallContext(by, arrived_us=request.arrived_us)
    left_us = left_us_of(fields.get(DEADLINE_MS, ()))
    return CallContext(
        by,
        criticality=criticality_of(fields.get(CRITICALITY, ())),
        deadline_us=request.arrived_us + left_us if left_us >= 0 else None,
        arrived_us=request.arrived_us,
        strong=strong_of(fields.get(STRONG, ())),
    )


# The path.


def place_of(places: Mapping[str, str]) -> Place:
    """A partition, and a sort key if there is one."""
    partition, sort = places["partition"], places.get("sort", "")
    return unquote_to_bytes(_check_escapes(partition)), unquote_to_bytes(_check_escapes(sort))


def name_of(places: Mapping[str, str], name: str) -> str:
    """A text in the path."""
    text = places[name]
    try:
        return unquote(_check_escapes(text), errors="strict") if "%" in text else text
    except UnicodeDecodeError:
        raise BadValue(name, text, "give text in UTF-8") from None


def _check_escapes(text: str, field: str = "path") -> str:
    """The text, if each `%` in it begins an escape."""
    if "%" in text and _HALF_ESCAPE.search(text) is not None:
        raise BadValue(field, text, "write % as %25, and any byte as % and two hex digits")
    return text


# The query.


def ttl_us_of(request: HttpRequest) -> int:
    """How long a value is to stay; 0 is for ever."""
    if not request.query:
        return 0
    fields = query_of(request, ("ttl_ms",))
    return whole_of("ttl_ms", fields.get("ttl_ms", "0"), 0, TTL_MS_MAX) * 1_000


def range_of(request: HttpRequest, bounds: KvBounds) -> tuple[KeyRange, bytes]:
    """The rows that are wanted, and the token of an earlier answer."""
    fields = _keys_of(request, RANGE_FIELDS)
    span = KeyRange(
        fields.get("begin", b""),
        fields.get("end") or None,
        _bool_of("reverse", fields["reverse"]) if "reverse" in fields else False,
        _count_of(fields, "rows_max", ROWS_MAX_DEFAULT, bounds.rows_max),
        _count_of(fields, "bytes_max", BYTES_MAX_DEFAULT, bounds.answer_bytes_max),
    )
    return span, token_bytes(fields.get("token", b""), "token")


def walk_of(request: HttpRequest, bounds: KvBounds) -> tuple[Place | None, int]:
    """Behind which place to go on, and how far."""
    fields = _keys_of(request, WALK_FIELDS)
    rows_max = _count_of(fields, "rows_max", ROWS_MAX_DEFAULT, bounds.rows_max)
    return place_after(fields.get("after", b"")), rows_max


def _keys_of(request: HttpRequest, names: Sequence[str]) -> dict[str, bytes]:
    if not request.query:
        return {}
    _check_escapes(request.query.decode("latin-1"), "query")
    return raw_query_of(request, names)


def _count_of(fields: Mapping[str, bytes], name: str, default: int, most: int) -> int:
    value = fields.get(name)
    if value is None:
        return min(default, most)
    return whole_of(name, value.decode("latin-1"), 1, most)


def _bool_of(name: str, value: bytes) -> bool:
    answer = _BOOLS.get(value.decode("latin-1").lower())
    if answer is None:
        raise BadValue(name, value.decode("latin-1"), "give true or false")
    return answer


# Tokens: base64url without padding, for queries.


def token_text(token: bytes) -> str:
    """A token as it stands in JSON and in a query."""
    return urlsafe_b64encode(token).rstrip(b"=").decode("ascii")


def token_bytes(text: bytes, field: str) -> bytes:
    """A token that came back."""
    try:
        token = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        token = b""
    if token_text(token).encode("ascii") != text:
        raise BadValue(field, text.decode("latin-1"), "give it as an earlier answer told it")
    return token


def after_text(after: Place | None) -> str:
    """Where a walk goes on; empty at the end."""
    if after is None:
        return ""
    partition, sort = after
    return token_text(bytes((_PLACE_VERSION, len(partition))) + partition + sort)


def place_after(text: bytes) -> Place | None:
    """Where a walk goes on, as an earlier answer told it; None begins."""
    token = token_bytes(text, "after")
    if not token:
        return None
    if token[0] != _PLACE_VERSION:
        raise BadValue("after", text.decode("latin-1"), "it is of another release; begin anew")
    if len(token) < 2 or len(token) < 2 + token[1]:
        raise BadValue("after", text.decode("latin-1"), "give it as an earlier answer told it")
    end = 2 + token[1]
    return token[2:end], token[end:]


# Headers.


def condition_of(request: HttpRequest) -> WriteCondition | None:
    """Return what must hold for a write; None without a condition."""
    match = wanted_tags(request, IF_MATCH)
    none_match = wanted_tags(request, IF_NONE_MATCH)
    if match and none_match:
        raise BadValue("if-none-match", "beside if-match", "send one of them")
    if none_match:
        if none_match != (ANY,):
            value = ", ".join(none_match)
            raise BadValue("if-none-match", value, "send *; for a value that is there, If-Match")
        return WriteCondition(absent=True)
    if not match:
        return None
    if match == (ANY,):
        return WriteCondition(present=True)
    return WriteCondition(tag=_tag_of(match))


def _tag_of(match: tuple[str, ...]) -> bytes:
    try:
        tag = bytes.fromhex(match[0])
    except ValueError:
        tag = b""
    if len(match) != 1 or len(tag) != TAG_BYTES or tag.hex() != match[0]:
        remedy = "send one ETag that a GET of this place has answered with, or *"
        raise BadValue("if-match", ", ".join(match).replace("\0", "W/"), remedy)
    return tag


def digest_of(request: HttpRequest) -> bytes:
    """The SHA-256 that a body says it has (RFC 9530)."""
    value = b", ".join(value for name, value in request.headers if name == DIGEST)
    digests = _SHA_256.findall(value[:_DIGEST_CHARS_MAX].decode("latin-1"))
    if len(digests) != 1:
        remedy = "send Content-Digest: sha-256=:...: with its base64 between the colons"
        raise BadValue("content-digest", value[:_DIGEST_CHARS_MAX].decode("latin-1"), remedy)
    digest = b64decode(digests[0])
    assert len(digest) == SHA256_BYTES
    return digest
