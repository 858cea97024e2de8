"""Upload parts: which parts are claimed and which are stored, one record each, in the engine.

A part is claimed by its digest before any of its rows is loaded, and stored once they all are. So
of two different parts of one number only one is ever loaded, and the records show every part that
may have left a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, NamedTuple

from sluicegate.apps.kv.tables.catalogue import CATALOGUE_SPACE
from sluicegate.contracts.engine import Change, Engine
from sluicegate.contracts.errors import Unavailable

SHA256_BYTES: Final = 32
_VERSION: Final = 1
_RECORD_BYTES: Final = 1 + 1 + 8 + 8 + SHA256_BYTES
_PAGE_ROWS: Final = 250  # then others have a turn of the loop
_PAGE_BYTES: Final = 1 << 20


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
                bytes((_VERSION, part.stored)),
                part.rows.to_bytes(8, "big"),
                part.size_bytes.to_bytes(8, "big"),
                part.sha256,
            )
        )
    return Change(CATALOGUE_SPACE, _partition(upload), number.to_bytes(4, "big"), value)


def parse_part(record: bytes) -> UploadPart:
    """What a record says."""
    if len(record) != _RECORD_BYTES or record[0] != _VERSION:
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
    begin = b""
    while True:
        result = engine.scan(
            CATALOGUE_SPACE,
            _partition(upload),
            begin=begin,
            end=None,
            reverse=False,
            rows_max=_PAGE_ROWS,
            bytes_max=_PAGE_BYTES,
        )
        page = await result if isinstance(result, Awaitable) else result
        for sort, record in page.rows:
            parts[int.from_bytes(sort, "big")] = parse_part(record)
        if not page.more or not page.rows:
            return parts
        begin = page.rows[-1][0] + b"\x00"
        await asyncio.sleep(0)


async def forget_parts(engine: Engine, upload: str) -> None:
    """Take all records away."""
    numbers = list(await read_parts(engine, upload))
    for at in range(0, len(numbers), _PAGE_ROWS):
        chunk = numbers[at : at + _PAGE_ROWS]
        await engine.write([part_change(upload, number, None) for number in chunk])


def _partition(upload: str) -> bytes:
    return b"p/" + upload.encode()
