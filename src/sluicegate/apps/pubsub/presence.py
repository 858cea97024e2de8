"""Presence: who is in a channel. To enter, update and leave are operations like a publish.

Each is kept in the channel's history, and told to who reads it, in one order with its messages; so
who is in a channel is what its history says, on its home, and survives a restart. It costs what a
publish costs, and is refused like one; but a leave never is, or members that are gone would stay.

A member is there as long as who entered it: a connection, or a lease over HTTP (`Owner`). The last
who entered it owns it, so that a client that connects again is not removed by the end of its old
connection. Another node enters members for those at it, and has `GRACE_S` to come back when its
connection breaks; so have all, when their home starts again.

A member counts for the bytes of its name and data and `MEMBER_BYTES`. A member that is about to
enter counts from when it is let in (`reserve`) until the history has it or could not keep it. One
that was entered here into a channel of another node counts too: this node keeps it, to enter it
again when the connection breaks.

Bounds: `PresenceBounds`. A page of members is bounded in bytes too, and ends with at least one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.reasons import PRESENCE_FULL
from sluicegate.wire.json_objects import encode_json

ENTER: Final = "enter"
UPDATE: Final = "update"
LEAVE: Final = "leave"
GRACE_S: Final = 5.0
RETRY_US: Final = 1_000_000
RULE_ID: Final = "presence"
MEMBER_BYTES: Final = 1_024  # of the entries of a member and its owner: 0.98 KB in CPython
PAGE_BYTES: Final = 64 << 10  # of a page, if the client asks for no other
PAGE_BYTES_MAX: Final = 1 << 20


class PresenceBounds(NamedTuple):
    """How much may be present; those of a channel, a member and an account are settings."""

    presence_channel_max: int = 1_000
    presence_max: int = 100_000
    presence_member_bytes: int = 4 << 10
    presence_account_bytes: int = 64 << 20
    presence_bytes: int = 128 << 20


class PresenceEvent(NamedTuple):
    """What a member did. `reserved` bytes are given back when the history has it, or never will."""

    action: str
    member: str
    reserved: int = 0


class Member(NamedTuple):
    """One who is in a channel, since it was last entered or updated. `data` is JSON."""

    data: bytes
    position: int


class MembersPage(NamedTuple):
    """Some members of a channel, by name. The next page begins after `next`; "" on the last page.

    Members that enter or leave between two pages may be missing.
    """

    members: Mapping[str, Member]
    next: str


class Place(NamedTuple):
    """A member of a channel."""

    key: ChannelKey
    member: str


@final
class Owner:
    """Who entered members, and takes them along when it goes; after a while, if it is a node."""

    __slots__ = ("drop", "ended", "grace_s", "move", "places")

    def __init__(self, grace_s: float = 0.0, move: Callable[[], object] = lambda: None) -> None:
        """`move` has it enter its members again, since a channel has another home."""
        self.grace_s = grace_s
        self.move = move
        self.ended = False
        self.places: set[Place] = set()
        self.drop: Callable[[], object] = lambda: None  # called when its last member is another's

    def give_up(self, place: Place) -> None:
        """Lose a member to another owner, or to none."""
        self.places.discard(place)
        if not self.places:
            self.drop()


@final
class _Room:
    """The members of one channel, and their names in order."""

    __slots__ = ("entering", "members", "names")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.names: list[str] = []
        self.entering = 0  # let in, and not in the history yet


@final
class Presence:
    """Members of the channels whose home is here, and owners of those that were entered here."""

    def __init__(self, bounds: PresenceBounds | None = None) -> None:
        self.bounds = PresenceBounds() if bounds is None else bounds
        self.bytes = 0
        self.bytes_of: dict[str, int] = {}  # by account
        self._rooms: dict[ChannelKey, _Room] = {}
        self._count = 0
        self._entering = 0
        self._owners: dict[Place, _Held] = {}

    def __len__(self) -> int:
        return self._count

    def members(self, key: ChannelKey) -> Mapping[str, Member]:
        """Who is in a channel."""
        room = self._rooms.get(key)
        return {} if room is None else room.members

    def page(self, key: ChannelKey, after: str, bytes_max: int) -> MembersPage:
        """Return the members after a name, up to `bytes_max`, and at least one."""
        room = self._rooms.get(key)
        if room is None:
            return MembersPage({}, "")
        found: dict[str, Member] = {}
        size, at, names = 0, bisect_right(room.names, after), room.names
        while at < len(names) and (size < bytes_max or not found):
            member = room.members[names[at]]
            size += page_bytes(names[at], member)
            if found and size > bytes_max:
                break
            found[names[at]] = member
            at += 1
        return MembersPage(found, names[at - 1] if at < len(names) else "")

    # Bounds.

    def text_of(self, data: object) -> bytes:
        """Return the data of a member as JSON; `BadValue` if it is too long."""
        text = data_text(data)
        most = self.bounds.presence_member_bytes
        if len(text) > most:
            remedy = f"send at most {most:,} of a member (--presence-member-bytes)"
            raise BadValue("data", f"{len(text):,} bytes", remedy)
        return text

    def reserve(self, key: ChannelKey, action: str, member: str, text: bytes) -> PresenceEvent:
        """Let a member enter or be updated; `Refused` if there is no room for it."""
        bounds = self.bounds
        room = self._rooms.get(key)
        if action == ENTER:
            here = 0 if room is None else len(room.names) + room.entering
            _check("presence_channel_max", here + 1, bounds.presence_channel_max)
            _check("presence_max", self._count + self._entering + 1, bounds.presence_max)
        size = _bytes_of(member, text)
        self.hold(key.account, size)
        if action == ENTER:
            if room is None:
                room = self._rooms[key] = _Room()
            room.entering += 1
            self._entering += 1
        return PresenceEvent(action, member, size)

    def release(self, key: ChannelKey, event: PresenceEvent) -> None:
        """Give back reserved bytes: the history has the member now, or could not keep it."""
        if event.reserved:
            self._add_bytes(key.account, -event.reserved)
            if event.action == ENTER:
                self._entering -= 1
                room = self._rooms[key]
                room.entering -= 1
                self._forget_empty(key, room)

    def hold(self, account: str, size: int) -> None:
        """Count bytes of an account; `Refused` beyond a bound."""
        bounds = self.bounds
        mine = self.bytes_of.get(account, 0) + size
        _check("presence_account_bytes", mine, bounds.presence_account_bytes)
        _check("presence_bytes", self.bytes + size, bounds.presence_bytes)
        self._add_bytes(account, size)

    def let_go(self, account: str, size: int) -> None:
        """Give back bytes of an account."""
        self._add_bytes(account, -size)

    # Events of the history.

    def apply(self, key: ChannelKey, event: PresenceEvent, data: object, position: int) -> None:
        """A member entered, was updated or left."""
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = _Room()
        name = event.member
        before = room.members.pop(name, None)
        if before is not None:
            self._add_bytes(key.account, -_bytes_of(name, before.data))
        if event.action != LEAVE:
            member = room.members[name] = Member(encode_json(data), position)
            self._add_bytes(key.account, _bytes_of(name, member.data))
            if before is None:
                insort(room.names, name)
                self._count += 1
        elif before is not None:
            del room.names[bisect_left(room.names, name)]
            self._count -= 1
        self.release(key, event)
        self._forget_empty(key, room)

    def state(self, key: ChannelKey, member: str, data: object, position: int) -> None:
        """A member who entered before what is read of the history; what was read since is newer."""
        known = self.members(key).get(member)
        if known is None or known.position < position:
            self.apply(key, PresenceEvent(ENTER, member), data, position)

    def forget(self, key: ChannelKey) -> None:
        """A channel's home is elsewhere now, and so is who is in it."""
        room = self._rooms.get(key)
        if room is not None:
            for name, member in room.members.items():
                self._add_bytes(key.account, -_bytes_of(name, member.data))
            self._count -= len(room.names)
            room.members.clear()
            room.names.clear()
            self._forget_empty(key, room)

    def _forget_empty(self, key: ChannelKey, room: _Room) -> None:
        if not (room.names or room.entering) and self._rooms.get(key) is room:
            del self._rooms[key]

    def _add_bytes(self, account: str, size: int) -> None:
        self.bytes += size
        left = self.bytes_of.get(account, 0) + size
        if left:
            self.bytes_of[account] = left
        else:
            self.bytes_of.pop(account, None)

    # Owners.

    def owned(self) -> Sequence[tuple[Place, Owner]]:
        """The members that were entered here, and who did."""
        return [(place, held.owner) for place, held in self._owners.items()]

    def owner(self, place: Place) -> Owner | None:
        """Who entered a member here last."""
        held = self._owners.get(place)
        return None if held is None else held.owner

    def claim(self, place: Place, owner: Owner, held: int = 0) -> None:
        """Make `owner` the owner of a member, and count `held` bytes until another claims it."""
        self.disown(place)
        self._owners[place] = _Held(owner, held)
        owner.places.add(place)

    def disown(self, place: Place) -> None:
        """It is nobody's."""
        held = self._owners.pop(place, None)
        if held is not None:
            held.owner.give_up(place)
            self.let_go(place.key.account, held.bytes)

    def end(self, owner: Owner) -> Sequence[Place]:
        """An owner is gone; the members that go with it."""
        owner.ended = True
        return list(owner.places)

    def unowned(self) -> Iterable[Place]:
        """Members that the history knows and nobody has entered since the start."""
        places = [Place(key, name) for key, room in self._rooms.items() for name in room.names]
        return [place for place in places if place not in self._owners]


class _Held(NamedTuple):
    """The owner of a member, and the bytes held for a member of another node's channel."""

    owner: Owner
    bytes: int


def data_text(data: object) -> bytes:
    """Return data as JSON; `BadValue` for values that JSON cannot write."""
    try:
        return encode_json(data, "strict")
    except (ValueError, RecursionError):
        remedy = "send what JSON in UTF-8 can write, and at most some hundred levels"
        raise BadValue("data", "(not shown)", remedy) from None


def page_bytes(name: str, member: Member) -> int:
    """Return the bytes of one member in a page."""
    return len(member.data) + len(name) + len(b'{"member":"","data":,"position":9007199254740991},')


def _bytes_of(name: str, text: bytes) -> int:
    return len(name) + len(text) + MEMBER_BYTES


def _check(bound: str, found: int, most: int) -> None:
    if found > most:
        flag = "--" + bound.replace("_", "-")
        unit = "bytes" if bound.endswith("_bytes") else "members"
        detail = f"{flag} {most}: there would be {found:,} {unit}; let members leave, or raise it"
        raise Refused(Decision(False, 0, RETRY_US, RETRY_US, PRESENCE_FULL, RULE_ID), detail)
