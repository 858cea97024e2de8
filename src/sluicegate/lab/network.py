"""Network: messages between named places, over links that delay, lose, reorder and duplicate.

A link is a value. Its messages arrive in the order in which they were sent, unless one is drawn to
be reordered: then it takes its own delay and passes whom it can. A partition loses whatever crosses
it, messages under way included. Nothing is ever delivered at the instant it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import Constant, Duration, Sampler
from sluicegate.lab.world import World

Deliver: TypeAlias = Callable[[str, object], None]  # who sent it, and what

SHARE_NONE: Final = 0.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLink:
    """One direction between two places: shares are of messages, from 0 to 1."""

    delay: Duration = Constant(500)  # noqa: RUF009 - frozen
    loss: float = SHARE_NONE
    reorder: float = SHARE_NONE
    duplicate: float = SHARE_NONE

    def __post_init__(self) -> None:
        shares = {"loss": self.loss, "reorder": self.reorder, "duplicate": self.duplicate}
        for field, share in shares.items():
            if not 0 <= share <= 1:
                raise BadValue(f"link.{field}", share, "give a share from 0 to 1")


@final
@dataclass(slots=True)
class NetworkStats:
    """Counts of messages since the beginning."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    cut: int = 0  # by a partition
    duplicated: int = 0
    reordered: int = 0


@final
class _LinkState:
    """A link in use: its draws, and when its last message arrives."""

    __slots__ = ("delay_us", "draw", "last_us", "link")

    def __init__(self, link: NetworkLink, world: World, name: str) -> None:
        self.link = link
        self.delay_us: Sampler = link.delay.sampler(world.chance(f"{name}/delay"))
        self.draw = world.chance(f"{name}/fate").draw
        self.last_us = 0


@final
class Network:
    """All places and the links between them; `links` names those that are not the usual one."""

    def __init__(
        self,
        world: World,
        link: NetworkLink | None = None,
        *,
        links: Mapping[tuple[str, str], NetworkLink] | None = None,
    ) -> None:
        self._world = world
        self._link = NetworkLink() if link is None else link
        self._links = dict(links or {})
        self._places: dict[str, Deliver] = {}
        self._states: dict[tuple[str, str], _LinkState] = {}
        self._sides: dict[str, int] = {}
        self._cuts: set[tuple[str, str]] = set()
        self.stats = NetworkStats()

    def join(self, place: str, deliver: Deliver) -> None:
        """Let a place listen: call `deliver` for each message to it."""
        if place in self._places:
            raise BadValue("place", place, "give each place a name of its own")
        self._places[place] = deliver

    def leave(self, place: str) -> None:
        """Remove a place; what is on its way to it is lost."""
        self._places.pop(place, None)

    def partition(self, *sides: Collection[str]) -> None:
        """Cut the network between these groups of places; whoever is in none is with the first."""
        self._sides = {place: at for at, side in enumerate(sides) for place in side}

    def cut(self, source: str, target: str) -> None:
        """Cut one direction between two places."""
        self._cuts.add((source, target))

    def heal(self) -> None:
        """Mend every cut and partition."""
        self._sides = {}
        self._cuts.clear()

    def send(self, source: str, target: str, message: object) -> None:
        """Send and forget."""
        self.stats.sent += 1
        state = self._state(source, target)
        link = state.link
        if link.loss and state.draw() < link.loss:
            self.stats.lost += 1
            return
        copies = 1
        if link.duplicate and state.draw() < link.duplicate:
            self.stats.duplicated += 1
            copies = 2
        for _ in range(copies):
            at_us = self._world.elapsed_us + max(state.delay_us(), 1)
            if link.reorder and state.draw() < link.reorder:
                self.stats.reordered += 1
            else:
                at_us = state.last_us = max(at_us, state.last_us)
            self._world.call_at_us(at_us, self._arrive, source, target, message)

    def apart(self, source: str, target: str) -> bool:
        """Whether a message that way would be lost for sure."""
        sides = self._sides
        if sides and sides.get(source, 0) != sides.get(target, 0):
            return True
        return (source, target) in self._cuts

    def _state(self, source: str, target: str) -> _LinkState:
        state = self._states.get((source, target))
        if state is None:
            link = self._links.get((source, target), self._link)
            state = _LinkState(link, self._world, f"network/{source}/{target}")
            self._states[source, target] = state
        return state

    def _arrive(self, source: str, target: str, message: object) -> None:
        if self.apart(source, target):
            self.stats.cut += 1
            return
        deliver = self._places.get(target)
        if deliver is None:
            self.stats.lost += 1
            return
        self.stats.delivered += 1
        deliver(source, message)
