"""Access: who may do what with a service.

A door reads who calls (a token, a certificate's name, or nobody) and looks up the identity; the
service checks the identity for the grant that each operation needs. There are few grants: CHECK
alone does not let a caller see why a user was refused, or forget what was counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol, final

from sluicegate.contracts.channel_scope import ChannelRight, ChannelScope
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Forbidden

FOREVER: Final = -1
EXPIRED: Final = "the token has expired"
REVOKED: Final = "access was revoked or reduced"
WITHDRAWN: Final = "the key of the token was withdrawn"


class Grant(Enum):
    """What a caller may do with a service."""

    CHECK = "check"  # may this enter? and count it
    RESET = "reset"  # forget what was counted
    LEASE = "lease"  # take in advance, give back, correct: for clients that count themselves
    AUDIT = "audit"  # read decisions, states and rules
    CAPTURE = "capture"  # read captured traffic
    READ_RULES = "read-rules"  # rules, proposals, what a fleet runs
    PROPOSE = "propose"  # a change of rules
    APPROVE = "approve"  # a change of rules: it goes live, or comes back
    REPORT = "report"  # usage, and act for accounts, as the node of a cluster that its name says
    PUBLISH = "publish"  # messages, in channels of the account that the caller is
    SUBSCRIBE = "subscribe"  # to those channels, and read their history
    FETCH = "fetch"  # images: have them downloaded and processed
    UPLOAD = "upload"  # images
    OPERATE = "operate"  # back up, restore, make room, remove images: for operators
    SPEAK_FOR = "speak-for"  # people who have logged in there: for a console

    # Looked up for every request; that of Enum is a function of Python.
    __hash__ = object.__hash__


class TableGrant(Enum):
    """What may be done with a table of a key-value store."""

    READ = "read"
    WRITE = "write"
    BULK = "bulk"  # upload in bulk

    __hash__ = object.__hash__


EVERY_GRANT = frozenset(Grant)
EVERY_TABLE_GRANT = frozenset(TableGrant)
ANY_TABLE: Final = "*"  # stands for every table that is not named
_NOTHING: Final[frozenset[TableGrant]] = frozenset()
_NO_TABLES: Final[Mapping[str, frozenset[TableGrant]]] = {}


@final
class Standing:
    """Whether a credential still counts: `ended` is empty, or the reason why it does not."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = ""


@final
class Identity:
    """A caller: its name, grants, and the criticality of its requests unless they claim another.

    `tables` has its grants on the tables of a key-value store; none on one that is not there.
    `highest` is the highest class it may claim; None leaves that to the service.

    Streams and requests of the caller end at `until_us`, and when one of `standings` ends: each
    connection checks `ended`. `client` and `channels` are those of a signed token for pub/sub.
    """

    __slots__ = (
        "channels", "client", "criticality", "grants", "highest", "may_check", "name", "standings",
        "tables", "until_us",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        grants: Iterable[Grant],
        tables: Mapping[str, frozenset[TableGrant]] = _NO_TABLES,
        criticality: Criticality | None = None,
        highest: Criticality | None = None,
        *,
        standings: tuple[Standing, ...] = (),
        until_us: int = FOREVER,
        client: str = "",
        channels: ChannelScope | None = None,
    ) -> None:
        self.name = name
        self.grants = frozenset(grants)
        self.may_check = Grant.CHECK in self.grants  # read at every decision
        self.tables = tables
        self.criticality = criticality
        self.highest = highest
        self.standings = standings or (Standing(),)
        self.until_us = until_us
        self.client = client
        self.channels = channels

    def ended(self, now_us: int) -> str:
        """Return why nothing may stay open for the caller; empty while it may."""
        for standing in self.standings:
            if standing.ended:
                return standing.ended
        return EXPIRED if 0 <= self.until_us <= now_us else ""

    def revoke(self) -> None:
        """End what is open for the caller, and for those whose rights rest on this identity."""
        self.standings[0].ended = REVOKED

    def until(self, until_us: int, standing: Standing) -> Identity:
        """Return the same caller for a session, which ends by itself or with `standing`."""
        return Identity(
            self.name,
            self.grants,
            self.tables,
            self.criticality,
            self.highest,
            standings=(standing, *self.standings),
            until_us=until_us,
        )

    def change(self, other: Identity) -> None:
        """Take over the rights of `other`, which are no fewer."""
        self.grants = other.grants
        self.may_check = other.may_check
        self.tables = other.tables
        self.criticality = other.criticality
        self.highest = other.highest

    def may(self, grant: Grant) -> bool:
        """Whether this grant was given."""
        return grant in self.grants

    def require(self, grant: Grant) -> None:
        """Raise `Forbidden` unless this grant was given."""
        if grant not in self.grants:
            raise Forbidden(self.name, grant.value)

    def require_in(self, channel: str, grant: Grant, right: ChannelRight) -> None:
        """Raise `Forbidden` without the grant, or without the right in the channel of a token."""
        self.require(grant)
        if self.channels is not None and not self.channels.allows(channel, right):
            raise Forbidden(self.client or self.name, f"{right.value} in {channel}")

    def may_on(self, table: str, grant: TableGrant) -> bool:
        """Whether this grant was given on this table."""
        granted = self.tables.get(table)
        if granted is None:
            granted = self.tables.get(ANY_TABLE, _NOTHING)
        return grant in granted

    def require_on(self, table: str, grant: TableGrant) -> None:
        """Raise `Forbidden` unless this grant was given on this table, as `may_on` says."""
        granted = self.tables.get(table)
        if granted is None:
            granted = self.tables.get(ANY_TABLE, _NOTHING)
        if grant not in granted:
            raise Forbidden(self.name, f"{grant.value} on {table}")

    def require_anywhere(self, grant: TableGrant) -> None:
        """Raise `Forbidden` unless this grant was given on any table."""
        for granted in self.tables.values():
            if grant in granted:
                return
        raise Forbidden(self.name, f"{grant.value} on a table")

    def __repr__(self) -> str:
        grants = ", ".join(sorted(grant.value for grant in self.grants))
        return f"<Identity {self.name!r}: {grants or 'nothing'}>"


class Access(Protocol):
    """Looks up identities. None is nobody: the door asks for credentials."""

    @property
    def anonymous(self) -> Identity | None:
        """The identity of a caller without credentials; None if they are needed here."""
        ...

    def by_token(self, token: str) -> Identity | None:
        """Return whose secret this is. Takes as long for a wrong one as for a right one."""
        ...

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        """Return whose verified certificate this is, by its subject's common name or its SANs."""
        ...


class PeopleAccess(Access, Protocol):
    """Knows people without credentials too, for whom somebody with the grant speak-for speaks."""

    def by_login(self, name: str) -> Identity | None:
        """Return who has this name, and logs in elsewhere."""
        ...
