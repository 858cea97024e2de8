"""Send pace: what a connection may be sent in a second, in messages and in bytes."""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.kernels.token_bucket import TokenBucket

TAKEN_MAX: Final = 64  # messages of a channel that are written at once
TAKEN_BYTES: Final = 64 << 10  # after so many of them no more are
_DEBT_MAX: Final = 1 << 30
_US: Final = 1_000_000


class SessionBounds(NamedTuple):
    """Of one connection; 0 is no limit."""

    subscriptions_max: int
    messages_per_s: int  # that it is sent
    bytes_per_s: int


@final
class SendPace:
    """That of one connection, or of some that are sent the same."""

    __slots__ = ("_bytes", "_messages", "charged", "limited", "taken_bytes", "taken_max")

    def __init__(self, bounds: SessionBounds) -> None:
        self._messages = _bucket(bounds.messages_per_s)
        self._bytes = _bucket(bounds.bytes_per_s)
        self.limited = self._messages is not None or self._bytes is not None
        self.charged = False  # for what others were sent too, and nobody has waited for it yet
        # At once no more than a second's worth.
        self.taken_max = min(TAKEN_MAX, bounds.messages_per_s or TAKEN_MAX)
        self.taken_bytes = min(TAKEN_BYTES, bounds.bytes_per_s or TAKEN_BYTES)

    def spend(self, messages: int, size: int, now_us: int) -> int:
        """Take note of what was sent; return for how long nothing more may be."""
        delay_us = 0
        self.charged = False
        for bucket, cost in ((self._messages, messages), (self._bytes, size)):
            if bucket is not None:
                bucket.settle(cost, now_us)
                verdict = bucket.take(0, now_us)
                if not verdict.allowed:
                    delay_us = max(delay_us, verdict.retry_after_us)
        return delay_us

    def rested_us(self, now_us: int) -> int:
        """How long it takes until all that may be sent at once may be."""
        buckets = (self._messages, self._bytes)
        return max((one.take(0, now_us).reset_after_us for one in buckets if one), default=0)

    def go_on_from(self, other: SendPace, now_us: int) -> None:
        """Have no more left than another of the same bounds."""
        for mine, its in ((self._messages, other._messages), (self._bytes, other._bytes)):
            if mine is not None and its is not None:
                missing_us = its.take(0, now_us).reset_after_us
                missing_us -= mine.take(0, now_us).reset_after_us
                if missing_us > 0:
                    mine.settle(missing_us * mine.burst // _US, now_us)
                    self.charged = True


def _bucket(per_s: int) -> TokenBucket | None:
    return TokenBucket(per_s, _US, debt_max=_DEBT_MAX) if per_s else None
