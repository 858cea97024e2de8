"""Proxies: the client's address, when requests come through proxies of our own.

A proxy adds the address it was called from at the right end of a list that travels with the
request. So the rightmost entry was written by the nearest proxy, and with `trusted` proxies in
front of us the entry that many from the right was written by the outermost one: it is the address
that called us from outside. What stands further left came from there, and anybody could have
written it; it is never read. If the list is shorter than the proxies that should have written it,
or holds no address at that place, only the socket's peer is certain, and it is the answer.

Nothing here knows a framework: a door hands in the peer and the header's lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, final

from sluicegate.contracts.errors import BadValue

TRUSTED_MAX: Final = 32
IPV6_PREFIX_DEFAULT: Final = 64
# Addresses whose spelling is remembered; a busy server sees the same ones again.
ADDRESSES_KEPT: Final = 8_192
# The longest an address can be written: IPv6 with an IPv4 tail, brackets, a zone and a port.
_ADDRESS_CHARS_MAX: Final = 100

X_FORWARDED_FOR: Final = "x-forwarded-for"
FORWARDED: Final = "forwarded"


@final
class Proxies:
    """How many proxies stand in front, which header they write, and how wide an IPv6 client is.

    `trusted` counts the proxies that are ours: 0 believes the socket alone. `header` is
    `x-forwarded-for` or `forwarded` (RFC 7239). An IPv6 client usually owns a whole /64, so
    addresses are cut to `ipv6_prefix` bits, and the rest is zeros; 128 keeps them whole.
    """

    __slots__ = ("header", "ipv6_prefix", "trusted")

    def __init__(
        self,
        trusted: int = 0,
        *,
        header: str = X_FORWARDED_FOR,
        ipv6_prefix: int = IPV6_PREFIX_DEFAULT,
    ) -> None:
        if isinstance(trusted, bool) or not 0 <= trusted <= TRUSTED_MAX:
            raise BadValue(
                "trust_proxies", trusted, f"give the number of your proxies, 0 to {TRUSTED_MAX}"
            )
        if header.lower() not in {X_FORWARDED_FOR, FORWARDED}:
            raise BadValue("proxies.header", header, f"give {X_FORWARDED_FOR} or {FORWARDED}")
        if not 1 <= ipv6_prefix <= 128:
            raise BadValue("proxies.ipv6_prefix", ipv6_prefix, "give a number of bits, 1 to 128")
        self.trusted = trusted
        self.header = header.lower()
        self.ipv6_prefix = ipv6_prefix

    def client(self, peer: str, lines: Sequence[str] = ()) -> str:
        """The client's address: `peer` called our socket, `lines` are the header's, in order.

        A peer without an address, as behind a Unix socket, is an empty text.
        """
        if self.trusted and lines:
            if self.header == FORWARDED:
                element = element_from_right(",".join(lines), self.trusted)
                entry = pairs_in(element).get("for", "")
            else:
                entry = entry_from_right(lines, self.trusted)
            address = address_in(entry, self.ipv6_prefix)
            if address:
                return address
        if ":" not in peer:
            return peer  # an IPv4 address as the socket tells it, or none
        return address_in(peer, self.ipv6_prefix) or peer


def proxies_of(trusted: int | Proxies) -> Proxies:
    """What a door is told of proxies: their number, or the long form."""
    return trusted if isinstance(trusted, Proxies) else Proxies(trusted)


@lru_cache(ADDRESSES_KEPT)
def address_in(text: str, ipv6_prefix: int) -> str:
    """The address in `1.2.3.4:80`, `[2001:db8::1]:80`, `2001:db8::1%eth0`; empty if it has none.

    One address has one spelling; an IPv4 address inside of IPv6 is that IPv4 address.
    """
    if len(text) > _ADDRESS_CHARS_MAX:
        return ""
    host = text.strip()
    if host.startswith("["):
        host, bracket, port = host[1:].partition("]")
        if not bracket or (port and not _is_port(port)):
            return ""
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not _is_port(f":{port}"):
            return ""
    try:
        if ":" not in host:
            return str(IPv4Address(host))
        wide = IPv6Address(host)
    except AddressValueError:
        return ""
    if wide.ipv4_mapped is not None:
        return str(wide.ipv4_mapped)
    spare = 128 - ipv6_prefix
    return str(IPv6Address(int(wide) >> spare << spare))


def _is_port(text: str) -> bool:
    digits = text[1:]
    return text[0] == ":" and len(digits) <= 5 and digits.isascii() and digits.isdigit()


def entry_from_right(lines: Sequence[str], place: int) -> str:
    """The entry at `place` from the right, 1 the last, of a list over several lines."""
    for line in reversed(lines):
        entries = line.rsplit(",", place)  # what stands further left is not even split
        if len(entries) >= place:
            return entries[-place]
        place -= len(entries)
    return ""


def element_from_right(text: str, place: int) -> str:
    """The same for a list whose elements may hold quoted commas.

    It is read from the right, where trusted proxies wrote whole elements: a quote that a client
    left open further left cannot swallow them.
    """
    end, quoted = len(text), False
    for at in range(len(text) - 1, -1, -1):
        char = text[at]
        if char == '"' and text[at - 1 : at] != "\\":
            quoted = not quoted
        elif char == "," and not quoted:
            place -= 1
            if place == 0:
                return text[at + 1 : end]
            end = at
    return text[:end] if place == 1 else ""


def pairs_in(element: str) -> dict[str, str]:
    """The names and values of one element of a Forwarded header; the first of each name."""
    found: dict[str, str] = {}
    for pair in element.split(";"):
        name, _, value = pair.partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found
