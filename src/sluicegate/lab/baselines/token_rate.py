"""Token bucket: so many a second with a burst, and a queue behind.

It is what gateways and quotas use: the product's own kernel, with a rate that somebody tuned. At
its best that is 98% of the capacity with a burst of a tenth of a second, as here. It is not told
when the work becomes dearer or the backend slower, and admits the same number then.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig

SHARE: Final = 0.98
BURST_S: Final = 0.1


@final
class TokenRate:
    """`per_s` a second, and `burst` at once."""

    __slots__ = ("_bucket", "_units")

    def __init__(self, per_s: int, burst: int) -> None:
        self._bucket = TokenBucket(per_s, 1_000_000, burst)
        self._units: deque[Unit] = deque()

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Whoever finds too few tokens is refused."""
        if self._bucket.take(1, now_us).allowed:
            self._units.append(unit)
        else:
            lost.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest."""
        return self._units.popleft() if self._units else None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def token_rate(rig: Rig) -> TokenRate:
    """98% of the capacity at speed 1."""
    per_s = max(int(SHARE * rig.capacity_per_s), 1)
    return TokenRate(per_s, max(int(per_s * BURST_S), 1))
