"""Sniff: which language a connection speaks, by its first bytes. Pure; who waits is elsewhere.

    PRI * HTTP/2.0 ...   HTTP/2, once all 24 bytes of its preface have come
    *                    RESP
    GET, POST, ...       HTTP/1, once the method has ended; the names are upper-case there, so
                         `get key` is RESP, and `GET key` is not
    a word               RESP written as a line, unless the line ends as HTTP/1 does
    0x16 0x03            a TLS handshake, where none was expected
    PROXY, 0x0D 0x0A ... a header of the PROXY protocol, v1 or v2, from who is none of our proxies
    anything else        unknown

The answer is the same however the bytes were cut. Empty lines before a request are skipped, as both
languages ask for. A first line that decides nothing within `SNIFF_BYTES_MAX` is unknown.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.proxy_protocol import V1_BEGIN, V2_SIGNATURE

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SNIFF_BYTES_MAX: Final = 8 * 1024

_METHODS: Final = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"}
)
_METHOD_BYTES_MAX: Final = 7
_TLS_HANDSHAKE: Final = 0x16
_SSL_MAJOR: Final = 0x03
_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Language(Enum):
    """What a connection speaks."""

    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1.1"
    RESP = "RESP"
    TLS = "TLS"
    PROXY = "the PROXY protocol"
    UNKNOWN = "unknown"


def sniff(head: bytes) -> Language | None:
    """What these first bytes begin; None if more must come before it can be told."""
    if head.startswith((V1_BEGIN, V2_SIGNATURE)):
        return Language.PROXY
    at = 0
    while head[at : at + 1] in (b"\r", b"\n"):
        at += 1
    if at == len(head):
        return _unless_long(head)
    first = head[at]
    if first == 0x2A:  # '*'
        return Language.RESP
    if first == 0x50 and at == 0 and PREFACE.startswith(head[:24]):
        return Language.HTTP2 if len(head) >= len(PREFACE) else None
    if first == _TLS_HANDSHAKE and at == 0:
        if len(head) < 2:
            return None
        return Language.TLS if head[1] == _SSL_MAJOR else Language.UNKNOWN
    if first not in _LETTERS:
        # The signature of PROXY v2 begins as empty lines do.
        return (
            None
            if at and len(head) < len(V2_SIGNATURE) and V2_SIGNATURE.startswith(head)
            else Language.UNKNOWN
        )
    return _of_line(head, at)


def answer_in(kind: Language, why: str) -> bytes:
    """One line in its own language to a connection that is not served; empty where none helps."""
    if kind is Language.HTTP2:
        # Empty SETTINGS, then GOAWAY with HTTP_1_1_REQUIRED; the sentence is its debug data.
        goaway = bytes(8 - 4) + (0xD).to_bytes(4) + why.encode()
        return (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
            + len(goaway).to_bytes(3)
            + b"\x07\x00\x00\x00\x00\x00"
            + goaway
        )
    if kind is Language.RESP:
        return f"-ERR {why}\r\n".encode()
    if kind is Language.TLS:
        return b"\x15\x03\x01\x00\x02\x02\x28"  # a fatal alert: handshake_failure
    body = f"{why}\n".encode()
    head = (
        f"HTTP/1.1 {503 if kind is Language.HTTP1 else 400} "
        f"{'Service Unavailable' if kind is Language.HTTP1 else 'Bad Request'}\r\n"
        "content-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def kind_of_alpn(protocol: str | None) -> Language | None:
    """What was agreed upon in the TLS handshake; None if nothing was, as with RESP clients."""
    return _ALPN.get(protocol or "")


def alpn_of(kind: Language) -> str | None:
    """The name under which TLS knows it."""
    for name, language in _ALPN.items():
        if language is kind:
            return name
    return None


def require_servable(kind: Language) -> Language:
    """This kind, if it is one that a protocol can be given for."""
    if kind in (Language.TLS, Language.PROXY, Language.UNKNOWN):
        raise BadValue("protocols", kind, "give protocols for HTTP2, HTTP1 and RESP")
    return kind


_ALPN: Final = {"h2": Language.HTTP2, "http/1.1": Language.HTTP1}


def _of_line(head: bytes, at: int) -> Language | None:
    # Looked at up to where a method would have ended: a first line may be long, and come in pieces.
    word = head[at : at + _METHOD_BYTES_MAX + 1]
    space = word.find(b" ")
    if space >= 0 and word[:space] in _METHODS:
        return Language.HTTP1
    end = head.find(b"\n", at)
    if end < 0:
        return _unless_long(head)
    line = head[at:end].rstrip(b"\r")
    version = line.rpartition(b" ")[2]
    # A method that we do not know is still HTTP's to refuse.
    return Language.HTTP1 if version.startswith(b"HTTP/") and b" " in line else Language.RESP


def _unless_long(head: bytes) -> Language | None:
    return None if len(head) < SNIFF_BYTES_MAX else Language.UNKNOWN
