"""Members: which dispatchers are alive, and the demand on them.

Heartbeats in the store (`heartbeats.py`) find the members, or a number or a list of names in the
settings does. A part of a group follows the demand here, of the demand anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, final

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.settings import within

MEMBERS_MAX: Final = 1_000
SHARE_ONE: Final = 1_000_000  # of demand, in millionths
SEED_PART: Final = 0.02  # of the quota: as if each were asked for so much more
NOTHING: Final[Mapping[str, int]] = {}


class Members(Protocol):
    """The dispatchers of a fleet. `demand_mru` is the demand on this one."""

    demand_mru: Mapping[str, int]

    def live(self) -> int:
        """How many dispatchers, this one included."""

    def names(self) -> Sequence[str]:
        """Their names, this one's first."""

    def demand_elsewhere_mru(self) -> Mapping[str, int]:
        """Return the demand on the others together, an epoch, by caller."""

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """What the others are to know of this one's demand."""


def demand_shares(members: Members, quota_mru_of: Callable[[str], int]) -> dict[str, int]:
    """This dispatcher's share of each caller, in millionths; all members' add up to one at most.

    Everyone counts as asked for a little more than it is, so that who begins somewhere is not
    refused there until the others have heard.
    """
    own, elsewhere = members.demand_mru, members.demand_elsewhere_mru()
    live = max(members.live(), 1)
    shares: dict[str, int] = {}
    for caller in {*own, *elsewhere}:
        demand = own.get(caller, 0)
        little = quota_mru_of(caller) * SEED_PART
        total = demand + elsewhere.get(caller, 0) + live * little
        shares[caller] = min(int((demand + little) / total * SHARE_ONE), SHARE_ONE)
    return shares


@final
class StaticMembers:
    """A number or a list from the settings; the demand on others is unknown."""

    __slots__ = ("_names", "demand_mru")

    def __init__(self, members: int | Sequence[str], own: str = "") -> None:
        if isinstance(members, int):
            within("members", members, 1, MEMBERS_MAX)
            names = [own or "1", *(str(place) for place in range(2, members + 1))]
        else:
            names = [*dict.fromkeys(members)]
            within("members", len(names), 1, MEMBERS_MAX)
            if own:
                if own not in names:
                    raise BadValue("members", own, f"name this one too; named are {names}")
                names.remove(own)
                names.insert(0, own)
        self._names = names
        self.demand_mru: Mapping[str, int] = NOTHING

    def live(self) -> int:
        """As it was written down."""
        return len(self._names)

    def names(self) -> Sequence[str]:
        """Likewise."""
        return list(self._names)

    def demand_elsewhere_mru(self) -> Mapping[str, int]:
        """Return nothing: the others send no heartbeats."""
        return NOTHING

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """Record it; nobody receives it."""
        self.demand_mru = demand_mru
