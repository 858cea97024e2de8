"""A memo of header blocks: the same bytes mean the same request, until the dynamic table changes.

Decoding a block in Python takes longer than everything else that a small call needs, and a client
sends the same block again and again once its table has settled. So a block's meaning is kept by
its bytes, under two conditions.

    It had no effect. A block that adds to the table, or resizes it, must be decoded each time, for
    it is also a command.
    The table is still the same. An index names a place in the table, so whatever changes the table
    may change what the same bytes mean. All that was kept is then forgotten.

Whether the table changed is seen at its head: each addition puts a new entry there, and whatever
only removes changes the length. Memory is bounded by `entries_max` blocks of `BLOCK_BYTES_MAX`, and
what was kept is forgotten `us_max` after the first of it, since a meaning may hold an identity.
"""

from __future__ import annotations

from typing import Any, Final, cast, final

from hpack import Decoder, HPACKError

from sluicegate.kernels.native import mypyc_attr
from sluicegate.wire.h2.fields import Field

BLOCK_BYTES_MAX: Final = 2_048
_BOMB: Final = 4  # decoded at most so many times the list that is allowed


@mypyc_attr(native_class=False)
class BadBlock(Exception):  # noqa: N818 - it names the thing, not the class
    """A block that cannot be decoded; the two sides' tables are no longer the same."""


@final
class HeaderMemo:
    """One connection's decoder, and what its blocks were found to mean."""

    __slots__ = ("_decoder", "_entries_max", "_known", "_pure", "_since_us", "_us_max", "decodes")

    def __init__(self, entries_max: int, us_max: int, list_bytes_max: int) -> None:
        self._decoder = Decoder(max_header_list_size=list_bytes_max * _BOMB)
        self._entries_max = entries_max
        self._us_max = us_max
        self._known: dict[bytes, object] = {}
        self._pure = False
        self._since_us = 0
        self.decodes = 0

    def get(self, encoded: bytes, now_us: int) -> object | None:
        """What this block means, if that is known and still true."""
        known = self._known.get(encoded)
        if known is not None and now_us - self._since_us >= self._us_max:
            self._known.clear()
            return None
        return known

    def decode(self, encoded: bytes) -> list[Field]:
        """The header list. Raises `BadBlock`."""
        self.decodes += 1
        decoder = self._decoder
        table = decoder.header_table
        # As any object: compiled, a tuple of a known shape is unpacked, and is never itself again.
        entries: Any = table.dynamic_entries
        length = len(entries)
        first: Any = entries[0] if length else None
        size = table.maxsize
        try:
            found = cast("list[Field]", decoder.decode(encoded, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise BadBlock(str(error)) from error
        same = len(entries) == length and (length == 0 or entries[0] is first)
        if not same:
            self._known.clear()
        self._pure = same and table.maxsize == size
        return found

    def keep(self, encoded: bytes, meaning: object, now_us: int) -> None:
        """Remember what the block just decoded means, if its bytes may stand for it."""
        if not self._pure or len(encoded) > BLOCK_BYTES_MAX or not self._entries_max:
            return
        if len(self._known) >= self._entries_max:
            self._known.clear()
        if not self._known:
            self._since_us = now_us
        self._known[encoded] = meaning

    def forget(self) -> None:
        """Forget all meanings: what they were found by has changed."""
        self._known.clear()
