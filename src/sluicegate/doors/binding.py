"""Binding: addresses to listen on, and the sockets on them, with a clear sentence where none is.

An address is `127.0.0.1:7070`, `[::1]:7070`, `localhost:7070` or `unix:/run/sluicegate.sock`; port
0 takes a free one. One that others than this machine can reach needs TLS and authentication.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.listener_settings import ListenerSettings

FIELD: Final = "listen"
UNIX: Final = "unix:"
UNIX_PATH_BYTES_MAX: Final = 107
_HOW: Final = "write it as 127.0.0.1:7070, [::1]:7070, localhost:7070 or unix:/run/sluicegate.sock"


class Address(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str, *, field: str = FIELD) -> Address:
    """The address that a text says."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not 0 < len(os.fsencode(path)) <= UNIX_PATH_BYTES_MAX or "\0" in path:
            raise BadValue(field, text, f"give a path of 1 to {UNIX_PATH_BYTES_MAX} bytes")
        return Address("", 0, path)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadValue(field, text, f"put the brackets round an IPv6 address; {_HOW}")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5):
        raise BadValue(field, text, _HOW)
    if int(port) > 65_535:
        raise BadValue(field, text, "a port is a number from 0 to 65535")
    return Address(host, int(port))


def is_private(address: Address) -> bool:
    """Whether only this machine can reach it: a Unix socket, or loopback."""
    if address.path or address.host.lower() == "localhost":
        return True
    try:
        ip = ip_address(address.host)
    except ValueError:
        return False  # a name may mean anything
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool(ip.is_loopback if mapped is None else mapped.is_loopback)


def check_public(address: Address, *, tls: bool, auth: bool, insecure: bool) -> None:
    """Refuse an address that others can reach without TLS and authentication."""
    if is_private(address) or insecure or (tls and auth):
        return
    if tls:
        missing = "give --tls-client-ca or tokens, so that it knows who asks"
    elif auth:
        missing = "give --tls-cert and --tls-key, so that tokens and answers stay secret"
    else:
        missing = "give --tls-cert and --tls-key, and --tls-client-ca or tokens"
    raise BadValue(
        FIELD,
        str(address),
        f"others can reach it: {missing}; or listen on 127.0.0.1 or unix:PATH; "
        "or say --insecure if the network around it is to be trusted",
    )


def bind(address: Address, settings: ListenerSettings) -> list[socket.socket]:
    """Listening sockets: one for each address that the host has. All of them, or an error."""
    try:
        if address.path:
            return [_bind_unix(address, settings)]
        return _bind_each(address, settings)
    except OSError as error:
        raise SluicegateError(why_not(address, error)) from None


def bound_address(listening: socket.socket) -> Address:
    """The address on which a socket listens, with the port that it got."""
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return Address("", 0, os.fsdecode(name))
    return Address(name[0], name[1])


def release(listening: socket.socket) -> None:
    """Stop listening; a Unix socket's file goes with it, if it is still ours."""
    path = bound_address(listening).path
    listening.close()
    if path and not _listens(path):  # a worker beside us, or a successor, may listen on
        with suppress(OSError):
            os.unlink(path)


def why_not(address: Address, error: OSError) -> str:
    """What stands in the way of listening there, and what to do about it."""
    if error.errno == errno.EADDRINUSE:
        what = f"{address} is" if address.path else f"port {address.port} on {address.host} is"
        free = "" if address.path else " (port 0 takes a free one)"
        return f"{what} in use; end what listens there, or choose another with --listen{free}"
    if error.errno == errno.EACCES:
        if address.path:
            return f"may not make {address}; choose a folder that we may write with --listen"
        return f"may not listen on {address}; choose a port from 1024 up with --listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address.host} is no address of this machine; choose one that is with --listen"
    if error.errno == errno.ENOENT:
        return f"the folder of {address} is not there; make it, or choose another with --listen"
    cause = error.strerror or str(error)
    return f"cannot listen on {address}: {cause}; choose another address with --listen"


def _resolved(address: Address) -> list[tuple[int, str]]:
    try:
        addresses = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise SluicegateError(
            f"{address.host} is no address or name that is known here ({error.strerror}); "
            "choose another with --listen"
        ) from None
    return list(dict.fromkeys((int(family), str(to[0])) for family, _, _, _, to in addresses))


def _bind_each(address: Address, settings: ListenerSettings) -> list[socket.socket]:
    """A name may have several addresses; one that this machine does not have is left out."""
    bound: list[socket.socket] = []
    absent: OSError | None = None
    for family, host in _resolved(address):
        # A free port that was taken for the first is taken for the others too.
        port = address.port or (bound[0].getsockname()[1] if bound else 0)
        try:
            bound.append(_bind_tcp(family, host, port, settings))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                _close_all(bound)
                raise
            absent = error
    if not bound:
        raise absent or OSError(errno.EADDRNOTAVAIL, "it has no address")
    return bound


def _bind_tcp(family: int, host: str, port: int, settings: ListenerSettings) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(settings.backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _bind_unix(address: Address, settings: ListenerSettings) -> socket.socket:
    path = address.path
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _listens(path):
            os.unlink(path)  # left behind by a process that is gone
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Made for nobody else, and opened to whom it is meant for once it is ours.
        before = os.umask(0o177)
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        os.chmod(path, settings.unix_mode)
        listening.listen(settings.backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # a full backlog is somebody's
        except OSError:
            return False
    return True


def _close_all(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()
