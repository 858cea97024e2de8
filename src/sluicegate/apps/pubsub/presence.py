"""Presence: who is in a channel. To enter, update and leave are operations like a publish.

Each is kept in the channel's history, and told to who reads it, in one order with its messages; so
who is in a channel is what its history says, on its home, and survives a restart. It costs what a
publish costs, and is refused like one; but a leave never is, or members that are gone would stay.

A member is there as long as who entered it: a connection, or a lease over HTTP (`Owner`). The last
who entered it owns it, so that a client that connects again is not removed by the end of its old
connection. Another node enters members for those at it, and has `GRACE_S` to come back when its
connection breaks; so have all, when their home starts again.

Bounds: `channel_max` members of a channel, `members_max` of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import PRESENCE_FULL

ENTER: Final = "enter"
UPDATE: Final = "update"
LEAVE: Final = "leave"
GRACE_S: Final = 5.0
RETRY_US: Final = 1_000_000
RULE_ID: Final = "presence"


class PresenceEvent(NamedTuple):
    """What a member did."""

    action: str
    member: str


class Member(NamedTuple):
    """One who is in a channel, since it was last entered or updated."""

    data: object
    position: int


class Place(NamedTuple):
    """A member of a channel."""

    key: ChannelKey
    member: str


@final
class Owner:
    """Who entered members, and takes them along when it goes; after a while, if it is a node."""

    __slots__ = ("ended", "grace_s", "move", "places")

    def __init__(self, grace_s: float = 0.0, move: Callable[[], object] = lambda: None) -> None:
        """`move` has it enter its members again, since a channel has another home."""
        self.grace_s = grace_s
        self.move = move
        self.ended = False
        self.places: set[Place] = set()


@final
class Presence:
    """Members of the channels whose home is here, and owners of those that were entered here."""

    def __init__(self, channel_max: int, members_max: int) -> None:
        self._channel_max = channel_max
        self._members_max = members_max
        self._members: dict[ChannelKey, dict[str, Member]] = {}
        self._count = 0
        self._owners: dict[Place, Owner] = {}

    def __len__(self) -> int:
        return self._count

    def members(self, key: ChannelKey) -> Mapping[str, Member]:
        """Who is in a channel."""
        return self._members.get(key, {})

    def check_room(self, key: ChannelKey) -> None:
        """`Refused` if no member more may enter."""
        found = len(self.members(key))
        if found >= self._channel_max or self._count >= self._members_max:
            raise Refused(Decision(False, 0, RETRY_US, RETRY_US, PRESENCE_FULL, RULE_ID))

    def apply(self, key: ChannelKey, event: PresenceEvent, data: object, position: int) -> None:
        """What the history says."""
        members = self._members.setdefault(key, {})
        self._count -= len(members)
        if event.action == LEAVE:
            members.pop(event.member, None)
        else:
            members[event.member] = Member(data, position)
        self._count += len(members)
        if not members:
            del self._members[key]

    def state(self, key: ChannelKey, member: str, data: object, position: int) -> None:
        """A member who entered before what is read of the history; what was read since is newer."""
        known = self._members.get(key, {}).get(member)
        if known is None or known.position < position:
            self.apply(key, PresenceEvent(ENTER, member), data, position)

    def forget(self, key: ChannelKey) -> None:
        """A channel's home is elsewhere now, and so is who is in it."""
        self._count -= len(self._members.pop(key, ()))

    # Owners.

    def owned(self) -> Sequence[tuple[Place, Owner]]:
        """The members that were entered here, and who did."""
        return list(self._owners.items())

    def owner(self, place: Place) -> Owner | None:
        """Who entered a member here last."""
        return self._owners.get(place)

    def claim(self, place: Place, owner: Owner) -> None:
        """It is this one's now."""
        before = self._owners.get(place)
        if before is not None:
            before.places.discard(place)
        self._owners[place] = owner
        owner.places.add(place)

    def disown(self, place: Place) -> None:
        """It is nobody's."""
        owner = self._owners.pop(place, None)
        if owner is not None:
            owner.places.discard(place)

    def end(self, owner: Owner) -> Sequence[Place]:
        """An owner is gone; the members that go with it."""
        owner.ended = True
        return list(owner.places)

    def unowned(self) -> Iterable[Place]:
        """Members that the history knows and nobody has entered since the start."""
        places = [Place(key, name) for key, members in self._members.items() for name in members]
        return [place for place in places if place not in self._owners]
