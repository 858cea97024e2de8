"""A key-value door over a dispatcher in memory, and a client that says one thing at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from sluicegate.contracts.access import EVERY_TABLE_GRANT, Identity, TableGrant
from sluicegate.contracts.clock import Clock
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.testing import HandClock
from sluicegate.testing.key_values import MemoryKeyValues
from sluicegate.wire.resp import Part, command
from tests.doors.resp.service import Tokens
from tests.doors.resp.talk import Talk

EVERYTHING = {"*": EVERY_TABLE_GRANT}
ANN = Identity("ann", (), {"users": EVERY_TABLE_GRANT})
READER = Identity("bob", (), {"users": frozenset({TableGrant.READ})})


WRITER = Identity("carl", (), {"users": frozenset({TableGrant.WRITE})})


class Everybody(Tokens):
    """Access for all, to every table; `secret` is ann's, `look` is bob's, `drop` is carl's."""

    def __init__(self) -> None:
        super().__init__({"secret": ANN, "look": READER, "drop": WRITER})
        self.anonymous = Identity("", (), EVERYTHING)


def kv_door(
    late: bool = False, clock: Clock | None = None, **reply: Any
) -> tuple[MemoryKeyValues, RespDoor]:
    """A dispatcher, and a door to it."""
    service = MemoryKeyValues(clock, late=late)
    settings = RespSettings(**reply)
    return service, RespDoor(service, Everybody(), settings, KEY_VALUES, service.clock)


class Client:
    """Says one command and reads its one reply; a string is cut at its spaces."""

    def __init__(self, late: bool = False, clock: Clock | None = None, **reply: Any) -> None:
        self.clock = HandClock() if clock is None else clock
        self.service, self.door = kv_door(late, self.clock, **reply)
        self.talk = Talk(self.door)
        self.reader = hiredis.Reader()

    async def say(self, line: str | Sequence[Part], *more: Part) -> Any:
        parts = [*(line.split() if isinstance(line, str) else line), *more]
        self.reader.feed(await self.talk.request(command(*parts)))
        reply = self.reader.gets()
        assert self.reader.gets() is False, "one reply, and nothing more"
        return str(reply) if isinstance(reply, hiredis.ReplyError) else reply

    def another(self) -> Client:
        """Another connection to the same door."""
        other = Client.__new__(Client)
        other.clock, other.service, other.door = self.clock, self.service, self.door
        other.talk = Talk(self.door)
        other.reader = hiredis.Reader()
        return other

    @property
    def hand(self) -> HandClock:
        assert isinstance(self.clock, HandClock)
        return self.clock
