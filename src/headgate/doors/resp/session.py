"""Session: what one connection has said of itself, and what all of them share.

Plain values; no bytes come or go here, and nothing is decided.
"""

from __future__ import annotations

from typing import final

from headgate.contracts.access import Access, Identity
from headgate.contracts.checks import RateLimits
from headgate.contracts.rule import Limit
from headgate.doors.resp.settings import RespSettings


@final
class Shared:
    """The service that is asked, and all that is open."""

    __slots__ = (
        "access",
        "began_s",
        "commands",
        "connections",
        "limits",
        "now_s",
        "service",
        "sessions",
        "settings",
    )

    def __init__(self, service: RateLimits, access: Access, settings: RespSettings) -> None:
        self.service = service
        self.access = access
        self.settings = settings
        self.sessions: dict[int, Session] = {}
        self.connections = 0  # ever made
        self.commands = 0  # ever run
        self.began_s = 0.0  # the loop's time
        self.now_s = 0.0  # when a connection was last made or looked at
        # Limits that other limiters count here, by how they were written.
        self.limits: dict[tuple[bytes, ...], Limit] = {}


@final
class Session:
    """One connection: who speaks, in which protocol, under which name."""

    __slots__ = (
        "at_first",
        "auth_failures",
        "began_s",
        "commands",
        "ends",
        "id",
        "identity",
        "last",
        "library",
        "library_version",
        "name",
        "peer",
        "protocol",
        "shared",
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
