"""Heads: the responses of one call that blocks, all but the last of which are closed unread.

Attempts may run in threads of their own. A response that comes after the call has ended is closed.
"""

from __future__ import annotations

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

    __slots__ = ("_answer", "_over", "kept")

    def __init__(self) -> None:
        self.kept: list[R] = []
        self._answer: R | None = None
        self._over = False

    def add(self, head: R) -> None:
        """Keep a response until the call ends."""
        self.kept.append(head)
        if self._over:
            self.close()

    def close(self) -> None:
        """Close those so far, but no answer; of two threads that do, one gets each response."""
        while self.kept:
            try:
                head = self.kept.pop()
            except IndexError:  # another thread has taken the last
                return
            if head is not self._answer:
                head.close()

    def end(self, answer: R | None) -> None:
        """Close all but the answer, and any response that arrives later."""
        self._answer = answer
        self._over = True
        self.close()
