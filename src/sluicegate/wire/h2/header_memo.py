"""A memo of header blocks: the same bytes mean the same request, until the dynamic table changes.

Decoding a block in Python takes longer than everything else that a small call needs, and a client
sends the same block again and again once its table has settled. So a block's meaning is kept by
its bytes, under two conditions.

    It had no effect. A block that adds to the table, or resizes it, must be decoded each time, for
    it is also a command.
    The table is still the same. An index names a place in the table, so whatever changes the table
    may change what the same bytes mean. All meanings are then forgotten.

A change of the table shows at its head: each addition puts a new entry there, and whatever only
removes changes the length. Memory is bounded by `entries_max` blocks of `BLOCK_BYTES_MAX`, and all
meanings are forgotten `us_max` after the first of them, since a meaning may hold an identity.

The table is no public part of the `hpack` package. This is the one file that reads it; where it is
not as we know it, every block is decoded, which is slower and otherwise the same.
"""

from __future__ import annotations

import logging
from typing import Any, Final, cast, final

from hpack import Decoder, HPACKError

from sluicegate.kernels.native import mypyc_attr
from sluicegate.wire.h2.fields import Field

BLOCK_BYTES_MAX: Final = 2_048
_BOMB: Final = 4  # decoded at most so many times the list that is allowed
_RESIZES_MAX: Final = 2  # of the table, before the first field: RFC 7541 section 4.2 needs no more
_ADDING: Final = b"\x40\x01a\x01b"  # adds (a, b) to the table
_PLAIN: Final = b"\x00\x01a\x01b"  # the same field, adding nothing


# At debug level it writes down what it decodes, tokens too.
logging.getLogger("hpack").setLevel(logging.WARNING)


@mypyc_attr(native_class=False)
class BadBlock(Exception):  # noqa: N818 - it names the thing, not the class
    """A block that cannot be decoded; the two sides' tables are no longer the same."""


def table_is_readable(decoder: Any) -> bool:
    """Whether a new decoder's table shows each change as this file expects."""
    try:
        entries = decoder.header_table.dynamic_entries
        decoder.decode(_ADDING, raw=True)
        first = entries[0]
        decoder.decode(_PLAIN, raw=True)
        unchanged = len(entries) == 1 and entries[0] is first
        decoder.decode(_ADDING, raw=True)
        changed = len(entries) == 2 and entries[0] is not first
        same = decoder.header_table.dynamic_entries is entries
        return unchanged and changed and same and isinstance(decoder.header_table.maxsize, int)
    except (AttributeError, IndexError, TypeError):
        return False


_READABLE: Final = table_is_readable(Decoder())


@final
class HeaderMemo:
    """One connection's decoder, and what its blocks mean. Not `readable`, it remembers nothing."""

    __slots__ = (
        "_decoder", "_entries_max", "_meanings", "_pure", "_readable", "_since_us", "_us_max",
        "decodes",
    )  # fmt: skip

    def __init__(
        self, entries_max: int, us_max: int, list_bytes_max: int, readable: bool = _READABLE
    ) -> None:
        self._decoder = Decoder(max_header_list_size=list_bytes_max * _BOMB)
        self._entries_max = entries_max
        self._us_max = us_max
        self._readable = readable
        self._meanings: dict[bytes, object] = {}
        self._pure = False
        self._since_us = 0
        self.decodes = 0

    def get(self, encoded: bytes, now_us: int) -> object | None:
        """Return what this block means, or None if that must be found out."""
        meaning = self._meanings.get(encoded)
        if meaning is not None and now_us - self._since_us >= self._us_max:
            self._meanings.clear()
            return None
        return meaning

    def decode(self, encoded: bytes) -> list[Field]:
        """Return the header list. Raises `BadBlock`."""
        self.decodes += 1
        _check_resizes(encoded)
        decoder = self._decoder
        try:
            if not self._readable:
                return cast("list[Field]", decoder.decode(encoded, raw=True))
            table = decoder.header_table
            # As any object: compiled, a tuple of a meaning shape is unpacked, never itself again.
            entries: Any = table.dynamic_entries
            length = len(entries)
            first: Any = entries[0] if length else None
            size = table.maxsize
            fields = cast("list[Field]", decoder.decode(encoded, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise BadBlock(str(error)) from error
        same = len(entries) == length and (length == 0 or entries[0] is first)
        if not same:
            self._meanings.clear()
        self._pure = same and table.maxsize == size
        return fields

    def keep(self, encoded: bytes, meaning: object, now_us: int) -> None:
        """Remember what the block just decoded means, if its bytes may stand for it."""
        if not self._pure or len(encoded) > BLOCK_BYTES_MAX or not self._entries_max:
            return
        if len(self._meanings) >= self._entries_max:
            self._meanings.clear()
        if not self._meanings:
            self._since_us = now_us
        self._meanings[encoded] = meaning

    def forget(self) -> None:
        """Forget all meanings, because what gave them has changed."""
        self._meanings.clear()


def _check_resizes(encoded: bytes) -> None:
    """Refuse a block that resizes the table again and again: each takes a byte, and work."""
    count = 0
    at = 0
    end = len(encoded)
    while at < end and encoded[at] & 0xE0 == 0x20:
        count += 1
        if count > _RESIZES_MAX:
            raise BadBlock(f"more than {_RESIZES_MAX} sizes of the table")
        if encoded[at] == 0x3F:
            at += 1
            while at < end and encoded[at] & 0x80:
                at += 1
        at += 1
