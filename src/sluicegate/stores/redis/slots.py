"""Slots: which of a cluster's 16,384 parts a key is in, and who serves them by CLUSTER SLOTS.

Pure: bytes and replies in, numbers and endpoints out. A slot is the CRC16 (XMODEM) of the key or,
if it holds a non-empty {tag}, of the first tag alone; keys of one tag share a slot.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.redis.settings import Endpoint

SLOTS: Final = 16_384


class SlotRange(NamedTuple):
    """Slots from `first` to `last`, both included, and their master."""

    first: int
    last: int
    master: Endpoint


def slot_of(key: bytes | str) -> int:
    """Return the slot of one key."""
    data = key.encode() if isinstance(key, str) else key
    opening = data.find(b"{")
    if opening >= 0:
        closing = data.find(b"}", opening + 1)
        if closing > opening + 1:
            data = data[opening + 1 : closing]
    return crc_hqx(data, 0) % SLOTS


def slot_of_all(keys: Sequence[bytes | str]) -> int:
    """Return the one slot that all the keys are in."""
    if not keys:
        raise BadValue("keys", keys, "give at least one: on a cluster it finds the node")
    slot = slot_of(keys[0])
    for key in keys[1:]:
        if slot_of(key) != slot:
            raise BadValue("keys", key, "give keys of one script the same {hash tag}")
    return slot


def parse_ranges(reply: Any, source: Endpoint) -> list[SlotRange]:
    """Return what CLUSTER SLOTS answered; a nameless host is the one that was asked."""
    try:
        return [_range(row, source) for row in reply]
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise BadValue("CLUSTER SLOTS", reply, f"ask a Redis Cluster ({error})") from None


def _range(row: Any, source: Endpoint) -> SlotRange:
    first, last, (host, port, *_), *_ = row
    name = (host or b"").decode()
    if not 0 <= first <= last < SLOTS:
        raise ValueError(f"slots {first} to {last}")
    return SlotRange(
        first, last, Endpoint(name if name not in {"", "?"} else source.host, int(port))
    )
