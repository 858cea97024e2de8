"""Protocol: one WebSocket connection. It knows no app.

What is read is parsed in portions, each of which waits for a turn where others wait too
(`doors/turns.py`), so a read of thousands of tiny frames holds up nobody. Who sends faster than it
may is read later. A client that does not read is not written to: its session is told when it has
caught up. Replies to what it asked for are still written, and it is not read meanwhile, so there
are no more of them than may be under way.

Who sends the same to many need not hand it to each one's transport: as long as that has nothing to
write, what is written to its descriptor comes in the same order, and at half the price.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, Protocol, cast, final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.doors.http.replies import close_code
from sluicegate.doors.turns import Turns, TurnShare, class_of
from sluicegate.doors.websocket.codec import HEAD_BYTES, LONG_FACTOR, FrameCodec, LongFrame
from sluicegate.doors.websocket.session import OpenSession
from sluicegate.doors.websocket.settings import WebSocketSettings
from sluicegate.kernels.token_bucket import TokenBucket

_PORTION_BYTES: Final = 1_024
_US: Final = 1_000_000
_NEVER: Final = float("inf")


@final
class WebSocketCounts:
    """What a door has counted since it began."""

    __slots__ = ("closed_by", "messages", "open", "opened", "rested")

    def __init__(self) -> None:
        self.open = 0
        self.opened = 0
        self.messages = 0  # read, whole
        self.rested = 0  # times a connection was read later, for it sent too fast
        self.closed_by: dict[int, int] = {}  # by the code that we sent


class _Door(Protocol):
    """What a connection shares with others."""

    settings: WebSocketSettings
    counts: WebSocketCounts
    turns: Turns
    clock: Clock


def text_frame(text: bytes) -> bytes:
    """A message of text as one frame; a server's is the same for all its clients."""
    size = len(text)
    if size < 126:
        return b"\x81%c%b" % (size, text)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), text)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), text)


