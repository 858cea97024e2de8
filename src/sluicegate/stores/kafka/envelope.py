"""Envelope: an event as a Kafka message.

    {"v":1,"at_us":1700000000000000,"kind":"dead_letter"}
    the body

One line of JSON, then the body as it is: whoever looks with a common tool can read it, and brokers
without headers carry it. The same is mirrored to the headers, for those who filter by them.
"""

from __future__ import annotations

import json
from typing import Final

from sluicegate.contracts.event_log import Event

VERSION: Final = 1
KIND_HEADER: Final = "sluicegate-kind"
AT_HEADER: Final = "sluicegate-at-us"
VERSION_HEADER: Final = "sluicegate-version"


def wrap(kind: str, body: bytes, at_us: int) -> bytes:
    """Return the message's value."""
    head = json.dumps({"v": VERSION, "at_us": at_us, "kind": kind}, separators=(",", ":"))
    return head.encode() + b"\n" + body


def headers(kind: str, at_us: int) -> list[tuple[str, str | bytes | None]]:
    """Return the mirror."""
    return [
        (VERSION_HEADER, str(VERSION).encode()),
        (KIND_HEADER, kind.encode()),
        (AT_HEADER, str(at_us).encode()),
    ]


def unwrap(offset: int, value: bytes | None) -> Event | str:
    """Return the event, or why the message is none."""
    head, line, body = (value or b"").partition(b"\n")
    if not line:
        return "the message has no envelope"
    try:
        fields = json.loads(head)
        version, at_us, kind = fields["v"], fields["at_us"], fields["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "the message has no envelope"
    if version != VERSION:
        return f"the message's version is {version!r}, and this program reads {VERSION}"
    if type(at_us) is not int or type(kind) is not str:
        return "the envelope does not say when and what"
    return Event(offset, at_us, kind, body)
