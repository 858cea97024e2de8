"""Partial block: a header block that comes in several frames, HEADERS and CONTINUATION.

Nothing else may come in between, so there is one a connection. It is decoded when it is whole; how
many frames and bytes that may take is bounded.
"""

from __future__ import annotations

from typing import final

from sluicegate.wire.h2 import frames
from sluicegate.wire.h2.frames import ConnectionFault
from sluicegate.wire.h2.settings import H2Settings


@final
class PartialBlock:
    """What has come of one; of stream 0 while there is none."""

    __slots__ = ("_bytes", "_parts", "_settings", "ends", "since_us", "stream_id")

    def __init__(self, settings: H2Settings) -> None:
        self._settings = settings
        self._parts: list[bytes] = []
        self._bytes = 0
        self.stream_id = 0
        self.since_us = 0
        self.ends = False  # with it the peer's side of the stream

    def begin(self, stream_id: int, part: bytes, now_us: int, *, ends: bool) -> None:
        """Take the part that HEADERS has."""
        self._parts = [part]
        self._bytes = len(part)
        self.stream_id = stream_id
        self.since_us = now_us
        self.ends = ends

    def add(self, part: bytes) -> None:
        """Take the part that a CONTINUATION has."""
        self._parts.append(part)
        self._bytes += len(part)
        bound = ""
        if len(self._parts) > self._settings.continuations_max + 1:
            bound = "continuations_max"
        elif self._bytes > self._settings.header_block_bytes_max:
            bound = "header_block_bytes_max"
        if bound:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, f"more than {bound}", bound)

    def take(self) -> bytes:
        """Return it whole; there is none from then on."""
        block = b"".join(self._parts)
        self._parts = []
        self.stream_id = 0
        return block
