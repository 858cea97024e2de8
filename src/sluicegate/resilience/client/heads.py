"""Heads: the responses of one call that blocks, all but the last of which are closed unread.

Attempts may run in threads of their own. A response that comes after the call has ended is closed.
"""

from __future__ import annotations

from threading import Lock
from typing import Generic, Protocol, TypeVar, final


class Closable(Protocol):
    """A response of any driver."""

    def close(self) -> object:
        """Give the connection back."""
        ...


R = TypeVar("R", bound=Closable)


@final
class Heads(Generic[R]):
    """Those of one call."""

    __slots__ = ("_heads", "_lock", "_over")

    def __init__(self) -> None:
        self._heads: list[R] = []
        self._lock = Lock()
        self._over = False

    def add(self, head: R) -> None:
        """Keep a response until the call ends."""
        with self._lock:
            if not self._over:
                self._heads.append(head)
                return
        head.close()

    def close(self, but: R | None = None) -> None:
        """Close those of the attempts so far."""
        heads, self._heads = self._heads, []
        for head in heads:
            if head is not but:
                head.close()

    def end(self, answer: R | None) -> None:
        """Close all but the answer, and whatever is still to come."""
        with self._lock:
            self._over = True
        self.close(answer)
