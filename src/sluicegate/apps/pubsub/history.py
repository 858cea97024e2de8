"""History: the accepted messages of all channels, in an event log and, the newest, in memory.

Accepted means durable: a message is shown to nobody before the log has synced it, and those that
come while a sync is under way share the next one. What can be read again is a window on the end of
the log, bounded by bytes and by age over all channels. The oldest message leaves first, whatever
its channel, so that `cut` says for all channels what is gone.

At the start as much of the log's end is read as the window can hold, however long the log is. Who
is in a channel may have entered before that; so all members are stated again in the log, in events
that no reader gets, at the start and each time that half a window has passed. Where the end of the
log states no members it is read whole.

Files are those of one machine: what was accepted survives the process, not the disk. A log in Kafka
has it on all brokers that are in sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, final

from sluicegate.apps.pubsub.channel import STRIDE, Channel, ChannelKey, Message
from sluicegate.apps.pubsub.fenced_log import FENCE_EVENTS, KINDS, Fence
from sluicegate.apps.pubsub.presence import Member, PresenceEvent, data_text
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.event_log import Event, EventLog, Reader
from sluicegate.contracts.reasons import CHANNELS_FULL
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.wire.json_objects import encode_json, parse_object

KIND: Final = "message/1"  # and the version of its form
PRESENCE_KIND: Final = "presence/1"
MEMBERS_KIND: Final = "members/1"  # all who are in channels, in as many events as it takes
STATED_BYTES_MAX: Final = 1 << 18  # in one of them; with the largest data, some more
MESSAGE_BYTES: Final = 512  # that one counts for besides its text
READ_S: Final = 60.0
RETRY_US: Final = 1_000_000
_BATCH: Final = 1_000
_KINDS: Final = frozenset((KIND, PRESENCE_KIND, MEMBERS_KIND, *KINDS))
_log: Final = logging.getLogger("sluicegate.pubsub")


class HistoryPresence(Protocol):
    """Is told who enters channels and leaves them."""

    def apply(self, key: ChannelKey, event: PresenceEvent, data: object, position: int) -> None:
        """It is in the history."""

    def release(self, key: ChannelKey, event: PresenceEvent) -> None:
        """It could not be kept there."""

    def state(self, key: ChannelKey, member: str, data: object, position: int) -> None:
        """It was in the history before what is read of it."""

    def members(self, key: ChannelKey) -> Mapping[str, Member]:
        """Who is in a channel."""

    def forget(self, key: ChannelKey) -> None:
        """A channel is not here any more, with its members."""


class HistoryUsage(Protocol):
    """Is told what accounts use up of the history."""

    def charge(self, account: str, cost: int, at_us: int) -> None:
        """So many messages were accepted."""

    def count_channels(self, account: str, change: int) -> None:
        """So many channels more, or fewer, have messages."""


@final
class ChannelHistory:
    """Made within the loop that uses it. `cut` is the last position that left the window."""

    def __init__(
        self,
        log: EventLog,
        *,
        bytes_max: int,
        age_us_max: int,
        channels_max: int,
        bucket: Callable[[], TokenBucket | None],
        tag: int | None = None,
        usage: HistoryUsage | None = None,
        presence: HistoryPresence | None = None,
    ) -> None:
        """`bucket` makes what limits a new channel; a node of a cluster has a tag (`tag_of`)."""
        self.lost_to = ""  # the node that is the home of these channels now
        self.counted = 0  # the last position that was charged already before it is read
        self._usage = usage
        self._presence = presence
        self.bytes_max = bytes_max
        self.age_us_max = age_us_max
        self.channels: dict[ChannelKey, Channel] = {}
        self._written: set[ChannelKey] = set()
        self.newest = 0
        self.cut = 0
        self.cut_by_bytes = 0  # messages that each bound removed
        self.cut_by_age = 0
        self.bytes = 0
        self.accepted = 0
        self.failed = 0
        self._log = log
        self._channels_max = channels_max
        self._bucket = bucket
        self._stride, self._tag = (1, 0) if tag is None else (STRIDE, tag)
        self._moved: Callable[[ChannelKey], int] = _never
        self._window: deque[Message] = deque()
        self._present: set[ChannelKey] = set()  # that have, or had, members
        self._chunks_read = 0  # of the last statement of members, from its first on
        self._first_chunk = -1  # its offset
        self._stated = -1  # that of the last statement that is whole
        self._stated_us = 0
        self._stating = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._window)

    def channel(self, key: ChannelKey) -> Channel:
        """Return the channel, new or not."""
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = self.empty_channel(key)
        return channel

    def empty_channel(self, key: ChannelKey) -> Channel:
        """Return what is known of a channel that is not in use."""
        return Channel(key, self.cut_of(key), self._bucket())

    def cut_of(self, key: ChannelKey) -> int:
        """The last position that a channel may have had and has no more."""
        return max(self.cut, self._moved(key))

    def foreign(self, position: int) -> bool:
        """Whether it cannot be of this history; that before one that is, is too."""
        return position > 0 and (position % self._stride) | 1 != self._tag | 1

    def mark_moved(self, moved: Callable[[ChannelKey], int]) -> None:
        """`moved` says behind which position a channel is here; what it had before is elsewhere."""
        self._moved = moved
        for channel in self.channels.values():
            channel.cut = max(channel.cut, self.cut_of(channel.key))

    def channel_to_publish(self, key: ChannelKey) -> Channel:
        """Return the same, or refuse one too many.

        A channel counts that has messages. One that is only subscribed to does not: readers are
        bounded by their connections, and keep nobody from publishing.
        """
        if key not in self._written and len(self._written) >= self._channels_max:
            raise Refused(Decision(False, 0, RETRY_US, RETRY_US, CHANNELS_FULL, "pubsub"))
        return self.channel(key)

    def is_written(self, key: ChannelKey) -> bool:
        """Whether a channel has messages, or will have."""
        return key in self._written

    @property
    def written(self) -> int:
        """How many channels have messages."""
        return len(self._written)

    def release(self, key: ChannelKey) -> None:
        """Forget a channel that nobody uses."""
        channel = self.channels.get(key)
        if channel is None:
            return
        if key in self._written and not (channel.messages or channel.pending):
            self._written.discard(key)
            if self._usage is not None:
                self._usage.count_channels(key.account, -1)
        if channel.idle:
            del self.channels[key]

    async def read(
        self, now_us: int, wait_us: int = 0, until: int = -1, *, end: int = 0, young: int = 0
    ) -> None:
        """Read what the window can hold of a log up to `end`, also up to an offset that must be
        there; before anything is appended.

        What is before the offset `young` is too old. A log on other machines is waited for, at most
        `READ_S` without a word of it.
        """
        begin = max(end - self.bytes_max // MESSAGE_BYTES, young)
        begin = max(min(begin, end - 1, self.counted // self._stride), 0)
        await self._read_from(begin, wait_us, until)
        if self._stated < 0 and begin > 0 and self._window:
            _log.warning("history: its end states no members, so all of it is read")
            self.counted = max(self.counted, self.newest)
            while self._window:
                self._remove_oldest()
            self.cut = self.newest = 0
            await self._read_from(0, wait_us, until)
        self.trim(now_us)

    async def _read_from(self, begin: int, wait_us: int, until: int) -> None:
        """What comes before `begin` says only which home counts."""
        reader = self._log.reader(max(begin - FENCE_EVENTS, 0) if until >= 0 else begin)
        fence = Fence()
        self._chunks_read = 0
        if begin > 0:
            self.cut = self._position_of(begin - 1)
        read = -1
        heard_s = self._loop.time()
        try:
            while True:
                events = await asyncio.to_thread(reader.read, _BATCH, wait_us)
                at_end = reader.at_end and not events
                if events:
                    heard_s = self._loop.time()
                elif not (at_end and read >= until) and self._loop.time() - heard_s > READ_S:
                    raise Unavailable("the history", f"its log does not answer in {READ_S:g} s")
                for event in events:
                    if read < 0 and event.offset > begin:  # the log has let go of what was before
                        self.cut = self._position_of(event.offset - 1)
                    read = event.offset
                    if read < begin:
                        fence.admits(event, parse_object(event.body))
                    elif until < 0 or read <= until:  # what comes behind is of this life
                        self._read_event(event, fence)
                if (at_end and read >= until) or 0 <= until <= read:
                    break
            self._pass_damage(reader)
        finally:
            reader.close()

    def find(self, event: Event) -> None:
        """Take in one of this home's own that is in the log, though that was not known."""
        self._loop.call_soon_threadsafe(self._read_event, event, Fence())

    def lose(self, node: str) -> None:
        """Another node is the home of these channels: keep nothing, and say so to who reads."""
        self._loop.call_soon_threadsafe(self._lose, node)

    def leave(self, node: str) -> None:
        """The same, at once, and what is counted for these channels is counted there."""
        self._lose(node)
        for key in self._written:
            if self._usage is not None:
                self._usage.count_channels(key.account, -1)
        for key in self._present:
            if self._presence is not None:
                self._presence.forget(key)
        self._written.clear()
        self._present.clear()

    def append(
        self,
        channel: Channel,
        data: object,
        now_us: int,
        cost: int = 0,
        event: PresenceEvent | None = None,
    ) -> asyncio.Future[Message]:
        """Keep one message, or what a member did.

        The promise is kept when it is durable and readers can have it. It is delivered whether or
        not anybody waits for the promise.
        """
        fields = {**channel.key._asdict(), "data": data, "cost": cost}
        if event is not None:
            fields |= {"presence": event.action, "member": event.member}
        body = data_text(fields)
        accepted: asyncio.Future[Message] = self._loop.create_future()
        channel.pending += 1
        self._write(channel.key)

        def settle(durable: Future[int]) -> None:
            self._loop.call_soon_threadsafe(
                self._settle, channel, durable, data, now_us, cost, event, accepted
            )

        kind = KIND if event is None else PRESENCE_KIND
        self._log.append(kind, body, now_us).add_done_callback(settle)
        return accepted

    def trim(self, now_us: int) -> None:
        """Remove what is too old, or too much."""
        oldest_us = now_us - self.age_us_max
        while self._window and self._window[0].at_us < oldest_us:
            self._remove_oldest()
            self.cut_by_age += 1
        while self.bytes > self.bytes_max:
            self._remove_oldest()
            self.cut_by_bytes += 1

    def state_members(self, now_us: int) -> None:
        """Have all members stated in that part of the log which is read at the next start."""
        newest = self.newest // self._stride - 1
        recent = newest - self._stated < self.bytes_max // MESSAGE_BYTES // 2
        if self._stating or self.lost_to:
            return
        if self._stated >= 0 and recent and now_us - self._stated_us < self.age_us_max // 2:
            return
        self._stating = True
        chunks = list(self._chunks_of_members())
        promises = [
            self._log.append(
                MEMBERS_KIND,
                b'{"chunk":%d,"chunks":%d,"members":[%b]}' % (at, len(chunks), b",".join(chunk)),
                now_us,
            )
            for at, chunk in enumerate(chunks)
        ]
        durable = asyncio.gather(*map(asyncio.wrap_future, promises), return_exceptions=True)
        durable.add_done_callback(lambda done: self._note_stated(done.result(), now_us))

    def close(self, grace_us: int) -> None:
        """Let what is under way become durable."""
        self._log.close(grace_us)

    # Inside.

    def _read_event(self, event: Event, fence: Fence) -> None:
        if event.kind not in _KINDS:
            remedy = "it is of another version: give another folder, or that version"
            raise BadValue("--history", event.kind, remedy)
        fields = parse_object(event.body)
        if not fence.admits(event, fields):
            return
        if event.kind == MEMBERS_KIND:
            self._read_members(event, fields)
            return
        key = ChannelKey(fields["account"], fields["name"])
        what: PresenceEvent | None = None
        if event.kind == PRESENCE_KIND:
            what = PresenceEvent(fields["presence"], fields["member"])
        self._add(key, fields["data"], event.offset, event.at_us, what)
        if self.newest > self.counted:
            self._charge(key, fields.get("cost", 0), event.at_us)

    def _chunks_of_members(self) -> Iterator[list[bytes]]:
        chunk: list[bytes] = []
        size = 0
        for key in list(self._present):
            members = {} if self._presence is None else self._presence.members(key)
            if not members:
                self._present.discard(key)
            for name, member in members.items():
                head = encode_json([*key, name])[:-1]
                chunk.append(b"%b,%b,%d]" % (head, member.data, member.position))
                size += len(chunk[-1])
                if size >= STATED_BYTES_MAX:
                    yield chunk
                    chunk, size = [], 0
        yield chunk

    def _note_stated(self, offsets: list[int | BaseException], now_us: int) -> None:
        self._stating = False
        if not any(isinstance(one, BaseException) for one in offsets):
            self._stated = min(one for one in offsets if isinstance(one, int))
            self._stated_us = now_us

    def _read_members(self, event: Event, fields: Mapping[str, Any]) -> None:
        """One whose beginning is not here says too little."""
        if fields["chunk"] == 0:
            self._chunks_read, self._first_chunk = 0, event.offset
        if fields["chunk"] == self._chunks_read:
            self._chunks_read += 1
            if self._chunks_read == fields["chunks"]:
                self._stated, self._stated_us = self._first_chunk, event.at_us
        for account, name, member, data, position in fields["members"]:
            key = ChannelKey(account, name)
            self._present.add(key)
            if self._presence is not None:
                self._presence.state(key, member, data, position)

    def _lose(self, node: str) -> None:
        if not self.lost_to:
            self.lost_to = node
            for channel in self.channels.values():
                channel.interrupt()

    def _settle(
        self,
        channel: Channel,
        durable: Future[int],
        data: object,
        at_us: int,
        cost: int,
        event: PresenceEvent | None,
        accepted: asyncio.Future[Message],
    ) -> None:
        channel.pending -= 1
        error = durable.exception()
        if error is not None:
            self.failed += not isinstance(error, Refused)
            if event is not None and self._presence is not None:
                self._presence.release(channel.key, event)
            self.release(channel.key)
            if not accepted.done():
                if not isinstance(error, SluicegateError):
                    error = Unavailable("the history", str(error))
                accepted.set_exception(error)
            return
        self.accepted += 1
        message = self._add(channel.key, data, durable.result(), at_us, event)
        self._charge(channel.key, cost, at_us)
        if not accepted.done():
            accepted.set_result(message)
        self.trim(at_us)

    def _add(
        self,
        key: ChannelKey,
        data: object,
        offset: int,
        at_us: int,
        event: PresenceEvent | None = None,
    ) -> Message:
        position = self._position_of(offset)
        message = make_message(key, position, at_us, data, event)
        if event is not None and self._presence is not None:
            self._present.add(key)
            self._presence.apply(key, event, data, position)
        channel = self.channel(key)
        self._write(key)
        self.newest = position
        self.bytes += message.size
        self._window.append(message)
        channel.append(message)
        while self.bytes > self.bytes_max:
            self._remove_oldest()
            self.cut_by_bytes += 1
        return message

    def _write(self, key: ChannelKey) -> None:
        if key not in self._written:
            self._written.add(key)
            if self._usage is not None:
                self._usage.count_channels(key.account, 1)

    def _charge(self, key: ChannelKey, cost: int, at_us: int) -> None:
        if self._usage is not None and cost > 0:
            self._usage.charge(key.account, cost, at_us)

    def _position_of(self, offset: int) -> int:
        return (offset + 1) * self._stride + self._tag

    def _remove_oldest(self) -> None:
        message = self._window.popleft()
        self.bytes -= message.size
        self.cut = message.position
        channel = self.channels[message.channel]
        channel.remove_oldest()
        self.release(channel.key)

    def _pass_damage(self, reader: Reader) -> None:
        """What cannot be read is gone, and so that nobody misses it silently, all before it."""
        for damage in reader.damage:
            _log.error("history: %s", damage)
            lost = self._position_of(damage.offset - 1)
            while self._window and self._window[0].position <= lost:
                self._remove_oldest()
            self.cut = max(self.cut, self._window[0].position - 1 if self._window else lost)
        for channel in self.channels.values():
            channel.cut = max(channel.cut, self.cut)


def make_message(
    key: ChannelKey, position: int, at_us: int, data: object, event: PresenceEvent | None
) -> Message:
    """A message, or what a member did, as readers get it."""
    fields = {"position": position, "at_us": at_us, "data": data}
    if event is not None:
        fields |= {"presence": event.action, "member": event.member}
    text = encode_json(fields)
    return Message(position, at_us, key, text, len(text) + MESSAGE_BYTES, event is not None)


def _never(_: ChannelKey) -> int:
    return 0
