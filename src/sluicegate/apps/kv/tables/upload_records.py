"""Upload records: in the engine, one for each part of an upload, and one for their totals.

A part is claimed by its digest before any of its rows is loaded, and stored once they all are. So
of two different parts of one number only one is ever loaded, and the records show every part that
may have left a row.

The totals let no part list the others: which parts were begun and which are stored, as bits by
their numbers (2.5 kB for 10,000 parts), with the rows and bytes of each. Only `swap` changes them,
and a part counts once however often it is sent, by whichever dispatcher.

A part is claimed, counted as begun, loaded, stored, and counted as stored, in this order. Its bytes
are in the total before a row is loaded, so an upload never exceeds its limit, whatever is killed
where. A kill may leave a part stored and not yet counted as stored. The records of the parts are
the truth: a commit reads those, and whoever resumes an upload rebuilds the totals from them, as
where an older release left no record of totals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_SPACE
from sluicegate.contracts.engine import Change, Engine, KeyRange, Place
from sluicegate.contracts.errors import BadValue, Unavailable

SHA256_BYTES: Final = 32
_RECORD_BYTES: Final = 1 + 1 + 8 + 8 + SHA256_BYTES
_PAGE_ROWS: Final = 250  # then others have a turn of the loop
_PAGE_BYTES: Final = 1 << 20
_PART_VERSION: Final = 1
_TOTALS_VERSION: Final = 1
_COUNT_BYTES: Final = 8
_BITS_AT: Final = 1 + 4 * _COUNT_BYTES + 4
_TRIES_MAX: Final = 64


class UploadPart(NamedTuple):
    """One part of an upload."""

    stored: bool
    rows: int
    size_bytes: int
    sha256: bytes


def part_change(upload: str, number: int, part: UploadPart | None) -> Change:
    """The record of a part as it is to be; None for none."""
    value = None
    if part is not None:
        value = b"".join(
            (
                bytes((_PART_VERSION, part.stored)),
                part.rows.to_bytes(8, "big"),
                part.size_bytes.to_bytes(8, "big"),
                part.sha256,
            )
        )
    return Change(CATALOGUE_SPACE, _partition(upload), number.to_bytes(4, "big"), value)


def parse_part(record: bytes) -> UploadPart:
    """What a record says."""
    if len(record) != _RECORD_BYTES or record[0] != _PART_VERSION:
        detail = "it was written by a newer release; upgrade this dispatcher"
        raise Unavailable("the record of a part", detail)
    rows, size = int.from_bytes(record[2:10], "big"), int.from_bytes(record[10:18], "big")
    return UploadPart(bool(record[1]), rows, size, record[18:])


async def read_part(engine: Engine, upload: str, number: int) -> UploadPart | None:
    """One part, if it is claimed."""
    place = (_partition(upload), number.to_bytes(4, "big"))
    result = engine.read(CATALOGUE_SPACE, (place,))
    record = (await result if isinstance(result, Awaitable) else result)[0]
    return None if record is None else parse_part(record)


async def read_parts(engine: Engine, upload: str) -> dict[int, UploadPart]:
    """All that are claimed or kept, by number, in order."""
    parts: dict[int, UploadPart] = {}
    span = KeyRange(rows_max=_PAGE_ROWS, bytes_max=_PAGE_BYTES)
    while True:
        result = engine.scan(CATALOGUE_SPACE, _partition(upload), span)
        page = await result if isinstance(result, Awaitable) else result
        for sort, record in page.rows:
            parts[int.from_bytes(sort, "big")] = parse_part(record)
        if not page.more or not page.rows:
            return parts
        span = span._replace(begin=page.rows[-1][0] + b"\x00")
        await asyncio.sleep(0)


async def forget_parts(engine: Engine, upload: str) -> None:
    """Take all records away."""
    numbers = list(await read_parts(engine, upload))
    for at in range(0, len(numbers), _PAGE_ROWS):
        chunk = numbers[at : at + _PAGE_ROWS]
        await engine.write([part_change(upload, number, None) for number in chunk])


def _partition(upload: str) -> bytes:
    return b"p/" + upload.encode()


class PartSum(NamedTuple):
    """Some parts. `bits` has the bit of each part's number."""

    rows: int = 0
    size_bytes: int = 0
    bits: int = 0

    def has(self, number: int) -> bool:
        """Whether this part is among them."""
        return bool(self.bits >> number & 1)

    def numbers(self) -> Sequence[int]:
        """Which they are, in order."""
        bits = self.bits
        if not bits & (bits + 1):
            return range(bits.bit_length())
        return tuple(at for at, bit in enumerate(bin(bits)[:1:-1]) if bit == "1")

    def and_part(self, number: int, part: UploadPart) -> PartSum:
        """These and one more."""
        rows, size = self.rows + part.rows, self.size_bytes + part.size_bytes
        return PartSum(rows, size, self.bits | 1 << number)


