"""Transport: how messages pass between nodes, for those that must not care.

The cluster limiter and the lab speak through this; messages are values. Delivery is not promised:
a message may be late, doubled or lost, and whoever sends it must be right all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Transport(Protocol):
    """Ask another node, and be asked."""

    async def ask(self, node: str, message: bytes, timeout_us: int) -> bytes:
        """Send `message` to `node` and return its answer, or raise `Unavailable` in time."""
        ...

    def answer(self, handler: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Have `handler(sender, message)` answer what others ask of this node."""
        ...
