"""CoDel as others have it: folly's rule for requests, and RFC 8289's rule for packets.

*folly CoDel* serves first in, first out, and loses what waited too long in an overloaded interval.
It is the product's kernel `codel.Codel` with folly's own target and interval, and a strong
baseline: nothing collapses under it. It knows neither deadlines nor classes, keeps units whose
callers have left until they come to the front, and has no bound.

*RFC 8289* drops one packet every interval / sqrt(n) while the delay is high: written from section 5
of the RFC, with its target of 5 ms and interval of 100 ms. It is right where senders slow down when
they lose a packet, and wrong for callers who do not (open-loop, or retrying); it is here because it
is what "CoDel" is often taken to mean.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, final

from sluicegate.kernels.codel import Codel
from sluicegate.lab.baselines.queues import NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

TARGET_US: Final = 5_000
INTERVAL_US: Final = 100_000


@final
class FollyCodel(NoControl):
    """A queue that sheds at its front."""

    __slots__ = ("_codel",)

    def __init__(self) -> None:
        super().__init__()
        self._codel = Codel()

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest that CoDel lets pass."""
        while self.units:
            unit = self.units.popleft()
            if not self._codel.drop(now_us - unit.arrived_us, now_us):
                return unit
            lost.append(unit)
        return None


@final
class PacketCodel(NoControl):
    """A queue that drops at its front, ever faster."""

    __slots__ = ("_count", "_drop_next_us", "_dropping", "_high_until_us", "_last_count")

    def __init__(self) -> None:
        super().__init__()
        self._high_until_us = 0  # since when plus an interval the delay has been high; 0: it is not
        self._dropping = False
        self._drop_next_us = 0
        self._count = 0
        self._last_count = 0

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest that is not dropped."""
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

    def _pop(self, now_us: int) -> tuple[WorkUnit | None, bool]:
        if not self.units:
            self._high_until_us = 0
            return None, False
        unit = self.units.popleft()
        if now_us - unit.arrived_us < TARGET_US or not self.units:
            self._high_until_us = 0
            return unit, False
        if self._high_until_us == 0:
            self._high_until_us = now_us + INTERVAL_US
            return unit, False
        return unit, now_us >= self._high_until_us

    def _next_us(self, at_us: int) -> int:
        return at_us + int(INTERVAL_US / sqrt(self._count))


def folly_codel(rig: Rig) -> FollyCodel:
    """Return a queue with folly's defaults."""
    return FollyCodel()


def packet_codel(rig: Rig) -> PacketCodel:
    """Return a queue with the RFC's constants."""
    return PacketCodel()
