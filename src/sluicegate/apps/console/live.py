"""Live: the parts of a page again, once a round, for every browser that has it open.

Each view (a page, and how much time its charts show) is rendered once a round, if anybody looks at
it, and the same bytes go to all. A browser that follows gets the parts that have changed; one that
missed a round gets all. Bound: one rendering for each view that somebody looks at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import NamedTuple, final

Parts = Mapping[str, str]


class PageView(NamedTuple):
    """What somebody looks at."""

    page: str
    span_s: int


class _Rendering(NamedTuple):
    number: int
    parts: Parts
    whole: bytes
    changes: bytes  # since the rendering before


@final
class Live:
    """All views that are open; `notify` is called after each round."""

    __slots__ = ("_next", "_render", "_renderings", "_round")

    def __init__(self, render: Callable[[PageView], Parts]) -> None:
        self._render = render
        self._renderings: dict[PageView, _Rendering] = {}
        self._round = 0
        self._next = asyncio.Event()

    def notify(self) -> None:
        """There is something new."""
        self._renderings = {
            view: one for view, one in self._renderings.items() if one.number >= self._round - 1
        }
        self._round += 1
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()

    async def events(self, view: PageView) -> AsyncGenerator[bytes, None]:
        """The server-sent events of one browser."""
        sent = -1
        while True:
            following = self._next
            rendering = self._rendering(view)
            if sent == rendering.number - 1:
                yield rendering.changes
            elif sent != rendering.number:
                yield rendering.whole
            sent = rendering.number
            await following.wait()

    def _rendering(self, view: PageView) -> _Rendering:
        before = self._renderings.get(view)
        if before is not None and before.number == self._round:
            return before
        parts = self._render(view)
        old: Parts = {} if before is None or before.number != self._round - 1 else before.parts
        changed = {name: part for name, part in parts.items() if old.get(name) != part}
        rendering = _Rendering(self._round, parts, _event(parts), _event(changed))
        self._renderings[view] = rendering
        return rendering


def _event(parts: Parts) -> bytes:
    return b"data: " + json.dumps(parts).encode() + b"\n\n"
