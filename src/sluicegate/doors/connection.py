"""Connection: what stands between a transport and the protocol that serves it.

It gathers the first bytes until their language is known, has the protocol made, and from then on
passes everything through. It stays in between, which costs one more call a read, because what a
transport loses, reads and fails to write is told to its protocol alone: so counts are exact at
once, an idle client is told from a busy one, and an exception in one protocol ends one connection.

A protocol may offer more than asyncio asks for, and each is used if it is there:

    drain()         finish what is under way, take nothing new, close
    under_way()     how much is; while it is not 0 the connection is not idle
    held_bytes()    input that it keeps, and replies that the transport does not have yet
    caller()        the caller of its last request; "" before there is one
    tick(now_s)     called every `look_s`, for the protocol's own time-outs; the loop's time
    check_callers(reloaded)
                    end what is open for callers whose access has ended (`Identity.ended`); called
                    every `look_s`, and with `reloaded` after the callers were read again. Returns
                    whether the connection ends; then it has a second
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
_FIRST_S_MAX: Final = 0.5  # from connecting to a first request that a closing listener still takes
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
        "over_owed",
        "proxy_faults",
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
        self.proxy_faults = 0
        self.tls_failures = 0
        self.sniff_timeouts = 0
        self.idle_timeouts = 0
        self.not_reading = 0
        self.over_owed = 0
        self.faults = 0
        self.served = dict.fromkeys(Language, 0)


class _Owner(Protocol):
    """What a connection calls of its listener."""

    settings: ListenerSettings
    counts: ListenerCounts
    closing: bool

    def now_s(self) -> float:
        """The loop's time."""
        ...

    def refusal(self, reserved: bool, kind: Language) -> str:
        """Return why a connection of this language is not served; empty if it is."""
        ...

    def protocol(self, kind: Language, peer: PeerInfo) -> asyncio.Protocol:
        """Make the protocol of a connection that is served."""
        ...

    def forget(self, connection: AcceptedConnection) -> None:
        """Remove a connection that was lost."""
        ...

    def count_owed(self, connection: AcceptedConnection) -> None:
        """Count again what a connection holds."""
        ...


def _do_nothing(*_: object) -> None:
    return


def _nothing() -> int:
    return 0


def _nobody() -> str:
    return ""


def _no_callers(_reloaded: bool) -> bool:
    return False


