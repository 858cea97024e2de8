"""Leases: units that a client has taken in advance and spends by itself, until a deadline.

A lease is debited before a unit of it is spent, in all rules of the ask together. What keeps it
honest is the law of `limits/lease.py`: in a window it ends with the window (or cell) it was taken
in, so each unit counts where it was debited. A bucket has no windows. There a lease lives for at
most D, and costs beside its units a surcharge of what flows in during D: without it, the units of a
lease and what has flowed back in meanwhile could be spent in the same moment. The surcharge is
charged once a lease and never given back; it is a twentieth of the bucket at most.

The distance that a client is told ends no later than the deadline: it counts from before it asked,
and here it is counted from when its question came. What is given back goes out of the window it was
taken in and out of no other. A lease is given back once, by who took it, before it ends; after that
it is void, and what nobody gives back has simply been spent.

Bounds: `LEASES_MAX` open leases. Beyond those a lease is good, but cannot be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.store import SharedKey
from sluicegate.limits.reservation import Reservation

LEASES_MAX: Final = 100_000
LEASE_US_MAX_DEFAULT: Final = 10_000_000
NOT_KEPT: Final = ""  # the id of a lease that nobody can give back


class LeasePart(NamedTuple):
    """What a lease has taken of one rule: its key, and how to give back."""

    key: SharedKey
    cost: int
    reservation: Reservation


@final
class OpenLease:
    """A lease that may still be given back."""

    __slots__ = ("deadline_us", "holder", "parts", "units")

    def __init__(
        self, holder: str, units: int, deadline_us: int, parts: Sequence[LeasePart]
    ) -> None:
        self.holder = holder
        self.units = units
        self.deadline_us = deadline_us
        self.parts = parts


@final
class OpenLeases:
    """The open leases by their ids, which nobody can guess, the oldest first."""

    __slots__ = ("_count", "_leases", "_leases_max", "_secret")

    def __init__(self, chance: Chance, leases_max: int) -> None:
        draws = [int(chance.draw() * (1 << 53)).to_bytes(7, "big") for _ in range(4)]
        self._secret = b"".join(draws)
        self._count = 0
        self._leases: dict[str, OpenLease] = {}
        self._leases_max = leases_max

    def __len__(self) -> int:
        return len(self._leases)

    def keep(self, lease: OpenLease, now_us: int) -> str:
        """The id of a lease from now on; `NOT_KEPT` where there is no room."""
        self._sweep(now_us)
        if len(self._leases) >= self._leases_max:
            return NOT_KEPT
        self._count += 1
        number = self._count.to_bytes(8, "big")
        mark = blake2b(number, key=self._secret, digest_size=12).hexdigest()
        lease_id = f"{self._count:x}-{mark}"
        self._leases[lease_id] = lease
        return lease_id

    def end(self, lease_id: str, holder: str, now_us: int) -> OpenLease | None:
        """Take a lease out, to be given back; None if it is void, or somebody else's."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.holder != holder:
            return None
        del self._leases[lease_id]
        return lease if now_us < lease.deadline_us else None

    def void(self, keys: set[SharedKey]) -> None:
        """These keys were reset: what was taken of them before can no more be given back."""
        ended = [
            lease_id
            for lease_id, lease in self._leases.items()
            if any(part.key in keys for part in lease.parts)
        ]
        for lease_id in ended:
            del self._leases[lease_id]

    def _sweep(self, now_us: int) -> None:
        """Forget what has ended. The oldest goes first; none of them lives for very long."""
        while self._leases:
            oldest = next(iter(self._leases))
            if now_us < self._leases[oldest].deadline_us:
                return
            del self._leases[oldest]


def ladder(units: int, most: int) -> list[int]:
    """What to ask for: all, then half of it, and so on down to one; nothing above `most`."""
    rungs: list[int] = []
    while units >= 1:
        if units <= most:
            rungs.append(units)
        units //= 2
    return rungs
