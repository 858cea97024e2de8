"""Session: what one connection has said of itself, and what all of them share.

Plain values; no bytes come or go here, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Unauthenticated
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.resp.table import Table

ANYBODY: Final = "default"  # the user of clients that know only a password


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
        "owed_bytes",
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
        self.owed_bytes = 0  # of replies that are known, and wait for those before them
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
        "begun_us",
        "commands",
        "criticality",
        "ends",
        "id",
        "identity",
        "last",
        "library",
        "library_version",
        "name",
        "names",
        "patience_us",
        "peer",
        "protocol",
        "shared",
        "strong",
        "token",
        "user",
    )

    def __init__(self, shared: Shared, number: int, peer: str, names: Sequence[str] = ()) -> None:
        self.shared = shared
        self.id = number
        self.peer = peer
        self.names = names  # in its verified certificate
        self.at_first = _at_first(shared.access, names)  # what RESET goes back to
        self.identity = self.at_first
        # What AUTH said, to ask again whose it is; "" before it. Never shown.
        self.user = ""
        self.token = ""
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
        self.begun_us = 0  # and since when it waits for nobody before it on its connection
        # Of the commands that follow, where a table has rows to say it.
        self.patience_us = 0  # from a command's arrival to its deadline; 0 is for ever
        self.criticality: Criticality | None = None
        self.strong = False

    def admit(self, user: str, token: str) -> bool:
        """Whether this is a token of that user (`ANYBODY`: of anybody), who then speaks here."""
        identity = _by_token(self.shared.access, user, token)
        if identity is None:
            return False
        self.identity = identity
        self.user = user
        self.token = token
        return True

    def begin_again(self) -> None:
        """Who speaks is who it was before any AUTH."""
        self.identity = self.at_first
        self.user = self.token = ""

    def resolve(self) -> None:
        """Ask anew who speaks: a token or a name may be somebody else's now, or nobody's.

        Whose token is void is nobody until the next AUTH, and not who they were before it.
        """
        access = self.shared.access
        self.at_first = _at_first(access, self.names)
        if self.token:
            self.identity = _by_token(access, self.user, self.token)
        else:
            self.identity = self.at_first

    def wish_nothing(self) -> None:
        """As it was at first."""
        self.patience_us = 0
        self.criticality = None
        self.strong = False


def _at_first(access: Access, names: Sequence[str]) -> Identity | None:
    """Who a certificate says it is; without a name that is known, who nobody in particular is."""
    found = access.by_certificate(names) if names else None
    return access.anonymous if found is None else found


def _by_token(access: Access, user: str, token: str) -> Identity | None:
    found = access.by_token(token)
    return None if found is None or user not in (ANYBODY, found.name) else found


def identity_of(session: Session) -> Identity:
    """Who speaks; the table has seen to it that somebody does."""
    identity = session.identity
    if identity is None:
        raise Unauthenticated("send AUTH first")
    return identity
