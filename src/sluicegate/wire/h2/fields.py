"""Fields: a decoded header list, judged by RFC 9113 sections 8.2 and 8.3, and made a Head.

`None` is a malformed request or trailer section; what is malformed must not be half understood.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, final

Field: TypeAlias = "tuple[bytes, bytes]"

# A token without upper case; a colon may only begin a pseudo-header's name.
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+\Z")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")
_OF_CONNECTIONS: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_LENGTH_DIGITS_MAX: Final = 15
FIELD_OVERHEAD_BYTES: Final = 32


@final
class RequestHead:
    """A request before its body. `content_length` is -1 where it says none."""

    __slots__ = ("authority", "content_length", "fields", "method", "path", "scheme")

    def __init__(
        self,
        method: bytes,
        scheme: bytes,
        authority: bytes,
        path: bytes,
        fields: list[Field],
        content_length: int,
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.path = path
        self.fields = fields
        self.content_length = content_length

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field, in order."""
        return [value for key, value in self.fields if key == name]


def request_head(found: list[Field]) -> RequestHead | None:
    """The head of a request, or None if it is malformed."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[Field] = []
    content_length = -1
    for name, value in found:
        if name[:1] == b":":
            if fields or name in pseudo or name not in _PSEUDO or _BAD_VALUE.search(value):
                return None
            pseudo[name] = value
            continue
        if not _well_formed(name, value):
            return None
        if name == b"content-length":
            length = _length(value)
            if length < 0 or content_length not in {-1, length}:
                return None
            content_length = length
        fields.append((name, value))
    method = pseudo.get(b":method", b"")
    scheme = pseudo.get(b":scheme", b"")
    path = pseudo.get(b":path", b"")
    authority = pseudo.get(b":authority", b"")
    if method == b"CONNECT":
        if scheme or path or not authority:
            return None
    elif not method or not scheme or not path:
        return None
    return RequestHead(method, scheme, authority, path, fields, content_length)


def trailers_well_formed(found: list[Field]) -> bool:
    """Whether a trailer section is: fields like any, and no pseudo-header among them."""
    return all(name[:1] != b":" and _well_formed(name, value) for name, value in found)


def list_bytes(found: list[Field]) -> int:
    """The size of a header list, as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""
    return sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in found)


_PSEUDO: Final = frozenset((b":method", b":scheme", b":authority", b":path"))


def _well_formed(name: bytes, value: bytes) -> bool:
    if not _NAME.match(name) or _BAD_VALUE.search(value):
        return False
    if name == b"te":
        return value == b"trailers"
    return name not in _OF_CONNECTIONS


def _length(value: bytes) -> int:
    if len(value) > _LENGTH_DIGITS_MAX or not value.isdigit():
        return -1
    return int(value)
