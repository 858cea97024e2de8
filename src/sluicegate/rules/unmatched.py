"""Unmatched: requests that no rule applies to, which are admitted and not counted.

They are often a mistake: a misspelt domain, a path without its prefix, a check where the rules are
those of a mesh. So they are counted, and logged once for each shape: the first segment of a path,
or a domain and the keys of a descriptor. Bounds: `SHAPES_MAX` shapes of `SHAPE_CHARS_MAX`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, final

SHAPES_MAX: Final = 100
SHAPE_CHARS_MAX: Final = 200
_KEYS_MAX: Final = 8
_log: Final = logging.getLogger("sluicegate.limiter")


@final
class UnmatchedRequests:
    """Counters of unmatched requests, and the shapes that were logged."""

    __slots__ = ("_shapes", "checks", "mesh")

    def __init__(self) -> None:
        self.checks = 0  # of a path
        self.mesh = 0  # of a domain and descriptors
        self._shapes: set[str] = set()

    def note_check(self, path: str, rules: int) -> None:
        """Count a check of this path; `rules` is the number of active rules for paths."""
        self.checks += 1
        if len(self._shapes) < SHAPES_MAX:
            end = path.find("/", 1)
            shape = path[:SHAPE_CHARS_MAX] if end < 0 else path[: min(end + 1, SHAPE_CHARS_MAX)]
            if shape not in self._shapes:
                why = "" if rules else "; no rule for paths is active, only rules for descriptors"
                self._log_once(shape, f"a check of resource_path {shape!r}{why}")

    def note_mesh(self, domain: str, entries: Sequence[tuple[str, str]]) -> None:
        """Count a request of a mesh with this first descriptor."""
        self.mesh += 1
        if len(self._shapes) < SHAPES_MAX:
            keys = ", ".join([key[:SHAPE_CHARS_MAX] for key, _ in entries[:_KEYS_MAX]])
            shape = f"{domain[:SHAPE_CHARS_MAX]}: {keys}"[:SHAPE_CHARS_MAX]
            if shape not in self._shapes:
                self._log_once(shape, f"a request of domain and descriptor keys {shape!r}")

    def _log_once(self, shape: str, what: str) -> None:
        self._shapes.add(shape)
        last = "; further ones are not logged" if len(self._shapes) == SHAPES_MAX else ""
        _log.warning("no rule matches %s: it is allowed and not counted%s", what, last)
