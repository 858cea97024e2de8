"""Cursors: where scans stand, as the whole numbers that clients take for a cursor.

A cursor is good for who got it, until `cursors_max` newer ones are theirs. Saying the same one
again goes on from the same place, so a reply that was lost can be asked for again; the one before
it is forgotten then, and a scan, however long, has two of them. Of callers at most `scanners_max`
are kept, those that scanned last. All are forgotten when the process ends.

Those who have no name of their own are counted by connection, `scanners_max` connections of them,
so none of them pushes out a stranger's scan before its time, nor ever that of one who has a name. A
cursor of theirs is good on any connection, because clients have several.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from sluicegate.contracts.engine import Place
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.resp.settings import RespSettings

_REMEDY: Final = (
    "it is not known here, or no longer: begin again at 0, "
    "on one connection, with fewer scans at once (cursors_max)"
)
# Of one caller, or one connection: table, place and the cursor before, by cursor.
_Kept: TypeAlias = "dict[int, tuple[str, Place, int]]"
# Of all callers: by name, and by connection where that is not enough (else 0).
_Lines: TypeAlias = "dict[tuple[str, int], _Kept]"


@final
class Cursors:
    """Those of all callers of a door."""

    __slots__ = ("_callers_max", "_connection_of", "_last", "_most", "_named", "_unnamed")

    def __init__(self, settings: RespSettings) -> None:
        self._most = settings.cursors_max
        self._callers_max = settings.scanners_max
        self._named: _Lines = {}
        self._unnamed: _Lines = {}
        self._connection_of: dict[int, int] = {}  # of the cursors in `_unnamed`
        self._last = 0

    def put(self, caller: str, table: str, place: Place, before: int, connection: int = 0) -> int:
        """A new cursor that goes on behind this place; `before` is the one that led there.

        `connection` is 0 for a caller who has a name of their own.
        """
        lines = self._unnamed if connection else self._named
        theirs = lines.pop((caller, connection), None)
        if theirs is None:
            theirs = {}
            if len(lines) >= self._callers_max:
                for cursor in lines.pop(next(iter(lines))):
                    self._connection_of.pop(cursor, None)
        lines[(caller, connection)] = theirs  # the last in line now
        if len(theirs) >= self._most:
            self._drop(theirs, next(iter(theirs)))
        self._last += 1
        theirs[self._last] = (table, place, before)
        if connection:
            self._connection_of[self._last] = connection
        return self._last

    def find(self, caller: str, table: str, cursor: int) -> Place:
        """Where it goes on."""
        theirs = self._line_of(caller, cursor)
        kept = None if theirs is None else theirs.get(cursor)
        if kept is None or kept[0] != table:
            raise BadValue("cursor", cursor, _REMEDY)
        before = self._line_of(caller, kept[2])  # another's, if the connection was another
        if before is not None:
            self._drop(before, kept[2])
        return kept[1]

    def _line_of(self, caller: str, cursor: int) -> _Kept | None:
        connection = self._connection_of.get(cursor, 0)
        lines = self._unnamed if connection else self._named
        return lines.get((caller, connection))

    def _drop(self, theirs: _Kept, cursor: int) -> None:
        theirs.pop(cursor, None)
        self._connection_of.pop(cursor, None)