@final
class WebSocketProtocol(asyncio.Protocol):
    """One connection on a loop, from the handshake's end on."""

    __slots__ = (
        "_abort_at_s", "_at", "_blocked", "_bytes", "_caller", "_class", "_closing", "_codec",
        "_door", "_draining", "_ending", "_ends_soon", "_file", "_frames", "_half_closed", "_heard",
        "_message", "_message_bytes", "_message_since_s", "_open", "_out", "_paused", "_pinged",
        "_session", "_settings", "_share", "_silent_since_s", "_transport", "_unparsed",
        "_working", "descriptor",
    )  # fmt: skip

    def __init__(self, door: _Door, identity: Identity | None, open_session: OpenSession) -> None:
        settings = door.settings
        self._door = door
        self._settings = settings
        self._open = open_session
        self._class = class_of(identity)
        self._caller = "" if identity is None else identity.name
        self._codec = FrameCodec(settings.message_bytes_max)
        self._share = TurnShare(door.turns, settings.connection_portions_max, self._work)
        self._frames = TokenBucket(settings.frames_per_s, _US, debt_max=_PORTION_BYTES)
        self._bytes = TokenBucket(settings.bytes_per_s, _US, debt_max=_PORTION_BYTES)
        self._unparsed = b""
        self._at = 0
        self._message: bytearray | None = None  # the fragments of one that is not whole
        self._message_bytes = 0  # and how long they are, though they may be too long to be kept
        self._message_since_s = _NEVER
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.descriptor = -1  # -1 too while `_out` or the transport has something to write
        self._file = -1
        self._working = False
        self._blocked = False  # the client does not read
        self._paused = False  # we do not read
        self._ending = False  # the last frame is written; what comes is thrown away
        self._draining = False
        self._closing = False  # the client says goodbye, and what is under way is answered first
        self._half_closed = False  # it sends nothing more, and still reads
        self._ends_soon = False  # what is to be sent leaves at this turn's end
        self._heard = True  # since the last look
        self._pinged = False
        self._silent_since_s = 0.0
        self._abort_at_s = _NEVER
        self._session = open_session(self)

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._settings.unread_bytes_max)
        self._file = _file_of(self._transport)
        self._door.counts.open += 1
        self._door.counts.opened += 1

    def data_received(self, data: bytes) -> None:
        """Parse it, as far as this turn goes."""
        self._heard = True
        if self._ending:
            return
        left = self._unparsed[self._at :]
        self._unparsed = left + data if left else data
        self._at = 0
        self._work()

    def eof_received(self) -> bool:
        """The client sends nothing more: answer what is under way, then close."""
        # Over TLS there is no half of a connection.
        waits = not self._ending and self._file >= 0 and self._session.under_way() > 0
        self._half_closed = waits
        return waits

    def pause_writing(self) -> None:
        """Stop reading, and sending: the client does not read."""
        self._blocked = True
        self._read_or_stop()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._blocked = False
        if not self._ending:
            self._session.resume()
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session."""
        self._transport = None
        self._ending = True
        self.descriptor = -1
        self._unparsed = b""
        self._message = None
        self._out.clear()
        self._door.counts.open -= 1
        self._session.close()

    # What the session calls.

    @property
    def message_bytes_max(self) -> int:
        """How long a message may be that the client sends."""
        return self._settings.message_bytes_max

    @property
    def blocked(self) -> bool:
        """Whether the client has more unread than may be, or nothing can be sent any more."""
        return self._blocked or self._ending

    def send(self, frames: bytes) -> None:
        """Send whole frames when the turn ends."""
        if self._ending or self._is_too_long(frames):
            return
        self._out.append(frames)
        self.descriptor = -1
        if not self._ends_soon:
            self._ends_soon = True
            self._door.turns.at_end(self.flush)

    def send_now(self, frames: bytes) -> None:
        """Send them, and what was to be sent before, at once."""
        transport = self._transport
        if self._is_too_long(frames):
            return
        if self._out or transport is None:
            self._out.append(frames)
            self.flush()
        elif not self._ending and not transport.is_closing():
            if self._file < 0 or transport.get_write_buffer_size():
                transport.write(frames)
                return
            self.descriptor = self._file
            try:
                written = os.write(self._file, frames)
            except OSError:  # it takes nothing now, or nothing any more: the transport finds out
                written = 0
            if written < len(frames):
                self.send_rest(frames[written:])

    def _is_too_long(self, frames: bytes) -> bool:
        if len(frames) <= self._settings.reply_bytes_max:
            return False
        self.fail(CloseCode.INTERNAL_ERROR, "websocket.reply_bytes_max")
        return True

    def send_rest(self, rest: bytes) -> None:
        """Send what the descriptor did not take."""
        self.descriptor = -1
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(rest)

    def flush(self) -> None:
        """Send what is to be sent."""
        self._ends_soon = False
        transport = self._transport
        if self._out and transport is not None:
            out = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self.descriptor = -1
            if not transport.is_closing():
                transport.write(out)

    def proceed(self) -> None:
        """Something that was under way is answered."""
        if not self._session.under_way():
            if self._closing:
                self._closing = False
                self._send_codec()
            elif self._half_closed:
                self.flush()
                if self._transport is not None:
                    self._transport.close()
            elif self._draining:
                self._say_goodbye()
        self._work()

    def fail(self, code: int, reason: str) -> None:
        """Close the connection with this code."""
        self._codec.fail(code, reason)
        self._send_codec()

    # What the listener asks.

    def under_way(self) -> int:
        """Return how much is asked for and not answered."""
        return 0 if self._ending else self._session.under_way()

    def caller(self) -> str:
        """Return the caller of its last request."""
        return self._caller

    def held_bytes(self) -> int:
        """Return the bytes of input that is not worked on, and of frames that leave soon."""
        size = len(self._unparsed) - self._at if self._unparsed else 0
        if self._message is not None:
            size += len(self._message)
        return size + sum(len(one) for one in self._out)

    def drain(self) -> None:
        """Answer what is under way, say goodbye, close."""
        self._draining = True
        if not self._session.under_way():
            self._say_goodbye()

    def check_callers(self, _reloaded: bool) -> bool:
        """End the connection, if the access of its caller has ended."""
        identity = self._session.identity
        why = "" if identity is None else identity.ended(self._door.clock.now_us())
        if not why or self._ending:
            return False
        self.fail(close_code(why), why)
        return True

    def tick(self, now_s: float) -> None:
        """Ping who is silent, and end what takes too long."""
        settings, transport = self._settings, self._transport
        if transport is None:
            return
        if self._ending or self._codec.state is not State.OPEN:
            if self._abort_at_s == _NEVER:
                waits = self._closing and not self._ending
                self._abort_at_s = now_s + (
                    settings.message_timeout_s if waits else settings.linger_s
                )
            elif now_s >= self._abort_at_s:
                transport.abort()
            return
        if (
            self._message is None
            and self._at >= len(self._unparsed)
            and not self._codec.within_frame
        ):
            self._message_since_s = _NEVER
        elif self._message_since_s == _NEVER:
            self._message_since_s = now_s
        elif now_s - self._message_since_s >= settings.message_timeout_s and not self._paused:
            self.fail(CloseCode.POLICY_VIOLATION, "websocket.message_timeout_s")
            return
        if self._heard or self._paused:
            self._heard = self._pinged = False
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s >= settings.silence_s_max:
            transport.abort()
        elif not self._pinged and now_s - self._silent_since_s >= settings.heartbeat_s:
            self._pinged = True
            self._codec.send_ping(b"")
            self._send_codec()

    # Inside.

    def _work(self) -> None:
        """Parse what was read, as far as there are turns, pace and room."""
        if self._working:
            return
        self._working = True
        self._share.begin()
        while self._may_parse() and self._share.enter_or_wait(self._class, self._caller):
            portion = self._unparsed[self._at : self._at + _PORTION_BYTES]
            self._at += len(portion)
            self._codec.receive_data(portion)
            frames = self._codec.events_received()
            for frame in frames:
                if isinstance(frame, Frame | LongFrame):
                    self._receive(frame)
            self._closing = self._codec.close_rcvd is not None and self._session.under_way() > 0
            if not self._closing:
                self._send_codec()
            self._keep_pace(len(frames), len(portion))
        self._working = False
        self._read_or_stop()

    def _may_parse(self) -> bool:
        return self._at < len(self._unparsed) and not (self._share.waiting or self._is_full())

    def _is_full(self) -> bool:
        """Whether it must not be read further: the client does not read, or waits for much."""
        return (
            self._blocked
            or self._ending
            or self._session.under_way() >= self._settings.under_way_max
        )

    def _receive(self, frame: Frame | LongFrame) -> None:
        opcode = frame.opcode
        # A message without an answer before our goodbye was not worked on: others may repeat it.
        ends = self._ending or self._draining
        if ends or opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if opcode is Opcode.BINARY:
            self.fail(CloseCode.UNSUPPORTED_DATA, "send text")
            return
        data = frame.data
        size = frame.size if isinstance(frame, LongFrame) else len(data)
        most = self._settings.message_bytes_max
        if opcode is Opcode.CONT or not frame.fin:
            if self._message is None:
                self._message, self._message_bytes = bytearray(), 0
            self._message_bytes += size
            if self._message_bytes > LONG_FACTOR * most:
                self.fail(CloseCode.MESSAGE_TOO_BIG, "websocket.message_bytes_max")
                return
            if len(self._message) <= most:
                self._message += data
            if not frame.fin:
                return
            data, self._message, size = bytes(self._message), None, self._message_bytes
        if size > most:
            self._message_since_s = _NEVER
            self._session.reject(bytes(data[:HEAD_BYTES]), size, most)
            return
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            self.fail(CloseCode.INVALID_DATA, "send UTF-8")
            return
        self._message_since_s = _NEVER
        self._door.counts.messages += 1
        self._session.receive(text)

    def _keep_pace(self, frames: int, size: int) -> None:
        """Read on later, if more came than may."""
        now_us = self._door.clock.now_us()
        delay_us = 0
        for bucket, cost in ((self._frames, frames), (self._bytes, size)):
            bucket.settle(cost, now_us)
            verdict = bucket.take(0, now_us)
            if not verdict.allowed:
                delay_us = max(delay_us, verdict.retry_after_us)
        if delay_us and not self._share.waiting:
            self._door.counts.rested += 1
            self._share.rest(delay_us, self._class, self._caller)

    def _say_goodbye(self) -> None:
        if self._codec.state is State.OPEN and not self._ending:
            self._codec.send_close(CloseCode.GOING_AWAY, "this instance is going away")
            self._send_codec()

    def _send_codec(self) -> None:
        """Send what the codec has to say: pongs, and the end."""
        for data in self._codec.data_to_send():
            if data:
                self.send(data)
            else:
                self._end()

    def _end(self) -> None:
        """Write the last frame; a client that still sends has time to read it."""
        sent = self._codec.close_sent
        if sent is not None:
            counts = self._door.counts.closed_by
            counts[int(sent.code)] = counts.get(int(sent.code), 0) + 1
        self.flush()
        self._ending = True
        self.descriptor = -1
        self._unparsed = b""
        self._message = None
        transport = self._transport
        if transport is None:
            return
        if transport.can_write_eof():
            # Closed with bytes unread it would be a reset, and take the last frame with it.
            transport.write_eof()
        else:
            transport.close()
        self._read_or_stop()

    def _read_or_stop(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        paused = not self._ending and (self._share.waiting or self._is_full())
        if paused != self._paused:
            self._paused = paused
            if paused:
                transport.pause_reading()
            else:
                transport.resume_reading()


def _file_of(transport: asyncio.Transport) -> int:
    """The descriptor of a transport that writes to it what it is given, and waits for nothing."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("ssl_object") is not None:
        return -1
    file: int = sock.fileno()
    return -1 if file < 0 or os.get_blocking(file) else file
