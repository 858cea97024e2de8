"""Capture read: the segments of folders and files, as one capture in order of time.

What is torn or damaged is passed over and reported; it never becomes a request. Blocks are numbered
and say how many requests were before them, so what is missing between two of them is counted, and
what is missing at the end of a segment that was not ended is named.

Bounds: `requests_max` and `queries_max`, a block's size, `DAMAGE_MAX` sentences about damage. A
segment is read whole into memory while it is read, up to `segment_bytes_max`.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.shadow.capture.codec import MISSING_MAX, Damaged, QueryDecoder
from sluicegate.shadow.capture.folder import is_being_written, segments
from sluicegate.shadow.capture.format import END, REQUESTS, Head, blocks, read_head
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.capture.log import BLOCK_HEAD, END_HEAD
from sluicegate.shadow.query_keys import QueryKey, check_of, mesh_of
from sluicegate.shadow.redaction import Vocabulary
from sluicegate.shadow.traffic import (
    QUERIES_MAX_DEFAULT,
    REFUSED,
    REQUESTS_MAX_DEFAULT,
    UNKNOWN,
    CapturedTraffic,
    TrafficBuilder,
)

# Bytes read, and bytes in all.
Progress: TypeAlias = Callable[[int, int], None]

SEGMENT_BYTES_MAX_DEFAULT: Final = 1 << 30
DAMAGE_MAX: Final = 100
_MISSING: Final = (1 << 32) - 1  # a query that stood in a lost block
_BEYOND: Final = (1 << 32) - 2  # a query that was one too many
NO_VOCABULARY: Final = Vocabulary()


class CaptureRead(NamedTuple):
    """A capture, and what must be known about it.

    `captured.lost` is all that should be in it and is not: what the writers lost, what was damaged,
    what was beyond a bound. `unmatched_globs` could match no value that was redacted: pairs of the
    header or key and the glob. `withheld` queries had nothing that may be kept.
    """

    traffic: CapturedTraffic
    segments: int
    unmatched_globs: tuple[tuple[str, str], ...]
    withheld: int
    damaged: int  # of the lost, those whose blocks could not be read
    damage: tuple[str, ...]
    redacted: bool


def read_capture(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    key: CaptureKey | None = None,
    vocabulary: Vocabulary = NO_VOCABULARY,
    since_us: int | None = None,
    until_us: int | None = None,
    requests_max: int = REQUESTS_MAX_DEFAULT,
    queries_max: int = QUERIES_MAX_DEFAULT,
    segment_bytes_max: int = SEGMENT_BYTES_MAX_DEFAULT,
    progress: Progress | None = None,
) -> CaptureRead:
    """Read folders and single segments, from `since_us` on and before `until_us`.

    A capture that was redacted is read with the key that it was made with.
    """
    found = _list_segments([paths] if isinstance(paths, str | os.PathLike) else paths)
    reader = _Reader(key, vocabulary, requests_max, queries_max, (since_us, until_us))
    total, done = sum(size for _, size in found), 0
    for path, size in found:
        if size > segment_bytes_max:
            remedy = f"a segment may have at most {segment_bytes_max:,} bytes (segment_bytes_max)"
            raise BadValue("capture", f"{path} ({size:,} bytes)", remedy)
        reader.segment(path)
        done += size
        if progress is not None:
            progress(done, total)
    return reader.result()


def _list_segments(paths: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, int]]:
    """The segments that these are or hold, once each, those begun first at first."""
    found: dict[Path, int] = {}
    for path in [Path(path) for path in paths]:
        if path.is_dir():
            found.update({one.path: one.bytes for one in segments(str(path))})
        elif path.is_file():
            found[path] = path.stat().st_size
        else:
            raise BadValue("capture", str(path), "give a folder of a capture, or a file of one")
    if not found:
        raise BadValue("capture", [str(path) for path in paths], "there is no capture in it yet")
    return sorted(found.items(), key=lambda one: one[0].name)


@final
class _Reader:
    """Adds one segment after the other."""

    def __init__(
        self,
        key: CaptureKey | None,
        vocabulary: Vocabulary,
        requests_max: int,
        queries_max: int,
        span: tuple[int | None, int | None],
    ) -> None:
        if vocabulary.key is not None and key is None:
            key = vocabulary.key
        self._key = key
        self._vocabulary = vocabulary
        self._requests_max = requests_max
        self._queries_max = queries_max
        self._span = span
        self._builder: TrafficBuilder | None = None
        self._share = -1
        self._mesh_keys: tuple[str, ...] = ()
        self._count = self._withheld = self._damaged = 0
        self._redacted = False
        self._damage: list[str] = []
        self._unknown: set[str] = set()

    def segment(self, path: Path) -> None:
        """Read one file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return  # its time was over meanwhile
        except OSError as error:
            raise Unavailable(f"the capture {path}", error.strerror or str(error)) from None
        head = read_head(data, str(path))
        if isinstance(head, str):
            if data or not is_being_written(path):
                self._record_damage(f"{path.name}: {head}; all of it is passed over")
            return
        header, at = head
        self._check(path, header)
        self._count += 1
        reading = _Segment(QueryDecoder(self._vocabulary), self._builder_for(header))
        for block in blocks(data, at, header.salt):
            if block.kind == 0:
                self._record_damage(
                    f"{path.name}: {block.end - block.begin:,} bytes at {block.begin:,} "
                    "are damaged, and passed over"
                )
            elif block.number < reading.next_number:
                self._record_damage(f"{path.name}: the block at {block.begin:,} stands twice")
            else:
                reading.next_number = block.number + 1
                try:
                    self._block(reading, block.kind, block.data)
                except (Damaged, struct.error):
                    self._record_damage(
                        f"{path.name}: the block at {block.begin:,} cannot be understood"
                    )
        if not reading.result and not is_being_written(path):
            self._record_damage(
                f"{path.name}: it was not ended; what followed its last block is missing"
            )
        if reading.damaged:
            self._record_damage(f"{path.name}: {reading.damaged:,} requests are missing")
        self._damaged += reading.damaged
        self._unknown |= reading.words.unknown

    def result(self) -> CaptureRead:
        """All of it."""
        builder = self._builder
        if builder is None:
            builder = TrafficBuilder()
        builder.lose(self._damaged)
        globs = [glob for glob in self._vocabulary.globs if glob[0] in self._unknown]
        return CaptureRead(
            builder.build(),
            self._count,
            tuple(globs),
            self._withheld,
            self._damaged,
            tuple(self._damage),
            self._redacted,
        )

    def _block(self, reading: _Segment, kind: int, data: bytes) -> None:
        if kind == REQUESTS:
            lost, withheld = reading.requests(data, self._span)
            reading.builder.lose(lost)
            self._withheld += withheld
        elif kind == END:
            _, requests = END_HEAD.unpack_from(data)
            reading.expect(requests)
            reading.result = True

    def _builder_for(self, head: Head) -> TrafficBuilder:
        if self._builder is None:
            self._share, self._mesh_keys = head.share, head.mesh_keys
            self._builder = TrafficBuilder(
                share=head.share,
                mesh_keys=head.mesh_keys,
                requests_max=self._requests_max,
                queries_max=self._queries_max,
            )
        return self._builder

    def _check(self, path: Path, head: Head) -> None:
        """Whether this segment can be read, and together with those before it."""
        if head.key:
            self._redacted = True
            if self._key is None:
                raise BadValue("key", None, f"{path.name} is redacted; give the key it was made by")
            if self._key.fingerprint != head.key:
                remedy = f"{path.name} was made by another key ({head.key}); give that one"
                raise BadValue("key", self._key.fingerprint, remedy)
            own_key = self._vocabulary.key
            if own_key is not None and own_key.fingerprint != head.key:
                raise BadValue("vocabulary", own_key.fingerprint, "make it with the capture's key")
        if self._builder is None:
            return
        for field, expected, stored in (
            ("share", self._share, head.share),
            ("mesh_keys", self._mesh_keys, head.mesh_keys),
        ):
            if expected != stored:
                remedy = f"{path.name} was made with {stored!r}; read captures of one {field} only"
                raise BadValue(f"capture.{field}", expected, remedy)

    def _record_damage(self, sentence: str) -> None:
        if len(self._damage) < DAMAGE_MAX:
            self._damage.append(sentence)


