"""Connection: what stands between a transport and the protocol that serves it.

It gathers the first bytes until their language is known, has the protocol made, and from then on
passes everything through. It stays in between, which costs one more call a read, because what a
transport loses, reads and fails to write is told to its protocol alone: so counts are exact at
once, an idle client is told from a busy one, and an exception in one protocol ends one connection.

A protocol may offer more than asyncio asks for, and each is used if it is there:

    drain()         finish what is under way, take nothing new, close
    under_way()     how much is; while it is not 0 the connection is not idle
    tick(now_s)     called every `look_s`, for the protocol's own time-outs; the loop's time
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast, final

from sluicegate.doors.binding import Address
from sluicegate.doors.listener_settings import ListenerSettings
from sluicegate.doors.sniff import Language, answer_in, kind_of_alpn, sniff
from sluicegate.doors.tls import names_in

_log: Final = logging.getLogger("sluicegate.listener")
_CLOSE_S_MAX: Final = 1.0  # from asking a connection to end to ending it
_NEVER: Final = float("inf")


class PeerInfo(NamedTuple):
    """Who is at the other end, as far as the transport knows.

    `names` are those of a client certificate that was verified. `reserved` is a connection beyond
    the most that may be open: a door should answer health on it and nothing else.
    """

    host: str  # "" behind a Unix socket
    port: int
    listener: Address
    tls: bool = False
    names: tuple[str, ...] = ()
    alpn: str = ""
    reserved: bool = False


@final
class ListenerCounts:
    """What a listener has counted since it began."""

    __slots__ = (
        "accept_errors",
        "accepted",
        "faults",
        "idle_timeouts",
        "not_reading",
        "refused_full",
        "refused_kind",
        "refused_per_address",
        "reserved",
        "served",
        "sniff_timeouts",
        "tls_failures",
        "unknown",
    )

    def __init__(self) -> None:
        self.accepted = 0
        self.accept_errors = 0
        self.refused_full = 0
        self.refused_per_address = 0
        self.refused_kind = 0
        self.unknown = 0
        self.reserved = 0
        self.tls_failures = 0
        self.sniff_timeouts = 0
        self.idle_timeouts = 0
        self.not_reading = 0
        self.faults = 0
        self.served = dict.fromkeys(Language, 0)


class House(Protocol):
    """What a connection asks of its listener."""

    settings: ListenerSettings
    counts: ListenerCounts
    closing: bool

    def now_s(self) -> float:
        """The loop's time."""
        ...

    def refusal(self, reserved: bool, kind: Language) -> str:
        """Why a connection of this kind is not served; empty if it is."""
        ...

    def protocol(self, kind: Language, peer: PeerInfo) -> asyncio.Protocol:
        """A protocol for a connection that is served."""
        ...

    def lost(self, connection: AcceptedConnection) -> None:
        """It is gone."""
        ...


def _nothing(*_: object) -> None:
    return


def _no_work() -> int:
    return 0


