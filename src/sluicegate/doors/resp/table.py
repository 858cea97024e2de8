"""Table: the commands of one service, each a row. Nothing is run here.

A row is a word, how many words belong to it, whether one must be known to say it, what it does, a
line about it, and where its keys are. A table is what a door is made with; the rows about the
connection itself (`commands.CONNECTION`) are in every one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from sluicegate.doors.resp.settings import RespSettings

if TYPE_CHECKING:
    from sluicegate.doors.resp.session import Session

# One that comes later may be in pieces, which are put together when it leaves: a long value that
# many wait for is there once.
Reply: TypeAlias = "bytes | list[bytes]"
Run: TypeAlias = "Callable[[Session, list[bytes]], bytes | Awaitable[Reply]]"
# First key, last key (-1: the last word), and from one key to the next, as COMMAND tells it.
Keys: TypeAlias = "tuple[int, int, int]"

NO_KEYS: Final = (0, 0, 0)
ONE_KEY: Final = (1, 1, 1)
EACH_KEY: Final = (1, -1, 1)
PAIRS: Final = (1, -1, 2)

# What must be in order on one connection (`order`).
FREE: Final = 0  # nothing
READS: Final = 1  # its keys are read
WRITES: Final = 2  # its keys are written
LOOKS: Final = 3  # anything may be read
LOADS: Final = 4  # anything may be written

_FLAGS: Final[dict[int, list[str]]] = {
    FREE: ["fast"],
    READS: ["readonly", "fast"],
    WRITES: ["write"],
    LOOKS: ["readonly"],
    LOADS: ["write"],
}


@final
class Row:
    """One command. `most` 0 is any number of words."""

    __slots__ = ("keys", "least", "most", "name", "open", "run", "summary", "touches")

    def __init__(
        self,
        name: str,
        least: int,
        most: int,
        open_: bool,
        run: Run,
        summary: str,
        keys: Keys = NO_KEYS,
        touches: int = FREE,
    ) -> None:
        self.name = name
        self.least = least
        self.most = most
        self.open = open_
        self.run = run
        self.summary = summary
        self.keys = keys
        self.touches = touches

    def told(self) -> list[object]:
        """As COMMAND INFO tells it."""
        arity = self.least if self.least == self.most else -self.least
        first, last, step = self.keys
        flags = _FLAGS[self.touches] if first or self.touches != FREE else []
        return [self.name.lower(), arity, flags, first, last, step]


@final
class Table:
    """Rows by their names.

    `keep` makes what the rows of one door keep among all connections. `plain` tells the one way to
    write a key, where there are several.
    """

    __slots__ = ("by_name", "keep", "ordered", "plain", "rows", "written")

    def __init__(
        self,
        rows: Sequence[Row],
        keep: Callable[[RespSettings], Any],
        plain: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.rows = list(rows)
        self.keep = keep
        self.plain = plain
        self.by_name: dict[bytes, Row] = {row.name.encode(): row for row in rows}
        # As most clients write it; any other case is found by a second look.
        self.written: dict[bytes, Row] = self.by_name | {
            name.lower(): row for name, row in self.by_name.items()
        }
        # Whether any of them must wait for those before it on its connection.
        self.ordered = any(row.touches != FREE for row in rows)

    def find(self, word: bytes) -> Row | None:
        """The row of that name, in any case."""
        row = self.written.get(word)
        return self.by_name.get(word.upper()) if row is None else row
