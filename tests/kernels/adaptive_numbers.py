"""What the tests of concurrency limits share: the same measurement, many times."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """A number that is fed."""

    limit: int

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int: ...


def updated(limit: Limit, rtt_us: int, *, times: int = 1, inflight: int = 1_000_000) -> int:
    for _ in range(times):
        limit.update(rtt_us, inflight, False, 0.5)
    return limit.limit
