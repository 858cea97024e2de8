"""Addresses: networks in a match, and what of an address makes a key.

An IPv6 caller usually has a whole /64 and may take a new address with each request, so a limit by
address counts networks there. An IPv4 address written as IPv6 is that IPv4 address.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, final

IPV6_PREFIX_DEFAULT: Final = 64
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"


def pack(address: str) -> bytes | None:
    """The 4 or 16 bytes of an address, None if the text is none."""
    try:
        if ":" not in address:
            return inet_pton(AF_INET, address)
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return None
    return packed[12:] if packed.startswith(_MAPPED) else packed


def network_of(address: str, prefix: int = IPV6_PREFIX_DEFAULT) -> str:
    """What a limit by address counts: an IPv4 address, or the IPv6 network around one.

    A text that is no address is kept as it is.
    """
    if ":" not in address:
        return address
    packed = pack(address)
    if packed is None:
        return address
    if len(packed) == 4:
        return inet_ntop(AF_INET, packed)
    if prefix == 64:
        return inet_ntop(AF_INET6, packed[:8] + b"\0\0\0\0\0\0\0\0") + "/64"
    number = int.from_bytes(packed, "big") >> (128 - prefix) << (128 - prefix)
    return f"{inet_ntop(AF_INET6, number.to_bytes(16, 'big'))}/{prefix}"


@final
class Networks:
    """A set of networks; `holds` says whether an address is in one of them."""

    __slots__ = ("_of_v4", "_of_v6", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: Final = tuple(texts)
        # For each length of prefix (as bits to shift away) the networks of that length.
        self._of_v4: dict[int, set[int]] = {}
        self._of_v6: dict[int, set[int]] = {}
        for text in self.texts:
            network = ip_network(text)
            networks = self._of_v4 if network.version == 4 else self._of_v6
            shift = network.max_prefixlen - network.prefixlen
            networks.setdefault(shift, set()).add(int(network.network_address) >> shift)

    def holds(self, address: str) -> bool:
        """Whether it is in one of them; a text that is no address is in none."""
        packed = pack(address)
        if packed is None:
            return False
        number = int.from_bytes(packed, "big")
        for shift, networks in (self._of_v4 if len(packed) == 4 else self._of_v6).items():
            if number >> shift in networks:
                return True
        return False


def network_remedy(text: str) -> str:
    """What is wrong with a network, empty if nothing is."""
    try:
        ip_network(text)
    except ValueError:
        try:
            packed = ip_network(text, strict=False)
        except ValueError:
            return "give an address or a network, as 10.0.0.0/8 or 2001:db8::/32"
        return f"{text} is an address within a network; write {packed}"
    return ""
