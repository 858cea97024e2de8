"""Script: one Lua script as the client sends it, by its SHA-1; and those that lie here as `.lua`.

Nothing is known here of servers. The beginning of the command is kept for each number of keys and
arguments that was used, so that a call encodes only what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
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


# Each begins with the clock. One that mixes kinds of limits has all of them in front; one that
# takes many of a kind has no more than it needs, since a server reads all of it at every call.
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "take_paced": ("clock", "instant", "take_paced"),
    "take_fixed": ("clock", "fixed", "take_fixed"),
    "take_cells": ("clock", "cells", "take_cells"),
    "take_windows": ("clock", "cells", "windows", "take_windows"),
    "take": ("clock", "instant", "fixed", "cells", "windows", "kinds", "take"),
    "take_some": ("clock", "instant", "fixed", "cells", "windows", "kinds", "take_some"),
    "settle": ("clock", "instant", "fixed", "cells", "windows", "kinds", "settle"),
    "reset": ("clock", "cells", "windows", "reset"),
    "throttle": ("clock", "throttle"),
}


def load_scripts() -> dict[str, Script]:
    """Every operation's script, by its name."""
    return join_scripts(__package__, _PARTS)


def join_scripts(
    package: str, parts: Mapping[str, Sequence[str]], prefix: str = ""
) -> dict[str, Script]:
    """Join the parts of each script, which lie in a package as `.lua`; `prefix` is for its name."""
    folder = files(package)
    return {
        name: Script(
            "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in its_parts),
            name=f"{prefix}{name}",
        )
        for name, its_parts in parts.items()
    }
