"""Scripts: the operations of a store, put together from the `.lua` files that lie here.

Each begins with the clock. One that mixes kinds of limits has all of them in front; one that takes
many of a kind has no more than it needs, since a server reads the whole of it at every call.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from sluicegate.stores.redis.script import Script

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
    folder = files(__package__)
    return {
        name: Script(
            "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts),
            name=name,
        )
        for name, parts in _PARTS.items()
    }
