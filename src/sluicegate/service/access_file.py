"""Access file: the callers of a service, from TOML to a table.

    [anonymous]
    grants = ["check"]

    [[callers]]
    name = "gateway"
    token_sha256 = "..."            # of a token made by `sluicegate limiter --new-token`
    certificate = "gateway.local"   # or: the name in its client certificate
    grants = ["check", "lease"]
    tables = { listings = ["read", "write", "bulk"], "*" = ["read"] }
    criticality = "DEGRADED"        # of what it asks, unless it says
    highest = "CRITICAL"            # that it may claim

    [[callers]]
    name = "ann@example.com"
    login = true                    # a person, for whom a console speaks that has "speak-for"
    grants = ["read-rules", "propose"]

`tables` is for a key-value store: what may be done with which table, nothing unless it is listed.

The file holds digests, never tokens, and is read once at the start and again on SIGHUP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from sluicegate.contracts.access import (
    ANY_TABLE,
    EVERY_GRANT,
    EVERY_TABLE_GRANT,
    Grant,
    Identity,
    PeopleAccess,
    TableGrant,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import TABLE_CHARS_MAX
from sluicegate.policies.access import (
    TOKEN_CHARS_MIN,
    Credential,
    KnownCallers,
    OpenAccess,
    token_digest,
)
from sluicegate.service.signed_tokens import SignedTokens, is_signed
from sluicegate.service.toml_file import read_toml

FILE_BYTES_MAX: Final = 10_000_000
_TOP: Final = ("anonymous", "callers")
_ANONYMOUS: Final = ("grants", "tables")
_CALLER: Final = (
    "name", "grants", "token_sha256", "certificate", "tables", "criticality", "highest", "login"
)  # fmt: skip
_TABLE: Final = re.compile(rf"\*|[a-z0-9][a-z0-9._-]{{0,{TABLE_CHARS_MAX - 1}}}")


@final
class ReloadedAccess:
    """The access that the file says now; a bad file never replaces a good one."""

    __slots__ = ("_access", "_path", "_signed", "_token")

    def __init__(self, path: str, token: str, signed: SignedTokens | None = None) -> None:
        self._signed = signed
        self._path = path
        self._token = token
        self._access = make_access(path, token)

    @property
    def anonymous(self) -> Identity | None:
        """Who speaks without a token or certificate."""
        return self._access.anonymous

    @property
    def identities(self) -> Sequence[Identity]:
        """All whom the file names."""
        return self._access.identities if isinstance(self._access, KnownCallers) else ()

    def by_token(self, token: str) -> Identity | None:
        """Whose secret this is; raises `Unauthenticated` for a signed token that is invalid."""
        if self._signed is not None and is_signed(token):
            return self._signed.identify(token, self._account)
        return self._access.by_token(token)

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        """Whose certificate this is."""
        return self._access.by_certificate(names)

    def by_login(self, name: str) -> Identity | None:
        """Who has this name, and logs in elsewhere."""
        return self._access.by_login(name)

    def reload(self) -> bool:
        """Read the file, and the keys of signed tokens, again; whether there was a file."""
        if not self._path:
            return False
        before, after = self._access, make_access(self._path, self._token)
        if self._signed is not None:
            self._signed.keys.reload()
        if isinstance(before, KnownCallers) and isinstance(after, KnownCallers):
            after.succeed(before)
        self._access = after
        return True

    def _account(self, name: str) -> Identity | None:
        return self._access.by_name(name) if isinstance(self._access, KnownCallers) else None


def make_access(path: str, token: str) -> PeopleAccess:
    """The table that the settings amount to; with neither, everybody may do everything."""
    credentials: list[Credential] = []
    anonymous = Credential("anonymous", frozenset())
    if path:
        anonymous, credentials = read_access_file(path)
    if token:
        if len(token) < TOKEN_CHARS_MIN:
            raise BadValue(
                "--token",
                "(not shown)",
                f"give at least {TOKEN_CHARS_MIN} characters; --new-token makes one",
            )
        credentials.append(
            Credential(
                "token",
                EVERY_GRANT,
                token_sha256=token_digest(token),
                tables={ANY_TABLE: EVERY_TABLE_GRANT},
                highest=Criticality.CRITICAL,
            )
        )
    if not path and not token:
        return OpenAccess()
    return KnownCallers(credentials, anonymous=anonymous.grants, anonymous_tables=anonymous.tables)


def read_access_file(path: str) -> tuple[Credential, list[Credential]]:
    """What nobody in particular may do, and the callers."""
    top = read_toml("--access", path, FILE_BYTES_MAX)
    _refuse_unknown(top, _TOP, path)
    anonymous = top.get("anonymous", {})
    if not isinstance(anonymous, dict):
        raise BadValue(f"{path}: anonymous", anonymous, 'write [anonymous] and grants = ["check"]')
    _refuse_unknown(anonymous, _ANONYMOUS, f"{path}: anonymous")
    callers = top.get("callers", [])
    if not isinstance(callers, list):
        raise BadValue(f"{path}: callers", callers, "write each as [[callers]]")
    found = [_credential(one, f"{path}: callers[{at}]") for at, one in enumerate(callers)]
    nobody = Credential(
        "anonymous",
        _grants(anonymous.get("grants", []), f"{path}: anonymous.grants"),
        tables=_tables(anonymous.get("tables", {}), f"{path}: anonymous.tables"),
    )
    return nobody, found


def _credential(value: Any, where: str) -> Credential:
    if not isinstance(value, dict):
        raise BadValue(where, value, "write it as [[callers]]")
    _refuse_unknown(value, _CALLER, where)
    texts = {name: value.get(name, "") for name in ("name", "token_sha256", "certificate")}
    for name, one in texts.items():
        if not isinstance(one, str):
            raise BadValue(f"{where}.{name}", one, "give a text")
    login = value.get("login", False)
    if not isinstance(login, bool):
        raise BadValue(f"{where}.login", login, "give true or false")
    return Credential(
        texts["name"],
        _grants(value.get("grants", []), f"{where}.grants"),
        texts["token_sha256"].lower(),
        texts["certificate"],
        _tables(value.get("tables", {}), f"{where}.tables"),
        _class(value, "criticality", where),
        _class(value, "highest", where),
        login,
    )


def _tables(value: Any, where: str) -> dict[str, frozenset[TableGrant]]:
    names = [grant.value for grant in TableGrant]
    if not isinstance(value, dict):
        raise BadValue(where, value, 'write tables = { listings = ["read"] }')
    found: dict[str, frozenset[TableGrant]] = {}
    for table, granted in value.items():
        if not _TABLE.fullmatch(table):
            remedy = "name a table by a-z, 0-9 and - _ . , or * for all that are not named"
            raise BadValue(f"{where}: {table}", table, remedy)
        if not isinstance(granted, list) or not all(one in names for one in granted):
            raise BadValue(f"{where}.{table}", granted, f"give a list of {', '.join(names)}")
        found[table] = frozenset(TableGrant(one) for one in granted)
    return found


def _class(value: Mapping[str, Any], field: str, where: str) -> Criticality | None:
    value_given = value.get(field)
    if value_given is None:
        return None
    if not isinstance(value_given, str) or value_given.upper() not in Criticality.__members__:
        names = ", ".join(Criticality.__members__)
        raise BadValue(f"{where}.{field}", value_given, f"give one of {names}")
    return Criticality[value_given.upper()]


def _grants(value: Any, where: str) -> frozenset[Grant]:
    names = [grant.value for grant in Grant]
    if not isinstance(value, list):
        raise BadValue(where, value, f"give a list of {', '.join(names)}")
    for one in value:
        if one not in names:
            raise BadValue(where, one, f"give some of {', '.join(names)}")
    return frozenset(Grant(one) for one in value)


def _refuse_unknown(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in names:
            raise BadValue(f"{where}: {name}", table[name], f"there are {', '.join(names)}")
