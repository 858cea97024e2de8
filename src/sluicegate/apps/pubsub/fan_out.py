"""Fan-out: writes to the sessions what their channels have for them.

A session that has something to send is woken once, however much there is. Who was woken is served
in the order of waking, a bounded number in a turn of the loop, so that a message to ten thousand
delays nobody else by all of them. A message is made a frame once; those who take the same messages
of a channel share the same bytes, and they take them in one write.

Bounds: one entry a session; the frames of the messages that are being sent, `CACHE_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, final

from sluicegate.apps.pubsub.channel import ChannelKey, Gap, Piece
from sluicegate.doors.websocket.protocol import text_frame
from sluicegate.wire.json_objects import encode_json

SESSIONS_A_TURN: Final = 64
CACHE_BYTES_MAX: Final = 1 << 20


class _Reader(Protocol):
    """A session, as far as it is written to."""

    def send_some(self) -> None:
        """Send some of what there is for it."""


@final
class FanOut:
    """One for all sessions of a loop."""

    def __init__(self) -> None:
        self.delivered = 0  # messages
        self.gaps = 0
        self._awake: deque[_Reader] = deque()
        self._frames: dict[tuple[ChannelKey, str, int, int], bytes] = {}
        self._frame_bytes = 0
        self._last_pieces: Sequence[Piece] = ()
        self._last_name = ""
        self._last_frames = b""
        self._loop = asyncio.get_running_loop()

    def wake(self, session: _Reader) -> None:
        """Have a session served that is not yet to be."""
        if not self._awake:
            self._loop.call_soon(self._serve)
        self._awake.append(session)

    def frames_of(self, key: ChannelKey, pieces: Sequence[Piece], name: str = "") -> bytes:
        """What is sent for these pieces of a channel; a node calls it by another name."""
        if pieces is self._last_pieces and name == self._last_name:
            self.delivered += len(pieces)
            return self._last_frames
        frames = self._frames_of(key, pieces, name or key.name)
        if not isinstance(pieces[0], Gap):  # those who are as far take the very same
            self._last_pieces, self._last_name, self._last_frames = pieces, name, frames
        return frames

    def _frames_of(self, key: ChannelKey, pieces: Sequence[Piece], name: str) -> bytes:
        self.delivered += len(pieces)
        first = pieces[0]
        if isinstance(first, Gap):
            self.delivered -= 1
            self.gaps += 1
            gap = {"type": "gap", "channel": name, **first._asdict()}
            rest = pieces[1:]
            return text_frame(encode_json(gap)) + (self._shared(key, rest, name) if rest else b"")
        return self._shared(key, pieces, name)

    def _shared(self, key: ChannelKey, messages: Sequence[Piece], name: str) -> bytes:
        # A channel has the same messages between two positions for all who take from it.
        begin, end = messages[0], messages[-1]
        assert not isinstance(begin, Gap)
        assert not isinstance(end, Gap)
        place = (key, name, begin.position, end.position)
        frames = self._frames.get(place)
        if frames is None:
            rest = b',"channel":%b,' % encode_json(name)
            heads = (b'{"type":"message"' + rest, b'{"type":"presence"' + rest)
            frames = b"".join(
                text_frame(heads[one.presence] + one.text[1:])
                for one in messages
                if not isinstance(one, Gap)
            )
            if self._frame_bytes + len(frames) > CACHE_BYTES_MAX:
                self._forget()
            self._frames[place] = frames
            self._frame_bytes += len(frames)
        return frames

    def _forget(self) -> None:
        self._frames.clear()
        self._last_pieces, self._last_frames = (), b""
        self._frame_bytes = 0

    def _serve(self) -> None:
        awake = self._awake
        for _ in range(min(SESSIONS_A_TURN, len(awake))):
            awake.popleft().send_some()
        if awake:
            self._loop.call_soon(self._serve)
        else:
            self._forget()
