"""Listener: one port for several languages, and the bounds that all connections share.

It knows no service. It accepts, does the TLS handshake, learns the language from the first bytes
and makes a protocol for it; then it counts, ends connections that hang, and closes them all at the
end. There is one a process; several processes share a port with `reuse_port`, or a listening socket
that was bound before they started.

We accept ourselves, and not by the loop's server: so a connection is counted before its handshake,
a flood is closed before it costs a transport, and each handshake takes the newest certificate.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import Address, address_of, bind, bound_address, release
from sluicegate.doors.connection import AcceptedConnection, ListenerCounts, PeerInfo
from sluicegate.doors.listener_settings import ListenerSettings, Network
from sluicegate.doors.proxies import IPV6_PREFIX_DEFAULT, address_in
from sluicegate.doors.sniff import Language, alpn_of, require_servable
from sluicegate.doors.tls import Tls
from sluicegate.wire.proxy_protocol import (
    V2_BYTES_MAX,
    ProxyFault,
    ProxyHeader,
    read_proxy_header,
)

__all__ = [
    "Language",
    "Listener",
    "ListenerSettings",
    "ListenerStats",
    "PeerInfo",
    "ProtocolFactory",
    "new_loop",
]

ProtocolFactory: TypeAlias = "Callable[[PeerInfo], asyncio.Protocol]"

_log: Final = logging.getLogger("sluicegate.listener")
_NO_MORE_SOCKETS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ABORT_S_MAX: Final = 1.0
_SWEPT_AT_ONCE: Final = 200  # connections in one turn of the loop
_TLS_CHECK_S: Final = 1.0  # how often the certificate's files are looked at


class ListenerStats(NamedTuple):
    """What a listener is doing, and has counted since it began."""

    open: int
    reserved_open: int
    addresses: int  # different peers, an IPv6 network of 64 bits being one
    accepted: int
    served: Mapping[str, int]  # by language
    refused_full: int
    refused_per_address: int
    refused_kind: int
    unknown: int
    reserved: int
    accept_errors: int
    proxy_faults: int
    tls_failures: int
    tls_reloads: int
    tls_reload_failures: int
    sniff_timeouts: int
    idle_timeouts: int
    not_reading: int
    over_owed: int
    faults: int


@final
class Listener:
    """Serves on all `addresses` until it is closed; `async with` starts and closes it.

    An address is a text, an `Address`, or a listening socket. `protocols` makes one protocol a
    connection, for each language that is served.
    """

    def __init__(
        self,
        addresses: Iterable[str | Address | socket.socket],
        protocols: Mapping[Language, ProtocolFactory],
        *,
        settings: ListenerSettings | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.settings = ListenerSettings() if settings is None else settings
        self.counts = ListenerCounts()
        self.closing = False
        self.tls = tls
        self._addresses = list(addresses)
        if not self._addresses:
            raise BadValue("listen", (), "give an address to listen on")
        self._protocols = {require_servable(kind): make for kind, make in protocols.items()}
        if tls is not None:
            # The first that a peer offers too: who speaks both, as curl and Prometheus, is here
            # for HTTP, and who is here for gRPC offers h2 alone.
            names = (
                alpn_of(kind) for kind in (Language.HTTP1, Language.HTTP2) if kind in protocols
            )
            tls.set_alpn([name for name in names if name is not None])
        self._listening: list[socket.socket] = []
        self._connections: set[AcceptedConnection] = set()
        self._by_host: dict[str, int] = {}
        self._reserved_open = 0
        self._counted_bytes = 0  # of what connections hold, as they were last looked at
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep_handle: asyncio.Handle | None = None
        self._tls_checked_s = 0.0
        self._empty: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Listener:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(0.0)

    def start(self) -> tuple[Address, ...]:
        """Bind and accept; where it listens. A `SluicegateError` says what stands in the way."""
        self._loop = asyncio.get_running_loop()
        try:
            for one in self._addresses:
                if isinstance(one, socket.socket):
                    one.setblocking(False)
                    self._listening.append(one)
                else:
                    address = address_of(one) if isinstance(one, str) else one
                    self._listening.extend(bind(address, self.settings))
        except BaseException:
            self._release()
            raise
        for listening in self._listening:
            self._accept_on(listening)
        self._tls_checked_s = self.now_s()
        self._schedule_sweep()
        return self.addresses

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens, with the ports that it got."""
        return tuple(bound_address(one) for one in self._listening)

    def stats(self) -> ListenerStats:
        """As of now."""
        counts = self.counts
        return ListenerStats(
            open=len(self._connections),
            reserved_open=self._reserved_open,
            addresses=len(self._by_host),
            accepted=counts.accepted,
            served={kind.value: counts.served[kind] for kind in self._protocols},
            refused_full=counts.refused_full,
            refused_per_address=counts.refused_per_address,
            refused_kind=counts.refused_kind,
            unknown=counts.unknown,
            reserved=counts.reserved,
            accept_errors=counts.accept_errors,
            proxy_faults=counts.proxy_faults,
            tls_failures=counts.tls_failures,
            tls_reloads=0 if self.tls is None else self.tls.reloads,
            tls_reload_failures=0 if self.tls is None else self.tls.failures,
            sniff_timeouts=counts.sniff_timeouts,
            idle_timeouts=counts.idle_timeouts,
            not_reading=counts.not_reading,
            over_owed=counts.over_owed,
            faults=counts.faults,
        )

    def owed_bytes(self) -> int:
        """Return the bytes that all connections hold: unsent replies and unread input."""
        return sum(one.owed_bytes() for one in self._connections)

    def open_connections(self) -> Sequence[tuple[PeerInfo, Language | None]]:
        """Who is connected, and in what language; None as long as it is not known."""
        return [(one.peer, one.kind) for one in self._connections]

    def stop_accepting(self) -> None:
        """Take no new connections; those that are open go on."""
        self.closing = True
        for listening in self._listening:
            if self._loop is not None:
                self._loop.remove_reader(listening.fileno())
        self._release()

    async def close(self, grace_s: float) -> int:
        """Stop accepting, drain for `grace_s`, then abort; return how many were aborted."""
        if grace_s > 0 and not self.closing:
            for listening in self._listening:
                # Closing the socket would reset the connections in its queue.
                self._accept(listening, bound_address(listening))
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.drain()
        await self._wait_until_empty(grace_s)
        cut = len(self._connections)
        for connection in tuple(self._connections):
            connection.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._wait_until_empty(
            _ABORT_S_MAX
        )  # an abort is told in one of the loop's next turns
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
            self._sweep_handle = None
        return cut

    async def _wait_until_empty(self, timeout_s: float) -> None:
        if self._connections and timeout_s > 0 and self._loop is not None:
            self._empty = self._loop.create_future()
            await asyncio.wait((self._empty,), timeout=timeout_s)

    # What a connection asks.

    def now_s(self) -> float:
        """The loop's time."""
        return 0.0 if self._loop is None else self._loop.time()

    def refusal(self, reserved: bool, kind: Language) -> str:
        """Why a connection of this kind is not served; empty if it is."""
        if kind not in self._protocols:
            if kind in (Language.UNKNOWN, Language.TLS, Language.PROXY):
                self.counts.unknown += 1
            else:
                self.counts.refused_kind += 1
            languages = ", ".join(one.value for one in self._protocols)
            return (
                f"this port speaks {languages}{' over TLS' if self.tls else ''}, not {kind.value}"
            )
        if reserved and kind is not Language.HTTP1:
            self.counts.refused_full += 1
            return "too many connections are open here; try again later, or another instance"
        return ""

    def protocol(self, kind: Language, peer: PeerInfo) -> asyncio.Protocol:
        """A protocol for a connection that is served."""
        self.counts.served[kind] += 1
        return self._protocols[kind](peer)

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection is gone."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._counted_bytes -= connection.counted_bytes
        connection.counted_bytes = 0
        if connection.reserved:
            self._reserved_open -= 1
        elif connection.counted_as:
            remaining = self._by_host[connection.counted_as] - 1
            if remaining:
                self._by_host[connection.counted_as] = remaining
            else:
                del self._by_host[connection.counted_as]
        if not self._connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def count_owed(self, connection: AcceptedConnection) -> None:
        """Count again what a connection holds. Beyond the bound, close connections.

        It closes the largest of the caller who holds most, so a caller with many small connections
        cannot get those of others closed.

        A client that reads what it asks for holds next to nothing here, and none that does not read
        is read from. So nothing is left to stop, and only an end gives memory back.
        """
        if connection not in self._connections:
            return
        held = connection.owed_bytes()
        self._counted_bytes += held - connection.counted_bytes
        connection.counted_bytes = held
        while self._counted_bytes > self.settings.owed_bytes_max:
            largest = self._largest()
            self.counts.over_owed += 1
            largest.abort()
            self._counted_bytes -= largest.counted_bytes
            largest.counted_bytes = 0

    def _largest(self) -> AcceptedConnection:
        """Return the largest connection of the caller whose connections hold most."""
        sums: dict[object, int] = {}
        for one in self._connections:
            if one.counted_bytes:
                account = one.held_for()
                sums[account] = sums.get(account, 0) + one.counted_bytes
        most = max(sums, key=sums.__getitem__)
        its = (one for one in self._connections if one.counted_bytes and one.held_for() == most)
        return max(its, key=_counted_bytes)

    # Accepting.

    def _accept_on(self, listening: socket.socket) -> None:
        if self._loop is not None and not self.closing:
            address = bound_address(listening)
            self._loop.add_reader(listening.fileno(), self._accept, listening, address)

    def _accept(self, listening: socket.socket, address: Address) -> None:
        for _ in range(self.settings.accepts_per_turn):
            try:
                client, name = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.counts.accept_errors += 1
                if error.errno in _NO_MORE_SOCKETS:
                    self._pause_accepting(listening)
                    return
                if listening.fileno() < 0:
                    return
                continue  # that one client went away, or its network did
            host, port = (name[0], name[1]) if isinstance(name, tuple) else ("", 0)
            self._admit(client, host, port, address)

    def _pause_accepting(self, listening: socket.socket) -> None:
        """The socket stays ready, and asking on and on would take the whole processor."""
        assert self._loop is not None
        _log.warning("no more sockets can be had; accepting pauses (see ulimit -n)")
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(self.settings.accept_pause_s, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if not self.closing:
            self._accept_on(listening)

    def _admit(self, client: socket.socket, host: str, port: int, address: Address) -> None:
        self.counts.accepted += 1
        proxied = _is_in(host, self.settings.proxies)
        reserved = False
        ordinary = len(self._connections) - self._reserved_open
        if ordinary >= self.settings.connections_max:
            if self._reserved_open >= self.settings.connections_reserved:
                self.counts.refused_full += 1
                client.close()
                return
            reserved = True
            self.counts.reserved += 1
            self._reserved_open += 1
        connection = AcceptedConnection(self, host, port, address, reserved=reserved)
        if not proxied and not self._count(connection):
            client.close()
            return
        self._connections.add(connection)
        assert self._loop is not None
        task = self._loop.create_task(self._serve(client, connection, proxied))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _count(self, connection: AcceptedConnection) -> bool:
        """Count it among those of its address; whether it may be one more."""
        host = connection.peer.host
        if not host or connection.reserved or _is_in(host, self.settings.trusted_proxies):
            return True
        counted_as = address_in(host, IPV6_PREFIX_DEFAULT)  # who has one address has a network
        so_far = self._by_host.get(counted_as, 0)
        if so_far >= self.settings.connections_per_address_max:
            self.counts.refused_per_address += 1
            return False
        self._by_host[counted_as] = so_far + 1
        connection.counted_as = counted_as
        return True

    async def _serve(
        self, client: socket.socket, connection: AcceptedConnection, proxied: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        secure: dict[str, Any] = {}
        if self.tls is not None:
            secure = {
                "ssl": self.tls.context,
                "ssl_handshake_timeout": self.settings.tls_handshake_timeout_s,
                "ssl_shutdown_timeout": self.settings.tls_shutdown_timeout_s,
            }
        try:
            client.setblocking(False)
            if connection.peer.host:
                # A peer whose machine died says nothing ever again.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxied and not await self._learn_peer(client, connection):
                client.close()
                self.forget(connection)
                return
            await loop.connect_accepted_socket(
                lambda: cast("asyncio.Protocol", connection), client, **secure
            )
        except (OSError, ssl.SSLError, EOFError):
            if self.tls is not None and connection.transport is None:
                self.counts.tls_failures += 1
            client.close()
            self.forget(connection)
        except BaseException:
            client.close()
            self.forget(connection)
            raise

    async def _learn_peer(self, client: socket.socket, connection: AcceptedConnection) -> bool:
        """Read for whom a proxy connects; whether that one may have one more connection."""
        try:
            async with asyncio.timeout(self.settings.sniff_timeout_s):
                header = await _read_proxy_header(client)
        except (ProxyFault, TimeoutError) as fault:
            self.counts.proxy_faults += 1
            if self.counts.proxy_faults == 1:
                _log.warning(
                    "%s is one of our proxies and sent no header of the PROXY protocol (%s): its "
                    "connections are closed; have it send one, or take it out of --proxy-protocol",
                    connection.peer.host,
                    str(fault) or "none in time",
                )
            return False
        if header is None:
            return False
        if not header.host:
            return True  # the proxy speaks for itself, to see whether we are here
        connection.introduce(header.host, header.port)
        return self._count(connection)

    def _release(self) -> None:
        for listening in self._listening:
            release(listening)
        self._listening = []

    # Looking after what is open.

    def check_callers(self) -> None:
        """End what is open for callers whose access has ended: they were read again."""
        self._check_some(iter(tuple(self._connections)))

    def _check_some(self, rest: Iterator[AcceptedConnection]) -> None:
        some = tuple(islice(rest, _SWEPT_AT_ONCE))
        for connection in some:
            connection.check_callers(reloaded=True)
        if some and self._loop is not None:
            self._loop.call_soon(self._check_some, rest)

    def _schedule_sweep(self) -> None:
        if self._loop is not None:
            self._sweep_handle = self._loop.call_later(self.settings.look_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_some(iter(tuple(self._connections)))

    def _sweep_some(self, rest: Iterator[AcceptedConnection]) -> None:
        """Some in each turn of the loop, so that many connections are no pause for any."""
        now_s = self.now_s()
        some = tuple(islice(rest, _SWEPT_AT_ONCE))
        for connection in some:
            connection.sweep(now_s)
        if some and self._loop is not None:
            self._sweep_handle = self._loop.call_soon(self._sweep_some, rest)
            return
        if self.tls is not None and now_s - self._tls_checked_s >= _TLS_CHECK_S:
            self._tls_checked_s = now_s
            self.tls.look()
        self._schedule_sweep()


async def _read_proxy_header(client: socket.socket) -> ProxyHeader | None:
    """The header, and not one byte of what is behind it; None if the proxy has gone."""
    loop = asyncio.get_running_loop()
    head = b""
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(client.fileno(), _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(client.fileno())
        try:
            data = client.recv(V2_BYTES_MAX, socket.MSG_PEEK)
            if not data:
                return None
            header = read_proxy_header(head + data)
            client.recv(len(data) if header is None else header.size - len(head))
        except BlockingIOError:
            continue
        except OSError:
            return None
        if header is not None:
            return header
        head += data


def _is_in(host: str, networks: Sequence[Network]) -> bool:
    """Whether who connects from there is one of our proxies."""
    if not host or not networks:
        return False
    address = ip_address(address_in(host, 128))
    return any(address in network for network in networks)


def _counted_bytes(connection: AcceptedConnection) -> int:
    return connection.counted_bytes


def _settle(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop to run a listener on: uvloop's where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - may be missing
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
