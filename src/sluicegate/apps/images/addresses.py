"""Addresses: which addresses of origins may be connected to, and which hosts may be named.

Who may name a URL could otherwise make this service ask its own network: the metadata address of a
cloud, a database on loopback, a router. So an address must be global, and what hides another one
inside it is judged by that: IPv4 mapped into IPv6, NAT64 (RFC 6052), 6to4, Teredo. `ipaddress`
calls those global, and multicast and 192.0.0.0/24 too (Python 3.11), so these are refused here.

Pure: `origin.py` asks for each address at the moment when it connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias, final

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

PORTS: Final = (80, 443)
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_REFUSED: Final = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv6Network("fec0::/10"),  # site-local, deprecated and still routed by some
    IPv6Network("::/96"),  # IPv4-compatible
)


@final
class AddressRules:
    """Which addresses, ports and hosts may be asked.

    `networks` are exceptions: an address in one of them may be asked at any port. `hosts` are the
    only names that may be asked, and those below `.example.com` for a name that begins with a dot;
    none is any.
    """

    def __init__(
        self,
        networks: Iterable[str] = (),
        hosts: Iterable[str] = (),
        ports: Iterable[int] = PORTS,
    ) -> None:
        self._networks: tuple[Network, ...] = tuple(map(ip_network, networks))
        self._hosts = tuple(host.lower().rstrip(".") for host in hosts)
        self._ports = frozenset(ports)

    def refuse_host(self, host: str) -> str:
        """Why this host may not be named; empty if it may."""
        name = host.lower().rstrip(".")
        if not self._hosts or name in self._hosts:
            return ""
        if any(one.startswith(".") and name.endswith(one) for one in self._hosts):
            return ""
        return "the host is not one of --origin-hosts"

    def refuse_address(self, text: str, port: int) -> str:
        """Why this address may not be connected to; empty if it may."""
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            return "it is no address"
        if any(address in network for network in self._networks):
            return ""
        for one in _unwrap(address):
            if not _is_global(one):
                # Which it is, is not told: names inside a network would be looked up through us.
                return "its address is neither of the public internet nor of --origin-networks"
        if port not in self._ports:
            return f"port {port} is not one of --origin-ports"
        return ""


def _is_global(address: Address) -> bool:
    if address.is_multicast or not address.is_global:
        return False
    return not any(address in network for network in _REFUSED)


def _unwrap(address: Address) -> Iterator[Address]:
    """The address, and what it leads to; a translated one is judged by what is inside alone."""
    if isinstance(address, IPv4Address):
        yield address
        return
    inside: list[IPv4Address] = []
    if address.ipv4_mapped is not None:
        inside.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside.extend(address.teredo)
    if any(address in network for network in _NAT64):
        inside.append(IPv4Address(int(address) & 0xFFFFFFFF))
    yield from inside
    if address.ipv4_mapped is None:
        yield address if address not in _NAT64[1] else IPv4Address(0)
