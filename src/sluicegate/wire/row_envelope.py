"""Row envelope: what a stored value lies in, so that an engine need not know what expires.

    head                   one byte: the format's version in the upper half, marks in the lower
    epoch, 4 bytes         if marked: of its table when it was written; else 0
    expires_us, 8 bytes    if marked: from then on there is nothing here; else never
    payload                the value; nothing in a tombstone

Numbers have their weightiest byte first. A tombstone says that the place is empty whatever an older
layer holds. A head that is unknown was written by a newer release, and is an error, never a guess.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue, Unavailable

PLAIN: Final = 0x10  # version 1, no marks: what most rows are
EXPIRES: Final = 0x01
BURIED: Final = 0x02
STAMPED: Final = 0x04
EPOCH_MAX: Final = (1 << 32) - 1
EXPIRES_US_MAX: Final = (1 << 63) - 1
ENVELOPE_BYTES_MAX: Final = 13
_HEAD_MAX: Final = PLAIN | EXPIRES | BURIED | STAMPED
_PLAIN_HEAD: Final = b"\x10"


class RowEnvelope(NamedTuple):
    """What an envelope says. `value` is None in a tombstone; `expires_us` 0 is never."""

    value: bytes | None
    expires_us: int
    epoch: int


def seal_row(value: bytes | None, *, expires_us: int, epoch: int) -> bytes:
    """The envelope; None is a tombstone, which does not expire."""
    if value is not None and not expires_us and not epoch:
        return _PLAIN_HEAD + value
    if not 0 <= epoch <= EPOCH_MAX:
        raise BadValue("epoch", epoch, f"say 0 to {EPOCH_MAX}")
    if not 0 <= expires_us <= EXPIRES_US_MAX:
        raise BadValue("expires_us", expires_us, "say an instant in microseconds, or 0 for never")
    head = PLAIN
    parts = b""
    if epoch:
        head |= STAMPED
        parts = epoch.to_bytes(4, "big")
    if value is None:
        return bytes((head | BURIED,)) + parts
    if expires_us:
        head |= EXPIRES
        parts += expires_us.to_bytes(8, "big")
    return bytes((head,)) + parts + value


def open_row(stored: bytes) -> RowEnvelope:
    """What the envelope says."""
    head = stored[0] if stored else 0
    if head == PLAIN:
        return RowEnvelope(stored[1:], 0, 0)
    if not PLAIN < head <= _HEAD_MAX or head & (EXPIRES | BURIED) == EXPIRES | BURIED:
        raise _unknown(stored)
    at = 1
    epoch = 0
    if head & STAMPED:
        epoch = int.from_bytes(stored[1:5], "big")
        at = 5
    expires_us = 0
    if head & EXPIRES:
        expires_us = int.from_bytes(stored[at : at + 8], "big")
        at += 8
    if len(stored) < at or (head & BURIED and len(stored) > at):
        raise _unknown(stored)
    return RowEnvelope(None if head & BURIED else stored[at:], expires_us, epoch)


def _unknown(stored: bytes) -> Unavailable:
    return Unavailable(
        "a stored value",
        f"it begins with {stored[:1].hex() or 'nothing'}, so it was not written by Sluicegate, "
        "or by a newer release; upgrade this dispatcher, or point it at another engine",
    )
