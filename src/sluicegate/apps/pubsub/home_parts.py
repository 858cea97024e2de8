"""Home parts: the parts of the log that have their home on this node: open, watch, give away.

In files there is one, which stays. In Kafka the parts go by the members of the cluster: one that
has its home here now is claimed and read (`fenced_log.py`), one that has it elsewhere is closed.

One that another node took, though it has its home here, is claimed again: at once where the members
are found, for who took it finds the same; where they are said, when nobody has it any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, final

from sluicegate.apps.pubsub.channel import tag_of
from sluicegate.apps.pubsub.fenced_log import FencedLog
from sluicegate.apps.pubsub.histories import FILES, Histories, tag_of_part
from sluicegate.apps.pubsub.history import ChannelHistory, HistoryPresence
from sluicegate.apps.pubsub.members import NODE
from sluicegate.apps.pubsub.moves import Moves
from sluicegate.apps.pubsub.nodes import Nodes
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.apps.pubsub.usage_file import USAGE_NAME
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, DataLoss, Unavailable
from sluicegate.contracts.event_log import EventLog
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.policies.quota.usage import UsageMeter
from sluicegate.stores.event_logs import KAFKA_SCHEMES, open_shared_log
from sluicegate.stores.files.log import FileLog
from sluicegate.stores.files.settings import FileLogSettings
from sluicegate.stores.urls import redacted

LOOK_S: Final = 1.0
ASK_S: Final = 10.0  # between two questions whether another node still has a part
SEGMENTS: Final = 8  # of the bytes that can be read again
SEGMENT_BYTES_MIN: Final = 1 << 16
ELSEWHERE: Final = 1 << 62  # no position is behind it
_WAIT_US: Final = 100_000  # for a log on other machines
_US: Final = 1_000_000
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class HomeParts:
    """Keeps `histories` what they are to be. Made within the loop that uses it."""

    def __init__(
        self,
        settings: PubSubSettings,
        histories: Histories,
        nodes: Nodes | None,
        meter: UsageMeter,
        presence: HistoryPresence,
        clock: Clock,
        *,
        found: bool,
    ) -> None:
        """`found` says that the members come and go."""
        self._found = found
        self._settings = settings
        self._histories = histories
        self._nodes = nodes
        self._meter = meter
        self._presence = presence
        self._clock = clock
        self._files: FileLog | None = None
        self._fenced: dict[int, FencedLog] = {}  # by part, in Kafka
        if not settings.event_log:
            self._files = FileLog(_log_settings(settings))
            tag = tag_of(settings.node) if settings.node else None
            histories.by_part[FILES] = self._open_history(self._files, tag, 1)
        elif not settings.event_log.startswith(KAFKA_SCHEMES):
            raise BadValue(
                "--event-log", redacted(settings.event_log), "give kafka://HOST:PORT/TOPIC"
            )

    @property
    def shared(self) -> bool:
        """Whether the log is one that all nodes can read, so that parts can move."""
        return self._files is None

    async def begin(self) -> None:
        """Become the writer of the files."""
        if self._files is not None:
            await asyncio.to_thread(self._files.begin)
        else:
            await asyncio.to_thread(os.makedirs, self._settings.history, exist_ok=True)

    async def read(self, counted: Mapping[int, int]) -> None:
        """Read what has its home here; up to `counted` it was charged already."""
        if self._files is not None:
            if counted.get(FILES, 0) and not self._files.end():
                raise DataLoss(
                    f"the history in {self._settings.history}",
                    f"its segments are missing, but messages were accepted here ({USAGE_NAME});"
                    f" restore the segments, or delete {USAGE_NAME}* to begin with no messages",
                )
            await self._read(self._histories.by_part[FILES], counted.get(FILES, 0))
        else:
            await asyncio.gather(
                *(self._open(part, counted.get(part, ELSEWHERE)) for part in self._ours())
            )

    async def record_members(self, members: Collection[str]) -> None:
        """Take note, beside the files, of which channels came here by a change of the members."""
        if not self.shared and self._settings.node:
            await asyncio.to_thread(self._record_members, members)

    async def change(self, opened: Callable[[], None]) -> None:
        """Close what has its home elsewhere, and open what has it here; say if anything was."""
        ours, by_part = self._ours(), self._histories.by_part
        gone = {*await self._find_free(), *(by_part.keys() - set(ours))}
        await asyncio.gather(*(self._close(part) for part in gone))
        new = [part for part in ours if part not in by_part]
        tried = await asyncio.gather(*(self._open(part) for part in new), return_exceptions=True)
        if new:
            opened()
        for error in tried:
            if isinstance(error, BaseException):
                raise error

    async def watch(self) -> None:
        """Find out in time that another node is the home of channels that nobody publishes in."""
        while True:
            await asyncio.sleep(LOOK_S)
            for fenced in list(self._fenced.values()):
                try:
                    await asyncio.to_thread(fenced.look)
                except Unavailable as error:
                    _log.debug("the end of the log is not known: %s", error)

    # Inside.

    async def _find_free(self) -> Collection[int]:
        """Those that were lost, and that no other home keeps."""
        lost = [part for part, one in self._histories.by_part.items() if one.lost_to]
        if self._found or not lost:
            return lost
        held = await asyncio.gather(*(self._is_held(part) for part in lost))
        if all(held):
            await asyncio.sleep(ASK_S)
        return [part for part, other in zip(lost, held, strict=True) if not other]

    async def _is_held(self, part: int) -> bool:
        fenced, now_us = self._fenced[part], self._clock.now_us()
        try:
            return await asyncio.to_thread(fenced.is_held, now_us)
        except Unavailable as error:
            _log.debug("nobody can say who has part %s: %s", part, error)
            return True

    def _ours(self) -> Sequence[int]:
        if self._nodes is None:
            return range(self._histories.parts)
        return self._nodes.parts_of(self._settings.node)

    async def _open(self, part: int, counted: int = ELSEWHERE) -> None:
        """Be the home of a part, and read it; what is not counted here was where it was before."""
        settings = self._settings
        mark = "&" if "?" in settings.event_log else "?"
        shared = open_shared_log(f"{settings.event_log}{mark}partition={part}")
        fenced = FencedLog(shared, settings.node or NODE)
        of = -(-self._histories.parts // (1 if self._nodes is None else self._nodes.count))
        history = self._open_history(fenced, tag_of_part(part), of)
        fenced.listen(history.find, history.lose)
        try:
            until = await asyncio.to_thread(fenced.claim, self._clock.now_us())
            oldest_us = self._clock.now_us() - history.age_us_max
            young = await asyncio.to_thread(fenced.offset_since, oldest_us)
            await self._read(history, counted, until, young)
        except BaseException:
            await asyncio.to_thread(fenced.close)
            raise
        self._fenced[part] = fenced
        self._histories.by_part[part] = history

    async def _close(self, part: int) -> None:
        """Be its home no more."""
        history, fenced = self._histories.by_part.pop(part), self._fenced.pop(part)
        history.leave(self._nodes.home_of_part(part) if self._nodes is not None else "")
        await asyncio.to_thread(fenced.close, int(self._settings.grace_s * _US))

    def _open_history(self, log: EventLog, tag: int | None, of: int) -> ChannelHistory:
        settings = self._settings
        return ChannelHistory(
            log,
            bytes_max=settings.history_bytes // of,
            age_us_max=int(settings.history_s * _US),
            channels_max=settings.channels_max // of or 1,
            bucket=self._bucket,
            tag=tag,
            usage=_HistoryUsage(self._meter, self._clock),
            presence=self._presence,
        )

    def _bucket(self) -> TokenBucket | None:
        rate = self._settings.channel_rate
        return TokenBucket(rate, _US) if rate else None

    async def _read(
        self, history: ChannelHistory, counted: int, until: int = -1, young: int = 0
    ) -> None:
        history.counted = counted
        now_us = self._clock.now_us()
        if self._files is not None:
            await history.read(now_us, end=self._files.end())
        else:
            await history.read(now_us, _WAIT_US, until, end=until + 1, young=young)
        history.counted = 0
        history.state_members(now_us)

    def _record_members(self, members: Collection[str]) -> None:
        moves = Moves(self._settings.node, self._settings.history)
        moves.read()
        history = self._histories.by_part[FILES]
        if moves.record(members, history.newest):
            _log.info("the members are now %s", ", ".join(sorted(members)))
        history.mark_moved(moves.moved)


@final
class _HistoryUsage:
    """What the history uses up, for the meter."""

    def __init__(self, meter: UsageMeter, clock: Clock) -> None:
        self._meter = meter
        self._clock = clock

    def charge(self, account: str, cost: int, at_us: int) -> None:
        self._meter.spend(account, cost, at_us, self._clock.now_us())

    def count_channels(self, account: str, change: int) -> None:
        self._meter.count_channels(account, change, self._clock.now_us())


def _log_settings(settings: PubSubSettings) -> FileLogSettings:
    """What the files keep is at least what can be read again."""
    segment = max(settings.history_bytes // SEGMENTS, SEGMENT_BYTES_MIN)
    return FileLogSettings(
        folder=settings.history,
        segment_bytes_max=segment,
        retain_bytes=settings.history_bytes + 2 * segment,
        retain_us=int(settings.history_s * _US),
    )