@final
class AcceptedConnection:
    """One accepted connection, from the first byte to the last.

    It does what `asyncio.Protocol` asks for; a compiled class has none but compiled ancestors.
    """

    __slots__ = (
        "_aborted",
        "_caller",
        "_check_callers",
        "_drain",
        "_forward",
        "_head",
        "_held_bytes",
        "_inner",
        "_lost",
        "_owner",
        "_stalled",
        "_tick",
        "_under_way",
        "_unread",
        "_unread_max",
        "active",
        "address",
        "closing_at_s",
        "counted_as",
        "counted_bytes",
        "ending",
        "kind",
        "on_lost",
        "peer",
        "quiet_since_s",
        "reserved",
        "since_s",
        "stalled_since_s",
        "transport",
    )

    def __init__(
        self, owner: _Owner, host: str, port: int, address: Address, *, reserved: bool
    ) -> None:
        self._owner = owner
        self.counted_as = ""  # the address that it is one of the connections of
        self.counted_bytes = 0  # of `owed_bytes`, in the sum of its listener
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
        self._aborted = False
        self._stalled = False
        self._unread = 0
        self._unread_max = 0
        self.on_lost: Callable[[], object] = _do_nothing
        self._forward: Callable[[bytes], object] = _do_nothing
        self._drain: Callable[[], object] = _do_nothing
        self._under_way: Callable[[], int] = _nothing
        self._held_bytes: Callable[[], int] = _nothing
        self._caller: Callable[[], str] = _nobody
        self._tick: Callable[[float], object] = _do_nothing
        self._check_callers: Callable[[bool], bool] = _no_callers

    def introduce(self, host: str, port: int) -> None:
        """Take this for who is at the other end, of the proxy that connects us."""
        self.peer = self.peer._replace(host=host, port=port)

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake, if there was one, is done."""
        self.transport = cast("asyncio.Transport", transport)
        self.since_s = self.quiet_since_s = self._owner.now_s()
        certificate = transport.get_extra_info("peercert")
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            alpn = secured.selected_alpn_protocol() or ""
            self.peer = self.peer._replace(tls=True, names=names_in(certificate), alpn=alpn)
        if self._owner.closing:
            self.drain()

    def data_received(self, data: bytes) -> None:
        """Pass it on; gather it as long as nobody knows to whom."""
        if self._inner is None:
            self._sniff(data)
            return
        self.active = True
        if self._stalled and self._over_backlog():
            return
        try:
            self._forward(data)
        except Exception:
            self._log_failure()

    def eof_received(self) -> bool | None:
        """The peer will send nothing more; it may still read."""
        if self._inner is None:
            return None
        try:
            return self._inner.eof_received()
        except Exception:
            self._log_failure()
            return None

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is written to."""
        self._stalled = True
        self.stalled_since_s = self._owner.now_s()
        self._unread = self._backlog()
        # One reply may be longer than the bound. The protocol writes no other one now.
        self._unread_max = max(self._unread, self._owner.settings.write_backlog_bytes_max)
        if self._inner is not None:
            self._inner.pause_writing()
        self._owner.count_owed(self)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._stalled = False
        self.stalled_since_s = _NEVER
        if self._inner is not None:
            self._inner.resume_writing()
        self._owner.count_owed(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nothing more is told to anybody about it."""
        self._lost = True
        inner = self._inner
        self._owner.forget(self)
        self.on_lost()
        self._forward = self._drain = self._tick = _do_nothing
        self._under_way = self._held_bytes = _nothing
        self._caller = _nobody
        self._check_callers = _no_callers
        if inner is not None:
            try:
                inner.connection_lost(exc)
            except Exception:
                self._log_failure()
        self._inner = None

    # What the listener asks.

    def drain(self) -> None:
        """End the connection once its requests in flight are answered.

        A new connection has `_FIRST_S_MAX` to send its first request.
        """
        if self.transport is None:
            return  # in its handshake: it is drained when that is done
        if self._inner is None and not self.ending:
            self.closing_at_s = min(self.closing_at_s, self.since_s + _FIRST_S_MAX)
            if self._owner.now_s() >= self.closing_at_s:
                self.transport.close()
            return
        if self.ending:
            self.transport.close()
            return
        try:
            if self._drain is not _do_nothing:
                self._drain()
            elif self._under_way() == 0:
                self.transport.close()
        except Exception:
            self._log_failure()

    def abort(self) -> None:
        """End it now."""
        if self.transport is not None:
            self._aborted = True
            self.transport.abort()

    def owed_bytes(self) -> int:
        """Return the bytes it holds: unsent replies, and input that is not worked on."""
        if self._lost or self._aborted:
            return 0
        return self._backlog() + len(self._head) + self._held_bytes()

    def held_for(self) -> object:
        """Return what shares one account of bytes: a caller, else an address, else a connection."""
        return self._caller() or self.counted_as or self

    def check_callers(self, *, reloaded: bool) -> None:
        """End what is open for callers whose access has ended."""
        if self._lost or self.closing_at_s != _NEVER:
            return
        try:
            if self._check_callers(reloaded):
                self.closing_at_s = self._owner.now_s() + _CLOSE_S_MAX
        except Exception:
            self._log_failure()

    def sweep(self, now_s: float) -> None:
        """Check its bounds in time, and the backlog."""
        self.check_callers(reloaded=False)
        if self.active or self.counted_bytes:
            self._owner.count_owed(self)
        transport = self.transport
        if transport is None or self._lost:
            return
        settings = self._owner.settings
        if now_s >= self.closing_at_s:
            transport.abort()
        elif self._inner is None:
            if now_s - self.since_s >= settings.sniff_timeout_s:
                self._owner.counts.sniff_timeouts += 1
                self._close_with(b"")
        elif self.reserved and now_s - self.since_s >= settings.reserved_s_max:
            transport.abort()
        elif self._stalled:
            self._check_backlog(now_s)
        else:
            self._check_idle(now_s)

    def _check_idle(self, now_s: float) -> None:
        try:
            self._tick(now_s)
            if self.active or self._under_way():
                self.active = False
                self.quiet_since_s = now_s
                return
        except Exception:
            self._log_failure()
            return
        if now_s - self.quiet_since_s >= self._owner.settings.idle_timeout_s:
            self._owner.counts.idle_timeouts += 1
            self.closing_at_s = now_s + _CLOSE_S_MAX
            self.drain()

    def _check_backlog(self, now_s: float) -> None:
        if self._over_backlog():
            return
        unread = self._backlog()
        if unread < self._unread:
            self.stalled_since_s = now_s
        self._unread = unread
        if now_s - self.stalled_since_s >= self._owner.settings.write_stall_s_max:
            self._owner.counts.not_reading += 1
            self.abort()

    def _over_backlog(self) -> bool:
        if self._backlog() <= self._unread_max:
            return False
        self._owner.counts.not_reading += 1
        self.abort()
        return True

    def _backlog(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _sniff(self, data: bytes) -> None:
        if self.ending:
            return
        self._head = self._head + data if self._head else data
        # What was agreed on in the handshake needs no guess.
        kind = kind_of_alpn(self.peer.alpn) or sniff(self._head)
        if kind is None:
            return
        self.kind = kind
        why = self._owner.refusal(self.reserved, kind)
        if why:
            self._close_with(answer_in(kind, why))
            return
        head, self._head = self._head, b""
        try:
            self._make_protocol(kind, head)
        except Exception:
            self._log_failure()

    def _make_protocol(self, kind: Language, head: bytes) -> None:
        inner = self._owner.protocol(kind, self.peer)
        self.serve_with(inner)
        assert self.transport is not None
        if not self.transport.is_closing():
            inner.data_received(head)
        if self._owner.closing:
            self.closing_at_s = _NEVER
            self.drain()

    def serve_with(self, inner: asyncio.Protocol) -> None:
        """Pass everything to this protocol from now on, in the place of another if there is one."""
        offered = cast("Any", inner)
        self._forward = inner.data_received
        self._drain = getattr(offered, "drain", _do_nothing)
        self._under_way = getattr(offered, "under_way", _nothing)
        self._held_bytes = getattr(offered, "held_bytes", _nothing)
        self._caller = getattr(offered, "caller", _nobody)
        self._tick = getattr(offered, "tick", _do_nothing)
        self._check_callers = getattr(offered, "check_callers", _no_callers)
        self._inner = inner
        self.active = True
        assert self.transport is not None
        inner.connection_made(self.transport)

    def _close_with(self, last: bytes) -> None:
        """Send one last thing and close; what the peer still sends is discarded."""
        self.ending = True
        self._head = b""
        if self.transport is None:
            return
        if last:
            self.transport.write(last)
        self.closing_at_s = self._owner.now_s() + _CLOSE_S_MAX
        if last and self.transport.can_write_eof():
            # Closed with bytes unread it would be a reset, and take the answer with it.
            self.transport.write_eof()
        else:
            self.transport.close()

    def _log_failure(self) -> None:
        """Log a protocol's own bug: it ends this connection, and no other."""
        self._owner.counts.faults += 1
        _log.exception("a %s connection ends, for its protocol failed", self.kind)
        self.abort()
