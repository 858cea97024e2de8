"""Host sources: where the names of a group come from, each a function that returns them.

A source may block (a resolver, a disk) and may raise; `HostGroup` calls it where that
does no harm, and keeps the hosts it has when a source fails or names none. A callback of one's own
is a source as it stands. A host is written `address:port`, an IPv6 address in brackets.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from sluicegate.contracts.errors import BadValue

HostSource: TypeAlias = Callable[[], Sequence[str]]

FILE_BYTES_MAX: Final = 1_000_000


def list_source(hosts: Sequence[str]) -> HostSource:
    """Always the same hosts."""
    found = tuple(check_hosts(hosts))
    return lambda: found


def dns_source(name: str, port: int) -> HostSource:
    """All addresses of a name, sorted, so that a resolver that rotates changes nothing."""
    check_host(f"[{name}]:{port}" if ":" in name else f"{name}:{port}")

    def resolve() -> list[str]:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        addresses = {str(address[0]) for *_, address in found}
        return [
            f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            for address in sorted(addresses)
        ]

    return resolve


def file_source(path: str) -> HostSource:
    """A host a line; `#` begins a remark. A line that is no host is an error that names it."""

    def read() -> list[str]:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise BadValue("hosts", path, f"the file may have at most {FILE_BYTES_MAX:,} bytes")
        lines = (line.partition("#")[0].strip() for line in data.decode("utf-8-sig").splitlines())
        return [check_host(line) for line in lines if line]

    return read


def check_hosts(hosts: Iterable[str]) -> list[str]:
    """Return hosts that are each written as `address:port`, or refuse what is none or no list."""
    if isinstance(hosts, str | bytes) or not isinstance(hosts, Iterable):
        raise BadValue("hosts", hosts, 'give a list of them, as ["10.0.0.1:8080"]')
    return [check_host(host) for host in hosts]


def check_host(host: str) -> str:
    """Return a host that is written as `address:port`, or refuse it."""
    split_host(host)
    return host


def split_host(host: str) -> tuple[str, int]:
    """The address, without brackets, and the port."""
    remedy = "write it as address:port, an IPv6 address in brackets"
    if not isinstance(host, str):
        raise BadValue("host", host, remedy)
    address, _, port = host.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    timely = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    plain = bare.isprintable() and " " not in bare
    if not bare or not plain or not timely or (":" in bare and bare == address):
        raise BadValue("host", host, remedy)
    return bare, int(port)
