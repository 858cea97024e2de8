"""Cursors: where scans stand, as the whole numbers that clients take for a cursor.

A cursor is good for who got it, until `cursors_max` newer ones are theirs. Saying the same one
again goes on from the same place, so a reply that was lost can be asked for again; the one before
it is forgotten then, and a scan, however long, has two of them. Of callers at most `scanners_max`
are kept, those that scanned last. All are forgotten when the process ends.
"""

from __future__ import annotations

from typing import Final, final

from headgate.contracts.engine import Place
from headgate.contracts.errors import BadValue
from headgate.doors.resp.settings import RespSettings

_REMEDY: Final = (
    "it is not known here, or no longer: begin again at 0, "
    "on one connection, with fewer scans at once (cursors_max)"
)


@final
class Cursors:
    """Those of all callers of a door."""

    __slots__ = ("_by_caller", "_callers_max", "_last", "_most")

    def __init__(self, settings: RespSettings) -> None:
        self._most = settings.cursors_max
        self._callers_max = settings.scanners_max
        self._by_caller: dict[str, dict[int, tuple[str, Place, int]]] = {}
        self._last = 0

    def put(self, caller: str, table: str, place: Place, before: int) -> int:
        """A new cursor that goes on behind this place; `before` is the one that led there."""
        theirs = self._by_caller.pop(caller, None)
        if theirs is None:
            theirs = {}
            if len(self._by_caller) >= self._callers_max:
                del self._by_caller[next(iter(self._by_caller))]
        self._by_caller[caller] = theirs  # the last in line now
        if len(theirs) >= self._most:
            del theirs[next(iter(theirs))]
        self._last += 1
        theirs[self._last] = (table, place, before)
        return self._last

    def find(self, caller: str, table: str, cursor: int) -> Place:
        """Where it goes on."""
        theirs = self._by_caller.get(caller)
        kept = None if theirs is None else theirs.get(cursor)
        if theirs is None or kept is None or kept[0] != table:
            raise BadValue("cursor", cursor, _REMEDY)
        theirs.pop(kept[2], None)
        return kept[1]
