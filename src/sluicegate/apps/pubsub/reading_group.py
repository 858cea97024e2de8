"""Reading group: one place in a channel for all sessions that have taken what there is.

They are to be sent the same next, at the same time. So it is taken once, framed once, and written
to one descriptor after the other, and nothing else is done for each: a place, a pace and a turn of
its own cost a session as much as the kernel takes to send. One that is not written to as the others
are, since its client does not read, or reads another channel at a pace that has a bound, goes on at
a place of its own, from where it is; and joins again when it has caught up.

A pass over the sessions may take many turns of the loop. Who leaves in the middle of one has, or
has not, had what is being sent.

What is lost is not told from here: then each goes on by itself, and finds out.

Bound: an entry a session, and the frames that are being sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from sluicegate.apps.pubsub.channel import (
    Channel,
    ChannelKey,
    ChannelReading,
    Gap,
    Piece,
    Subscription,
)
from sluicegate.apps.pubsub.send_pace import SendPace
from sluicegate.contracts.clock import Clock
from sluicegate.doors.websocket.session import Socket

GROUP_MIN: Final = 8  # fewer subscribers of a channel each go by themselves
# Of its pace, what a session may have used up that joins: it may be sent so much more, once.
USED_US_MAX: Final = 100_000
_US: Final = 1_000_000


class _FanOut(Protocol):
    """What writes to all sessions."""

    delivered: int

    def wake(self, session: ReadingGroup) -> None:
        """Have it served."""

    def frames_of(self, key: ChannelKey, pieces: Sequence[Piece]) -> bytes:
        """What is sent for these pieces."""
        ...


@final
class ReadingGroup:
    """In one channel. `end` is called when nobody is in it any more."""

    def __init__(
        self,
        place: Subscription,
        pace: SendPace,
        fan_out: _FanOut,
        clock: Clock,
        end: Callable[[Channel], None],
    ) -> None:
        self._place = place
        self._pace = pace
        self._fan_out = fan_out
        self._clock = clock
        self._end = end
        self._members: dict[ChannelReading, Socket] = {}
        self._paces: dict[ChannelReading, SendPace] = {}
        # The pass: who is sent `_frames`, None where one has left; and where it is.
        self._line: list[Socket | None] = []
        self._order: tuple[ChannelReading, ...] = ()
        self._places: dict[ChannelReading, int] = {}  # in it, if anybody has asked
        self._at = 0
        self._frames = b""
        self._messages = 0
        self._before = place.next_number, place.position
        self._awake = False
        self._asleep: asyncio.TimerHandle | None = None  # for they were sent what they may be
        place.count_readers(0)  # each counts as before
        place.wake = self

    def add(self, reading: ChannelReading, socket: Socket, pace: SendPace) -> None:
        """Take for a reading, if it is as far."""
        place = reading.place
        if place is not None and place.caught_up and place.next_number == self._place.next_number:
            reading.hand_over(self)
            self._members[reading], self._paces[reading] = socket, pace

    def remove(self, reading: ChannelReading) -> None:
        """Have it take by itself again, from where it is."""
        served = True
        if self._at < len(self._line):
            at = self._find(reading)
            if at is not None:  # else it came after this pass began
                served = at < self._at
                self._line[at] = None
        self._part(reading, served=served)

    def set(self) -> None:
        """There is something, or a pass goes on."""
        more = self._at < len(self._line) or (self._asleep is None and not self._place.caught_up)
        if more and not self._awake:
            self._awake = True
            self._fan_out.wake(self)

    def move(self) -> None:
        """Each one of it is told."""

    def send_some(self, left: int) -> int:
        """Write to so many; return to how many."""
        self._awake = False
        begin = self._at
        if begin >= len(self._line):
            if not self._begin_pass():
                return 1
            begin = 0
        line, frames, size, write = self._line, self._frames, len(self._frames), os.write
        end = self._at = min(begin + left, len(line))
        part = line[begin:end]
        for socket in part:
            if socket is None:
                continue
            descriptor = socket.descriptor
            if descriptor < 0:
                self._send_otherwise(socket, begin)
                continue
            try:
                written = write(descriptor, frames)
            except OSError:  # it takes nothing now, or nothing any more: the transport finds out
                written = 0
            if written != size:
                socket.send_rest(frames[written:])
        self._fan_out.delivered += (len(part) - part.count(None)) * self._messages
        if end == len(line):
            self._end_pass()
        self.set()
        return len(part)

    # Inside.

    def _begin_pass(self) -> bool:
        """Take what comes next, if there is anything, and anybody for it."""
        if not self._members or self._asleep is not None:
            return False
        self._before = self._place.next_number, self._place.position
        pieces = self._place.take(self._pace.taken_max, self._pace.taken_bytes)
        if not pieces:
            return False
        if isinstance(pieces[0], Gap):
            self._dissolve(pieces[0])
            return False
        self._frames = self._fan_out.frames_of(self._place.key, pieces)
        self._messages = len(pieces)
        self._line, self._order = list(self._members.values()), tuple(self._members)
        if self._pace.limited:
            delay_us = self._pace.spend(len(pieces), len(self._frames), self._clock.now_us())
            if delay_us:
                loop = asyncio.get_running_loop()
                self._asleep = loop.call_later(delay_us / _US, self._end_rest)
        return True

    def _send_otherwise(self, socket: Socket, begin: int) -> None:
        """To one that is enciphered, has something else to be sent first, or takes no more."""
        if socket.blocked:
            self._fan_out.delivered -= self._messages
            self._part(self._order[self._line.index(socket, begin)], served=False)
        else:
            socket.send_now(self._frames)  # if that was too much, it goes by itself the next time

    def _dissolve(self, gap: Gap) -> None:
        for reading in list(self._members):
            self._part(reading, served=False)
            if gap.lost == 0:
                reading.interrupt()

    def _part(self, reading: ChannelReading, *, served: bool) -> None:
        del self._members[reading]
        pace = self._paces.pop(reading)
        if pace.limited:
            pace.go_on_from(self._pace, self._clock.now_us())
        place = self._place
        mark = (place.next_number, place.position) if served else self._before
        reading.read_on(*mark)
        if not self._members:
            self._end_pass()
            if self._asleep is not None:
                self._asleep.cancel()
            self._place.close()
            self._end(self._place.channel)

    def _find(self, reading: ChannelReading) -> int | None:
        if not self._places:
            self._places = {one: at for at, one in enumerate(self._order)}
        return self._places.get(reading)

    def _end_pass(self) -> None:
        self._line, self._order, self._places, self._at = [], (), {}, 0
        self._frames = b""

    def _end_rest(self) -> None:
        self._asleep = None
        self.set()
