"""Access: whose token or certificate this is, from a table that holds no secret.

A token is kept as its SHA-256 alone, so a table that is read by others gives none away; tokens are
long and random, so there is nothing to guess and a slow hash would buy nothing. A look-up by digest
takes as long for a wrong token as for a right one. A certificate has been verified by whoever holds
the authority's key before its names come here.

With an empty table everybody may do everything; the listener then refuses a public address.

Bound: `CALLERS_MAX` callers, and `TOKEN_CHARS_MAX` characters a token; a longer one is nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, final

from sluicegate.contracts.access import (
    ANY_TABLE,
    EVERY_GRANT,
    EVERY_TABLE_GRANT,
    Grant,
    Identity,
    TableGrant,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue

CALLERS_MAX: Final = 100_000
TOKEN_CHARS_MAX: Final = 1_024
TOKEN_CHARS_MIN: Final = 16
EVERYBODY: Final = Identity("anonymous", EVERY_GRANT, {ANY_TABLE: EVERY_TABLE_GRANT})
_NO_TABLES: Final[Mapping[str, frozenset[TableGrant]]] = {}
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Credential(NamedTuple):
    """How one caller is identified, and what it may do."""

    name: str
    grants: frozenset[Grant]
    token_sha256: str = ""
    certificate: str = ""  # a common name or a SAN of its certificate
    tables: Mapping[str, frozenset[TableGrant]] = _NO_TABLES
    criticality: Criticality | None = None  # unless it claims another
    highest: Criticality | None = None  # the most that it may claim
    login: bool = False  # a person who logs in at a console that may speak for them


def token_digest(token: str) -> str:
    """Return the digest that a table keeps of a token."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@final
class KnownCallers:
    """A `contracts.access.Access` over a table of credentials."""

    __slots__ = ("_by_certificate", "_by_digest", "_by_login", "_by_name", "anonymous")

    def __init__(
        self,
        credentials: Iterable[Credential],
        *,
        anonymous: Iterable[Grant] = (),
        anonymous_tables: Mapping[str, frozenset[TableGrant]] = _NO_TABLES,
    ) -> None:
        self._by_digest: dict[str, Identity] = {}
        self._by_certificate: dict[str, Identity] = {}
        self._by_login: dict[str, Identity] = {}
        self._by_name: dict[str, tuple[Credential, Identity]] = {}
        for at, one in enumerate(credentials):
            field = f"callers[{at}]"
            if at >= CALLERS_MAX:
                raise BadValue("callers", f"more than {CALLERS_MAX:,}", "leave some out")
            if not one.name or one.name in self._by_name or one.name.startswith("("):
                remedy = "give each caller a name of its own, not in parentheses"
                raise BadValue(f"{field}.name", one.name, remedy)
            identity = Identity(one.name, one.grants, one.tables, one.criticality, one.highest)
            self._by_name[one.name] = one, identity
            if not (one.token_sha256 or one.certificate or one.login):
                remedy = "give it a token_sha256 or a certificate, or login = true"
                raise BadValue(field, one.name, remedy)
            if one.login:
                self._by_login[one.name] = identity
            if one.token_sha256:
                if not _DIGEST.fullmatch(one.token_sha256):
                    raise BadValue(
                        f"{field}.token_sha256", one.token_sha256, "give 64 of 0-9 and a-f"
                    )
                if one.token_sha256 in self._by_digest:
                    raise BadValue(f"{field}.token_sha256", one.name, "another caller has it")
                self._by_digest[one.token_sha256] = identity
            if one.certificate:
                if one.certificate in self._by_certificate:
                    raise BadValue(f"{field}.certificate", one.certificate, "another caller has it")
                self._by_certificate[one.certificate] = identity
        granted = frozenset(anonymous)
        self.anonymous: Identity | None = None
        if granted or anonymous_tables:
            self.anonymous = Identity("anonymous", granted, anonymous_tables)

    @property
    def identities(self) -> Sequence[Identity]:
        """Every identity of the table."""
        return [identity for _, identity in self._by_name.values()]

    def succeed(self, before: KnownCallers) -> None:
        """Replace a table: revoke each identity whose credential is gone or whose rights are fewer.

        The other identities stay the same objects, so their open streams get the new rights.
        """
        kept: dict[Identity, Identity] = {}
        for name, (credential, identity) in before._by_name.items():
            now = self._by_name.get(name)
            if now is None or _is_less(now[0], credential):
                identity.revoke()
                continue
            identity.change(now[1])
            kept[now[1]] = identity
            self._by_name[name] = now[0], identity
        for table in (self._by_digest, self._by_certificate, self._by_login):
            for key, one in table.items():
                table[key] = kept.get(one, one)
        old, new = before.anonymous, self.anonymous
        if old is None:
            return
        if new is None or not (old.grants <= new.grants and _covers(new.tables, old.tables)):
            old.revoke()
        else:
            old.change(new)
            self.anonymous = old

    def by_token(self, token: str) -> Identity | None:
        """Return whose token this is, if anybody's."""
        if len(token) > TOKEN_CHARS_MAX:
            return None
        return self._by_digest.get(token_digest(token))

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        """Return whose verified certificate this is, if anybody's."""
        for name in names:
            identity = self._by_certificate.get(name)
            if identity is not None:
                return identity
        return None

    def by_login(self, name: str) -> Identity | None:
        """Return who has this name, if they log in elsewhere."""
        return self._by_login.get(name)

    def by_name(self, name: str) -> Identity | None:
        """Return the caller of this name: the account of a signed token."""
        found = self._by_name.get(name)
        return None if found is None else found[1]


def _is_less(now: Credential, before: Credential) -> bool:
    """Whether a credential was withdrawn, or has fewer rights than before."""
    return (
        (before.token_sha256 not in ("", now.token_sha256))
        or (before.certificate not in ("", now.certificate))
        or (before.login and not now.login)
        or not before.grants <= now.grants
        or not _covers(now.tables, before.tables)
        or now.highest != before.highest  # None leaves it to the service, so there is no order
    )


def _covers(
    now: Mapping[str, frozenset[TableGrant]], before: Mapping[str, frozenset[TableGrant]]
) -> bool:
    """Whether each table has all the grants that it had; `*` stands for those not named."""
    rest: frozenset[TableGrant] = frozenset()
    return all(
        before.get(name, before.get(ANY_TABLE, rest)) <= now.get(name, now.get(ANY_TABLE, rest))
        for name in {*before, *now}
    )


@final
class OpenAccess:
    """Everybody may do everything: for loopback, and with --insecure."""

    __slots__ = ("anonymous",)

    def __init__(self) -> None:
        self.anonymous: Identity | None = EVERYBODY

    def by_token(self, token: str) -> Identity | None:
        """Return the anonymous identity, whatever the token."""
        return EVERYBODY

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        """Return the anonymous identity, whatever the certificate."""
        return EVERYBODY

    def by_login(self, name: str) -> Identity | None:
        """Return nobody: nobody has a name here."""
        return None
