"""Event log: what happened, in order, kept until it is old.

Rule changes, refusals under failure and captured traffic travel through one. The embedded default
is a folder of files, the large form is Kafka; both keep what was acknowledged.

Appending never waits: it gives back a promise that is kept when the event is durable, and fails
with `Unavailable` if it cannot be made so, or if too many are waiting already. An event that was
not acknowledged may be in the log all the same, or come twice if it is sent again; a reader that
must tell needs an identity in the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

OLDEST: Final = 0
KIND_CHARS_MAX: Final = 64


class Event(NamedTuple):
    """One entry. Metadata lives in the envelope, so that every log can carry it.

    Offsets rise from event to event; they need not follow each other without a gap.
    """

    offset: int
    at_us: int
    kind: str
    body: bytes


class Damage(NamedTuple):
    """A part of a log that holds no events although it should.

    `where` is the file or partition, `at` the byte or offset in it, `offset` the first event that
    may be lost there.
    """

    where: str
    at: int
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.where} at {self.at}: {self.why}; events from {self.offset} on may be lost"


class Reader(Protocol):
    """One who reads a log from one place on; it waits in the thread that asks."""

    def read(self, events_max: int, wait_us: int) -> Sequence[Event]:
        """The next events, oldest first. With none there yet, one is waited for so long."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether everything that was there at the last look has been read."""
        ...

    @property
    def damage(self) -> Sequence[Damage]:
        """What was passed over so far because it could not be read."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


class EventLog(Protocol):
    """Append at the end, read from anywhere."""

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        """Keep one event; the promise is its offset, once it is durable. Never waits."""
        ...

    def reader(self, offset: int = OLDEST) -> Reader:
        """A reader of every event from `offset` on, then of those that come."""
        ...

    def close(self, grace_us: int = 0) -> None:
        """Wait at most so long for what is under way; what is not durable then fails."""
        ...


class SharedLog(EventLog, Protocol):
    """A log on other machines, that others append to as well."""

    def end(self) -> int:
        """The offset behind the last event, whoever appended it; it waits for an answer."""
        ...

    def offset_since(self, at_us: int) -> int:
        """The offset before which all events are older; it waits for an answer."""
        ...
