"""Facebook form: the queue with two timeouts and the watermark in front of it.

N is `normal_ms`, M is `aggressive_ms`. "Fail at Scale" gives 100 ms and 5 ms as good values across
services. The marks are counts of queued requests: at `high` incoming requests are rejected as
OVERLOADED, until at most `low` wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.codel import CodelSettings, CodelTimeout
from sluicegate.policies.forms.pool import RETRY_AFTER_US, QueuePool
from sluicegate.policies.settings import check_ranges
from sluicegate.policies.stack import StackStage, at_once, waits

QUEUE: Final = "queue"
WATERMARK: Final = "watermark"


@final
@dataclass(frozen=True, kw_only=True)
class FacebookSettings:
    """Slots, the two timeouts, and the marks."""

    slots: int = ranged(32, 1, 1 << 20)
    normal_ms: int = ranged(100, 1, 3_600_000)
    aggressive_ms: int = ranged(5, 1, 3_600_000)
    high: int = ranged(200, 1, 1 << 20)
    low: int = ranged(50, 0, 1 << 20)
    length_max: int = ranged(10_000, 1, 1 << 20)
    bytes_max: int = ranged(64 << 20, 4_096, 1 << 40)

    def __post_init__(self) -> None:
        check_ranges("facebook", self)
        if self.aggressive_ms > self.normal_ms:
            raise BadValue(
                "facebook.aggressive_ms", self.aggressive_ms, f"give at most {self.normal_ms}"
            )
        if self.low >= self.high:
            raise BadValue("facebook.low", self.low, f"give less than high, {self.high}")


class FacebookWatermarkStats(NamedTuple):
    """Counts since the start, and whether it rejects now."""

    admitted: int
    refused: int
    rises: int
    refuses: bool


@final
class FacebookWatermark:
    """Rejects from the high mark on, until the queue has fallen to the low one."""

    def __init__(self, queued: Callable[[], int], high: int, low: int) -> None:
        self._queued = queued
        self._high = high
        self._low = low
        self._admitted = self._refused = self._rises = 0
        self.refuses = False

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Admit it, unless the queue has not fallen to the low mark again."""
        queued = self._queued()
        if self.refuses:
            self.refuses = queued > self._low
        elif queued >= self._high:
            self.refuses = True
            self._rises += 1
        if self.refuses:
            self._refused += 1
            return Decision(False, 0, RETRY_AFTER_US, RETRY_AFTER_US, OVERLOADED, WATERMARK)
        self._admitted += 1
        return NOTHING_HELD

    def stats(self) -> FacebookWatermarkStats:
        """Return counts and state."""
        return FacebookWatermarkStats(self._admitted, self._refused, self._rises, self.refuses)


@final
class FacebookForm:
    """The queue and its watermark, and the stages that a `Stack` takes."""

    def __init__(
        self, settings: FacebookSettings, size_bytes: Callable[[Request], int] | None = None
    ) -> None:
        self.settings = settings
        normal_us = settings.normal_ms * 1_000
        codel = CodelTimeout(
            CodelSettings(normal_us=normal_us, aggressive_us=settings.aggressive_ms * 1_000)
        )
        self.queue = QueuePool(
            name=QUEUE,
            slots=settings.slots,
            timeout_us=codel.timeout_us,
            drop=_keep,
            length_max=settings.length_max,
            bytes_max=settings.bytes_max,
            standing_us=normal_us,
            size_bytes=size_bytes,
        )
        self.watermark = FacebookWatermark(lambda: self.queue.queued, settings.high, settings.low)

    def stages(self) -> list[StackStage]:
        """The stages, in their order."""
        return [at_once(WATERMARK, self.watermark), waits(QUEUE, self.queue)]


def _keep(waited_us: int, now_us: int) -> bool:
    """Drop nothing that leaves the queue: the timeout has decided."""
    return False
