"""Script: one Lua script as the client sends it, by its SHA-1, with the source at hand.

Nothing is known here of servers. The beginning of the command is kept for each number of keys and
arguments that was seen, so that a call encodes only what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, final

from sluicegate.wire.resp import Part, arguments, command, head

HEADS_MAX: Final = 1_024  # shapes (keys, arguments) whose beginnings are kept


@final
class Script:
    """A Lua script; make it once and use it for every call."""

    __slots__ = ("_heads", "load", "name", "sha", "source")

    def __init__(self, source: str, *, name: str = "script") -> None:
        self.name = name
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self.load = command("SCRIPT", "LOAD", source)
        self._heads: dict[tuple[int, int], bytes] = {}

    def call(self, keys: Sequence[bytes | str], args: Sequence[Part]) -> bytes:
        """EVALSHA with these keys and arguments, encoded."""
        shape = (len(keys), len(args))
        beginning = self._heads.get(shape)
        if beginning is None:
            beginning = head(3 + len(keys) + len(args), "EVALSHA", self.sha, len(keys))
            if len(self._heads) < HEADS_MAX:
                self._heads[shape] = beginning
        return beginning + arguments((*keys, *args))

    def __repr__(self) -> str:
        return f"<Script {self.name} {self.sha}>"
