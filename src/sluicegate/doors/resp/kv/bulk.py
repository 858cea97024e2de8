"""Bulk: SG.BULK, uploads of many rows that become visible at once.

    SG.BULK BEGIN table name [MERGE | REPLACE]
    SG.BULK PART table name number sha256 rows
    SG.BULK COMMIT table name parts rows sha256
    SG.BULK ABANDON | SHOW table name
    SG.BULK LIST table

A reply has the fields of an upload: parts as ranges of numbers (`0-4,6`), digests in hex.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import Upload
from sluicegate.doors.resp.errors import unknown_subcommand, wrong_arity
from sluicegate.doors.resp.kv.call import bytes_of, call_of, key_values, number_of, table_of
from sluicegate.doors.resp.session import Session
from sluicegate.wire.key_values_messages import SHA256_BYTES
from sluicegate.wire.resp import encode_reply
from sluicegate.wire.text import text_of

_MODES: Final = {b"MERGE": "merge", b"REPLACE": "replace"}

_Run: TypeAlias = Callable[[Session, list[bytes]], Awaitable[bytes]]


def bulk_(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.BULK BEGIN | PART | COMMIT | ABANDON | SHOW | LIST table ..."""
    row = _ROWS.get(parts[1].upper())
    if row is None:
        return unknown_subcommand("SG.BULK", parts)
    least, most, run = row
    if not least <= len(parts) <= most:
        return wrong_arity(f"sg.bulk|{text_of(parts[1])}")
    return run(session, parts)


def _begin(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    mode: str | None = "merge"
    if len(parts) == 5:
        mode = _MODES.get(parts[4].upper())
    if mode is None:
        raise BadValue("mode", text_of(parts[4]), "give MERGE or REPLACE")
    table, name = _upload_of(parts)
    return _show_upload(
        session.protocol, key_values(session).uploads.begin(table, name, mode, call_of(session))
    )


def _part(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    table, name = _upload_of(parts)
    number = number_of("number", parts[4], 0)
    sha256 = bytes_of("sha256", parts[5], SHA256_BYTES)
    uploads = key_values(session).uploads
    return _show_upload(
        session.protocol, uploads.part(table, name, number, parts[6], sha256, call_of(session))
    )


def _commit(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    table, name = _upload_of(parts)
    count, rows = number_of("parts", parts[4], 0), number_of("rows", parts[5], 0)
    sha256 = bytes_of("sha256", parts[6], SHA256_BYTES)
    uploads = key_values(session).uploads
    return _show_upload(
        session.protocol, uploads.commit(table, name, count, rows, sha256, call_of(session))
    )


def _abandon(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    table, name = _upload_of(parts)
    return _show_upload(
        session.protocol, key_values(session).uploads.abandon(table, name, call_of(session))
    )


def _show(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    table, name = _upload_of(parts)
    return _show_upload(
        session.protocol, key_values(session).uploads.show(table, name, call_of(session))
    )


def _list(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    table = table_of(parts[2])
    return _show_uploads(session.protocol, key_values(session).uploads.all(table, call_of(session)))


_ROWS: Final[dict[bytes, tuple[int, int, _Run]]] = {
    b"BEGIN": (4, 5, _begin),
    b"PART": (7, 7, _part),
    b"COMMIT": (7, 7, _commit),
    b"ABANDON": (4, 4, _abandon),
    b"SHOW": (4, 4, _show),
    b"LIST": (3, 3, _list),
}


async def _show_upload(protocol: int, work: Awaitable[Upload]) -> bytes:
    return encode_reply(_fields(await work), protocol)


async def _show_uploads(protocol: int, work: Awaitable[Sequence[Upload]]) -> bytes:
    return encode_reply([_fields(upload) for upload in await work], protocol)


def _fields(upload: Upload) -> dict[str, object]:
    return {
        "table": upload.table,
        "name": upload.name,
        "mode": upload.mode,
        "state": upload.state,
        "parts": spans(upload.parts),
        "rows": upload.rows,
        "bytes": upload.bytes,
        "begun_us": upload.begun_us,
        "by": upload.by,
    }


def spans(numbers: Sequence[int]) -> str:
    """Numbers as people write them: 0-4,6."""
    reply: list[str] = []
    first = last = -1
    for number in sorted(numbers):
        if first >= 0 and number == last + 1:
            last = number
        else:
            if first >= 0:
                reply.append(_span(first, last))
            first = last = number
    if first >= 0:
        reply.append(_span(first, last))
    return ",".join(reply)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _upload_of(parts: list[bytes]) -> tuple[str, str]:
    return table_of(parts[2]), text_of(parts[3])
