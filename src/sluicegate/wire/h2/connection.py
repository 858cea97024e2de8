"""One HTTP/2 connection, the serving side: RFC 9113 without a socket and without a clock.

`receive` takes bytes and the instant. It parses frames in place, keeps the windows of both
directions, and tells a `ConnectionOwner` of streams. What must be sent collects in `out` until
`take`, so all answers to one piece of input leave in one write. Every header block that we send is
a constant (`blocks.py`), and those that we get are looked up before they are decoded
(`header_memo.py`).

A peer decides what it sends and what it takes, so both are bounded, by `settings.py`. `receive`
stops after a portion of work and is `waiting` then, until `read_on`. What the peer has not
taken is `backlog_bytes`, whatever holds it back: the owner asks `has_room` before it adds to it.
What frame may come on which stream is the table of `stream_states.py`; what is remembered of
streams that have ended, `past_streams.py`; a header block in several frames, `partial_block.py`.

PRIORITY is checked and otherwise ignored. Nothing is pushed. A fault of the peer ends the stream or
the connection with the code of RFC 9113; a flood ends the connection with ENHANCE_YOUR_CALM.

To end in peace takes two steps: `drain` says that the last stream is yet to come and asks for a
PING's echo; when that is here, no stream of the peer is still on its way unseen, and the second
GOAWAY names the last one that is answered.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, final

from sluicegate.wire.h2 import frames
from sluicegate.wire.h2.blocks import TABLE_UNUSED, HeaderBlock
from sluicegate.wire.h2.fields import RequestHead, list_bytes, request_head, trailers_well_formed
from sluicegate.wire.h2.floods import Floods
from sluicegate.wire.h2.frames import ConnectionFault, StreamFault, word
from sluicegate.wire.h2.header_memo import BadBlock, HeaderMemo
from sluicegate.wire.h2.partial_block import PartialBlock
from sluicegate.wire.h2.past_streams import PastStreams
from sluicegate.wire.h2.settings import H2Settings
from sluicegate.wire.h2.stream import H2Stream
from sluicegate.wire.h2.stream_states import TABLE, FrameVerdict, StreamState, fault_of

DRAINING: Final = b"draining"  # the eight bytes of the PING that a drain waits for
_DECODE_WORK: Final = 32  # a byte of a block that is decoded is as much work as so many others
_HEAD_BYTES: Final = frames.HEAD_BYTES
_DATA_ON: Final = bytes((frames.DATA, 0))  # of a frame's head: between its length and its stream
_LITTLE: Final = 1 << 24
_ALL: Final = 1 << 60
_HARMLESS: Final = (FrameVerdict.BEGIN, FrameVerdict.ACCEPT, FrameVerdict.LATE)


class ConnectionOwner(Protocol):
    """Acts on streams. Called amid a read: it must not wait and must not raise."""

    def interpret(self, head: RequestHead) -> object:
        """Return what a request is, by its head alone. Called once for many requests."""
        ...

    def interpret_oversized(self) -> object:
        """Return what a request is whose header list is beyond the bound."""
        ...

    def begin_stream(self, stream: H2Stream) -> None:
        """Begin a stream whose head is here and whose body is to come."""
        ...

    def receive_data(self, stream: H2Stream, data: bytes, start: int, end: int, last: bool) -> None:
        """Take a part of its body; `last` if that was all."""
        ...

    def drop_stream(self, stream: H2Stream) -> None:
        """Stop its work: it was reset by either side, or the connection was lost."""
        ...

    def resume_stream(self, stream: H2Stream) -> None:
        """Go on: what was queued for it has left."""
        ...


@final
class H2Connection:
    """One connection. Belongs to the loop that reads it."""

    __slots__ = (
        "_announce_table",
        "_began_us",
        "_block",
        "_block_fault",
        "_blocked",
        "_chunks",
        "_counted",
        "_floods",
        "_goaway_sent",
        "_half_since_us",
        "_have",
        "_last_read_us",
        "_memo",
        "_need",
        "_now_us",
        "_owner",
        "_past",
        "_peer_frame",
        "_peer_window",
        "_portion_bytes",
        "_preface",
        "_queued_bytes",
        "_receive_window",
        "_settings_received",
        "_unread",
        "_unread_at",
        "_window",
        "answered",
        "closing",
        "draining",
        "fault",
        "opened",
        "out",
        "out_bytes",
        "peer_leaving",
        "pending",
        "settings",
        "slowed",
        "streams",
        "unsent_bytes",
        "waiting",
    )

    def __init__(self, settings: H2Settings, owner: ConnectionOwner, now_us: int) -> None:
        self.settings = settings
        self._owner = owner
        self.streams: dict[int, H2Stream] = {}
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.unsent_bytes = 0  # that the owner has taken, and the peer has not
        self.pending = 0  # streams whose result is awaited
        self.waiting = False  # there is more to read, in another portion
        self.slowed = False  # it has had its header work of this second, and gives way to others
        self.answered = 0
        self.opened = 0
        self.closing = False  # nothing more will be read
        self.draining = False
        self.peer_leaving = False
        self.fault: ConnectionFault | None = None
        self._goaway_sent = False  # our last GOAWAY has been sent
        self._began_us = now_us
        self._last_read_us = now_us
        self._now_us = now_us
        self._half_since_us = now_us
        self._portion_bytes = 0
        self._chunks: list[bytes] = []
        self._unread, self._unread_at, self._have = b"", 0, 0
        self._need = 0
        self._preface = False
        self._settings_received = False
        self._past = PastStreams()
        self._memo = HeaderMemo(
            settings.memo_entries_max, settings.memo_us_max, settings.header_list_bytes_max
        )
        self._block = PartialBlock(settings)
        self._block_fault = False
        self._blocked: dict[int, H2Stream] = {}
        self._queued_bytes = 0
        self._counted = 0
        self._window = frames.WINDOW_FIRST
        self._peer_window = frames.WINDOW_FIRST
        self._peer_frame = frames.FRAME_BYTES_MAX
        self._receive_window = settings.connection_window_bytes
        self._announce_table = False
        self._floods = Floods(settings)
        self._send_settings()

    # What the owner asks.

    @property
    def done(self) -> bool:
        """Whether it may be closed once `out` has left."""
        return self.closing or (
            (self._goaway_sent or self.peer_leaving)
            and not self.streams
            and not self._block.stream_id
        )

    @property
    def decodes(self) -> int:
        """Header blocks that were not found in the memo."""
        return self._memo.decodes

    @property
    def backlog_bytes(self) -> int:
        """What the peer has yet to take: held back by its windows, by its socket, or by us."""
        return self.out_bytes + self._queued_bytes + self.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of unprocessed input and of output that the transport does not have yet."""
        return self._have + self.out_bytes + self._queued_bytes

    def has_room(self, size: int) -> bool:
        """Whether so much more may be queued; where next to nothing is, any response may."""
        backlog = self.backlog_bytes
        return backlog + size <= self.settings.backlog_bytes_max or backlog < frames.FRAME_BYTES_MAX

    def take(self, bytes_max: int = _ALL) -> bytes:
        """Return what must be sent now, from the front."""
        out = self.out
        if self.out_bytes <= bytes_max:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.out_bytes = 0
            return data
        count = 0
        size = 0
        while size < bytes_max:
            size += len(out[count])
            count += 1
        data = b"".join(out[:count])
        del out[:count]
        if size > bytes_max:
            out.insert(0, data[bytes_max:])
            data = data[:bytes_max]
        self.out_bytes -= len(data)
        return data

    def receive(self, data: bytes, now_us: int) -> None:
        """Take bytes that were read, and act on a portion of them; see `waiting`."""
        if self.closing:
            return
        self._last_read_us = now_us
        if self._have:
            self._chunks.append(data)
            self._have += len(data)
            if self.waiting or self._have < self._need:
                return  # not joined yet: a frame in single bytes must not be copied for each
            data = self._joined()
        self._read_on(data, 0, now_us)

    def hold(self, data: bytes) -> None:
        """Take bytes that were read, for another portion."""
        if not self.closing:
            self._chunks.append(data)
            self._have += len(data)
            self.waiting = True

    def read_on(self, now_us: int) -> None:
        """Act on the next portion of what has come."""
        if self.waiting:
            if self._chunks:
                self._unread, self._unread_at = self._joined(), 0
            self._read_on(self._unread, self._unread_at, now_us)

    def work(self, size: int) -> None:
        """Count so many bytes more of work, beside those that were received."""
        self._portion_bytes += size

    def _joined(self) -> bytes:
        data = b"".join((self._unread[self._unread_at :], *self._chunks))
        self._chunks.clear()
        return data

    def _read_on(self, data: bytes, at: int, now_us: int) -> None:
        self._now_us = now_us
        self._portion_bytes = 0
        self.waiting = self.slowed = False
        half_before = self._have > 0
        try:
            begin, at = at, self._read(data, at)
        except ConnectionFault as fault:
            self.fail(fault)
            return
        if self.closing or at == len(data):
            self._unread, self._unread_at, self._have = b"", 0, 0
            return
        if self.waiting:
            self._unread, self._unread_at = data, at
        else:
            self._unread, self._unread_at = data[at:] if at else data, 0
            if at > begin or not half_before:
                self._half_since_us = now_us  # another frame than the one that was half before
        self._have = len(data) - at

    def drain(self) -> None:
        """Begin a graceful end: the first of two steps."""
        if self.draining or self.closing:
            return
        self.draining = True
        self._write(frames.goaway(frames.STREAM_ID_MAX, frames.NO_ERROR, "draining"))
        self._write(frames.ping_frame(DRAINING, ack=False))

    def refuse_new(self) -> None:
        """Answer what is open and refuse what comes: the second step."""
        if self._goaway_sent or self.closing:
            return
        self.draining = True
        self._goaway_sent = True
        self._write(frames.goaway(self._past.last_id, frames.NO_ERROR, "draining"))

    def fail(self, fault: ConnectionFault) -> None:
        """End the connection: tell the peer why, and drop all streams."""
        if self.closing:
            return
        self.fault = fault
        self._write(frames.goaway(self._past.last_id, fault.code, fault.why))
        self.close()

    def close(self) -> None:
        """Drop all streams and what is queued: the connection is no more."""
        self.closing = True
        streams = list(self.streams.values())
        self.streams.clear()
        self._blocked.clear()
        self._chunks.clear()
        self._unread, self._unread_at, self._have = b"", 0, 0
        self.waiting = False
        for stream in streams:
            stream.closed = True
            stream.queue = None
            self._owner.drop_stream(stream)

    def sweep(self, now_us: int) -> None:
        """End what has been slow or idle for longer than the settings allow."""
        if self.closing:
            return
        settings = self.settings
        if not self._settings_received:
            if now_us - self._began_us >= settings.handshake_us_max:
                self.fail(ConnectionFault(frames.SETTINGS_TIMEOUT, "no SETTINGS in time"))
            return
        self._now_us = now_us
        slow = [
            stream
            for stream in self.streams.values()
            if _is_slow(stream, now_us - settings.request_us_max)
        ]
        for stream in slow:
            self.reset(stream, frames.CANCEL)
        if self._block.stream_id:
            if now_us - self._block.since_us >= settings.request_us_max:
                self.fail(ConnectionFault(frames.ENHANCE_YOUR_CALM, "half a block, too long"))
        elif self._have:
            if not self.waiting and now_us - self._half_since_us >= settings.request_us_max:
                self.fail(ConnectionFault(frames.ENHANCE_YOUR_CALM, "half a frame, too long"))
        elif not self.streams and now_us - self._last_read_us >= settings.idle_us_max:
            self.refuse_new()

    def forget(self) -> None:
        """Forget what header blocks mean: interpret each anew."""
        self._memo.forget()

    # What the application says.

    def reply(self, stream: H2Stream, head: HeaderBlock, payload: bytes, tail: HeaderBlock) -> None:
        """Send a whole response: head, body and trailers."""
        size = len(payload)
        if stream.pending:
            self._settle(stream)
        if (
            self._announce_table
            or size > stream.window
            or size > self._window
            or size > self._peer_frame
            or stream.queue is not None
            or stream.closed
        ):
            self.start(stream, head)
            self.send(stream, payload)
            self.finish(stream, tail)
            return
        stream_id = stream.id
        word_id = stream_id.to_bytes(4, "big")
        self._window -= size
        stream.window -= size
        self._portion_bytes += size
        self._write(
            b"".join(
                (
                    head.opening,
                    word_id,
                    head.encoded,
                    size.to_bytes(3, "big"),
                    _DATA_ON,
                    word_id,
                    payload,
                    tail.ending,
                    word_id,
                    tail.encoded,
                )
            )
        )
        self._complete(stream)

    def start(self, stream: H2Stream, head: HeaderBlock, *, last: bool = False) -> None:
        """Send the head of a response, or with `last` all of it."""
        if stream.closed:
            return
        encoded = head.encoded
        word_id = stream.id.to_bytes(4, "big")
        if self._announce_table:
            self._announce_table = False
            encoded = TABLE_UNUSED + encoded
            flags = frames.END_HEADERS | (frames.END_STREAM if last else 0)
            self._write(frames.frame_head(len(encoded), frames.HEADERS, flags, stream.id) + encoded)
        else:
            self._write((head.ending if last else head.opening) + word_id + encoded)
        if last:
            self._complete(stream)

    def send(self, stream: H2Stream, payload: bytes, *, last: bool = False) -> None:
        """Send a part of a response's body, as the peer's windows allow."""
        if stream.closed:
            return
        if last:
            stream.finished = True
            stream.last_is_data = True
        size = len(payload)
        self._portion_bytes += size
        if not self.has_room(size):
            self.reset(stream, frames.ENHANCE_YOUR_CALM)
            return
        if stream.queue is None:
            stream.queue = deque()
            stream.moved_us = self._now_us
        stream.queue.append(payload)
        stream.queued_bytes += size
        self._queued_bytes += size
        self._pump(stream)

    def finish(self, stream: H2Stream, tail: HeaderBlock) -> None:
        """Send the trailers: the response is complete."""
        if stream.closed:
            return
        stream.finished = True
        stream.trailers = tail
        if stream.queue is None:
            self._end(stream)

    def reset(self, stream: H2Stream, code: int) -> None:
        """End one stream, and tell the owner."""
        if stream.closed:
            return
        self._write(frames.rst_stream(stream.id, code))
        self._past.reset(stream.id)
        self._drop(stream)
        self._owner.drop_stream(stream)

    def await_result(self, stream: H2Stream) -> None:
        """Count a stream as `pending` until it is replied to, or ends."""
        stream.pending = True
        self.pending += 1

    def count_stream(self, stream: H2Stream, most: int) -> bool:
        """Count a stream until it ends, unless `most` are counted already; whether it was."""
        if self._counted >= most:
            return False
        self._counted += 1
        stream.counted = True
        return True

    def consume(self, stream: H2Stream, size: int) -> None:
        """Reopen the window by `size` bytes that were consumed."""
        if stream.closed:
            return
        stream.unread_bytes -= size
        if not stream.ended_by_peer:
            self._replenish(stream)

    # Frames.

    def _read(self, data: bytes, at: int) -> int:
        """Take every whole frame that a portion has room for; return where the rest begins."""
        size = len(data)
        frames_left = self.settings.portion_frames_max
        bytes_max = self.settings.portion_bytes_max
        if not self._preface:
            size_preface = len(frames.PREFACE)
            if data[:size_preface] != frames.PREFACE[:size]:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
            if size < size_preface:
                self._need = size_preface
                return 0
            self._preface = True
            at = size_preface
        while not self.closing:
            if frames_left == 0 or self._portion_bytes >= bytes_max:
                self.waiting = at < size
                break
            if size - at < _HEAD_BYTES:
                self._need = _HEAD_BYTES
                break
            length = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2]
            if length > frames.FRAME_BYTES_MAX:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a frame beyond MAX_FRAME_SIZE")
            end = at + _HEAD_BYTES + length
            if end > size:
                self._need = _HEAD_BYTES + length
                break
            frames_left -= 1
            self._portion_bytes += length
            kind = data[at + 3]
            stream_id = word(data, at + 5) & frames.STREAM_ID_MAX
            try:
                self._frame(kind, data[at + 4], stream_id, data, at + _HEAD_BYTES, end)
            except StreamFault as fault:
                self._stream_fault(fault)
            at = end
        return at

    def _frame(self, kind: int, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        if self._block.stream_id or not self._settings_received:
            self._in_order(kind, stream_id)
        if kind == frames.DATA:
            self._data(flags, stream_id, data, at, end)
        elif kind == frames.HEADERS:
            self._headers(flags, stream_id, data, at, end)
        elif kind == frames.WINDOW_UPDATE:
            self._window_update(stream_id, data, at, end)
        elif kind == frames.RST_STREAM:
            self._rst_stream(stream_id, end - at)
        elif kind == frames.SETTINGS:
            self._settings(flags, stream_id, data, at, end)
        elif kind == frames.PING:
            self._ping(flags, stream_id, data, at, end)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, stream_id, data, at, end)
        elif kind == frames.PRIORITY:
            self._priority(stream_id, data, at, end)
        elif kind == frames.GOAWAY:
            self._goaway(stream_id, end - at)
        else:
            self._other(kind)

    def _in_order(self, kind: int, stream_id: int) -> None:
        amid = self._block.stream_id
        if amid and (kind != frames.CONTINUATION or stream_id != amid):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a frame amid a header block")
        if not self._settings_received and kind != frames.SETTINGS:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS must come first")

    def _other(self, kind: int) -> None:
        if kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "clients do not push")
        self._floods.empty.count_one(self._now_us, self.answered)

    def _data(self, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        length = end - at
        if stream_id == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "DATA on stream 0")
        self._spend(length)
        if flags & frames.PADDED:
            if not length or data[at] >= length:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than payload")
            end -= data[at]
            at += 1
        stream = self.streams.get(stream_id)
        if stream is None or stream.ended_by_peer:
            self._floods.empty.count_one(self._now_us, self.answered)
            self._judge(frames.DATA, stream_id)
            return
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamFault(stream_id, frames.FLOW_CONTROL_ERROR, "beyond the stream's window")
        last = flags & frames.END_STREAM != 0
        if at == end and not last:
            self._floods.empty.count_one(self._now_us, self.answered)
        stream.received_bytes += end - at
        if stream.content_length >= 0:
            _check_length(stream, last)
        if last:
            stream.ended_by_peer = True
        elif not stream.consumes:
            stream.unread_bytes += end - at
        self._owner.receive_data(stream, data, at, end, last)
        if not last and not stream.closed:
            self._replenish(stream)

    def _spend(self, length: int) -> None:
        """The connection's own window: what comes is taken at once, so it opens again at half."""
        self._receive_window -= length
        if self._receive_window < 0:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "beyond the connection's window")
        if self._receive_window * 2 < self.settings.connection_window_bytes:
            more = self.settings.connection_window_bytes - self._receive_window
            self._write(frames.window_update(0, more))
            self._receive_window += more

    def _headers(self, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        if stream_id & 1 == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "HEADERS on a stream that is not yours")
        padding = 0
        if flags & frames.PADDED:
            if at == end:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "no length of its padding")
            padding = data[at]
            at += 1
        self._block_fault = False
        if flags & frames.WEIGHTED:
            if end - at < 5:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "no room for its priority")
            self._block_fault = word(data, at) & frames.STREAM_ID_MAX == stream_id
            at += 5
        if end - at < padding:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than payload")
        block = data[at : end - padding]
        ends = flags & frames.END_STREAM != 0
        if flags & frames.END_HEADERS:
            self._section(stream_id, block, ends)
            return
        self._block.begin(stream_id, block, self._now_us, ends=ends)

    def _continuation(self, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        block = self._block
        if not block.stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block.add(data[at:end])
        if flags & frames.END_HEADERS:
            self._section(stream_id, block.take(), block.ends)

    def _section(self, stream_id: int, block: bytes, ends: bool) -> None:
        """A whole header block: a request's head, or trailers."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._trailers(stream, block, ends)
            return
        if (
            stream_id <= self._past.last_id or self._goaway_sent
        ):  # else it is idle, and this begins it
            self._judge(frames.HEADERS, stream_id)
            self._decode(block)  # late, but its block changes the table
            if not self._goaway_sent:
                self._floods.empty.count_one(self._now_us, self.answered)
            return
        self._past.begin(stream_id)
        meaning = self._memo.get(block, self._now_us)
        if meaning is None:
            meaning = self._interpret(stream_id, block)
        if self._block_fault:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "a stream that depends on itself")
        if len(self.streams) >= self.settings.streams_max:
            self._past.reset(stream_id)
            self._write(frames.rst_stream(stream_id, frames.REFUSED_STREAM))
            self._floods.resets.count_one(self._now_us, 0)
            return
        assert isinstance(meaning, _Meaning)
        if ends and meaning.content_length > 0:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "not the content-length it said")
        self.opened += 1
        stream = H2Stream(
            stream_id,
            meaning.meaning,
            self._peer_window,
            self.settings.stream_window_bytes,
            self._now_us,
        )
        stream.content_length = meaning.content_length
        stream.ended_by_peer = ends
        self.streams[stream_id] = stream
        if ends:
            self._owner.receive_data(stream, b"", 0, 0, True)
        else:
            self._owner.begin_stream(stream)

    def _interpret(self, stream_id: int, block: bytes) -> _Meaning:
        """Decode a request's head, and remember what it means where its bytes may stand for it."""
        found = self._decode(block)
        if list_bytes(found) > self.settings.header_list_bytes_max:
            return _Meaning(self._owner.interpret_oversized(), -1)
        head = request_head(found)
        if head is None:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "a malformed request")
        meaning = _Meaning(self._owner.interpret(head), head.content_length)
        self._memo.keep(block, meaning, self._now_us)
        return meaning

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        size = len(block)
        self._portion_bytes += size * _DECODE_WORK
        self.slowed = self._floods.header_bytes.add(size, self._now_us, 0)
        try:
            return self._memo.decode(block)
        except BadBlock as bad:
            raise ConnectionFault(frames.COMPRESSION_ERROR, "a header block of no sense") from bad

    def _trailers(self, stream: H2Stream, block: bytes, ends: bool) -> None:
        found = self._decode(block)
        if stream.ended_by_peer:
            self._judge(frames.HEADERS, stream.id)
        if (
            not ends
            or self._block_fault
            or list_bytes(found) > self.settings.header_list_bytes_max
            or not trailers_well_formed(found)
        ):
            raise StreamFault(stream.id, frames.PROTOCOL_ERROR, "malformed trailers")
        if stream.content_length >= 0:
            _check_length(stream, True)
        stream.ended_by_peer = True
        self._owner.receive_data(stream, b"", 0, 0, True)

    def _priority(self, stream_id: int, data: bytes, at: int, end: int) -> None:
        if stream_id == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY on stream 0")
        self._floods.empty.count_one(self._now_us, self.answered)
        if end - at != 5:
            raise StreamFault(stream_id, frames.FRAME_SIZE_ERROR, "PRIORITY has 5 bytes")
        if word(data, at) & frames.STREAM_ID_MAX == stream_id:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "a stream that depends on itself")

    def _rst_stream(self, stream_id: int, length: int) -> None:
        if length != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._judge(frames.RST_STREAM, stream_id)
            self._floods.empty.count_one(self._now_us, self.answered)
            return
        self._drop(stream)
        self._owner.drop_stream(stream)
        if self._now_us - stream.began_us < self.settings.rapid_reset_us:
            self._floods.resets.count_one(self._now_us, 0)

    def _settings(self, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        if stream_id != 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS on a stream")
        ack = flags & frames.ACK != 0
        if (end - at) % frames.SETTING_BYTES or (ack and end != at):
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS of a size it cannot have")
        if ack:
            if not self._settings_received:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS must come first")
            self._floods.empty.count_one(self._now_us, self.answered)
            return
        self._settings_received = True
        self._floods.settings.count_one(self._now_us, 0)
        if end - at > self.settings.settings_entries_max * frames.SETTING_BYTES:
            bound = "settings_entries_max"
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, f"more than {bound}", bound)
        window = self._peer_window
        while at < end:
            key, value = (data[at] << 8) | data[at + 1], word(data, at + 2)
            if key == frames.INITIAL_WINDOW_SIZE:
                if value > frames.WINDOW_MAX:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
                window = value
            else:
                self._setting(key, value)
            at += frames.SETTING_BYTES
        self._write(frames.SETTINGS_ACK)
        if window != self._peer_window:
            self._move_windows(window - self._peer_window)
            self._peer_window = window

    def _move_windows(self, more: int) -> None:
        """Apply a new first window to what is open: once a frame, however often it says one."""
        for stream in list(self.streams.values()):
            stream.window += more
            if stream.window > frames.WINDOW_MAX:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
            if more > 0 and stream.queue is not None:
                self._pump(stream)

    def _setting(self, key: int, value: int) -> None:
        if key == frames.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_MAX <= value < _LITTLE:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
            self._peer_frame = value
        elif key == frames.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
        elif key == frames.HEADER_TABLE_SIZE and value < 4_096:
            # A decoder that shrank its table waits for our word. We never use one.
            self._announce_table = True

    def _ping(self, flags: int, stream_id: int, data: bytes, at: int, end: int) -> None:
        if stream_id != 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PING on a stream")
        if end - at != 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING has 8 bytes")
        payload = data[at:end]
        if flags & frames.ACK:
            if self.draining and payload == DRAINING:
                self.refuse_new()
            else:
                self._floods.empty.count_one(self._now_us, self.answered)
            return
        self._floods.pings.count_one(self._now_us, self.answered)
        self._write(frames.ping_frame(payload, ack=True))

    def _goaway(self, stream_id: int, length: int) -> None:
        if stream_id != 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "GOAWAY on a stream")
        if length < 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY has at least 8 bytes")
        self._floods.empty.count_one(self._now_us, self.answered)
        self.peer_leaving = True

    def _window_update(self, stream_id: int, data: bytes, at: int, end: int) -> None:
        if end - at != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
        more = word(data, at) & frames.WINDOW_MAX
        self._floods.updates.count_one(self._now_us, self.answered)
        if stream_id == 0:
            if not more:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
            self._window += more
            if self._window > frames.WINDOW_MAX:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
            self._pump_all()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._judge(frames.WINDOW_UPDATE, stream_id)
            return
        if not more:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
        stream.window += more
        if stream.window > frames.WINDOW_MAX:
            raise StreamFault(stream_id, frames.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
        if stream.queue is not None:
            self._pump(stream)

    # Streams.

    def _write(self, data: bytes) -> None:
        self.out.append(data)
        self.out_bytes += len(data)

    def _send_settings(self) -> None:
        settings = self.settings
        self._write(
            frames.settings_frame(
                [
                    (frames.MAX_CONCURRENT_STREAMS, settings.streams_max),
                    (frames.INITIAL_WINDOW_SIZE, settings.stream_window_bytes),
                    (frames.MAX_HEADER_LIST_SIZE, settings.header_list_bytes_max),
                ]
            )
        )
        more = settings.connection_window_bytes - frames.WINDOW_FIRST
        if more:
            self._write(frames.window_update(0, more))

    def _judge(self, kind: int, stream_id: int) -> None:
        """Raise the fault that a frame is on a stream, if it is one."""
        stream = self.streams.get(stream_id)
        if stream is None:
            state = self._past.state_of(stream_id, refusing=self._goaway_sent)
        else:
            state = StreamState.HALF_CLOSED if stream.ended_by_peer else StreamState.OPEN
        verdict = TABLE[state, kind]
        if verdict not in _HARMLESS:
            raise fault_of(verdict, state, kind, stream_id)

    def _stream_fault(self, fault: StreamFault) -> None:
        # Counted as a reset: to be made to reset costs us as much as to be reset.
        self._floods.resets.count_one(self._now_us, 0)
        stream = self.streams.get(fault.stream_id)
        if stream is not None:
            self.reset(stream, fault.code)
            return
        self._past.reset(fault.stream_id)
        self._write(frames.rst_stream(fault.stream_id, fault.code))

    def _replenish(self, stream: H2Stream) -> None:
        window = self.settings.stream_window_bytes
        more = window - stream.receive_window - stream.unread_bytes
        if more * 2 > window:
            stream.receive_window += more
            self._write(frames.window_update(stream.id, more))

    def _complete(self, stream: H2Stream) -> None:
        """Our side has ended. What the peer has yet to say is not wanted."""
        self.answered += 1
        stream.finished = True
        self._remove(stream)
        if not stream.ended_by_peer:
            self._past.reset(stream.id)
            self._write(frames.rst_stream(stream.id, frames.NO_ERROR))

    def _remove(self, stream: H2Stream) -> None:
        stream.closed = True
        del self.streams[stream.id]
        if stream.counted:
            self._counted -= 1
        if stream.pending:
            self._settle(stream)

    def _settle(self, stream: H2Stream) -> None:
        stream.pending = False
        self.pending -= 1

    def _drop(self, stream: H2Stream) -> None:
        self._remove(stream)
        if stream.queue is not None:
            self._queued_bytes -= stream.queued_bytes
            stream.queue = None
            self._blocked.pop(stream.id, None)

    # What waits for the peer's windows.

    def _pump_all(self) -> None:
        """Spend the connection's window on those that wait for it, and on nobody else."""
        while self._blocked and self._window > 0:
            self._pump(next(iter(self._blocked.values())))

    def _pump(self, stream: H2Stream) -> None:
        queue = stream.queue
        if queue is None:
            return
        while queue:
            payload = queue[0]
            begin = stream.queue_at
            size = min(len(payload) - begin, stream.window, self._window, self._peer_frame)
            if size <= 0 and payload:
                if stream.window > 0:
                    self._blocked[stream.id] = stream
                else:
                    self._blocked.pop(stream.id, None)
                return
            if begin + size < len(payload):
                stream.queue_at = begin + size
            else:
                queue.popleft()
                stream.queue_at = 0
            if size < len(payload):
                payload = payload[begin : begin + size]
            stream.window -= size
            self._window -= size
            stream.moved_us = self._now_us
            stream.queued_bytes -= size
            self._queued_bytes -= size
            last = stream.last_is_data and not queue
            flags = frames.END_STREAM if last else 0
            self._write(frames.frame_head(size, frames.DATA, flags, stream.id) + payload)
        self._blocked.pop(stream.id, None)
        stream.queue = None
        if stream.last_is_data:
            self._complete(stream)
        elif stream.trailers is not None:
            self._end(stream)
        else:
            self._owner.resume_stream(stream)

    def _end(self, stream: H2Stream) -> None:
        tail = stream.trailers
        assert tail is not None
        if self._announce_table:
            self.start(stream, tail, last=True)
            return
        self._write(tail.ending + stream.id.to_bytes(4, "big") + tail.encoded)
        self._complete(stream)


def _is_slow(stream: H2Stream, before_us: int) -> bool:
    """Whether its request has been on its way since then, or its whole response not moved."""
    if stream.queue is not None:
        return stream.finished and stream.moved_us <= before_us
    return stream.consumes and not stream.ended_by_peer and stream.began_us <= before_us


def _check_length(stream: H2Stream, last: bool) -> None:
    """Refuse a body that is not as long as its content-length."""
    wanted = stream.content_length
    if stream.received_bytes > wanted or (last and stream.received_bytes != wanted):
        raise StreamFault(stream.id, frames.PROTOCOL_ERROR, "not the content-length it said")


@final
class _Meaning:
    """What a header block means, and the length of the body that it announces."""

    __slots__ = ("content_length", "meaning")

    def __init__(self, meaning: object, content_length: int) -> None:
        self.meaning = meaning
        self.content_length = content_length
