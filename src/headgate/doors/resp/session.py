"""Session: what one connection has said of itself, and what all of them share.

Plain values; no bytes come or go here, and nothing is decided.
"""

from __future__ import annotations

from typing import Any, final

from headgate.contracts.access import Access, Identity
from headgate.contracts.clock import Clock
from headgate.contracts.criticality import Criticality
from headgate.contracts.errors import Unauthenticated
from headgate.doors.resp.settings import RespSettings
from headgate.doors.resp.table import Table


@final
class Shared:
    """The service that is asked, in which words, and all that is open.

    `service` is of the kind that the rows of `table` ask; `kept` is what they keep.
    """

    __slots__ = (
        "access",
        "began_s",
        "clock",
        "commands",
        "connections",
        "kept",
        "now_s",
        "service",
        "sessions",
        "settings",
        "table",
    )

    def __init__(
        self,
        service: Any,
        access: Access,
        settings: RespSettings,
        table: Table,
        clock: Clock | None,
    ) -> None:
        self.service = service
        self.access = access
        self.settings = settings
        self.table = table
        self.clock = clock
        self.kept: Any = table.keep(settings)
        self.sessions: dict[int, Session] = {}
        self.connections = 0  # ever made
        self.commands = 0  # ever run
        self.began_s = 0.0  # the loop's time
        self.now_s = 0.0  # when a connection was last made or looked at


@final
class Session:
    """One connection: who speaks, in which protocol, under which name, and what they wish."""

    __slots__ = (
        "arrived_us",
        "at_first",
        "auth_failures",
        "began_s",
        "commands",
        "criticality",
        "ends",
        "id",
        "identity",
        "last",
        "library",
        "library_version",
        "name",
        "patience_us",
        "peer",
        "protocol",
        "shared",
        "strong",
    )

    def __init__(self, shared: Shared, number: int, peer: str, identity: Identity | None) -> None:
        self.shared = shared
        self.id = number
        self.peer = peer
        self.at_first = identity  # what RESET goes back to
        self.identity = identity
        self.protocol = 2
        self.name = ""
        self.library = ""
        self.library_version = ""
        self.last = ""  # the command that was run last
        self.commands = 0
        self.auth_failures = 0
        self.began_s = 0.0
        self.ends = False  # once all replies are out
        self.arrived_us = 0  # when what is run now was read; 0 where there is no clock
        # Of the commands that follow, where a table has rows to say it.
        self.patience_us = 0  # from a command's arrival to its deadline; 0 is for ever
        self.criticality: Criticality | None = None
        self.strong = False

    def wish_nothing(self) -> None:
        """As it was at first."""
        self.patience_us = 0
        self.criticality = None
        self.strong = False


def identity_of(session: Session) -> Identity:
    """Who speaks; the table has seen to it that somebody does."""
    identity = session.identity
    if identity is None:
        raise Unauthenticated("send AUTH first")
    return identity