@final
class AcceptedConnection:
    """One accepted connection, from the first byte to the last.

    It does what `asyncio.Protocol` asks for; a compiled class has none but compiled ancestors.
    """

    __slots__ = (
        "_drain",
        "_forward",
        "_head",
        "_house",
        "_inner",
        "_lost",
        "_stalled",
        "_tick",
        "_under_way",
        "_unread",
        "active",
        "address",
        "closing_at_s",
        "ending",
        "host",
        "kind",
        "peer",
        "quiet_since_s",
        "reserved",
        "since_s",
        "stalled_since_s",
        "transport",
    )

    def __init__(
        self, house: House, host: str, port: int, address: Address, *, reserved: bool
    ) -> None:
        self._house = house
        self.host = host
        self.address = address
        self.reserved = reserved
        self.peer = PeerInfo(host, port, address, reserved=reserved)
        self.kind: Language | None = None
        self.transport: asyncio.Transport | None = None
        self.since_s = 0.0  # when it was accepted, then when it could first speak
        self.quiet_since_s = 0.0
        self.stalled_since_s = _NEVER
        self.closing_at_s = _NEVER
        self.active = False
        self.ending = False  # what it still sends is thrown away
        self._head = b""
        self._inner: asyncio.Protocol | None = None
        self._lost = False
        self._stalled = False
        self._unread = 0
        self._forward: Callable[[bytes], object] = _nothing
        self._drain: Callable[[], object] = _nothing
        self._under_way: Callable[[], int] = _no_work
        self._tick: Callable[[float], object] = _nothing

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake, if there was one, is done."""
        self.transport = cast("asyncio.Transport", transport)
        self.since_s = self.quiet_since_s = self._house.now_s()
        certificate = transport.get_extra_info("peercert")
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            alpn = secured.selected_alpn_protocol() or ""
            self.peer = self.peer._replace(tls=True, names=names_in(certificate), alpn=alpn)
        if self._house.closing:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass it on; gather it as long as nobody knows to whom."""
        if self._inner is None:
            self._gather(data)
            return
        self.active = True
        if self._stalled and self._over_backlog():
            return
        try:
            self._forward(data)
        except Exception:
            self._failed()

    def eof_received(self) -> bool | None:
        """The peer will send nothing more; it may still read."""
        if self._inner is None:
            return None
        try:
            return self._inner.eof_received()
        except Exception:
            self._failed()
            return None

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is written to."""
        self._stalled = True
        self.stalled_since_s = self._house.now_s()
        self._unread = self._backlog()
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._stalled = False
        self.stalled_since_s = _NEVER
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nothing more is told to anybody about it."""
        self._lost = True
        inner = self._inner
        self._house.lost(self)
        self._forward = self._drain = self._tick = _nothing
        self._under_way = _no_work
        if inner is not None:
            try:
                inner.connection_lost(exc)
            except Exception:
                self._failed()
        self._inner = None

    # What the listener asks.

    def drain(self) -> None:
        """Have it end once what is under way is finished; at once if nothing is."""
        if self.transport is None:
            return  # in its handshake: it is closed when that is done
        if self._inner is None or self.ending:
            self.transport.close()
            return
        try:
            if self._drain is not _nothing:
                self._drain()
            elif self._under_way() == 0:
                self.transport.close()
        except Exception:
            self._failed()

    def abort(self) -> None:
        """End it now."""
        if self.transport is not None:
            self.transport.abort()

    def look(self, now_s: float) -> None:
        """Its bounds in time, and the backlog."""
        transport = self.transport
        if transport is None or self._lost:
            return
        settings = self._house.settings
        if now_s >= self.closing_at_s:
            transport.abort()
        elif self._inner is None:
            if now_s - self.since_s >= settings.sniff_timeout_s:
                self._house.counts.sniff_timeouts += 1
                self._end(b"")
        elif self.reserved and now_s - self.since_s >= settings.reserved_s_max:
            transport.abort()
        elif self._stalled:
            self._look_at_backlog(now_s)
        else:
            self._look_at_rest(now_s)

    def _look_at_rest(self, now_s: float) -> None:
        try:
            self._tick(now_s)
            if self.active or self._under_way():
                self.active = False
                self.quiet_since_s = now_s
                return
        except Exception:
            self._failed()
            return
        if now_s - self.quiet_since_s >= self._house.settings.idle_timeout_s:
            self._house.counts.idle_timeouts += 1
            self.closing_at_s = now_s + _CLOSE_S_MAX
            self.drain()

    def _look_at_backlog(self, now_s: float) -> None:
        if self._over_backlog():
            return
        unread = self._backlog()
        if unread < self._unread:
            self.stalled_since_s = now_s
        self._unread = unread
        if now_s - self.stalled_since_s >= self._house.settings.write_stall_s_max:
            self._house.counts.not_reading += 1
            self.abort()

    def _over_backlog(self) -> bool:
        if self._backlog() <= self._house.settings.write_backlog_bytes_max:
            return False
        self._house.counts.not_reading += 1
        self.abort()
        return True

    def _backlog(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _gather(self, data: bytes) -> None:
        if self.ending:
            return
        self._head = self._head + data if self._head else data
        # What was agreed on in the handshake needs no guess.
        kind = kind_of_alpn(self.peer.alpn) or sniff(self._head)
        if kind is None:
            return
        self.kind = kind
        why = self._house.refusal(self.reserved, kind)
        if why:
            self._end(answer_in(kind, why))
            return
        head, self._head = self._head, b""
        try:
            self._hand_over(kind, head)
        except Exception:
            self._failed()

    def _hand_over(self, kind: Language, head: bytes) -> None:
        inner = self._house.protocol(kind, self.peer)
        offered = cast("Any", inner)
        self._forward = inner.data_received
        self._drain = getattr(offered, "drain", _nothing)
        self._under_way = getattr(offered, "under_way", _no_work)
        self._tick = getattr(offered, "tick", _nothing)
        self._inner = inner
        self.active = True
        assert self.transport is not None
        inner.connection_made(self.transport)
        if not self.transport.is_closing():
            inner.data_received(head)

    def _end(self, last: bytes) -> None:
        """Say one thing and close; a peer that goes on talking is not listened to."""
        self.ending = True
        self._head = b""
        if self.transport is None:
            return
        if last:
            self.transport.write(last)
        self.closing_at_s = self._house.now_s() + _CLOSE_S_MAX
        if last and self.transport.can_write_eof():
            # Closed with bytes unread it would be a reset, and take the answer with it.
            self.transport.write_eof()
        else:
            self.transport.close()

    def _failed(self) -> None:
        """A protocol's own bug: it ends this connection, and no other."""
        self._house.counts.faults += 1
        _log.exception("a %s connection ends, for its protocol failed", self.kind)
        self.abort()
