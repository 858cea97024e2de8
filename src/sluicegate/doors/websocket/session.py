"""Session: what an app gives for a connection, and the socket that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sluicegate.contracts.access import Identity


class Socket(Protocol):
    """One connection, as a session sees it."""

    @property
    def descriptor(self) -> int:
        """Where whole frames may be written at once, and then what is left of them by `send_rest`.

        -1 where they may not, since others wait or are enciphered; `send_now` may find that they
        do no more.
        """
        ...

    @property
    def message_bytes_max(self) -> int:
        """How long a message may be that the client sends."""
        ...

    @property
    def blocked(self) -> bool:
        """Whether more is unread than may be; then nothing more should be sent but replies."""
        ...

    def send(self, frames: bytes) -> None:
        """Send whole frames, which many connections may share, when the turn ends."""

    def send_now(self, frames: bytes) -> None:
        """Send them, and what was to be sent before, at once: who sends to many in a turn does."""

    def send_rest(self, rest: bytes) -> None:
        """Send what the descriptor did not take."""

    def proceed(self) -> None:
        """Read on: something that was under way is answered."""

    def fail(self, code: int, reason: str) -> None:
        """Close the connection with this code."""

    def drain(self) -> None:
        """Answer what is under way, say goodbye, close: it is to come again."""


class SocketSession(Protocol):
    """What is said on one connection. Nothing is called after `close`."""

    @property
    def identity(self) -> Identity | None:
        """Whose access the connection needs; it ends with that."""
        ...

    def receive(self, text: str) -> None:
        """Take one message."""

    def reject(self, head: bytes, size: int, bytes_max: int) -> None:
        """Answer a message that was too long to be read; `head` is its beginning."""

    def resume(self) -> None:
        """Send more: the client has read."""

    def under_way(self) -> int:
        """Return how much was asked for and is not answered."""
        ...

    def close(self) -> None:
        """End: the connection is gone."""


OpenSession: TypeAlias = "Callable[[Socket], SocketSession]"
