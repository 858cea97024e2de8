"""Fan-out: writes to the sessions what their channels have for them.

A session that has something to send is woken once, however much there is. Who was woken is served
in the order of waking, a bounded number in a turn of the loop, so that a message to ten thousand
delays nobody else by all of them. A message is made a frame once; those who take the same messages
of a channel share the same bytes, and they take them in one write. Those that have taken all there
is are one reader (`reading_group.py`).

Bounds: one entry a session; the frames of the messages that are being sent, `CACHE_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, final

from sluicegate.apps.pubsub.channel import NOW, Channel, ChannelKey, ChannelReading, Gap, Piece
from sluicegate.apps.pubsub.reading_group import GROUP_MIN, USED_US_MAX, ReadingGroup
from sluicegate.apps.pubsub.send_pace import SendPace, SessionBounds
from sluicegate.contracts.clock import Clock
from sluicegate.doors.websocket.protocol import text_frame
from sluicegate.doors.websocket.session import Socket
from sluicegate.wire.json_objects import encode_json

WRITES_A_TURN: Final = 128
CACHE_BYTES_MAX: Final = 1 << 20


class _Reader(Protocol):
    """A session, or a group of them, as far as they are written to."""

    def send_some(self, left: int) -> int:
        """Send some of what there is, to `left` connections at most; return to how many."""
        ...


@final
class FanOut:
    """One for all sessions of a loop; `bounds` are those of each that may be in a group."""

    def __init__(
        self, bounds: SessionBounds, clock: Clock, writes_a_turn: int = WRITES_A_TURN
    ) -> None:
        self.delivered = 0  # messages
        self.gaps = 0
        self._bounds = bounds
        self._clock = clock
        self._writes_a_turn = writes_a_turn
        self._groups: dict[Channel, ReadingGroup] = {}
        self._awake: deque[_Reader] = deque()
        self._frames: dict[tuple[ChannelKey, str, int, int], bytes] = {}
        self._frame_bytes = 0
        self._loop = asyncio.get_running_loop()

    def wake(self, session: _Reader) -> None:
        """Have a session served that is not yet to be."""
        if not self._awake:
            self._loop.call_soon(self._serve)
        self._awake.append(session)

    def join(self, reading: ChannelReading, socket: Socket, pace: SendPace) -> None:
        """Have it read with those that are as far, if there are many and it is at rest."""
        place = reading.place
        used_up = pace.limited and pace.rested_us(self._clock.now_us()) > USED_US_MAX
        if place is None or used_up:
            return
        channel = place.channel
        group = self._groups.get(channel)
        if group is None:
            if len(channel.subscribers) < GROUP_MIN or not place.caught_up:
                return
            first = channel.subscribe(NOW, place.position)
            channel.wake_first(first)
            group = ReadingGroup(first, SendPace(self._bounds), self, self._clock, self._end)
            self._groups[channel] = group
        group.add(reading, socket, pace)

    def frames_of(self, key: ChannelKey, pieces: Sequence[Piece], name: str = "") -> bytes:
        """What is sent for these pieces of a channel; a node calls it by another name."""
        name = name or key.name
        first = pieces[0]
        if not isinstance(first, Gap):
            return self._frames_between(key, pieces, name)
        self.gaps += 1
        gap = text_frame(encode_json({"type": "gap", "channel": name, **first._asdict()}))
        rest = pieces[1:]
        return gap + self._frames_between(key, rest, name) if rest else gap

    def _frames_between(self, key: ChannelKey, messages: Sequence[Piece], name: str) -> bytes:
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

    def _end(self, channel: Channel) -> None:
        del self._groups[channel]

    def _forget(self) -> None:
        self._frames.clear()
        self._frame_bytes = 0

    def _serve(self) -> None:
        awake, left = self._awake, self._writes_a_turn
        for _ in range(len(awake)):
            left -= awake.popleft().send_some(left)
            if left <= 0:
                break
        if awake:
            self._loop.call_soon(self._serve)
        else:
            self._forget()
