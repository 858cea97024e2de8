"""Permit: a place that somebody holds, until it is given back or its time is over; exactly once.

It knows its name, its key and until when it surely holds. That instant is counted from before the
store was asked, so it is never later than the store's own: whoever looks at `active` stops before
the place can be somebody else's. What it costs to give back is the store's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.limits.wait_lines import finish


class PermitStore(Protocol):
    """Where places are held. A store that cannot answer raises `Unavailable`; it never guesses."""

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Hold `count` places of `key` under this name."""

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Hold them for the whole time from now; False if the permit has ended."""

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """Give them back; False if the permit has ended."""

    async def look(self, key: str, count: int) -> Decision:
        """Return what `acquire` would decide."""

    async def close(self) -> None:
        """Give back the connections; what is held stays held until it ends."""


@final
class FixedPermitStore:
    """The store of permits that hold no place, because nothing could be asked or nobody should."""

    __slots__ = ("decide",)

    def __init__(self, decide: Callable[[], Decision]) -> None:
        self.decide = decide

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Whatever was settled beforehand."""
        return self.decide()

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Nobody can have taken it."""
        return True

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """There is nothing to give back."""
        return True

    async def look(self, key: str, count: int) -> Decision:
        """Whatever was settled beforehand."""
        return self.decide()

    async def close(self) -> None:
        """Nothing is open."""


class PermitOwner(Protocol):
    """What a permit needs of those it is one of."""

    expires_after_us: int

    def now_us(self) -> int:
        """Return the instant of this process."""

    @property
    def blocking(self) -> PermitStore:
        """The store as a thread asks it."""

    def here(self) -> PermitStore:
        """Return the store of the running loop."""

    def wake(self, key: str) -> None:
        """A place of `key` may be free: have the first of its line ask."""


@final
class KeyPermit:
    """The right to do one unit of work. True in a condition if it was admitted.

    A refused one holds nothing, and ends as one that has ended already.
    """

    __slots__ = ("_id", "_local", "_open", "_permits", "_until_us", "count", "decision", "key")

    def __init__(
        self,
        permits: PermitOwner,
        local: PermitStore | None,
        permit_id: str,
        key: str,
        count: int,
        decision: Decision,
        until_us: int,
    ) -> None:
        self._permits = permits
        self._local = local  # None: the remote store, of whoever asks
        self._id = permit_id
        # Popped by whoever ends it: of two who try at once, one.
        self._open: list[None] = [None] if decision.allowed else []
        self._until_us = until_us
        self.key = key
        self.count = count
        self.decision = decision

    @property
    def active(self) -> bool:
        """Whether the place is surely still held; looks at the clock and asks nobody."""
        return bool(self._open) and self._permits.now_us() < self._until_us

    def release(self) -> bool:
        """Give the place back; False if it had ended, or if the store cannot be told now."""
        return finish(self.release_in(self._local or self._permits.blocking))

    async def arelease(self) -> bool:
        """`release`, for asyncio."""
        return await self.release_in(self._local or self._permits.here())

    def renew(self) -> bool:
        """Hold it for the whole time from now. False if it has ended, or the store cannot say.

        What has ended stays ended, even if the place is still free: `active` tells the two apart.
        """
        return finish(self.renew_in(self._local or self._permits.blocking))

    async def arenew(self) -> bool:
        """`renew`, for asyncio."""
        return await self.renew_in(self._local or self._permits.here())

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """`release`, as a `contracts.permit.Permit`: a fixed limit does not learn from outcomes.

        Whether it came too late is told by the store's clock and not by `now_us`.
        """
        return self.release()

    async def release_in(self, store: PermitStore) -> bool:
        """Give it back to this store, which must be where it is held."""
        try:
            self._open.pop()
        except IndexError:
            return False
        try:
            return await store.release(self.key, self._id, self.count)
        except Unavailable:
            # Its place comes back all the same, at the latest when it expires.
            return False
        finally:
            self._permits.wake(self.key)

    async def renew_in(self, store: PermitStore) -> bool:
        """Renew it in this store, which must be where it is held."""
        if not self._open:
            return False
        sent_us = self._permits.now_us()
        try:
            renew_in = await store.renew(self.key, self._id, self.count)
        except Unavailable:
            return False
        if renew_in:
            self._until_us = sent_us + self._permits.expires_after_us
        else:
            self._open.clear()
        return renew_in

    def held_in(self, store: PermitStore) -> PermitStore:
        """Return where it is held, for who has the remote store at hand."""
        return self._local or store

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        state = "held" if self.active else "ended" if self.decision.allowed else "refused"
        return f"<Permit {state}: {self.count} of {self.decision.rule_id!r} for {self.key!r}>"