@final
class _Segment:
    """One segment while it is read."""

    def __init__(self, words: QueryDecoder, builder: TrafficBuilder) -> None:
        self.words = words
        self.builder = builder
        self.numbers: list[int] = []  # of the queries here, those of the capture
        self.next_number = 0
        self.expected = 0  # requests there have been, read or not
        self.damaged = 0
        self.result = False

    def expect(self, before: int) -> None:
        """So many requests were written before; those that were not read are lost."""
        self.damaged += max(before - self.expected, 0)
        self.expected = before

    def requests(self, data: bytes, span: tuple[int | None, int | None]) -> tuple[int, int]:
        """Take in a block; how many requests its writer had lost and withheld."""
        head = BLOCK_HEAD.unpack_from(data)
        size, first_text, first_query, count, before, lost, withheld, first_us, texts, queries = (
            head
        )
        ends = list(accumulate((size, texts, queries, 4 * count, 4 * count, count)))
        if ends[-1] > len(data) or not 0 <= first_query - len(self.numbers) <= MISSING_MAX:
            raise Damaged
        parts = [data[begin:end] for begin, end in pairwise(ends)]
        self.expect(before)
        self.expected += count
        self.words.texts(first_text, parts[0])
        self.numbers.extend([_MISSING] * (first_query - len(self.numbers)))
        self.numbers.extend(self._numbered(self.words.queries(parts[1])))
        gaps, which, outcomes = array("I", parts[2]), array("I", parts[3]), array("b", parts[4])
        if sys.byteorder == "big":
            gaps.byteswap()
            which.byteswap()
        if any(number >= len(self.numbers) for number in which):
            raise Damaged
        if any(not UNKNOWN <= outcome <= REFUSED for outcome in outcomes):
            raise Damaged
        at_us = array("q", accumulate(gaps, initial=first_us))[1:]
        numbers = array("I", map(self.numbers.__getitem__, which))
        chosen = [number < _BEYOND for number in numbers]
        if not all(chosen):
            self.damaged += numbers.count(_MISSING)
            lost += numbers.count(_BEYOND)
        since_us, until_us = span
        if since_us is not None or until_us is not None:
            chosen = [
                one and (since_us is None or at >= since_us) and (until_us is None or at < until_us)
                for one, at in zip(chosen, at_us, strict=True)
            ]
        if not all(chosen):
            at_us = array("q", compress(at_us, chosen))
            numbers = array("I", compress(numbers, chosen))
            outcomes = array("b", compress(outcomes, chosen))
        self.builder.extend(at_us, numbers, outcomes)
        return lost, withheld

    def _numbered(self, keys: Iterable[QueryKey | None]) -> list[int]:
        found: list[int] = []
        for key in keys:
            if key is None:
                found.append(_MISSING)
            else:
                query = check_of(key) if len(key) == 5 else mesh_of(key)
                number = self.builder.number_of(key, query)
                found.append(_BEYOND if number < 0 else number)
        return found
