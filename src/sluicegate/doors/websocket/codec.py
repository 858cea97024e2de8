"""Codec: the frames of one connection. A frame that is too long is skipped, and reported.

The codec of `websockets` ends a connection at the head of such a frame, and with it all that the
client has in flight. Here its beginning is kept, so that the session can say which message it was.
A frame of more than `LONG_FACTOR` times the bound still ends the connection: reading it would hold
up the client for longer than it waits for an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Final, NamedTuple, final

from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol, State
from websockets.streams import StreamReader

LONG_FACTOR: Final = 16
HEAD_BYTES: Final = 256  # of a message that is too long
# At debug level `websockets` writes down frames and headers, tokens too.
QUIET: Final = logging.getLogger("sluicegate.websocket")
QUIET.setLevel(logging.WARNING)


class LongFrame(NamedTuple):
    """A frame of data that was skipped; `data` is its beginning."""

    opcode: Opcode
    data: bytes
    fin: bool
    size: int


@final
class _SkippingReader(StreamReader):
    """Reads what is too long without holding it."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.skipped = 0  # bytes of the last read, if it was too long
        self.left = 0  # of one that is being skipped
        self._bytes_max = bytes_max

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        if n <= self._bytes_max:
            return (yield from super().read_exact(n))
        self.left = n - HEAD_BYTES
        head = yield from super().read_exact(min(n, HEAD_BYTES))
        while self.left > 0:
            gone = min(self.left, len(self.buffer))
            del self.buffer[:gone]
            self.left -= gone
            if self.left > 0:
                if self.eof:
                    raise EOFError("the stream ended within a frame")
                yield
        self.left, self.skipped = 0, n
        return head


@final
class FrameCodec(Protocol):
    """A server's side of a connection, from the handshake's end on."""

    def __init__(self, message_bytes_max: int) -> None:
        super().__init__(
            SERVER, state=State.OPEN, max_size=LONG_FACTOR * message_bytes_max, logger=QUIET
        )
        self._skipping = _SkippingReader(message_bytes_max)
        self.reader = self._skipping
        self.parser = self.parse()  # the first one has the reader from before
        next(self.parser)

    @property
    def within_frame(self) -> bool:
        """Whether a frame has begun, and is not whole."""
        return bool(self._skipping.buffer) or self._skipping.left > 0

    def recv_frame(self, frame: Frame) -> None:
        """Record a frame; a skipped frame becomes a `LongFrame`."""
        size, self._skipping.skipped = self._skipping.skipped, 0
        super().recv_frame(frame)
        if size:
            self.events[-1] = LongFrame(frame.opcode, bytes(frame.data), frame.fin, size)  # type: ignore[call-overload]
