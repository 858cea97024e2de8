"""Event log: what happened, in order, kept until it is old.

Rule changes, refusals under failure and captured traffic travel through one. The embedded default
is a file, the large form is Kafka; both keep what was acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol


class Event(NamedTuple):
    """One entry. Metadata lives in the envelope, so that every log can carry it."""

    offset: int
    at_us: int
    kind: str
    body: bytes


class EventLog(Protocol):
    """Append at the end, read from anywhere."""

    async def append(self, kind: str, body: bytes, at_us: int) -> int:
        """Keep one event and return its offset; when this returns, the event is durable."""
        ...

    def read(self, offset: int) -> AsyncIterator[Event]:
        """Every event from `offset` on, then those that come, until the reader stops."""
        ...