class UploadTotals(NamedTuple):
    """Those that were begun, whatever came of them, and those of them that are kept."""

    begun: PartSum = PartSum()
    stored: PartSum = PartSum()

    def and_part(self, number: int, part: UploadPart) -> UploadTotals:
        """With this part as it is now; the same if it was counted so."""
        begun, stored = self
        if not begun.has(number):
            begun = begun.and_part(number, part)
        if part.stored and not stored.has(number):
            stored = stored.and_part(number, part)
        return UploadTotals(begun, stored)


async def count_part(
    engine: Engine, upload: str, number: int, part: UploadPart, *, bytes_max: int
) -> UploadTotals:
    """The totals with this part, which is claimed or kept, durably.

    A wrong value if it is claimed anew, and with it they would be more than `bytes_max`.
    """
    for _ in range(_TRIES_MAX):
        record = await _record(engine, upload)
        if record is None:
            before = await sum_parts(engine, upload, but=number)
        else:
            before = _totals_of(record)
        totals = before.and_part(number, part)
        new = not part.stored and not before.begun.has(number)
        if new and totals.begun.size_bytes > bytes_max:
            raise BadValue("rows", part.size_bytes, f"an upload takes {bytes_max:,}")
        text = _text(totals)
        if text == record or await engine.swap(_change(upload, text), record):
            return totals
    raise Unavailable(f"the totals of upload {upload}", "too many change them at once; try again")


async def rebuild_totals(engine: Engine, upload: str) -> UploadTotals:
    """The totals as the records of the parts have them, and the record of totals made so.

    It is left as it is if a part is counted meanwhile: that must not be undone.
    """
    record = await _record(engine, upload)
    totals = await sum_parts(engine, upload)
    text = _text(totals)
    if record is not None and text != record:
        await engine.swap(_change(upload, text), record)
    return totals


async def forget_totals(engine: Engine, upload: str) -> None:
    """Take the record away."""
    await engine.write([_change(upload, None)])


async def _record(engine: Engine, upload: str) -> bytes | None:
    result = engine.read(CATALOGUE_SPACE, (_place(upload),))
    return (await result if isinstance(result, Awaitable) else result)[0]


async def sum_parts(engine: Engine, upload: str, but: int = -1) -> UploadTotals:
    """From the records of the parts, but for one."""
    parts = await read_parts(engine, upload)
    parts.pop(but, None)
    return UploadTotals(
        _sum(parts), _sum({number: one for number, one in parts.items() if one.stored})
    )


def _sum(parts: Mapping[int, UploadPart]) -> PartSum:
    bits = bytearray(max(parts, default=-1) // 8 + 1)
    for number in parts:
        bits[number >> 3] |= 1 << (number & 7)
    rows = sum(one.rows for one in parts.values())
    size = sum(one.size_bytes for one in parts.values())
    return PartSum(rows, size, int.from_bytes(bits, "little"))


def _text(totals: UploadTotals) -> bytes:
    begun, stored = totals
    counts = (begun.rows, begun.size_bytes, stored.rows, stored.size_bytes)
    bits = _bits(begun)
    return b"".join(
        (
            bytes((_TOTALS_VERSION,)),
            *[count.to_bytes(_COUNT_BYTES, "big") for count in counts],
            len(bits).to_bytes(4, "big"),
            bits,
            _bits(stored),
        )
    )


def _bits(some: PartSum) -> bytes:
    return some.bits.to_bytes((some.bits.bit_length() + 7) // 8, "little")


def _totals_of(record: bytes) -> UploadTotals:
    if len(record) < _BITS_AT or record[0] != _TOTALS_VERSION:
        detail = "it was written by a newer release; upgrade this dispatcher"
        raise Unavailable("the totals of an upload", detail)
    counts = [
        int.from_bytes(record[at : at + _COUNT_BYTES], "big")
        for at in range(1, _BITS_AT - 4, _COUNT_BYTES)
    ]
    kept_at = _BITS_AT + int.from_bytes(record[_BITS_AT - 4 : _BITS_AT], "big")
    return UploadTotals(
        PartSum(counts[0], counts[1], int.from_bytes(record[_BITS_AT:kept_at], "little")),
        PartSum(counts[2], counts[3], int.from_bytes(record[kept_at:], "little")),
    )


def _change(upload: str, text: bytes | None) -> Change:
    return Change(CATALOGUE_SPACE, *_place(upload), text)


def _place(upload: str) -> Place:
    return b"s/" + upload.encode(), b""
