"""Capture log: requests written into the segments of a folder, by one thread at a time.

A request is written as its instant, the number of its query in the segment, and its outcome; a
query is written once a segment. What was handed to the system outlives the process. When the disk
fails, the segment is given up, what could not be written is counted as lost, and after a while a
new segment is begun, which says how many are missing before it.

This file is not for the compiler: a compiled loop keeps the interpreter to itself, and whoever
serves beside it would wait.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from threading import Event as Flag
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.shadow.capture.codec import QueryEncoder
from sluicegate.shadow.capture.folder import begin, prune
from sluicegate.shadow.capture.format import (
    END,
    REQUESTS,
    SALT_BYTES,
    Head,
    block_bytes,
    head_bytes,
)
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.query_keys import QueryKey
from sluicegate.shadow.redaction import Redaction

# Its instant, one of the outcomes of `traffic`, and its query.
Noted: TypeAlias = tuple[int, int, QueryKey]

REQUESTS_A_BLOCK: Final = 1 << 15
PRUNE_EVERY_US: Final = 60_000_000
CHUNK: Final = 64  # requests between which others have their turn
GAP_US_MAX: Final = (1 << 32) - 1
AT_US_MAX: Final = 1 << 61
_WORDS_BYTES_MAX: Final = 4 << 20  # new texts and queries a block
_MEMO_MAX: Final = 50_000  # queries that are known without being written again
_MEMO_BYTES_MAX: Final = 512
_GIVE_WAY_S: Final = 0.000_2
_FULL: Final = -1
_UNWRITABLE: Final = -2
_END_BYTES: Final = 256
# Its own length, first text, first query, requests, requests before, lost, withheld, first
# instant, bytes of texts, bytes of queries.
BLOCK_HEAD: Final = struct.Struct("<HIIIQQQqII")
END_HEAD: Final = struct.Struct("<HQ")  # its own length, and the requests of the segment


class LogStats(NamedTuple):
    """What became of what was to be written."""

    written: int
    lost: int  # that the disk would not take, or that cannot be written
    bytes: int
    segments: int
    failure: str  # why the last write failed; empty if it did not


@final
class _Segment:
    """The segment that is being written."""

    def __init__(self, handle: int, salt: bytes, began_us: int, words: QueryEncoder) -> None:
        self.handle = handle
        self.salt = salt
        self.began_us = began_us
        self.words = words
        self.queries: dict[bytes, int] = {}
        self.numbers: dict[QueryKey, int] = {}
        self.number = 0  # of the next block
        self.requests = 0
        self.bytes = 0


@final
class _Part:
    """Requests that become one block."""

    def __init__(self, first_text: int, first_query: int) -> None:
        self.first_text = first_text
        self.first_query = first_query
        self.first_us = 0
        self.gaps = array("I")
        self.which = array("I")
        self.outcomes = array("b")
        self.requests_taken = 0  # of the batch, those that cannot be written included
        self.unwritable = 0
        self.full = False  # the segment may have no more queries


@final
class CaptureLog:
    """Writes to a folder. Without a key nothing is redacted.

    With `paced` it gives way to whoever serves in this process, every `CHUNK` requests.
    """

    def __init__(
        self,
        settings: CaptureSettings,
        key: CaptureKey | None,
        *,
        clock: Clock,
        paced: bool = False,
    ) -> None:
        self._settings = settings
        self._key = key
        self._clock = clock
        self._give_way = Flag()  # nobody ever sets it
        self._paced = paced
        self._redaction = Redaction(
            key, plain_values=settings.plain_values, plain_names=settings.plain_names
        )
        self._segment: _Segment | None = None
        self._not_before_us = self._prune_at_us = 0
        self._written = self._lost = self._bytes = self._segments = 0
        self._untold = self._withheld = 0  # lost and withheld, and not written in any file yet
        self.failure = ""

    def stats(self) -> LogStats:
        """What became of it so far."""
        return LogStats(self._written, self._lost, self._bytes, self._segments, self.failure)

    def miss(self, *, lost: int = 0, withheld: int = 0) -> None:
        """Tell in the file that so many were lost before they came here, or may not be kept."""
        self._untold += lost
        self._withheld += withheld

    def write(self, batch: Sequence[Noted]) -> None:
        """Write requests; never raises for a disk, and never waits for one to recover."""
        ordered = sorted(batch, key=itemgetter(0))
        while ordered:
            segment = self._open_segment()
            if segment is None:
                self._give_up(len(ordered))
                return
            part = self._part(segment, ordered)
            if part.full and not part.requests_taken:
                self._end()
                continue
            data = self._block(segment, part)
            if segment.requests and segment.bytes + len(data) > self._room:
                self._end()  # it goes into the next one, with words of its own
                continue
            self._lost += part.unwritable
            if not self._put(segment, data, part):
                self._give_up(len(ordered) - part.unwritable)
                return
            ordered = ordered[part.requests_taken :]
            self._rotate_if_due()

    def tend(self) -> None:
        """Do what is due though nothing is to be written."""
        self._rotate_if_due()
        now_us = self._clock.now_us()
        if now_us >= self._prune_at_us:
            self._prune_at_us = now_us + PRUNE_EVERY_US
            with suppress(OSError):
                prune(self._settings, now_us)
        if self._untold or self._withheld:
            segment = self._open_segment()
            if segment is not None:
                part = self._part(segment, [])
                self._put(segment, self._block(segment, part), part)

    def close(self) -> None:
        """Write what is pending, and end the segment."""
        self._not_before_us = 0
        self.tend()
        self._end()

    @property
    def _room(self) -> int:
        return self._settings.segment_bytes_max - _END_BYTES

    # A part of a batch as a block.

    def _part(self, segment: _Segment, ordered: Sequence[Noted]) -> _Part:
        """As many as fit one block, by the numbers of their queries."""
        words = segment.words
        part = _Part(words.texts_count, len(segment.queries))
        words_max = min(_WORDS_BYTES_MAX, self._room // 8)
        rows_max = min(REQUESTS_A_BLOCK, self._room // 64)
        last_us = 0
        for place, (at_us, outcome, key) in enumerate(ordered, 1):
            if self._paced and place % CHUNK == 0:
                self._give_way.wait(_GIVE_WAY_S)
            large = len(words.texts) > words_max or len(words.queries) > words_max
            far = bool(part.which) and at_us - last_us > GAP_US_MAX
            if large or far or len(part.which) >= rows_max:
                break
            number = segment.numbers.get(key)
            if number is None:
                number = self._number(segment, key)
            if not -AT_US_MAX < at_us < AT_US_MAX:
                number = _UNWRITABLE
            if number == _FULL:
                part.full = True
                break
            part.requests_taken += 1
            if number == _UNWRITABLE:
                part.unwritable += 1
                continue
            if not part.which:
                part.first_us = last_us = at_us
            part.gaps.append(at_us - last_us)
            part.which.append(number)
            part.outcomes.append(outcome)
            last_us = at_us
        return part

    def _number(self, segment: _Segment, key: QueryKey) -> int:
        """The number of a query, new or known."""
        try:
            record = segment.words.record(key)
        except (ValueError, TypeError, OverflowError):
            return _UNWRITABLE
        number = segment.queries.get(record)
        if number is None:
            number = len(segment.queries)
            if number >= self._settings.queries_max:
                return _FULL
            segment.words.add(record)
            segment.queries[record] = number
        if len(record) <= _MEMO_BYTES_MAX:
            if len(segment.numbers) >= _MEMO_MAX:
                segment.numbers.clear()
            segment.numbers[key] = number
        return number

    def _block(self, segment: _Segment, part: _Part) -> bytes:
        texts, queries = segment.words.take()
        head = BLOCK_HEAD.pack(
            BLOCK_HEAD.size,
            part.first_text,
            part.first_query,
            len(part.which),
            segment.requests,
            self._untold + part.unwritable,
            self._withheld,
            part.first_us,
            len(texts),
            len(queries),
        )
        columns = (part.gaps, part.which, part.outcomes)
        if sys.byteorder == "big":
            part.gaps.byteswap()
            part.which.byteswap()
        data = b"".join((head, texts, queries, *[column.tobytes() for column in columns]))
        return block_bytes(segment.salt, REQUESTS, segment.number, data)

    def _give_up(self, requests: int) -> None:
        self._lost += requests
        self._untold += requests

    # The segment.

    def _open_segment(self) -> _Segment | None:
        """The segment to write to; None while there can be none."""
        if self._segment is not None:
            return self._segment
        now_us = self._clock.now_us()
        if now_us < self._not_before_us:
            return None
        settings, key = self._settings, self._key
        salt = os.urandom(SALT_BYTES)
        fingerprint = "" if key is None else key.fingerprint
        head = Head(salt, now_us, settings.share, fingerprint, settings.mesh_keys)
        try:
            handle, path = begin(settings, now_us)
        except OSError as error:
            self._record_failure(error, now_us)
            return None
        segment = _Segment(handle, salt, now_us, QueryEncoder(self._redaction))
        if not self._append(segment, head_bytes(head)):
            with suppress(OSError):
                path.unlink()
            return None
        self._segments += 1
        self._segment = segment
        return segment

    def _put(self, segment: _Segment, data: bytes, part: _Part) -> bool:
        """Write a block; whether the disk took it."""
        if not self._append(segment, data):
            self._untold += part.unwritable
            return False
        segment.number += 1
        segment.requests += len(part.which)
        self._written += len(part.which)
        self._untold = self._withheld = 0
        self.failure = ""
        return True

    def _append(self, segment: _Segment, data: bytes) -> bool:
        """Write bytes, all or none of them; without them the segment is given up."""
        try:
            write_all(segment.handle, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(segment.handle, segment.bytes)
            self._drop(segment)
            self._record_failure(error, self._clock.now_us())
            return False
        segment.bytes += len(data)
        self._bytes += len(data)
        return True

    def _record_failure(self, error: OSError, now_us: int) -> None:
        self.failure = error.strerror or str(error)
        self._not_before_us = now_us + self._settings.retry_us

    def _rotate_if_due(self) -> None:
        segment = self._segment
        if segment is None:
            return
        age_us = self._clock.now_us() - segment.began_us
        if age_us >= self._settings.segment_us_max:
            self._end()

    def _end(self) -> None:
        segment = self._segment
        if segment is None:
            return
        data = END_HEAD.pack(END_HEAD.size, segment.requests)
        if self._append(segment, block_bytes(segment.salt, END, segment.number, data)):
            with suppress(OSError):
                os.fsync(segment.handle)
            self._drop(segment)

    def _drop(self, segment: _Segment) -> None:
        with suppress(OSError):
            os.close(segment.handle)
        self._segment = None


def write_all(handle: int, data: bytes) -> None:
    """All of it, whatever a single call may take."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
