"""The PROXY protocol, versions 1 and 2: what a proxy says before its client's first byte. Pure.

    version 1   a line:  PROXY TCP4 192.0.2.1 192.0.2.2 56324 443
    version 2   binary:  12 bytes of signature, the command, the family, a length, the addresses

It is HAProxy's (https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt). A header is read
whole, or it is a fault; nothing is guessed. What version 2 has behind its addresses is passed over.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

V1_BEGIN: Final = b"PROXY "
V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
V1_BYTES_MAX: Final = 107  # with its end of line
V2_BYTES_MAX: Final = 4_096  # the protocol allows for 64 KiB; proxies send tens of bytes
_V2_HEAD: Final = 16
_V2_LOCAL: Final = 0x20  # the version, and that the proxy speaks for itself
_V2_PROXY: Final = 0x21
_V2_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}  # by family: TCP over IPv4 and over IPv6
_V2_NO_ADDRESS: Final = (0x00, 0x12, 0x22, 0x31, 0x32)  # unspecified, datagrams, Unix sockets


class ProxyHeader(NamedTuple):
    """A header: how long it is, and who called the proxy; nobody where it does not say."""

    size: int
    host: str = ""
    port: int = 0


class ProxyFault(Exception):  # noqa: N818 - the protocol's word, as the other codecs have it
    """What came is no header of the PROXY protocol, or says what it may not."""


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header that the bytes begin with; None if it is not whole yet. It raises `ProxyFault`."""
    if data.startswith(V2_SIGNATURE):
        return _read_v2(data)
    if data.startswith(V1_BEGIN):
        return _read_v1(data)
    if V1_BEGIN.startswith(data) or V2_SIGNATURE.startswith(data):
        return None
    raise ProxyFault("no header of the PROXY protocol")


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyFault("a line beyond 107 bytes")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(end + 2)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyFault("not PROXY TCP4|TCP6 and two addresses and ports")
    wide = words[1] == b"TCP6"
    host, _ = _address(words[2], wide), _address(words[3], wide)
    port, _ = _port(words[4]), _port(words[5])
    return ProxyHeader(end + 2, host, port)


def _address(word: bytes, wide: bool) -> str:
    try:
        text = word.decode("ascii")
        if "%" not in text:
            return _spelled(IPv6Address(text)) if wide else str(IPv4Address(text))
    except (UnicodeDecodeError, AddressValueError):
        pass
    raise ProxyFault("not an address of the family that it names")


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or (word[0] == 0x30 and len(word) > 1):
        raise ProxyFault("not a port")
    port = int(word)
    if port > 65_535:
        raise ProxyFault("not a port")
    return port


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD:
        return None
    command, family = data[12], data[13]
    length = (data[14] << 8) | data[15]
    size = _V2_HEAD + length
    if size > V2_BYTES_MAX:
        raise ProxyFault("a header beyond 4,096 bytes")
    if command not in (_V2_LOCAL, _V2_PROXY):
        raise ProxyFault("not version 2, or neither LOCAL nor PROXY")
    if len(data) < size:
        return None
    wide = _V2_ADDRESS_BYTES.get(family, 0)
    if command == _V2_LOCAL or family in _V2_NO_ADDRESS:
        return ProxyHeader(size)
    if not wide or length < 2 * wide + 4:
        raise ProxyFault("a family that there is not, or no room for its addresses")
    packed = data[_V2_HEAD : _V2_HEAD + wide]
    port_at = _V2_HEAD + 2 * wide
    port = (data[port_at] << 8) | data[port_at + 1]
    host = str(IPv4Address(packed)) if wide == 4 else _spelled(IPv6Address(packed))
    return ProxyHeader(size, host, port)


def _spelled(address: IPv6Address) -> str:
    """One spelling for one address: IPv4 written as IPv6 is that IPv4 address."""
    return str(address.ipv4_mapped or address)
