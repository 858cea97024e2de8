"""RFC 8289 CoDel: the rule for packets, one drop every interval / sqrt(n) while the delay is high.

It is right where senders slow down when they lose a packet. It is not right for callers who do not
(open-loop, or retrying), and it is here because it is what "CoDel" is often taken to mean.
Written from section 5 of the RFC, with its target of 5 ms and interval of 100 ms.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import Final, final

from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig

TARGET_US: Final = 5_000
INTERVAL_US: Final = 100_000


@final
class PacketCodel:
    """A queue that drops at its front, ever faster."""

    __slots__ = ("_count", "_drop_next_us", "_dropping", "_high_until_us", "_last_count", "_units")

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self._high_until_us = 0  # since when plus an interval the delay has been high; 0: it is not
        self._dropping = False
        self._drop_next_us = 0
        self._count = 0
        self._last_count = 0

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Everyone waits."""
        self._units.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest that is not dropped."""
        unit, may_drop = self._pop(now_us)
        if self._dropping:
            if not may_drop:
                self._dropping = False
            while unit is not None and self._dropping and now_us >= self._drop_next_us:
                lost.append(unit)
                self._count += 1
                unit, may_drop = self._pop(now_us)
                if may_drop:
                    self._drop_next_us = self._next_us(self._drop_next_us)
                else:
                    self._dropping = False
        elif unit is not None and may_drop:
            lost.append(unit)
            unit, _ = self._pop(now_us)
            self._dropping = True
            since = self._count - self._last_count
            lately = now_us - self._drop_next_us < 16 * INTERVAL_US
            self._count = since if since > 1 and lately else 1
            self._drop_next_us = self._next_us(now_us)
            self._last_count = self._count
        return unit

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)

    def _pop(self, now_us: int) -> tuple[Unit | None, bool]:
        if not self._units:
            self._high_until_us = 0
            return None, False
        unit = self._units.popleft()
        if now_us - unit.arrived_us < TARGET_US or not self._units:
            self._high_until_us = 0
            return unit, False
        if self._high_until_us == 0:
            self._high_until_us = now_us + INTERVAL_US
            return unit, False
        return unit, now_us >= self._high_until_us

    def _next_us(self, at_us: int) -> int:
        return at_us + int(INTERVAL_US / sqrt(self._count))


def packet_codel(rig: Rig) -> PacketCodel:
    """With the RFC's constants, for any rig."""
    return PacketCodel()
