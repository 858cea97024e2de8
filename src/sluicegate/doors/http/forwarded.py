"""Forwarded: the client, scheme and host of a request that a trusted proxy passes on.

A proxy that terminates TLS describes the original request in headers: X-Forwarded-For, -Proto and
-Host, or Forwarded (RFC 7239). Any client can write them too, so they count only from a peer in a
trusted network. A list grows at its right end: reading from there, entries that name trusted
proxies are skipped, and the first other address is the client. Scheme and host are the last ones.

A proxy writes one family of headers and passes the other on as the client sent it. So a request
with both is read only if they agree; otherwise a client could choose its own scheme and host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, final

from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import HttpReply, HttpRequest, problem
from sluicegate.doors.listener_settings import Network
from sluicegate.doors.proxies import (
    ADDRESSES_KEPT,
    FORWARDED,
    X_FORWARDED_FOR,
    address_in,
    element_from_right,
    entry_from_right,
    pairs_in,
)

PROXIES_MAX: Final = 32  # in a row
X_FORWARDED_PROTO: Final = "x-forwarded-proto"
X_FORWARDED_HOST: Final = "x-forwarded-host"
_SCHEMES: Final = ("", "http", "https", "ws", "wss")
_SECURE: Final = ("https", "wss")
_HOST: Final = re.compile(r"[a-z0-9._-]*(?::[0-9]{1,5})?|\[[0-9a-f:.]+\](?::[0-9]{1,5})?")
_UNREADABLE: Final = problem(
    400,
    "Bad Request",
    "the proxy's forwarding headers cannot be read, or Forwarded and X-Forwarded-* differ: "
    "let the proxy write one of them and remove the other",
    close=True,
)


class _Told(NamedTuple):
    """The contents of forwarding headers; empty fields are absent."""

    client: str
    scheme: str
    host: str


@final
class TrustedProxies:
    """The networks whose forwarding headers count."""

    __slots__ = ("_networks", "trusts")

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)
        self.trusts = lru_cache(ADDRESSES_KEPT)(self._trusts)

    def _trusts(self, host: str) -> bool:
        plain = address_in(host, 128)
        if not plain:
            return False
        address = ip_address(plain)
        return any(address in network for network in self._networks)

    def introduce(self, request: HttpRequest) -> HttpReply | None:
        """Replace peer and host of a request by what a trusted proxy tells, or refuse it."""
        peer = request.peer
        if not self.trusts(peer.host):
            return None
        by_x = self._told_by_x(request)
        by_forwarded = self._told_by_forwarded(request)
        if by_x is None and by_forwarded is None:
            return None
        told = by_x or by_forwarded
        assert told is not None
        if by_x is not None and by_forwarded is not None and by_x != by_forwarded:
            return _UNREADABLE
        if told.scheme not in _SCHEMES or not _HOST.fullmatch(told.host):
            return _UNREADABLE
        request.peer = _replaced(peer, told)
        if told.host:
            request.first[b"host"] = told.host.encode()
        return None

    def _told_by_x(self, request: HttpRequest) -> _Told | None:
        addresses = _lines(request, X_FORWARDED_FOR)
        schemes, hosts = _lines(request, X_FORWARDED_PROTO), _lines(request, X_FORWARDED_HOST)
        if not (addresses or schemes or hosts):
            return None
        client = ""
        for place in range(1, PROXIES_MAX + 1):
            found = address_in(entry_from_right(addresses, place), 128)
            if not found:
                break
            client = found
            if not self.trusts(client):
                break
        scheme, host = (entry_from_right(lines, 1).strip().lower() for lines in (schemes, hosts))
        return _Told(client, scheme, host)

    def _told_by_forwarded(self, request: HttpRequest) -> _Told | None:
        text = ",".join(_lines(request, FORWARDED))
        if not text:
            return None
        nearest = pairs_in(element_from_right(text, 1))
        client = ""
        for place in range(1, PROXIES_MAX + 1):
            found = address_in(pairs_in(element_from_right(text, place)).get("for", ""), 128)
            if not found:
                break
            client = found
            if not self.trusts(client):
                break
        return _Told(client, nearest.get("proto", "").lower(), nearest.get("host", "").lower())


def _lines(request: HttpRequest, name: str) -> Sequence[str]:
    wanted = name.encode()
    if wanted not in request.first:
        return ()
    return [value.decode("latin-1") for one, value in request.headers if one == wanted]


def _replaced(peer: PeerInfo, told: _Told) -> PeerInfo:
    tls = told.scheme in _SECURE if told.scheme else peer.tls
    if not told.client:
        return peer._replace(tls=tls)
    return peer._replace(host=told.client, port=0, tls=tls)
