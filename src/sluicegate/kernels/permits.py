"""Permits: at most so many at once, and who never comes back does not hold a place for ever.

Source: the counting semaphore of Dijkstra (1965), and the lease of Gray and Cheriton (1989): a
right that ends by itself unless its holder renews it.

    admitted    <=>  used + count <= limit        used = the sum of counts with until > now
    until       =    now + expires_after          at the acquire, and again at each renewal

A semaphore is right as long as everybody who takes gives back. Across processes nobody can promise
that: one is killed, one loses its network, one hangs. So a permit has a name and an instant. What
gives a place back is the name, and never a bare count: a release that comes after the expiry finds
the name gone and is void, so it cannot free the place of whoever was let in meanwhile. For the same
reason a renewal that comes too late does not revive: the place may have been given away, and a
holder that is told so can stop.

What was changed from the usual form: no heap and no sweep. Every permit of a set lasts equally long
and time does not go back here, so the order of acquires and renewals *is* the order of expiry. An
ordered dict is the whole queue: a renewal moves its entry to the end, what has expired stands at
the front.

A refusal says when enough places will be free if nobody renews and nobody releases. A release makes
it sooner and a renewal later, so it is a hint for machines without a line of their own, and never a
promise. With weights it is the instant at which *enough* places expire, not the first.

Not good at: saying how many really work. A holder that does not look whether it still holds goes on
working after its expiry, while another has its place. And there is no order among those who ask: a
line is what the caller stands in.

A clock that goes back stands still here: no permit ends sooner or later by it than by the latest
instant that was seen.

Cost: a dict look-up and an insertion to acquire; what has expired is paid for once, by whoever
comes next; a refusal walks over as many permits as it lacks places. About 300 bytes a permit.
Bounds: `limit` permits of one place each; limit and expiry from 1 to 2^53.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.verdict import NEVER, Verdict

LIMIT_MAX: Final = 1 << 53
EXPIRES_AFTER_US_MAX: Final = 1 << 53


@final
class PermitSet:
    """The places of one key: at most `limit` held at once, each for `expires_after_us`."""

    __slots__ = ("_latest_us", "_permits", "_used", "expires_after_us", "limit")

    def __init__(self, limit: int, expires_after_us: int) -> None:
        within("limit", limit, 1, LIMIT_MAX)
        within("expires_after_us", expires_after_us, 1, EXPIRES_AFTER_US_MAX)
        self.limit = limit
        self.expires_after_us = expires_after_us
        # Name: until when, and how many places. In the order of expiry.
        self._permits: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._used = 0
        self._latest_us = 0

    def acquire(self, permit_id: str, count: int, now_us: int) -> Verdict:
        """Hold `count` places under this name, or say when enough will have expired."""
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        latest_us = self._forget(now_us)
        if permit_id in self._permits:
            raise ValueError(f"permit {permit_id!r} is held already")
        if self._used + count > self.limit:
            return self._verdict(False, count, now_us)
        self._permits[permit_id] = latest_us + self.expires_after_us, count
        self._used += count
        return self._verdict(True, count, now_us)

    def look(self, count: int, now_us: int) -> Verdict:
        """What `acquire` would answer; nothing is held by it."""
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        self._forget(now_us)
        return self._verdict(self._used + count <= self.limit, count, now_us)

    def renew(self, permit_id: str, now_us: int) -> bool:
        """Hold it for the whole time from now; False if it has ended, and then nothing happens."""
        latest_us = self._forget(now_us)
        permit = self._permits.get(permit_id)
        if permit is None:
            return False
        self._permits[permit_id] = latest_us + self.expires_after_us, permit[1]
        self._permits.move_to_end(permit_id)
        return True

    def release(self, permit_id: str, now_us: int) -> bool:
        """Give the places back; False if it has ended, and then nothing happens."""
        self._forget(now_us)
        permit = self._permits.pop(permit_id, None)
        if permit is None:
            return False
        self._used -= permit[1]
        return True

    def used(self, now_us: int) -> int:
        """The places that are held."""
        self._forget(now_us)
        return self._used

    def _forget(self, now_us: int) -> int:
        """Drop what has expired; the instant, which never goes back."""
        if now_us > self._latest_us:
            self._latest_us = now_us
        permit = self._permits
        while permit:
            permit_id = next(iter(permit))
            until_us, count = permit[permit_id]
            if until_us > self._latest_us:
                break
            del permit[permit_id]
            self._used -= count
        return self._latest_us

    def _verdict(self, allowed: bool, count: int, now_us: int) -> Verdict:
        """Distances are from the instant that was given, even if the clock went back."""
        reset_us = 0
        if self._permits:
            reset_us = self._permits[next(reversed(self._permits))][0] - now_us
        if allowed:
            return Verdict(True, self.limit - self._used, 0, reset_us)
        if count > self.limit:
            return Verdict(False, self.limit - self._used, NEVER, reset_us)
        lacking, retry_us = self._used + count - self.limit, 0
        for until_us, places in self._permits.values():
            lacking -= places
            if lacking <= 0:
                retry_us = until_us - now_us
                break
        return Verdict(False, self.limit - self._used, retry_us, reset_us)
